"""Newness by random network distillation (E14)."""

from __future__ import annotations

import torch

from grasp_control.empo2.rnd import RandomNetwork


def test_what_was_seen_often_is_less_new_than_what_was_never_seen():
    generator = torch.Generator().manual_seed(0)
    network = RandomNetwork(6, generator)
    fixed = [parameter.clone() for parameter in network.fixed.parameters()]
    optimizer = torch.optim.AdamW(network.predictor.parameters(), 1e-3)
    for _ in range(400):
        errors = network(torch.randn((128, 6), generator=generator))
        optimizer.zero_grad()
        errors.mean().backward()
        optimizer.step()
        network.bonus(errors.detach())
    known = network.bonus(network(torch.randn((128, 6), generator=generator)).detach())
    strange = network.bonus(network(4.0 + torch.randn((128, 6), generator=generator)).detach())
    assert 0.2 < known.mean() < 2.0
    assert strange.mean() > 2.0 * known.mean()
    assert strange.max() <= 5.0
    for before, after in zip(fixed, network.fixed.parameters(), strict=True):
        assert torch.equal(before, after)
