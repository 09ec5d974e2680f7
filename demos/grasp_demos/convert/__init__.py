"""Exchange of demonstrations with other formats: one module a format, each with a `FORMAT`.

Adding one is a module and an entry in `FORMATS`. Modules import heavy libraries only when they are used.
"""

from __future__ import annotations

from pathlib import Path

from grasp_demos.convert import lerobot, mcap_file, robomimic, rosbag2
from grasp_demos.convert.format import Format, Imported, ImportSettings
from grasp_demos.episode import DemoError
from grasp_sim.errors import find

__all__ = ["FORMATS", "Format", "ImportSettings", "Imported", "find_format", "recognise"]

FORMATS: dict[str, Format] = {
    known.name: known
    for known in (robomimic.FORMAT, lerobot.FORMAT, mcap_file.FORMAT, rosbag2.FORMAT, rosbag2.SQLITE)
}
"""Every format by its name."""


def find_format(name: str) -> Format:
    """The format called `name`; raises UnknownName listing what exists."""
    return find("format", name, FORMATS)


def recognise(path: Path) -> Format:
    """The format that an existing path looks like; raises DemoError when there is not exactly one."""
    fitting = [known for known in FORMATS.values() if known.matches(path)]
    if len(fitting) == 1:
        return fitting[0]
    found = " and ".join(known.name for known in fitting) or "no known format"
    raise DemoError(f"{path} looks like {found}: add format=..., one of {', '.join(FORMATS)}.")
