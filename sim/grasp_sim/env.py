"""The grasping environment: any task on any simulator, under the one contract."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium.utils import seeding

from grasp_sim import contract, randomization, ur5e
from grasp_sim.contract import ActionScale, ContractError, GraspState
from grasp_sim.errors import UserError, find
from grasp_sim.judging import Judge, protected
from grasp_sim.randomization import RandomizationConfig
from grasp_sim.rewards import lured, make_reward
from grasp_sim.scene import Scene, Start
from grasp_sim.sensing import Sensors
from grasp_sim.servo import Servo, upright_turn
from grasp_sim.simulators import find_simulator
from grasp_sim.structures import Payment, Structure
from grasp_sim.tasks import Difficulty, ObjectsConfig, Task, find_task
from grasp_sim.threads import one_linear_algebra_thread

ACTION_SCALES: dict[str, ActionScale] = {
    "servo": ActionScale(),
    "osc": ActionScale(position=0.05, yaw=0.5),  # the output range of robosuite's OSC_POSE
}
"""What an action of 1 means in each control mode. `servo`: joint position targets, as on the real arm. `osc`:
joint torques of robosuite's OSC_POSE, the standard that the field compares on."""

HOLD = np.array([0.0, 0.0, 0.0, 0.0, 1.0, 0.0], dtype=np.float32)
"""The action in effect until the first delayed one arrives: stay, open."""

MAX_PICTURE = 4096
"""Pixels, the widest and the highest picture."""


class GraspEnv(gymnasium.Env):
    """A UR5e grasps one object off a table: 20 Hz, terminated on success, truncated at the horizon.

    State-only: nothing here touches OpenGL until `render_frame` is called. Making one limits the linear
    algebra of the process to one thread, see `grasp_sim.threads`.

    Arrays in `info` that later steps depend on cannot be written to; copy what is to be changed.

    `info` holds after a step: state (GraspState as measured, what the observation encodes), true_state (the
    simulator's own), start (`Start`), requested_action and executed_action (6,), contact_force (N, of the pad
    that presses harder; what objects break from), success, grasped, slip, drop, broken and sim_fault (bool).
    Success, slips and the reward are judged on the true state. After a reset it holds state, true_state,
    start and randomization (a dict of what was drawn). A simulator fault (a state that is not finite)
    truncates the episode with the last good observation; an object that breaks terminates it.

    robosuite's Robotiq 85 (robosuite-lift alone) ignores the grip-force limit: it is a linkage held together
    by mesh contacts, whose grip force is no monotonic function of the actuator's torque.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (gymnasium's attribute)

    def __init__(
        self,
        simulator: str,
        task: str,
        *,
        control_mode: str = "servo",
        reward: str = "sparse",
        delay: int = 0,
        horizon: int = 100,
        seed: int | None = None,
        objects: ObjectsConfig | None = None,
        randomization: RandomizationConfig | None = None,
    ) -> None:
        chosen = find_simulator(simulator)
        find("control mode", control_mode, ACTION_SCALES)
        if not isinstance(horizon, int) or horizon < 1:
            raise UserError(f"horizon is {horizon}; it must be a whole number of steps, at least 1")
        for name, given, kind in (
            ("objects", objects, ObjectsConfig),
            ("randomization", randomization, RandomizationConfig),
        ):
            if given is not None and not isinstance(given, kind):
                raise UserError(
                    f"{name} is {given!r}; it must be a {kind.__module__}.{kind.__name__} or None"
                )
        self.simulator = simulator
        self.task: Task = find_task(task).configured(objects or ObjectsConfig())
        self.control_mode = control_mode
        self.action_scale = ACTION_SCALES[control_mode]
        self.horizon = horizon
        self.reward = make_reward(reward)
        self._payment = Payment(self.reward.structure, delay, horizon)
        self.randomization = randomization or RandomizationConfig()
        self.randomization.check_objects(self.task.mass, self.task.friction)
        if simulator == "robosuite" and self.task.standard_lift:
            self.randomization.check_ignored_force()
        self._difficulty = Difficulty()
        self.observation_space = gymnasium.spaces.Box(
            -np.inf, np.inf, (contract.OBSERVATION_DIM,), np.float32
        )
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (contract.ACTION_DIM,), np.float32)
        self._np_random, self._np_random_seed = seeding.np_random(seed)
        self._scene: Scene = chosen.make_scene(control_mode, self.task)
        self._kinematics = ur5e.Kinematics()
        self._servo = Servo(kinematics=self._kinematics)
        self._sensors = Sensors(self._kinematics)
        self._judge = Judge(self._scene, self.task, self._kinematics)
        self._delayed: deque[np.ndarray] = deque()
        self._steps = 0
        self._over = True
        self._start: Start | None = None
        self._true: GraspState | None = None
        self._measured: GraspState | None = None
        one_linear_algebra_thread()

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied: a simulator lives in its process, and copies would share it."""
        raise TypeError(
            "a GraspEnv cannot be pickled or copied: make another one and give it this one's snapshot()"
        )

    @property
    def difficulty(self) -> Difficulty:
        """Of the episodes that begin from now on; a curriculum sets it."""
        return self._difficulty

    @difficulty.setter
    def difficulty(self, value: Difficulty) -> None:
        if not isinstance(value, Difficulty):
            raise UserError(f"difficulty is {value!r}; it must be a grasp_sim.tasks.Difficulty")
        self._difficulty = value

    @property
    def start(self) -> Start:
        """Of the present episode. Raises UserError before the first."""
        if self._start is None:
            raise UserError("no episode has begun: call reset() first")
        return self._start

    def versions(self) -> dict[str, str]:
        """Versions that a recorded episode depends on."""
        return find_simulator(self.simulator).versions()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode. The seed fixes all of it; without one the environment's own generator goes on.

        `options={"start": Start}` begins from a given start as it is, its physics included; of what is drawn,
        only what concerns sensors and the action's way acts then.
        """
        options = {} if options is None else options
        if not isinstance(options, dict):
            raise UserError(f"reset options are a dictionary, such as {{'start': start}}; not {options!r}")
        unknown = sorted(map(repr, set(options) - {"start"}))
        if unknown:
            raise UserError(f"there is no reset option {unknown[0]}; there is: start")
        if "start" in options and not isinstance(options["start"], Start):
            raise UserError(
                f"the reset option start is {options['start']!r}; it must be a grasp_sim.scene.Start"
            )
        super().reset(seed=seed)
        self._over = True  # until all of it has begun
        start = self.task.sample(self.np_random, self.difficulty)
        drawn = randomization.draw(self.randomization, self.np_random)
        noise_seed = int(self.np_random.integers(2**63))
        if "start" in options:
            start, drawn = options["start"], drawn.without_physics()
        else:
            start = randomization.apply(drawn, start)
        self._scene.reset(start)
        self._begin(start)
        self._steps = 0
        self._servo.reset(self._scene.joints()[0])
        self._sensors.reset(drawn, noise_seed)
        self._payment.begin(noise_seed)
        self._delayed = deque([HOLD] * drawn.action_delay)
        self._true, _ = self._judge.read()
        self._measured = protected(self._sensors.measure(self._true))
        observation = contract.encode(self._measured)
        self._over = False
        return observation, self._beginning()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One control step of 50 ms; `action` (6,) in [-1, 1] is clipped. See the class for `info`."""
        if self._over or self._true is None or self._measured is None or self._start is None:
            raise gymnasium.error.ResetNeeded("the episode is over or was never started: call reset() first")
        executed = contract.executed_action(action)
        requested = np.array(action, dtype=np.float32)
        self._delayed.append(executed.copy())
        self._advance(self._delayed.popleft())
        self._steps += 1

        fault = self._scene.faulty
        grasped = success = slip = drop = broken = False
        forces = np.zeros(2)
        if not fault:
            self._true, forces = self._judge.read()
            self._measured = protected(self._sensors.measure(self._true))
            grasped, success, slip, drop, broken = self._judge.judge(self._true, forces)
        terminated = success or broken
        truncated = not terminated and (fault or self._steps >= self.horizon)
        self._over = terminated or truncated
        info = {
            "state": self._measured,
            "true_state": self._true,
            "start": self._start,
            "requested_action": requested,
            "executed_action": executed,
            "success": success,
            "contact_force": float(forces.max()),
            "grasped": grasped,
            "slip": slip,
            "drop": drop,
            "broken": broken,
            "sim_fault": fault,
        }
        reward = self._payment.pay(
            0.0 if fault or broken else self.reward(self._true, success, grasped),
            lured=lured(self._true, grasped),
            over=self._over,
        )
        return contract.encode(self._measured), reward, terminated, truncated, info

    def snapshot(self) -> dict[str, np.ndarray]:
        """Everything the rest of the episode depends on, as arrays; `restore` brings it back bit-exactly."""
        if self._true is None or self._start is None or self._measured is None:
            raise gymnasium.error.ResetNeeded("there is nothing to save yet: call reset() first")
        saved = {
            "start": np.frombuffer(self._start.to_json().encode(), dtype=np.uint8),
            "state": contract.pack_state(self._true),
            "measured": contract.pack_state(self._measured),
            "slip": self._judge.save(),
            "progress": np.array([self._steps, int(self._over)], dtype=np.int64),
            "delayed": np.array(self._delayed, dtype=np.float32).reshape(-1, contract.ACTION_DIM),
        }
        for part, values in self._parts().items():
            saved.update({f"{part}_{name}": value for name, value in values.items()})
        return saved

    def dynamic_state(self) -> np.ndarray:
        """(S,) float64: time, positions and velocities of all that moves, for `show`."""
        return self._scene.dynamic_state()

    def show(self, snapshot: Mapping[str, np.ndarray], dynamic_state: np.ndarray) -> GraspState:
        """Put the scene where `dynamic_state` (S,) of an episode with this `snapshot` has it, for a picture;
        returns the true state there. The episode is over then: only `reset` or `restore` goes on.

        Contact forces need a simulated step: they are what the simulator makes of a moment without one.
        Raises ContractError where either was not taken in such an environment.
        """
        start = _saved_start(np.asarray(snapshot.get("start", ())))
        if self._start is None:
            self._scene.reset(start)
        dynamic_state = np.asarray(dynamic_state, np.float64)
        shape = self._scene.dynamic_state().shape
        if dynamic_state.shape != shape or not np.isfinite(dynamic_state).all():
            raise ContractError(
                f"the dynamic state has shape {dynamic_state.shape}; it must have {shape} and be finite: it"
                f" was not taken in {self.simulator}-{self.task.name}"
            )
        self._over = True
        self._scene.show(start, dynamic_state)
        self._begin(start)
        return self._judge.read()[0]

    def _parts(self) -> dict[str, dict[str, np.ndarray]]:
        parts = {"scene": self._scene.save(), "sensors": self._sensors.save()}
        if self.control_mode == "servo":
            parts["servo"] = self._servo.save()
        if self.reward.structure is not Structure.AT_ONCE:
            parts["payment"] = self._payment.save()
        return parts

    def restore(self, snapshot: Mapping[str, np.ndarray]) -> tuple[np.ndarray, dict[str, Any]]:
        """Continue from a snapshot of an environment of the same simulator and control mode; returns what
        `reset` does.

        The environment's own generator and its settings for later episodes are left alone. Raises
        ContractError, and changes nothing, when a part is missing or of another shape.
        """
        if self._start is None:
            before = self.np_random.bit_generator.state
            self.reset()  # so that there is a snapshot to compare with
            self.np_random.bit_generator.state = before
        saved = {name: np.asarray(value) for name, value in snapshot.items()}
        own = self.snapshot()
        missing = sorted(set(own) - set(saved))
        if missing:
            raise ContractError(
                f"the snapshot lacks {', '.join(missing)}; it was not taken in {self.simulator} in control"
                f" mode {self.control_mode!r}"
            )
        for name, value in own.items():
            first = int(value.ndim > 1 or name == "start")  # tables grow with the episode, texts with words
            if saved[name].ndim != value.ndim or saved[name].shape[first:] != value.shape[first:]:
                raise ContractError(
                    f"the snapshot's {name} has shape {saved[name].shape}, here it is {value.shape}: it was"
                    f" taken in another environment than {self.simulator}-{self.task.name}, or by another"
                    " version of it"
                )
            if not np.can_cast(saved[name].dtype, value.dtype, "same_kind"):
                raise ContractError(f"the snapshot's {name} is {saved[name].dtype}; it must be {value.dtype}")
        start = _saved_start(saved["start"])

        def part(name: str) -> dict[str, np.ndarray]:
            prefix = f"{name}_"
            return {key.removeprefix(prefix): value for key, value in saved.items() if key.startswith(prefix)}

        self._scene.restore(start, part("scene"))
        self._sensors.load(part("sensors"))
        if self.control_mode == "servo":
            self._servo.load(part("servo"))
        if self.reward.structure is not Structure.AT_ONCE:
            self._payment.load(part("payment"))
        self._begin(start)
        self._true, self._measured = (
            protected(contract.unpack_state(saved[name])) for name in ("state", "measured")
        )
        self._judge.load(saved["slip"])
        self._steps, self._over = int(saved["progress"][0]), bool(saved["progress"][1])
        self._delayed = deque(saved["delayed"].copy())
        return contract.encode(self._measured), self._beginning()

    def _begin(self, start: Start) -> None:
        self._start = start
        self._judge.begin(start)

    def _beginning(self) -> dict[str, Any]:
        """The `info` of an episode's start."""
        return {
            "state": self._measured,
            "true_state": self._true,
            "start": self._start,
            "randomization": asdict(self._sensors.drawn),
        }

    def render_frame(self, width: int = 640, height: int = 480) -> np.ndarray:
        """(height, width, 3) uint8 image of the scene. Raises RenderUnavailable naming what to install."""
        for name, size in (("width", width), ("height", height)):
            if not isinstance(size, int) or not 1 <= size <= MAX_PICTURE:
                raise UserError(f"a picture's {name} is {size!r}; it must be from 1 to {MAX_PICTURE} pixels")
        if self._start is None:
            raise gymnasium.error.ResetNeeded("there is nothing to see yet: call reset() first")
        return self._scene.render(width, height)

    def close(self) -> None:
        """Free the simulator; a second time is harmless. What is left to do is another reset."""
        self._start, self._over = None, True
        self._scene.close()

    def _advance(self, action: np.ndarray) -> None:
        """Simulate one control step."""
        command = contract.decode(action, self.action_scale)
        if self.control_mode == "osc":
            # Left alone, the law lets the tool tilt by up to 20 degrees: it holds whatever tilt there is.
            _, rotation = self._kinematics.pose(self._scene.joints()[0])
            self._scene.advance_osc(command, upright_turn(rotation, command.delta_yaw))
            return
        start = self._servo.joint_target
        assert start is not None
        self._scene.advance_servo(start, self._servo.step(self._scene.joints()[0], command), command)


def _saved_start(content: np.ndarray) -> Start:
    """The start of a snapshot, which may be anybody's; raises ContractError where it cannot be read."""
    try:
        return Start.from_json(content.tobytes().decode())
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise ContractError(f"the snapshot's start cannot be read: {error}") from error
