"""The next joint command towards a target: within velocity, acceleration and geometry, and able to stop so.

The principle is fail-safe motion planning: a command is sent only if the straight way on which the arm would
then brake to a stop was checked as a whole. Whatever comes next, braking along that way stays possible and
inside all limits, so it is the answer whenever no better command passes.

Braking shrinks all joint velocities together, the joint that needs longest at its greatest deceleration, so
the way is a straight line in joint space. Shapes: 6 joints, C constraints of `geometry`. Velocities are in
rad per cycle of the controller here, accelerations in rad per cycle per cycle.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from grasp_control.arm import geometry
from grasp_control.arm.geometry import TIPS, clearances, jacobian
from grasp_sim.osc import jit

MOST_SAMPLES = 64
"""Postures checked on a way before it counts as unproven; then the arm goes slower instead."""
HALVINGS = 5
"""Of the interval between braking and the wanted velocity, in search of the fastest that is safe."""
APPROACH = 0.9
"""Share of the greatest deceleration that is planned with when stopping at a target."""
NEAR = 0.01
"""m from a plane (side of the workspace, floor) within which the tool closes in on it ever slower."""
BESIDE = 0.0005
"""m, by which the tool rests further from a plane than it must."""
ROUNDING = 1e-9
"""By which a posture may miss a margin, so that one at rest on it is not taken to be outside."""

CLEAR, UNPROVEN = -1, -2
"""What a check of a way answers besides the number of the constraint that it breaks."""
_PLANES = 6 + len(TIPS)  # constraints before this one are planes for the TCP and the fingertips


@jit
def brake(velocities, slowing, out):
    """Fill `out` (6,) with the velocities one cycle later when braking; answers the cycles to a stop."""
    cycles = 0.0
    for j in range(6):
        cycles = max(cycles, abs(velocities[j]) / slowing[j])
    share = 1.0 - 1.0 / cycles if cycles > 1.0 else 0.0
    for j in range(6):
        out[j] = velocities[j] * share
    return cycles


@jit
def _want(joints, target, target_motion, fastest, slowing, low, high, wanted, out):
    """Fill `wanted` (6,) with the velocities that lead to the target and stop there, whatever is now."""
    most = 0.0
    for j in range(6):
        goal, moves = target[j], target_motion[j]
        if goal < low[j] or goal > high[j]:
            out[1] = j
            goal, moves = min(max(goal, low[j]), high[j]), 0.0
        left = goal - moves - joints[j]
        # The velocity from which the arm stops after `left`, slowing down by the same amount each cycle.
        step = APPROACH * slowing[j]
        stopping = step * (np.sqrt(0.25 + 2.0 * abs(left) / step) - 0.5)
        wanted[j] = moves + np.sign(left) * min(abs(left), stopping)
        most = max(most, abs(wanted[j]))
    if most > fastest:
        out[2] = 1
        wanted *= fastest / most


@jit
def _damp(found, least, matrix, closing, wanted):
    """Near a plane, let the TCP close in on it no faster than proportionally to its distance.

    So it comes to rest beside the plane, and slides along it with its turn kept. `found` are the planes'
    clearances now, `matrix` (6, 6) the Jacobian, `closing` the share of the distance per cycle. Answers the
    last plane that changed `wanted` (6,), else CLEAR.
    """
    twist, near = matrix @ wanted, CLEAR
    for i in range(len(found)):
        axis = i // 2 if i < 6 else 2
        inwards = -1.0 if i < 6 and i % 2 == 1 else 1.0
        slowest = closing * (least[i] + BESIDE - found[i])
        if found[i] < NEAR and inwards * twist[axis] < min(slowest, 0.0):
            twist[axis], near = inwards * slowest, i
    if near != CLEAR:
        wanted[:] = np.linalg.solve(matrix, twist)
    return near


@jit
def _change(velocities, wanted, fastest, slowing, together, trial):
    """Fill `trial` (6,) with the velocities one cycle later on the way to those wanted.

    All joints change by the same share where `together`, since the velocities now and those wanted are then
    both along a plane; else each as fast as it may.
    """
    most, share = 0.0, 1.0
    for j in range(6):
        most = max(most, abs(wanted[j]))
    if most > fastest:
        wanted *= fastest / most
    for j in range(6):
        trial[j] = min(max(wanted[j], velocities[j] - slowing[j]), velocities[j] + slowing[j])
        if trial[j] != wanted[j]:
            share = min(share, slowing[j] / abs(wanted[j] - velocities[j]))
    if together:
        for j in range(6):
            trial[j] = velocities[j] + share * (wanted[j] - velocities[j])


# Numba renews what it kept on disk only when the function's own file changes, but a value that a function
# closes over is part of its key: so a change of `geometry`, compiled into these two, is noticed as well.
_GEOMETRY = zlib.crc32(Path(geometry.__file__).read_bytes())


def _compile_check(stamp: int) -> Callable[..., Any]:
    @jit
    def check(joints, velocities, slowing, low, high, limits, margins, closest):
        """Whether the arm may be at `joints` + `velocities` and brake from there: CLEAR, UNPROVEN, the number
        of the constraint that is broken, or C + j for joint j. `closest` (C,) gets the least clearances."""
        assert stamp >= 0
        cycles = 0.0
        for j in range(6):
            cycles = max(cycles, abs(velocities[j]) / slowing[j])
        steps = np.ceil(cycles) - 1.0 if cycles > 1.0 else 0.0
        length = steps - steps * (steps + 1.0) / (2.0 * cycles) if steps > 0.0 else 0.0
        for j in range(6):
            first = joints[j] + velocities[j]
            last = first + length * velocities[j]
            if not (low[j] <= min(first, last) and max(first, last) <= high[j]):
                return geometry.COUNT + j
        rates, here, found = np.zeros(geometry.COUNT), np.empty(6), np.empty(geometry.COUNT)
        for i in range(geometry.COUNT):
            closest[i] = np.inf
            for j in range(6):
                rates[i] += geometry.REACH[i, j] * abs(velocities[j]) * length
        done = 0.0
        for _ in range(MOST_SAMPLES):
            for j in range(6):
                here[j] = joints[j] + velocities[j] * (1.0 + done * length)
            clearances(here, limits, found)
            ahead = 1.0
            for i in range(geometry.COUNT):
                if not found[i] >= margins[i] - ROUNDING:
                    return i
                closest[i] = min(closest[i], found[i])
                # This posture proves the way up to found / rate, the next one backwards by margin / rate.
                room = max(found[i] + margins[i], 0.0)
                if rates[i] * ahead > room:
                    ahead = room / rates[i]
            if done >= 1.0 or length == 0.0:
                return CLEAR
            done = min(1.0, done + ahead)
        return UNPROVEN

    return check


check = _compile_check(_GEOMETRY)


def _compile_advance(stamp: int) -> Callable[..., Any]:
    @jit
    def advance(
        joints,
        velocities,
        target,
        target_motion,
        fastest,
        slowing,
        closing,
        low,
        high,
        limits,
        margins,
        least,
        out,
    ):
        """Choose the next velocities; `joints`, `velocities` and `margins` are updated.

        Args:
            joints: (6,) rad, the last command.
            velocities: (6,) rad/cycle, the last command's difference from the one before.
            target: (6,) rad.
            target_motion: (6,) rad/cycle, how the target moved in the last cycle.
            fastest: rad/cycle, the velocity limit at this moment.
            slowing: (6,) rad/cycle^2, the greatest change of velocity.
            closing: share of its distance by which the tool may approach a plane per cycle.
            low, high: (6,) rad, the joints' range.
            limits: of `geometry.clearances`.
            margins: (C,) clearances that every checked posture must have. They are `least`, or lower after a
                start closer to a limit, and then rise with the clearances.
            least: (C,).
            out: (3,) gets the constraint that limited the motion (else CLEAR), the joint beyond whose limit
                the target is (else -1), and whether the velocity limit was reached.
        """
        assert stamp >= 0
        out[0], out[1], out[2] = CLEAR, -1, 0
        wanted, trial, safe = np.empty(6), np.empty(6), np.empty(6)
        found, closest = np.empty(geometry.COUNT), np.empty(geometry.COUNT)
        _want(joints, target, target_motion, fastest, slowing, low, high, wanted, out)
        clearances(joints, limits, found)
        if found[:_PLANES].min() < NEAR:
            out[0] = _damp(found[:_PLANES], least, jacobian(joints), closing, wanted)
        _change(velocities, wanted, fastest, slowing, out[0] != CLEAR, trial)
        broken = check(joints, trial, slowing, low, high, limits, margins, closest)
        if broken != CLEAR:
            out[0] = broken
            # Braking is safe; from it go towards what was tried as far as that is.
            wanted[:] = trial
            closest[:] = -np.inf  # of the way of braking nothing new is known
            brake(velocities, slowing, safe)
            share, width = 0.0, 1.0
            for _ in range(HALVINGS):
                width *= 0.5
                for j in range(6):
                    trial[j] = safe[j] + (share + width) * (wanted[j] - safe[j])
                if check(joints, trial, slowing, low, high, limits, margins, found) == CLEAR:
                    share += width
                    closest[:] = found
            for j in range(6):
                trial[j] = safe[j] + share * (wanted[j] - safe[j])
        for j in range(6):
            joints[j] += trial[j]
            velocities[j] = trial[j]
        for i in range(geometry.COUNT):
            margins[i] = max(margins[i], min(least[i], closest[i]))

    return advance


advance = _compile_advance(_GEOMETRY)
