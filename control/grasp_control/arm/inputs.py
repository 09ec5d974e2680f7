"""What the safety filter is told, admitted or refused by content and by time.

Times are s of one monotonic clock. `stamp_age` is how old a message's content was by its stamp on arrival.
"""

from __future__ import annotations

from math import inf, isfinite, nan

import numpy as np

from grasp_control.arm.reasons import Reason
from grasp_sim import ur5e

_SAME_STAMP = 1e-6
"""s by which stamps of one clock may differ through rounding."""


def joint_vector(values: object) -> np.ndarray | None:
    """A copy as (6,) float64; None if these are not six finite numbers."""
    try:
        given = np.asarray(values)
    except (TypeError, ValueError, OverflowError):  # rows of different lengths, and the like
        return None
    if given.shape != (ur5e.DOF,) or given.dtype.kind not in "fiu":
        return None
    joints = given.astype(np.float64)
    return joints if np.isfinite(joints).all() else None


def shortly(values: object) -> str:
    """The same for people, on one line, however much it is."""
    if hasattr(values, "__len__") and len(values) != ur5e.DOF:  # type: ignore[arg-type]
        return f"{len(values)} of them"  # type: ignore[arg-type]
    return " ".join(repr(values).split())[:120]


class Source:
    """The last admitted message of one kind, and why the last refused one was refused."""

    def __init__(self, name: str, future_max: float) -> None:
        self.name = name
        self.fault: Reason | None = None
        """Why the last message was refused; None after one was admitted."""
        self.refused: dict[str, int] = {}
        """Messages refused so far by key of the reason."""
        self.present = False
        """Whether there is an admitted message."""
        self._future_max = future_max
        self.arrived = nan
        """s, when the last admitted message came."""
        self._age = nan
        self._stamp = -inf

    def forget(self) -> None:
        """As if nothing had come yet."""
        self.present, self.fault, self._stamp = False, None, -inf

    def refuse(self, key: str, text: str) -> None:
        """Note why a message is not taken. The one before stays, and grows old."""
        name = f"{self.name}_{key}"
        self.fault = Reason(name, text)
        self.refused[name] = self.refused.get(name, 0) + 1

    def timely(self, stamp_age: float, now: float, oldest: float) -> bool:
        """Whether a message may be taken by its time; if so, it counts as the last one."""
        if not (isfinite(stamp_age) and isfinite(now)):
            self.refuse("invalid", f"its age is {stamp_age} s at {now} s")
        elif stamp_age < -self._future_max:
            self.refuse(
                "future", f"stamped {-stamp_age:.3f} s ahead; at most {self._future_max:g} s is allowed"
            )
        elif stamp_age > oldest:
            self.refuse("stale", f"stamped {stamp_age:.3f} s ago; at most {oldest:g} s is allowed")
        elif now - stamp_age < self._stamp - _SAME_STAMP:
            self.refuse("back", f"stamped {self._stamp - (now - stamp_age):.3f} s before the one before")
        else:
            self.present, self.fault = True, None
            self.arrived, self._age, self._stamp = now, max(stamp_age, 0.0), now - stamp_age
            return True
        return False

    def age(self, now: float) -> float:
        """s since the content of the last admitted message was made."""
        return now - self.arrived + self._age
