"""Environments by name."""

import gymnasium
import pytest

from grasp_sim import registry
from grasp_sim.registry import UnknownName


def test_an_unknown_environment_lists_what_exists():
    with pytest.raises(UnknownName, match=r"'robosuite-lfit'.*robosuite-lift") as caught:
        registry.make("robosuite-lfit")
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)


def test_an_unknown_control_mode_lists_what_exists():
    with pytest.raises(UnknownName, match=r"'torque'.*servo, osc"):
        registry.make("robosuite-lift", control_mode="torque")


def test_an_unknown_reward_lists_what_exists():
    with pytest.raises(UnknownName, match="sparse"):
        registry.make("robosuite-lift", reward="shaped")


def test_gymnasium_knows_the_environments():
    assert "robosuite-lift" in registry.names()
    assert "grasp/RobosuiteLift-v0" in gymnasium.registry
    registry.register_gymnasium()  # a second time is harmless
