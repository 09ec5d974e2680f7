"""Grasp programs: an object, a program of motion primitives, executed by the servo, judged at the end (M6).

    from behind, 9 cm up, 30 deg, open 55 mm, 56 N, close fast, settle, lift slowly, end

The arm begins at the program's hover pose beside or above the object, so that a program is all of what
happens to it: down to the grasp, close, perhaps a moment's rest, up. It is worth 1 when the object is held
5 cm higher in the end and did not break. Each object breaks at about twice the force that holds it, fits
between the fingers from some sides only, and swings or slips if it is lifted carelessly.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import radians

import numpy as np

from grasp_sim import gripper, ur5e
from grasp_sim.contract import ActionScale, Command
from grasp_sim.errors import UserError, find
from grasp_sim.judging import Judge
from grasp_sim.programs import Problem, Program, ProgramError
from grasp_sim.scene import CONTROL_PERIOD, TABLE_CENTRE, Scene, Start
from grasp_sim.servo import Servo, heading, joints_at, shorten
from grasp_sim.simulators import find_simulator
from grasp_sim.tasks import KINDS, TASKS, Difficulty, Task
from grasp_sim.threads import one_linear_algebra_thread

SIDES = {
    "from above": (0.0, 0.0),
    "from the left": (0.0, 1.0),
    "from the right": (0.0, -1.0),
    "from the front": (1.0, 0.0),
    "from behind": (-1.0, 0.0),
}
"""Unit vectors (x, y) in the object's frame to where the tool begins."""
ASIDE = 0.04
"""m that it begins beside the object, except above it."""
HOVERS = (0.06, 0.09, 0.12)
"""m from the object's centre, or from where it can be reached, up to where the tool begins."""
YAWS = (0, 30, 60, 90, 120, 150)
"""deg from the object's x axis to the direction in which the fingers close."""
WIDTHS = (0.025, 0.04, 0.055, 0.07, 0.085)
"""m between the fingers on the way down."""
FORCES = (20.0, 28.0, 40.0, 56.0, 80.0, 112.0, 160.0, 235.0)
"""N."""
CLOSINGS = {"close slowly": 0.04, "close fast": gripper.SPEED}
"""m/s of the opening."""
SETTLING = 0.2
"""s of rest between closing and lifting, where the program asks for it."""
LIFTS = {"lift slowly": 0.08, "lift": 0.15, "lift fast": 0.25}
"""m/s, the last as fast as the servo's steps allow."""
EMPTY = 0.004
"""m between closed fingers below which they hold nothing; no object is as thin."""
RISE = 0.065
"""m that the tool is lifted; the object must rise by `Task.lift`, 5 cm."""
DESCENT = 0.25
"""m/s on the way down."""
HOLDING = (16.0, 120.0)
"""N, the least and most force that objects need to be held; their weight follows from it."""
BREAKING = (1.4, 2.0)
"""Times that force at which they break."""
OBJECTS = Task(
    "programs",
    kinds=("box", "capsule", "tee", "dumbbell", "knob"),
    width=(0.025, 0.065),
    mass=(0.1, 2.5),
    friction=(0.12, 0.7),
    spread=(0.08, 0.12),
    grip_force=60.0,
)
"""Objects that break at little more than the force that holds them."""
OBJECT_TASKS = {OBJECTS.name: OBJECTS, **TASKS}
"""Tasks whose objects programs may be written for."""
UNBREAKABLE = 1000.0
"""N, as which the policy sees the breaking force of an object that does not break."""

_SLOTS: tuple[tuple[str, ...], ...] = (
    tuple(SIDES),
    tuple(f"{round(100 * hover)} cm up" for hover in HOVERS),
    tuple(f"{yaw} deg" for yaw in YAWS),
    tuple(f"open {round(1000 * width)} mm" for width in WIDTHS),
    tuple(f"{force:g} N" for force in FORCES),
    tuple(CLOSINGS),
    ("settle",),
    tuple(LIFTS),
    ("end",),
)
_SETTLE = 6
TOKENS = tuple(token for slot in _SLOTS for token in slot)
_SLOT_OF = tuple(number for number, slot in enumerate(_SLOTS) for _ in slot)
_PLACE_OF = tuple(place for slot in _SLOTS for place in range(len(slot)))


@dataclass(frozen=True, slots=True)
class Plan:
    """A program in numbers."""

    side: tuple[float, float]
    hover: float
    yaw: float
    width: float
    force: float
    closing: float
    settles: bool
    lift: float


class GraspPrograms:
    """A `ProgramTask` on a simulator of its own. Problems are made from their number; nothing is stored."""

    name = "grasps"
    tokens = TOKENS
    longest = len(_SLOTS)

    def __init__(self, objects: str = OBJECTS.name, simulator: str = "pybullet") -> None:
        """`objects` names the task whose objects are to be lifted, one of `OBJECT_TASKS`."""
        self.objects = find("task", objects, OBJECT_TASKS)
        found = find_simulator(simulator)
        self._scene: Scene = found.make_scene("servo", self.objects)
        self._kinematics = ur5e.Kinematics()
        versions = ", ".join(f"{name} {version}" for name, version in sorted(found.versions().items()))
        self.identity = f"grasp programs on {objects} in {simulator} ({versions})"
        """What rewards depend on besides problem and program."""
        one_linear_algebra_thread()

    def close(self) -> None:
        """Free the simulator."""
        self._scene.close()

    # ---- the language

    def legal(self, prefix: Program) -> np.ndarray:
        """One token of each kind in their order; to settle is left to choice. Beside the object the tool
        begins 9 cm up at least, or its fingers would come at the object's level."""
        slot = _SLOT_OF[prefix[-1]] + 1 if prefix else 0
        legal = np.array([number == slot for number in _SLOT_OF])
        if slot == _SETTLE:
            legal |= np.array([number == _SETTLE + 1 for number in _SLOT_OF])
        if slot == 1 and prefix[0] != 0:
            legal[len(SIDES)] = False
        return legal

    def plan(self, program: Program) -> Plan:
        """The program in numbers; raises ProgramError for one that is not whole."""
        chosen = {_SLOT_OF[token]: _PLACE_OF[token] for token in program}
        if not program or _SLOT_OF[program[-1]] != len(_SLOTS) - 1:
            raise ProgramError(f"{program} is no whole program: it does not end")
        return Plan(
            side=tuple(SIDES.values())[chosen[0]],
            hover=HOVERS[chosen[1]],
            yaw=radians(YAWS[chosen[2]]),
            width=WIDTHS[chosen[3]],
            force=FORCES[chosen[4]],
            closing=tuple(CLOSINGS.values())[chosen[5]],
            settles=_SETTLE in chosen,
            lift=tuple(LIFTS.values())[chosen[7]],
        )

    def describe(self, program: Program) -> str:
        """The tokens in words."""
        return ", ".join(TOKENS[token] for token in program if TOKENS[token] != "end")

    def describe_problem(self, key: str) -> str:
        """The object in words."""
        task, start = problem_of(self.objects, key)
        sides = " x ".join(f"{1000 * side:.0f}" for side in start.object.size)
        fragile = np.isfinite(task.breaking_force)
        breaks = f"breaks at {task.breaking_force:.0f} N" if fragile else "unbreakable"
        about = f"{start.object.mass:.2f} kg, friction {start.object.friction:.2f}, {breaks}"
        return f"{start.object.name} of {sides} mm, {about}"

    # ---- the problems

    def problems(self, split: str, count: int) -> list[Problem]:
        """Objects drawn from the split's own numbers."""
        if split not in ("train", "held-out"):
            raise UserError(f"split={split}: there are train and held-out")
        keys = [f"{split}/{number}" for number in range(count)]
        return [Problem(key, features_of(*problem_of(self.objects, key))) for key in keys]

    # ---- execution

    def execute(self, key: str, program: Program) -> float:
        """1 where the object is held 5 cm up in the end and whole, else 0. No chance is in it."""
        return float(all(self._perform(key, self.plan(program))))

    def _perform(self, key: str, plan: Plan) -> Iterator[bool]:
        """Whether all is well, again and again; the last is whether the object is held up."""
        task, start = problem_of(self.objects, key)
        grasp, hover, yaw = poses(start, plan)
        try:
            start = replace(start, joint_positions=joints_at(hover, yaw, _NEAR))
        except ValueError:  # out of reach
            yield False
            return
        self._scene.reset(start)
        servo = Servo(kinematics=self._kinematics)
        servo.reset(start.joint_positions)
        judge = Judge(self._scene, task, self._kinematics)
        judge.begin(start)
        scale = ActionScale()

        def move(towards: np.ndarray | None, speed: float, opening: float) -> bool:
            """One control step; whether nothing broke, neither the object nor the simulator."""
            joints = self._scene.joints()[0]
            delta = np.zeros(3)
            if towards is not None:
                assert servo.target_position is not None
                delta = shorten(towards - servo.target_position, min(speed * CONTROL_PERIOD, scale.position))
            command = Command(delta, 0.0, opening, plan.force)
            before = servo.joint_target
            assert before is not None
            self._scene.advance_servo(before, servo.step(joints, command), command)
            if self._scene.faulty:
                return False
            forces = self._scene.pad_forces(self._kinematics.pose(joints)[1][:, 0])
            return not (forces > task.breaking_force).any()

        for _ in range(_steps(gripper.STROKE - plan.width, gripper.SPEED)):
            yield move(None, 0.0, plan.width)
        for _ in range(_steps(float(np.linalg.norm(grasp - hover)), DESCENT)):
            yield move(grasp, DESCENT, plan.width)
        opening = plan.width
        for _ in range(_steps(plan.width, plan.closing) + 1):
            opening = max(opening - plan.closing * CONTROL_PERIOD, 0.0)
            yield move(None, 0.0, opening)
            if opening < self._scene.opening() - STOPPED:  # the object stops the fingers
                break
        if self._scene.opening() < EMPTY:  # nothing is between them, and lifting would take as long again
            yield False
            return
        for _ in range(2 + round(SETTLING / CONTROL_PERIOD) * plan.settles):
            yield move(None, 0.0, 0.0)
        above = grasp + np.array([0.0, 0.0, RISE])
        for _ in range(_steps(RISE, plan.lift) + 1):
            yield move(above, plan.lift, 0.0)
        state, forces = judge.read()
        yield judge.judge(state, forces).success


_NEAR = ur5e.HOME.copy()
_HEADING = heading(ur5e.Kinematics().pose(_NEAR)[1])
STOPPED = 0.004
"""m that the fingers are behind their target when something holds them."""


def poses(start: Start, plan: Plan) -> tuple[np.ndarray, np.ndarray, float]:
    """Where the tool grasps and where it begins (3,) in m, and the yaw in rad at which its fingers close."""
    height = gripper.grasp_height(float(start.object.size[2]))
    grasp = start.object_position + np.array([0.0, 0.0, height])
    # Two equal fingers: half a turn is the same, and the wrist has to turn less.
    yaw = _HEADING + (start.object_yaw + plan.yaw - _HEADING + np.pi / 2.0) % np.pi - np.pi / 2.0
    cos, sin = np.cos(start.object_yaw), np.sin(start.object_yaw)
    x, y = ASIDE * np.array([[cos, -sin], [sin, cos]]) @ plan.side
    return grasp, grasp + np.array([x, y, plan.hover]), float(yaw)


def _steps(distance: float, speed: float) -> int:
    return int(np.ceil(distance / (speed * CONTROL_PERIOD)))


@cache
def problem_of(objects: Task, key: str) -> tuple[Task, Start]:
    """The task by whose rules the problem is judged, and its start; the arm's place is the program's.

    Of `OBJECTS`, weight and breaking force are drawn about the force that holds each object.
    """
    split, _, number = key.partition("/")
    digest = hashlib.sha256(f"grasps {split} {int(number)}".encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:8], "little"))
    start = objects.sample(rng, Difficulty())
    if objects is not OBJECTS:
        return objects, start
    low, high = np.array(OBJECTS.mass) / start.object.mass * start.object.holding_force
    needed = float(np.exp(rng.uniform(*np.log([max(low, HOLDING[0]), min(high, HOLDING[1])]))))
    mass = start.object.mass * needed / start.object.holding_force
    start = replace(start, object=replace(start.object, mass=mass))
    return replace(OBJECTS, breaking_force=needed * float(rng.uniform(*BREAKING))), start


def features_of(task: Task, start: Start) -> np.ndarray:
    """(F,) float32: kind, extents, weight, friction, breaking force, where the object lies, how it is
    turned."""
    kind = [float(start.object.name == name) for name in KINDS]
    size = np.array(start.object.size) / 0.05 - 1.0
    breaking = np.log(min(task.breaking_force, UNBREAKABLE) / 100.0)
    own = [start.object.mass - 0.5, start.object.friction - 0.5, breaking]
    place = (start.object_position[:2] - TABLE_CENTRE) / 0.1
    turned = [np.sin(start.object_yaw), np.cos(start.object_yaw)]
    return np.array([*kind, *size, *own, *place, *turned], dtype=np.float32)
