"""What the long-term memory counts and how it is made up."""

from __future__ import annotations

from dataclasses import dataclass

from grasp_control.memory.store import RowStore
from grasp_control.types import Source


@dataclass
class MemoryCounters:
    """Events since the memory was made; saved and loaded with it."""

    episodes: int = 0
    """Episodes stored, and the id of the next one."""
    rejected_episodes: int = 0
    """Episodes with NaN or infinity, not stored."""
    rejected_td_errors: int = 0
    """TD errors that were NaN or infinite, not used."""
    evictions: int = 0
    """Cuts of a full memory."""
    evicted_rows: int = 0
    queries: int = 0
    """Situations asked about."""
    fallbacks: int = 0
    """Queries over the deadline, answered with random rows."""
    empty: int = 0
    """Queries without any answer, as nothing was indexed yet."""
    rejected_queries: int = 0
    """Queries with NaN or infinity, answered with nothing."""
    retrieval_driven: int = 0
    """Stored steps whose action was driven by retrieval."""
    retrieval_hits: int = 0
    """Those whose episode succeeded."""

    def hit_rate(self) -> float:
        """Share of retrieval-driven actions whose episode succeeded; NaN before the first."""
        return self.retrieval_hits / self.retrieval_driven if self.retrieval_driven else float("nan")


def composition(store: RowStore) -> dict[str, float]:
    """Rows in all, rows and share of each source, share of rows flagged as slip and of rows whose episode
    succeeded."""
    size = len(store)
    counts = {source.name.lower(): len(store.group(source)) for source in Source}
    labels = store.labels[store.live_slots()]
    flags = {"slip_flagged_share": labels["slip"], "successful_episode_share": labels["success"]}
    return {
        "size": size,
        **{f"{name}_rows": count for name, count in counts.items()},
        **{f"{name}_share": count / size if size else 0.0 for name, count in counts.items()},
        **{name: float(flag.mean()) if size else 0.0 for name, flag in flags.items()},
    }
