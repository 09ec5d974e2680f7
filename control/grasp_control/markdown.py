"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def markdown(rows: Sequence[Mapping[str, object]], *, numbers: bool = False) -> str:
    """Rows with the same keys as a table; `numbers` puts all columns but the first to the right."""
    rules = ["---", *(["---:" if numbers else "---"] * (len(rows[0]) - 1))]
    lines = [list(rows[0]), rules, *([str(v) for v in row.values()] for row in rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
