"""robosuite's Lift (UR5e, Robotiq 85) under the one contract of state, observation and action."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.utils import seeding

from grasp_sim import contract, ur5e
from grasp_sim.contract import ActionScale, ContractError, GraspState
from grasp_sim.objects import ObjectSpec, box
from grasp_sim.rewards import UnknownName, make_reward
from grasp_sim.robosuite_object import unpack_object
from grasp_sim.robosuite_scene import RobosuiteScene
from grasp_sim.scene import TABLE_CENTRE, TABLE_HEIGHT, Start
from grasp_sim.servo import Servo
from grasp_sim.slip import SlipTracker

if TYPE_CHECKING:
    from grasp_sim.rendering import FrameRenderer

ACTION_SCALES: dict[str, ActionScale] = {
    "servo": ActionScale(),
    "osc": ActionScale(position=0.05, yaw=0.5),  # the output range of robosuite's OSC_POSE
}
"""What an action of 1 means in each control mode."""

SUCCESS_HEIGHT = 0.04
"""m of the cube's centre above the table, robosuite's criterion."""
CUBE_HALF_SIZE = (0.020, 0.022)
"""m, range of the cube's half extents, as in robosuite."""
CUBE_DENSITY = 1000.0
"""kg/m^3, as in robosuite."""
PLACEMENT = 0.03
"""m, the cube's greatest distance from the middle of the table along x and along y."""
START_CLEARANCE = 0.0005
"""m between the cube and the table at the start."""
ARM_NOISE = 0.02
"""rad, standard deviation of the joints at the start, as in robosuite."""


def draw_start(rng: np.random.Generator) -> Start:
    """A cube and where it and the arm are when an episode begins."""
    x, y, z = (float(v) for v in 2.0 * rng.uniform(*CUBE_HALF_SIZE, size=3))
    # Any rotation by a quarter turn gives the same grasp, though the sides differ by up to 4 mm.
    cube = box((x, y, z), mass=CUBE_DENSITY * x * y * z, friction=1.0, symmetry=4)
    place = np.array(TABLE_CENTRE) + rng.uniform(-PLACEMENT, PLACEMENT, size=2)
    return Start(
        object=cube,
        object_position=np.array([*place, TABLE_HEIGHT + z / 2.0 + START_CLEARANCE]),
        object_yaw=float(rng.uniform(0.0, 2.0 * np.pi)),
        joint_positions=ur5e.HOME + ARM_NOISE * rng.standard_normal(ur5e.DOF),
    )


class RobosuiteLift(gymnasium.Env):
    """Lift a cube off the table with a UR5e: 20 Hz, terminated on success, truncated at the horizon.

    `control_mode` "servo" runs the servo that also runs on the arm, over position actuators; "osc" runs
    robosuite's OSC_POSE. State-only: nothing here touches OpenGL until `render_frame` is called.

    The grip-force limit of the action has no effect here: robosuite's Robotiq 85 is a linkage held together
    by mesh contacts, whose grip force is no monotonic function of the actuator's torque. In osc mode the
    opening is reduced to open or closed, as robosuite's gripper knows nothing between.

    `info` holds after a step: state (GraspState), requested_action and executed_action (6,), success,
    grasped, slip, drop and sim_fault (bool). A simulator fault (a state that is not finite) truncates the
    episode with the last good observation. `grasped` is privileged: it comes from contacts.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (gymnasium's attribute)

    def __init__(
        self,
        *,
        control_mode: str = "servo",
        reward: str = "sparse",
        horizon: int = 100,
        seed: int | None = None,
    ) -> None:
        if control_mode not in ACTION_SCALES:
            known = ", ".join(ACTION_SCALES)
            raise UnknownName(f"there is no control mode {control_mode!r}; there are: {known}")
        if horizon < 1:
            raise ValueError(f"horizon is {horizon}; it must be at least 1 step")
        self.control_mode = control_mode
        self.action_scale = ACTION_SCALES[control_mode]
        self.horizon = horizon
        self.reward = make_reward(reward)
        self.observation_space = gymnasium.spaces.Box(
            -np.inf, np.inf, (contract.OBSERVATION_DIM,), np.float32
        )
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (contract.ACTION_DIM,), np.float32)
        self._np_random, self._np_random_seed = seeding.np_random(seed)
        self._scene = RobosuiteScene(control_mode)
        self._object: ObjectSpec | None = None
        self._kinematics = ur5e.Kinematics()
        self._servo = Servo(kinematics=self._kinematics)
        self._slip = SlipTracker()
        self._steps = 0
        self._over = True
        self._state: GraspState | None = None
        self._renderer: FrameRenderer | None = None

    @staticmethod
    def versions() -> dict[str, str]:
        """Versions that a recorded episode depends on."""
        return {name: version(name) for name in ("mujoco", "robosuite")}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode. The seed fixes all of it; without one the environment's own generator goes on."""
        super().reset(seed=seed)
        start = draw_start(self.np_random)
        self._object = start.object
        self._scene.reset(start)
        self._steps, self._over = 0, False
        self._slip.reset()
        self._servo.reset(self._scene.joints()[0])
        self._state, _ = self._measure()
        return contract.encode(self._state), {"state": self._state}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One control step of 50 ms; `action` (6,) in [-1, 1] is clipped. See the class for `info`."""
        if self._over or self._state is None:
            raise gymnasium.error.ResetNeeded("the episode is over or was never started: call reset() first")
        requested = np.array(action, dtype=np.float32)
        executed = contract.executed_action(requested)
        self._advance(executed)
        fault = self._scene.faulty
        self._steps += 1

        grasped = success = slip = drop = False
        if not fault:
            self._state, grasped = self._measure()
            labels = self._slip.update(self._state, grasped)
            slip, drop = labels.slip, labels.drop
            success = self._state.object_position[2] - TABLE_HEIGHT > SUCCESS_HEIGHT
        terminated = success
        truncated = not terminated and (fault or self._steps >= self.horizon)
        self._over = terminated or truncated
        info = {
            "state": self._state,
            "requested_action": requested,
            "executed_action": executed,
            "success": success,
            "grasped": grasped,
            "slip": slip,
            "drop": drop,
            "sim_fault": fault,
        }
        reward = 0.0 if fault else self.reward(self._state, success, grasped)
        return contract.encode(self._state), reward, terminated, truncated, info

    def snapshot(self) -> dict[str, np.ndarray]:
        """Everything the rest of the episode depends on, as arrays; `restore` brings it back bit-exactly."""
        if self._state is None:
            raise gymnasium.error.ResetNeeded("there is nothing to save yet: call reset() first")
        saved = self._scene.save()
        saved["state"] = contract.pack_state(self._state)
        saved["slip"] = self._slip.save()
        saved["progress"] = np.array([self._steps, int(self._over)], dtype=np.int64)
        if self.control_mode == "servo":
            saved.update({f"servo_{name}": value for name, value in self._servo.save().items()})
        return saved

    def restore(self, snapshot: Mapping[str, np.ndarray]) -> tuple[np.ndarray, dict[str, Any]]:
        """Continue from a snapshot of an environment of the same control mode; returns what `reset` does.

        The environment's own generator is left alone. Raises ContractError when a part is missing.
        """
        if self._state is None:
            self.reset()  # builds robosuite's controllers
        missing = sorted(set(self.snapshot()) - set(snapshot))
        if missing:
            raise ContractError(
                f"the snapshot lacks {', '.join(missing)}; it was not taken in control mode"
                f" {self.control_mode!r}"
            )
        saved = {name: np.asarray(value) for name, value in snapshot.items()}
        self._scene.restore(saved)
        self._object = unpack_object(saved["object"])
        self._state = contract.unpack_state(saved["state"])
        self._slip.load(saved["slip"])
        self._steps, self._over = int(saved["progress"][0]), bool(saved["progress"][1])
        if self.control_mode == "servo":
            self._servo.load({name[6:]: value for name, value in saved.items() if name.startswith("servo_")})
        return contract.encode(self._state), {"state": self._state}

    def render_frame(self, width: int = 640, height: int = 480, camera: str = "frontview") -> np.ndarray:
        """(height, width, 3) uint8 image of the scene. Raises RenderUnavailable naming what to install."""
        from grasp_sim.rendering import FrameRenderer  # state-only use never loads it

        if self._renderer is None or (self._renderer.width, self._renderer.height) != (width, height):
            self._close_renderer()
            self._renderer = FrameRenderer(self._scene.model, width, height)
        return self._renderer.render(self._scene.data.qpos, camera)

    def close(self) -> None:
        """Free the renderer, if one was made."""
        self._close_renderer()

    def _close_renderer(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _advance(self, executed: np.ndarray) -> None:
        """Simulate one control step."""
        command = contract.decode(executed, self.action_scale)
        if self.control_mode == "servo":
            start = self._servo.joint_target
            assert start is not None
            goal = self._servo.step(self._scene.joints()[0], command)
            self._scene.advance_servo(start, goal, command)
        else:
            self._scene.advance_osc(command, self.action_scale)

    def _measure(self) -> tuple[GraspState, bool]:
        """The state now, and whether both fingers press on the cube."""
        positions, velocities = self._scene.joints()
        tcp_position, rotation = self._kinematics.pose(positions)
        forces = self._scene.pad_forces(closing_axis=rotation[:, 0])
        assert self._object is not None
        cube_position, cube_quaternion = self._scene.object_pose()
        now = self._scene.time
        state = GraspState(
            joint_positions=positions,
            joint_velocities=velocities,
            tcp_position=tcp_position,
            tcp_quaternion=ur5e.quaternion_of(rotation),
            gripper_opening=self._scene.opening(),
            gripper_force=float(forces.mean()),
            object_position=cube_position,
            object_quaternion=cube_quaternion,
            object_size=self._object.size,
            object_symmetry=self._object.symmetry,
            joint_time=now,
            gripper_time=now,
            object_time=now,
            time=now,
        )
        return state, bool((forces > 0.1).all())
