"""Programs as demonstrations: a policy writes one for each episode's object, and performs it (M6, E15)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from grasp_control.mapo.train import load_policy
from grasp_sim.contract import GraspState
from grasp_sim.errors import UserError
from grasp_sim.program_env import features_of
from grasp_sim.program_pilot import ProgramPilot

if TYPE_CHECKING:
    from grasp_sim.env import GraspEnv


class ProgramExpert:
    """Acts in place of the scripted expert. Like that it knows the simulated object, which no policy does."""

    def __init__(self, env: GraspEnv, folder: Path) -> None:
        """`folder` is of a run of `grasp-programs`. Raises UserError where it is none, or where the
        environment does not move the arm as programs do."""
        if env.control_mode != "servo":
            raise UserError(
                f"env.control_mode={env.control_mode}: programs were found with the servo; set"
                " env.control_mode=servo, or leave out seeds."
            )
        self._env = env
        self._policy, self._task = load_policy(folder)
        self._pilot: ProgramPilot | None = None

    def reset(self) -> None:
        """Start of an episode, whose object the environment knows."""
        start = self._env.start
        features = torch.from_numpy(features_of(self._env.task, start)[None])
        (program,) = self._policy.write(features, None)
        assert program is not None
        self._pilot = ProgramPilot(self._task.plan(program), start, self._env.action_scale)

    def act(self, state: GraspState) -> np.ndarray:
        """The action (6,) float32 in [-1, 1]."""
        assert self._pilot is not None
        return self._pilot.act(state)
