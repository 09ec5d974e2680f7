"""Slip and force estimates, and the force constraint's multiplier (E15)."""

from __future__ import annotations

import math

import pytest
import torch

from grasp_control.empo2.risk import MULTIPLIER_MAX, GraspRisk

WINDOWS, ACTIONS = 5, 2


def risk(force_limit: float = 30.0) -> GraspRisk:
    return GraspRisk(WINDOWS, ACTIONS, torch.Generator().manual_seed(0), force_limit=force_limit)


def test_both_are_learned_from_the_action_that_causes_them():
    """Slips happen below 0 of the first dimension of the action, forces grow with the second."""
    generator, part = torch.Generator().manual_seed(1), risk()
    optimizer = torch.optim.AdamW(part.parameters(), 3e-3)
    for _ in range(300):
        windows = torch.randn((256, WINDOWS), generator=generator)
        actions = 2.0 * torch.rand((256, ACTIONS), generator=generator) - 1.0
        loss = part.loss(windows, actions, (actions[:, 0] < 0).float(), 30.0 + 30.0 * actions[:, 1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    windows = torch.randn((1, WINDOWS), generator=generator)
    tried = torch.tensor([[-0.7, 0.0], [0.7, 0.0], [0.0, -0.8], [0.0, 0.8]])[:, None]
    found = part(windows, tried)
    assert found.slip[0] > 0.9
    assert found.slip[1] < 0.1
    assert found.excess[2].item() == pytest.approx(0.0, abs=0.1)
    assert found.excess[3].item() == pytest.approx(0.8, abs=0.15)


def test_excess_is_a_share_of_the_limit_and_never_negative():
    forces = torch.tensor([0.0, 30.0, 45.0])
    assert risk(30.0).excess_of(forces).tolist() == [0.0, 0.0, 0.5]


def test_the_multiplier_rises_while_the_budget_is_exceeded_and_falls_to_zero_after():
    part = risk()
    for _ in range(50):
        part.tighten(0.5, budget=0.1, rate=0.1)
    assert part.multiplier.item() == pytest.approx(50 * 0.1 * 0.4)
    for _ in range(500):
        part.tighten(0.0, budget=0.1, rate=0.1)
    assert part.multiplier.item() == 0.0
    for _ in range(10_000):
        part.tighten(1.0, budget=0.1, rate=0.1)
    assert part.multiplier.item() == MULTIPLIER_MAX


def test_without_a_limit_there_is_no_constraint():
    part = risk(math.inf)
    assert not part.constrained
    part.tighten(1.0, budget=0.0, rate=1.0)
    assert part.multiplier.item() == 0.0
    zeros = torch.zeros(3)
    loss = part.loss(torch.zeros((3, WINDOWS)), torch.zeros((3, ACTIONS)), zeros, zeros + 1e6)
    assert math.isfinite(loss.item())
