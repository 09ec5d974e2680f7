"""A policy that writes programs token by token.

Shapes: N programs, L tokens of the longest, V tokens of the language, F features, H hidden units.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from grasp_control.mapo.grammar import Grammar
from grasp_control.networks import linear, mlp
from grasp_sim.programs import Program

Allowed = Callable[[Program], np.ndarray]
"""Tokens (V,) bool that may follow a prefix, a copy."""


class ProgramPolicy(nn.Module):
    """A gated recurrent unit over the tokens written so far, begun with what the problem's features say.

    Tokens that the grammar forbids have probability 0, so that all whole programs together have 1.
    """

    def __init__(
        self, grammar: Grammar, features: int, generator: torch.Generator, hidden: int = 128
    ) -> None:
        """Take F and H; all weights are drawn from `generator`."""
        super().__init__()
        self.grammar = grammar
        self.encoder = mlp(features, hidden, generator, hidden=(hidden, hidden))
        self.tokens = nn.utils.skip_init(nn.Embedding, grammar.size + 1, hidden)
        self.cell = nn.utils.skip_init(nn.GRUCell, 2 * hidden, hidden)
        self.output = linear(hidden, grammar.size, generator, gain=0.01)
        with torch.no_grad():
            for parameter in (*self.tokens.parameters(), *self.cell.parameters()):
                parameter.uniform_(-1.0 / math.sqrt(hidden), 1.0 / math.sqrt(hidden), generator=generator)

    def log_probs(self, features: Tensor, programs: list[Program]) -> tuple[Tensor, Tensor]:
        """Log probabilities (N,) of whole programs for problems with features (N, F), and the entropies (N,)
        of the choices met on the way, summed over each program."""
        tokens, legal = self.grammar.masks(programs)
        code = self.encoder(features)
        state, before = code, self._before(len(programs))
        total, entropy = features.new_zeros(len(programs)), features.new_zeros(len(programs))
        for position in range(tokens.shape[1]):
            state = self.cell(torch.cat([self.tokens(before), code], dim=-1), state)
            log_p = _masked_log_softmax(self.output(state), legal[:, position])
            before = tokens[:, position]
            total = total + log_p.gather(1, before[:, None]).squeeze(1)
            finite = log_p.masked_fill(~legal[:, position], 0.0)
            entropy = entropy - (log_p.exp() * finite).sum(dim=1)
        return total, entropy

    @torch.no_grad()
    def write(
        self, features: Tensor, generator: torch.Generator | None, allowed: list[Allowed] | None = None
    ) -> list[Program | None]:
        """A program for each row of features (N, F), drawn from the policy; the most probable tokens where
        `generator` is None.

        `allowed` says for each row which of the legal tokens may follow a prefix, and the others' probability
        is shared out among these. None in the answer: nothing was allowed after some prefix.
        """
        code = self.encoder(features)
        state, before = code, self._before(len(features))
        programs: list[Program | None] = [()] * len(features)
        writing = list(range(len(features)))
        while writing:
            rows = torch.tensor(writing)
            state = self.cell(torch.cat([self.tokens(before), code[rows]], dim=-1), state)
            legal = np.stack([self._allowed(programs[row], row, allowed) for row in writing])
            stuck = ~legal.any(axis=1)
            legal[stuck, 0] = True  # of no meaning, but a row without any has no distribution
            log_p = _masked_log_softmax(self.output(state), torch.from_numpy(legal))
            chosen = (
                log_p.argmax(dim=1)
                if generator is None
                else torch.multinomial(log_p.exp(), 1, generator=generator).squeeze(1)
            )
            going = []
            for place, row in enumerate(writing):
                prefix = programs[row]
                assert prefix is not None
                programs[row] = None if stuck[place] else (*prefix, int(chosen[place]))
                if not stuck[place] and not self.grammar.is_whole((*prefix, int(chosen[place]))):
                    going.append(place)
            state, before = state[going], chosen[going]
            writing = [writing[place] for place in going]
        return programs

    def _allowed(self, prefix: Program | None, row: int, allowed: list[Allowed] | None) -> np.ndarray:
        assert prefix is not None
        return self.grammar.legal(prefix).copy() if allowed is None else allowed[row](prefix)

    def _before(self, count: int) -> Tensor:
        """What stands before the first token."""
        return torch.full((count,), self.grammar.size, dtype=torch.int64)


def _masked_log_softmax(logits: Tensor, legal: Tensor) -> Tensor:
    return torch.log_softmax(logits.masked_fill(~legal, -math.inf), dim=-1)
