"""What a node says on /diagnostics: changes at once, repetitions, and no flood."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("rclpy")

from grasp_ros.diagnostics import Diagnostics, Level


@pytest.fixture
def said(peer):
    """A node's diagnostics, and what another hears of it."""
    listener, speaker = peer("listener"), peer("speaker")
    from diagnostic_msgs.msg import DiagnosticArray

    heard = listener.hear(DiagnosticArray, "/diagnostics")
    diagnostics = Diagnostics(speaker.node, "part", "device")
    speaker.start()
    listener.start()
    return diagnostics, heard


def texts(heard) -> list[tuple[int, str]]:
    return [(message.status[0].level[0], message.status[0].message) for message in heard]


def test_a_change_is_published_with_its_values(said, wait_for):
    diagnostics, heard = said

    def arrived():
        diagnostics.report(Level.WARN, "the state is 0.3 s old", age=0.3, count=2, kind="late")
        return heard

    wait_for(arrived, 20)
    (status,) = heard[0].status
    assert (status.name, status.hardware_id) == ("speaker: part", "device")
    assert [(value.key, value.value) for value in status.values] == [
        ("age", "0.3"),
        ("count", "2"),
        ("kind", "late"),
    ]
    assert heard[0].header.stamp.sec > 0
    diagnostics.report(Level.OK, "well")
    wait_for(lambda: texts(heard)[-1] == (0, "well"), 5)


def test_it_is_repeated_every_second_and_numbers_alone_are_no_change(said, wait_for):
    diagnostics, heard = said
    diagnostics.report(Level.ERROR, "0 s old")
    wait_for(lambda: heard, 20)
    before, end = len(heard), time.monotonic() + 2.5
    while time.monotonic() < end:
        diagnostics.report(Level.ERROR, f"{time.monotonic():.3f} s old")
        time.sleep(0.002)
    repeated = texts(heard)[before:]
    assert 1 <= len(repeated) <= 4  # two, or one more or less on a busy machine
    assert repeated[-1] != (2, "0 s old")


def test_an_error_between_two_arrays_is_not_lost_and_flapping_is_no_flood(said, wait_for):
    diagnostics, heard = said
    wait_for(lambda: diagnostics.report(Level.OK, "well") or heard, 20)
    begin, before = time.monotonic(), len(heard)
    for _ in range(500):
        diagnostics.report(Level.ERROR, "the command is not finite")
        diagnostics.report(Level.OK, "well")
        time.sleep(0.001)
    wait_for(lambda: (2, "the command is not finite") in texts(heard)[before:], 5)
    wait_for(lambda: texts(heard)[-1] == (0, "well"), 5)
    assert len(heard) - before <= 2 * (time.monotonic() - begin) / 0.1 + 4
