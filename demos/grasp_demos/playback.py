"""Bring a recorded episode back into a simulator, and say how far that is from the recording.

By its actions: simulate again from the initial snapshot. A recording that comes back so is one whose actions
are those that were really sent. By its states: put the simulator where each moment has it, without
simulating, which shows what happened even where another machine's or version's contacts would not repeat it.

Shapes: T steps, S numbers of the simulator's state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np
from gymnasium.error import ResetNeeded

from grasp_demos.episode import DemoError, Episode
from grasp_demos.recording import Arm
from grasp_sim.contract import ContractError, GraspState, unpack_state
from grasp_sim.randomization import Drawn

MODES = ("actions", "states")

DEVIATIONS = ("joint_deviation_rad", "tcp_deviation_m", "object_deviation_m", "opening_deviation_m")


_UNFIT = (ContractError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What a simulator raises over a snapshot or state that is not its own: files from others may hold any."""


class Stage(Arm, Protocol):
    """What playing states asks of an environment beyond what recording does."""

    def show(self, snapshot: Mapping[str, np.ndarray], dynamic_state: np.ndarray) -> GraspState: ...


class Moment(NamedTuple):
    """One moment of a playback."""

    step: int
    """Steps done; 0 at the beginning."""
    state: GraspState | None
    """What the simulator reports; None at the beginning of a replay by actions, which is the snapshot."""
    success: bool


class ReplayReport(NamedTuple):
    """How far a playback was from its recording; the largest over all its moments."""

    joint_deviation: float
    """rad, of any joint."""
    tcp_deviation: float
    """m, Euclidean."""
    object_deviation: float
    """m, Euclidean, of the object's centre."""
    opening_deviation: float
    """m."""
    success: bool
    """Of the replay; the recorded one where states are shown."""
    recorded_success: bool
    steps: int
    """Replayed; fewer than recorded where the environment ended the episode earlier."""
    recorded_steps: int
    mode: str
    """One of `MODES`."""
    table: np.ndarray
    """(K, 5) float64, a row a moment: steps done and the four `DEVIATIONS` there."""

    def reproduced(self, *, tolerance_rad: float, tolerance_m: float) -> bool:
        """Whether the playback is the recording within the tolerances."""
        return (
            self.joint_deviation <= tolerance_rad
            and max(self.tcp_deviation, self.object_deviation, self.opening_deviation) <= tolerance_m
            and self.success == self.recorded_success
            and self.steps == self.recorded_steps
        )


def replay(episode: Episode, env: Arm, on_step: Callable[[], None] | None = None) -> ReplayReport:
    """Replay an episode's actions in an environment of its task; see `play_actions` for arguments and errors.

    `on_step` is called at the start and after each step, to draw a frame.
    """
    return _play(episode, "actions", play_actions(episode, env), on_step)


def show_states(episode: Episode, env: Stage, on_step: Callable[[], None] | None = None) -> ReplayReport:
    """Show an episode's recorded states; see `play_states` for arguments and errors.

    `on_step` is called at each moment, to draw a frame.
    """
    return _play(episode, "states", play_states(episode, env), on_step)


def play_actions(episode: Episode, env: Arm) -> Iterator[Moment]:
    """The moments of a replay by actions, simulated as they are asked for.

    Args:
        episode: with a snapshot, so recorded in a simulator.
        env: which this call resets; of the episode's control mode and action scale.

    Raises DemoError when the episode has no snapshot or was recorded with other actions than `env` takes.
    """
    metadata = episode.metadata
    if not episode.snapshot:
        raise DemoError(
            f"{episode} has no simulator snapshot (source {metadata.source}): it cannot be replayed."
        )
    for name in ("control_mode", "action_scale"):
        recorded, given = getattr(metadata, name), getattr(env, name)
        if recorded != given:
            raise DemoError(f"{episode} was recorded with {name} {recorded}; the environment has {given}.")
    env.reset(seed=metadata.seed)
    try:
        env.restore(dict(episode.snapshot))
    except _UNFIT as error:
        raise DemoError(
            f"{episode} has a snapshot that does not fit the simulator here ({error}): replay it with the "
            f"versions that recorded it, {metadata.versions}."
        ) from error
    yield Moment(0, None, False)
    for step, action in enumerate(episode.executed_actions, start=1):
        try:
            _, _, terminated, truncated, info = env.step(action)
        except ResetNeeded as error:
            raise DemoError(
                f"{episode} has a snapshot of an episode that is over, so no start: it cannot be replayed."
            ) from error
        yield Moment(step, info["state"], bool(info["success"]))
        if terminated or truncated:
            return


def play_states(episode: Episode, env: Stage) -> Iterator[Moment]:
    """The moments of an episode as the simulator shows its recorded states, T + 1 of them.

    Args:
        episode: with `simulator_states`.
        env: of the episode's task; its episode is over afterwards.

    Raises DemoError when the episode holds no simulator states, or they do not fit the simulator here.
    """
    lacking = why_no_states(episode)
    if lacking:
        raise DemoError(f"{episode} {lacking}")
    for step, numbers in enumerate(episode.simulator_states):
        try:
            state = env.show(episode.snapshot, numbers)
        except _UNFIT as error:
            raise DemoError(
                f"{episode}, step {step}, has a simulator state that does not fit the simulator here "
                f"({error}): show it with the versions that recorded it, {episode.metadata.versions}."
            ) from error
        yield Moment(step, state, episode.metadata.success)


def why_no_states(episode: Episode) -> str:
    """Why an episode's states cannot be shown, to follow its name; empty where they can."""
    if not episode.snapshot:
        source = episode.metadata.source
        return f"was not recorded in a simulator (source {source}): there are no states to show."
    if episode.simulator_states.shape[1] == 0:
        return (
            "holds no simulator states, so an earlier version recorded it: mode=actions simulates it instead."
        )
    return ""


def is_exact(episode: Episode) -> bool:
    """Whether the recorded states are the simulator's own: no sensor noise, latency or perception error.

    Where they are not, what the simulator shows differs from what was measured, and should.
    """
    drawn = episode.snapshot.get("sensors_drawn")
    if drawn is None or np.shape(drawn) != Drawn().pack().shape:
        return True  # It says of no error.
    return replace(Drawn.unpack(drawn).without_physics(), action_delay=0) == Drawn()


def report_on(episode: Episode, mode: str, moments: list[Moment]) -> ReplayReport:
    """Compare the moments of a playback with the recording."""
    rows = [
        (moment.step, *_deviation(moment.state, unpack_state(episode.states[moment.step])))
        for moment in moments
        if moment.state is not None
    ]
    table = np.array(rows, np.float64).reshape(-1, 1 + len(DEVIATIONS))
    joint, tcp, thing, opening = table[:, 1:].max(axis=0, initial=0.0).tolist()
    last, recorded = moments[-1], episode.metadata.success
    return ReplayReport(
        joint, tcp, thing, opening, last.success, recorded, last.step, len(episode), mode, table
    )


def _play(
    episode: Episode, mode: str, moments: Iterator[Moment], on_step: Callable[[], None] | None
) -> ReplayReport:
    seen = []
    for moment in moments:
        seen.append(moment)
        if on_step is not None:
            on_step()
    return report_on(episode, mode, seen)


def _deviation(state: GraspState, recorded: GraspState) -> tuple[float, float, float, float]:
    """The `DEVIATIONS` between two states."""
    return (
        float(np.abs(state.joint_positions - recorded.joint_positions).max()),
        float(np.linalg.norm(state.tcp_position - recorded.tcp_position)),
        float(np.linalg.norm(state.object_position - recorded.object_position)),
        abs(state.gripper_opening - recorded.gripper_opening),
    )
