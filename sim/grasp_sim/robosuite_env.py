"""robosuite's Lift (UR5e, Robotiq 85) under the one contract of state, observation and action."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import gymnasium
import numpy as np

from grasp_sim import contract, ur5e
from grasp_sim.contract import ActionScale, GraspState
from grasp_sim.rewards import UnknownName, make_reward
from grasp_sim.robosuite_scene import LiftScene
from grasp_sim.servo import Servo
from grasp_sim.slip import SlipTracker

ACTION_SCALES: dict[str, ActionScale] = {
    "servo": ActionScale(),
    "osc": ActionScale(position=0.05, yaw=0.5),  # the output range of robosuite's OSC_POSE
}
"""What an action of 1 means in each control mode."""

SUCCESS_HEIGHT = 0.04
"""m of the cube's centre above the table, robosuite's criterion."""


class RobosuiteLift(gymnasium.Env):
    """Lift a cube off the table with a UR5e: 20 Hz, terminated on success, truncated at the horizon.

    `control_mode` "servo" runs the servo that also runs on the arm, over position actuators; "osc" runs
    robosuite's OSC_POSE. State-only: nothing here touches OpenGL until `render_frame` is called.

    The grip-force limit of the action has no effect here: robosuite's Robotiq 85 is a linkage held together by
    mesh contacts, whose grip force is no monotonic function of the actuator's torque. In osc mode the opening is
    reduced to its sign, open or closed, as robosuite's gripper knows nothing between.

    `info` holds after a step: state (GraspState), requested_action and executed_action (6,), success, grasped,
    slip, drop and sim_fault (bool). A simulator fault (a state that is not finite) truncates the episode with the
    last good observation. `grasped` is privileged: it comes from contacts.
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
        self._np_random, self._np_random_seed = gymnasium.utils.seeding.np_random(seed)
        self._scene = LiftScene(control_mode)
        self._kinematics = ur5e.Kinematics()
        self._servo = Servo(kinematics=self._kinematics)
        self._slip = SlipTracker()
        self._steps = 0
        self._over = True
        self._state: GraspState | None = None

    @staticmethod
    def versions() -> dict[str, str]:
        """Versions that a recorded episode depends on."""
        return {name: version(name) for name in ("mujoco", "robosuite")}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode. The seed fixes all of it; without one the environment's own generator goes on."""
        super().reset(seed=seed)
        self._scene.reset(self.np_random)
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
        self._steps += 1

        fault = self._scene.faulty
        grasped = success = slip = drop = False
        if not fault:
            self._state, grasped = self._measure()
            labels = self._slip.update(self._state, grasped)
            slip, drop = labels.slip, labels.drop
            success = self._scene.cube_height() > SUCCESS_HEIGHT
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

    def _advance(self, executed: np.ndarray) -> None:
        command = contract.decode(executed, self.action_scale)
        if self.control_mode == "servo":
            start = self._servo.joint_target
            assert start is not None
            goal = self._servo.step(self._scene.joints()[0], command)
            self._scene.advance_servo(start, goal, command.opening)
        else:
            closing = command.opening < self.action_scale.opening / 2.0
            self._scene.advance_osc(
                np.array(
                    [
                        *(command.delta_position / self.action_scale.position),
                        0.0,
                        0.0,
                        command.delta_yaw / self.action_scale.yaw,
                        1.0 if closing else -1.0,
                    ]
                )
            )

    def _measure(self) -> tuple[GraspState, bool]:
        """The state now, and whether both fingers press on the cube."""
        positions, velocities = self._scene.joints()
        tcp_position, tcp_quaternion = self._kinematics.forward(positions)
        closing_axis = self._kinematics.pose(positions)[1][:, 0]
        forces = self._scene.finger_forces(closing_axis)
        cube_position, cube_quaternion, cube_size = self._scene.cube()
        now = float(self._scene.data.time)
        state = GraspState(
            joint_positions=positions,
            joint_velocities=velocities,
            tcp_position=tcp_position,
            tcp_quaternion=tcp_quaternion,
            gripper_opening=self._scene.opening(),
            gripper_force=float(forces.mean()),
            object_position=cube_position,
            object_quaternion=cube_quaternion,
            object_size=cube_size,
            object_symmetry=4,
            joint_time=now,
            gripper_time=now,
            object_time=now,
            time=now,
        )
        return state, bool((forces > 0.1).all())
