"""docs/deployment.md says what the code does."""

from pathlib import Path

from grasp_control.arm.reasons import markdown

ROOT = Path(__file__).parents[2]


def test_the_table_of_diagnostics_is_the_filters():
    """Written by `grasp_control.arm.reasons.markdown`."""
    assert (ROOT / "docs/deployment.md").read_text().endswith(markdown())
