"""The arms of the study: what the memory does. Nothing else differs between them (R2, R7, R8)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grasp_control.empo2.gate import ADAPTIVE, PARTICIPATION, GateConfig, MemoryGate
from grasp_sim.cli import require_choice

GATES = {
    "off": "no memory",
    "on": "the memory takes part in full, whatever the reward",
    "told": "it takes part as the reward's structure, which it is told, suggests",
    "adaptive": "it takes part as running statistics of the reward suggest; nothing is told",
}
"""How much the memory takes part, and what that means."""
FILTERED = "filter"


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm, written `<gate>` or `<gate>+filter`."""

    gate: str
    filtered: bool
    """Only what succeeded repeatedly is written to memory."""

    @classmethod
    def parse(cls, text: str) -> Arm:
        """Raises ValueError for what is unknown or contradicts itself."""
        gate, plus, rest = text.partition("+")
        require_choice(f"the memory of memories={text}:", gate, GATES)
        if plus:
            require_choice(f"what is added in memories={text}:", rest, [FILTERED])
            if gate == "off":
                raise ValueError(
                    f"memories={text}: a filter of what is written needs a memory: on+{FILTERED}."
                )
        return cls(gate, bool(plus))


class Participation:
    """How much the memory takes part at the moment, 0 to 1."""

    def __init__(self, arm: Arm, structure: str) -> None:
        self._fixed = {"off": 0.0, "on": 1.0, "told": PARTICIPATION[structure]}.get(arm.gate)
        self.gate = MemoryGate(GateConfig(structure=ADAPTIVE))
        """The statistics of the reward, which the adaptive arm alone goes by."""

    def observe(self, rewards: np.ndarray) -> None:
        """Take in the rewards (T,) of an episode."""
        self.gate.observe(rewards)

    @property
    def value(self) -> float:
        """0 to 1."""
        return self.gate.participation if self._fixed is None else self._fixed
