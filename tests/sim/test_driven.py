"""The arm behind a driver: cycles of 2 and 8 ms instead of control steps."""

from __future__ import annotations

import pytest

from grasp_sim.contract import POLICY_RATE_HZ, ActionScale, decode
from grasp_sim.driven import DrivenSimulation
from grasp_sim.expert import ScriptedExpert
from grasp_sim.servo import Servo

STEP = 1.0 / POLICY_RATE_HZ
HORIZON = 100


def grasp(simulation: DrivenSimulation, seed: int):
    """One episode of the scripted expert through the servo, interpolated to the driver's rate; yields the
    state after every cycle."""
    expert = ScriptedExpert(ActionScale(), "servo", simulation.task.grip_force)
    servo, state = Servo(), simulation.reset(seed)
    servo.reset(state.joint_positions)
    for step in range(HORIZON):
        command = decode(expert.act(state), ActionScale())
        begin = servo.joint_target
        goal = servo.step(state.joint_positions, command)
        while state.time < (step + 1) * STEP - 1e-9:
            share = min((state.time + simulation.period - step * STEP) / STEP, 1.0)
            target = begin + share * (goal - begin)
            state = simulation.cycle(target, command.opening, command.force_limit)
            yield state
            if simulation.outcome.over:
                return


@pytest.fixture
def make():
    made = []

    def simulation(name: str, rate: int) -> DrivenSimulation:
        made.append(DrivenSimulation(name, rate))
        return made[-1]

    yield simulation
    for one in made:
        one.close()
