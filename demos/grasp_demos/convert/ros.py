"""Episodes out of ROS 2 messages in CDR; what reading MCAP files and rosbag2 folders has in common.

Messages are decoded by the definitions of the installed `rosbags`, never by those in a file: making a decoder
out of an untrusted definition would run what it says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from grasp_demos.collect import Collector, Start
from grasp_demos.convert.format import Imported, ImportSettings, decide
from grasp_demos.convert.ros_messages import Raw, typestore
from grasp_demos.episode import DemoError, Episode, Metadata
from grasp_demos.header import parse_numbers
from grasp_demos.messages import MAX_TIME
from grasp_demos.resample import resample
from grasp_demos.streams import NS, Span
from grasp_sim.contract import ActionScale

MAX_BYTES = 64 * 2**20
"""Of one message: more is refused before it is decoded."""
_MAX_SYMMETRY = 1000


def import_messages(messages: Iterable[Raw], path: Path, settings: ImportSettings) -> Imported:
    """Every episode out of a recording's messages; raises DemoError naming `path` and what is wrong."""
    collector = Collector(settings.topics)
    kinds, seen = settings.topics.types(), set()
    del kinds[settings.topics.tcp_pose]
    store = typestore()
    try:
        for raw in messages:
            seen.add(raw.topic)
            if raw.topic in kinds:
                collector.add(raw.topic, raw.time, _decode(store, raw, kinds[raw.topic]))
        return _import(collector, settings)
    except DemoError as error:
        held = f" It has {', '.join(sorted(seen)[:12]) or 'no topics'}." if "no usable" in str(error) else ""
        reason = " ".join(str(error).split()).rstrip(".")
        raise DemoError(f"{path}: {reason}.{held}") from error


def _decode(store: Any, raw: Raw, kind: str) -> Any:
    if raw.type_name != kind:
        raise DemoError(f"{raw.topic} has messages of type {raw.type_name}; it must be {kind}")
    if len(raw.data) > MAX_BYTES:
        raise DemoError(f"{raw.topic} has a message of {len(raw.data)} bytes; at most {MAX_BYTES} are read")
    try:
        return store.deserialize_cdr(raw.data, kind)
    except Exception as error:  # Its generated code raises whatever the bytes lead it to.
        raise DemoError(f"{raw.topic} has a damaged message at {raw.time / NS:.3f} s ({error!r})") from error


def _import(collector: Collector, settings: ImportSettings) -> Imported:
    episodes: list[Episode] = []
    warnings = collector.jumps()
    spans = list(_spans(collector, settings, warnings))
    for span in spans:
        try:
            found = resample(collector.recorded(span.begin, span.end), span, collector.first)
        except DemoError as error:
            if span.begin is None or len(spans) == 1:
                raise
            at = (span.begin - collector.first) / NS
            warnings.append(f"the episode at {at:.3f} s was left out: it {str(error).rstrip('.')}.")
            continue
        episodes += found.episodes
        warnings += found.warnings
    return Imported(episodes, warnings)


def _spans(collector: Collector, settings: ImportSettings, warnings: list[str]) -> Iterator[Span]:
    """The episodes that were announced, or the whole recording as one."""
    starts = sorted(collector.starts, key=lambda start: start.received)
    if not starts:
        names = ("task", "control_mode", "kind")
        task, control_mode, kind = (decide(n, getattr(settings, n), "", "the recording") for n in names)
        success = collector.ends[-1][1] if collector.ends else False
        if not collector.ends:
            warnings.append(f"no {settings.topics.episode_end} says whether it succeeded: taken as failed.")
        metadata = Metadata(
            task, control_mode, ActionScale(), kind, source="ros", success=success,
            recorded_at=_date(collector.first),
        )  # fmt: skip
        yield Span(metadata)
    for number, start in enumerate(starts):
        limit = starts[number + 1].received if number + 1 < len(starts) else None
        yield _announced(collector, start, limit, settings, warnings)


def _announced(
    collector: Collector,
    start: Start,
    limit: int | None,
    settings: ImportSettings,
    warnings: list[str],
) -> Span:
    """An episode from its start to its end, or to `limit`, where the next one starts."""
    metadata, snapshot, rest = start.header
    where = f"the episode at {(start.received - collector.first) / NS:.3f} s"
    for name in ("task", "control_mode", "kind"):
        decide(name, getattr(settings, name), getattr(metadata, name), where)
    ends = [e for e in collector.ends if start.received <= e[0] and (limit is None or e[0] < limit)]
    if ends:
        end, success = ends[0]
        metadata = replace(metadata, success=success and metadata.complete)
    else:
        end = collector.last if limit is None else limit - 1
        metadata = replace(metadata, success=False, complete=False)
        warnings.append(f"{where}: no {settings.topics.episode_end} follows: marked incomplete.")
    origin, symmetry = rest.get("origin_ns"), rest.get("object_symmetry", 4)
    if origin is not None and not (type(origin) is int and abs(origin) < MAX_TIME):
        raise DemoError(f"{where} has the origin {origin!r}; it must be a time in ns")
    if not (type(symmetry) is int and 0 <= symmetry <= _MAX_SYMMETRY):
        raise DemoError(f"{where} has object_symmetry {symmetry!r}; it must be 0 to {_MAX_SYMMETRY}")
    moving = parse_numbers(rest.get("simulator_state", []), None, "a simulator's state")
    return Span(metadata, start.received, end, origin, symmetry, moving, snapshot)


def _date(time: int) -> str:
    """ISO 8601 in UTC; empty for a simulated clock, which counts from zero."""
    if time < _YEAR_2000:
        return ""
    return datetime.fromtimestamp(time // NS, UTC).isoformat()


_YEAR_2000 = 946_684_800 * NS
