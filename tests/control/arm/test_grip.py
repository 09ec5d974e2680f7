"""What the gripper may be commanded."""

import pytest

from grasp_control.arm.grip import GripLimiter, GripLimits
from grasp_control.arm.reasons import KINDS

NAN, INF = float("nan"), float("inf")


def test_a_command_in_range_passes():
    command = GripLimiter().limit(0.04, 60.0)
    assert command is not None
    assert (command.opening, command.force, command.reason) == (0.04, 60.0, None)


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ((-0.1, 60.0), (0.0, 60.0)),
        ((0.2, 60.0), (0.085, 60.0)),
        ((0.04, 0.0), (0.04, 20.0)),
        ((0.04, 235.0), (0.04, 120.0)),
        ((1e300, -1e300), (0.085, 20.0)),
    ],
)
def test_what_is_out_of_range_is_limited_and_said(asked, sent):
    command = GripLimiter().limit(*asked)
    assert command is not None
    assert (command.opening, command.force) == sent
    assert command.reason is not None
    assert command.reason.key == "grip_command_limited"


@pytest.mark.parametrize("asked", [(NAN, 60.0), (0.04, NAN), (INF, 60.0), (0.04, -INF)])
def test_what_is_not_finite_is_refused_and_the_last_command_stays(asked):
    limiter = GripLimiter()
    assert limiter.limit(*asked) is None
    limiter.limit(0.03, 50.0)
    command = limiter.limit(*asked)
    assert command is not None
    assert (command.opening, command.force) == (0.03, 50.0)
    assert command.reason is not None
    assert command.reason.key == "grip_command_invalid"
    assert command.reason.key in KINDS


@pytest.mark.parametrize(
    "limits", [{"opening_max": 0.2}, {"opening_max": NAN}, {"force_max": 300.0}, {"force_min": 130.0}]
)
def test_limits_out_of_range_are_refused(limits):
    with pytest.raises(ValueError, match=next(iter(limits))):
        GripLimits(**limits)
