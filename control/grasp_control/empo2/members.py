"""The networks of an agent, and the slower copies of them that learning leans on."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from grasp_control.empo2.config import EMPO2Config
from grasp_control.empo2.risk import GraspRisk
from grasp_control.empo2.rnd import RandomNetwork
from grasp_control.networks import PolicyEnsemble, QEnsemble, track


@dataclass
class Networks:
    """Actors, dual critics, and what foresees risk and newness."""

    policy: PolicyEnsemble
    target_policy: PolicyEnsemble
    average_policy: PolicyEnsemble
    """Acts and is distilled."""
    conservative: QEnsemble
    target_conservative: QEnsemble
    exploratory: QEnsemble
    target_exploratory: QEnsemble
    risk: GraspRisk
    rnd: RandomNetwork

    @classmethod
    def create(
        cls,
        config: EMPO2Config,
        windows: int,
        actions: int,
        generator: torch.Generator,
        *,
        force_limit: float,
    ) -> Networks:
        """Fresh networks for the widths W and A, copies equal to their originals."""
        hidden = (config.hidden_width, config.hidden_width)

        def policy() -> PolicyEnsemble:
            return PolicyEnsemble(windows, actions, config.actors, generator, hidden)

        def critics() -> QEnsemble:
            return QEnsemble(windows, actions, config.critics, generator, hidden)

        made = cls(
            policy(),
            policy(),
            policy(),
            critics(),
            critics(),
            critics(),
            critics(),
            GraspRisk(windows, actions, generator, force_limit=force_limit),
            RandomNetwork(windows, generator),
        )
        for copy, original in made._copies():
            copy.load_state_dict(original.state_dict())
            copy.requires_grad_(False)
        return made

    def track(self, target_rate: float, average_rate: float) -> None:
        """Move the copies towards their originals, the averaged policy at a rate of its own."""
        for copy, original in self._copies():
            rate = average_rate if copy is self.average_policy else target_rate
            track(copy.parameters(), original.parameters(), rate)

    def _copies(self) -> list[tuple[torch.nn.Module, torch.nn.Module]]:
        return [
            (self.target_policy, self.policy),
            (self.average_policy, self.policy),
            (self.target_conservative, self.conservative),
            (self.target_exploratory, self.exploratory),
        ]
