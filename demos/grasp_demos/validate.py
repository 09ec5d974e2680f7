"""Check episodes before anything learns from them. Nothing is repaired: a defect is named and refused.

What is checked here is whether an episode's numbers mean what the contract says, for any arm. Whether a UR5e
could have moved like that is asked by `grasp_demos.plausibility`, whether a data set's episodes belong
together by `grasp_demos.consistency`.

Shapes: T steps, O observation dimension, A action dimension.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import cache
from typing import NamedTuple

import numpy as np

from grasp_demos.episode import ACTORS, KINDS, DemoError, Episode
from grasp_demos.storage import ARRAYS
from grasp_sim.contract import (
    ACTION_DIM,
    ACTION_NAMES,
    CONTRACT_VERSION,
    OBSERVATION_DIM,
    OBSERVATION_NAMES,
    STATE_WIDTH,
    GraspState,
    encode,
    encode_rows,
    unpack_state,
)


class Defect(NamedTuple):
    """One thing wrong with an episode."""

    episode: str
    """The episode's file, or its index where it has none."""
    step: int | None
    """The first step at fault, counted from 0; None where the whole episode is."""
    dimension: str | None
    """Name of the column, such as `delta_x`."""
    problem: str
    warning: bool = False
    """Remarkable, and no reason to refuse the episode."""

    def __str__(self) -> str:
        """One line for a person."""
        where = "" if self.step is None else f", step {self.step}"
        return (
            f"{self.episode}{where}{'' if self.dimension is None else f', {self.dimension}'}: {self.problem}"
        )


@cache
def state_names() -> tuple[str, ...]:
    """Names of the columns of `pack_state`, such as `joint_positions[2]`."""
    probe = unpack_state(np.arange(STATE_WIDTH))
    names = [""] * STATE_WIDTH
    for field in fields(GraspState):
        columns = np.atleast_1d(getattr(probe, field.name)).astype(int)
        for position, column in enumerate(columns):
            names[column] = field.name if len(columns) == 1 else f"{field.name}[{position}]"
    return tuple(names)


def validate(episode: Episode) -> list[Defect]:
    """Everything wrong with an episode; empty when a learner may use it.

    Of each kind of defect and each dimension the first step is named, with how many steps share it.
    """
    shapes = list(check_shapes(episode))
    defects = list(_check_metadata(episode)) + shapes
    if not shapes:  # The rest could not be computed on other shapes.
        with np.errstate(over="ignore", invalid="ignore"):  # What is not finite is named, not computed with.
            defects += [*_check_finite(episode), *_check_actions(episode), *_check_times(episode)]
            defects += [*_check_ends(episode), *_check_observations(episode)]
    return defects


def require_valid(episodes: Sequence[Episode]) -> None:
    """Raise DemoError naming the defects, the first five in full, if any episode has one."""
    defects = [defect for episode in episodes for defect in validate(episode)]
    if defects:
        shown = "; ".join(str(defect) for defect in defects[:5])
        more = f"; and {len(defects) - 5} more" if len(defects) > 5 else ""
        raise DemoError(f"these demonstrations cannot be used: {shown}{more}. Mend or delete those episodes.")


def _check_metadata(episode: Episode) -> Iterator[Defect]:
    metadata = episode.metadata

    def defect(name: str, problem: str) -> Defect:
        return Defect(str(episode), None, name, problem)

    if metadata.contract_version != CONTRACT_VERSION:
        held = metadata.contract_version
        yield defect("contract_version", f"is {held}; this program has {CONTRACT_VERSION}: record it again")
    if metadata.kind not in KINDS:
        yield defect("kind", f"is '{metadata.kind}'; it must be one of {', '.join(KINDS)}")
    for name in ("task", "control_mode"):
        if not getattr(metadata, name):
            yield defect(name, "is empty")
    if not 0.0 < metadata.rate_hz < np.inf:
        yield defect("rate_hz", f"is {metadata.rate_hz}; it must be positive and finite")
    for name in ("seed", "horizon"):
        if getattr(metadata, name) < 0:
            yield defect(name, f"is {getattr(metadata, name)}; it must not be negative")
    if metadata.success and not metadata.complete:
        yield defect("success", "is set although the recording broke off")


def check_shapes(episode: Episode) -> Iterator[Defect]:
    """Arrays that do not have the shape every other check goes by."""
    steps = len(np.atleast_1d(episode.executed_actions))
    if steps == 0:
        yield Defect(str(episode), None, None, "has no steps")
        return
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(ARRAYS, (steps,))
    shapes |= {"states": (steps + 1, STATE_WIDTH), "observations": (steps + 1, OBSERVATION_DIM)}
    width = np.shape(episode.simulator_states)[-1] if np.ndim(episode.simulator_states) == 2 else 0
    shapes["simulator_states"] = (steps + 1, width)
    shapes |= {name: (steps, ACTION_DIM) for name in ARRAYS if name.endswith("actions")}
    for name, shape in shapes.items():
        held = np.shape(getattr(episode, name))
        if held != shape:
            yield Defect(str(episode), None, name, f"has shape {held}; it must be {shape}")


def _check_finite(episode: Episode) -> Iterator[Defect]:
    named = {name: ACTION_NAMES for name in ARRAYS if name.endswith("actions")}
    named |= {"states": state_names(), "observations": OBSERVATION_NAMES, "rewards": ("reward",)}
    for name, columns in named.items():
        values = np.asarray(getattr(episode, name), np.float64)
        bad = ~np.isfinite(values.reshape(len(values), -1))
        yield from _by_column(episode, name, columns, bad, values, "is not finite")
    moving = np.asarray(episode.simulator_states, np.float64)
    columns = [f"simulator_states[{column}]" for column in range(moving.shape[1])]
    yield from _by_column(episode, "simulator_states", columns, ~np.isfinite(moving), moving, "is not finite")
    for name, values in episode.snapshot.items():
        if np.asarray(values).dtype.kind == "f" and not np.isfinite(values).all():
            yield Defect(str(episode), 0, name, "of the simulator's snapshot is not finite")


def _check_actions(episode: Episode) -> Iterator[Defect]:
    for name in ("intended_actions", "executed_actions"):
        values = getattr(episode, name)
        bad = np.abs(values) > 1.0  # False for NaN, which has been named.
        yield from _by_column(episode, name, ACTION_NAMES, bad, values, "lies outside [-1, 1]")
    sent = np.clip(episode.requested_actions, -1.0, 1.0)
    unknown = np.flatnonzero(episode.actors >= len(ACTORS))
    if len(unknown):
        first = int(unknown[0])
        problem = f"is {episode.actors[first]}, which stands for nobody{count_of(len(unknown))}"
        yield Defect(str(episode), first, "actor", problem)
    bad = np.isfinite(sent) & (episode.executed_actions != sent)
    problem = "is not the requested action clipped to [-1, 1]"
    yield from _by_column(episode, "executed_actions", ACTION_NAMES, bad, episode.executed_actions, problem)


def _check_times(episode: Episode) -> Iterator[Defect]:
    names = state_names()
    for name in ("time", "joint_time", "gripper_time", "object_time"):
        stamps = episode.states[:, names.index(name)]
        change = np.diff(stamps)
        # A source may repeat its last measurement; the assembled state is always a later one.
        late = np.flatnonzero(change <= 0.0 if name == "time" else change < 0.0)
        if len(late):
            first = int(late[0])
            problem = f"goes from {stamps[first]:.6f} s to {stamps[first + 1]:.6f} s{count_of(len(late))}"
            yield Defect(str(episode), first, name, f"{problem}; stamps must increase")


def _check_ends(episode: Episode) -> Iterator[Defect]:
    ends = episode.terminations | episode.truncations
    early = np.flatnonzero(ends[:-1])
    if len(early):
        last = len(ends) - 1
        yield Defect(str(episode), int(early[0]), None, f"ends the episode, but steps follow until {last}")


def _check_observations(episode: Episode) -> Iterator[Defect]:
    different = np.any(encode_rows(episode.states) != episode.observations, axis=1)
    for step in map(int, np.flatnonzero(different)):
        row, observation = episode.states[step], episode.observations[step]
        if not np.isfinite(row).all() or not np.isfinite(observation).all():
            continue  # Named already.
        expected = encode(
            unpack_state(row)
        )  # The contract's word, should a processor's batch differ by a bit.
        if not np.array_equal(expected, observation):
            column = int(np.flatnonzero(expected != observation)[0])
            held, encoded = observation[column], expected[column]
            problem = f"the observation holds {held:.6g}, but its state encodes to {encoded:.6g}"
            yield Defect(str(episode), step, OBSERVATION_NAMES[column], problem)
            return


def _by_column(
    episode: Episode, name: str, columns: Sequence[str], bad: np.ndarray, values: np.ndarray, problem: str
) -> Iterator[Defect]:
    """One defect for each column of `bad` (steps, columns) that has one, with the first value at fault."""
    values = values.reshape(bad.shape)
    for column in map(int, np.flatnonzero(bad.any(axis=0))):
        steps = np.flatnonzero(bad[:, column])
        value = values[steps[0], column]
        text = f"{name} holds {value:.6g}, which {problem}{count_of(len(steps))}"
        yield Defect(str(episode), int(steps[0]), columns[column], text)


def count_of(steps: int) -> str:
    """How many steps share a defect, to follow its text; nothing for one."""
    return f" ({steps} steps)" if steps > 1 else ""
