"""A task's grammar, asked once per prefix."""

from __future__ import annotations

import numpy as np
import torch

from grasp_sim.programs import Program, ProgramError, ProgramTask, require_legal


class Grammar:
    """Which tokens may follow which prefix, remembered."""

    def __init__(self, task: ProgramTask) -> None:
        self.task = task
        self.size = len(task.tokens)
        """V, number of tokens."""
        self._known: dict[Program, np.ndarray] = {}

    def legal(self, prefix: Program) -> np.ndarray:
        """(V,) bool, not to be written to; none where the prefix is a whole program.

        Raises ProgramError where the prefix is as long as a program may be and still not whole.
        """
        legal = self._known.get(prefix)
        if legal is None:
            legal = require_legal(self.task, prefix).copy()
            if legal.any() and len(prefix) >= self.task.longest:
                raise ProgramError(
                    f"the grammar of {self.task.name} has a dead end: {prefix} is as long as a program may be"
                    " and not whole"
                )
            legal.flags.writeable = False
            self._known[prefix] = legal
        return legal

    def is_whole(self, prefix: Program) -> bool:
        """Whether nothing may follow."""
        return not self.legal(prefix).any()

    def masks(self, programs: list[Program]) -> tuple[torch.Tensor, torch.Tensor]:
        """Programs padded with 0 (N, L) int64, and what was legal before each token (N, L, V) bool.

        Behind a program's end only token 0 is legal, so that padding has probability 1.
        """
        longest = max(map(len, programs), default=0)
        tokens = np.zeros((len(programs), longest), dtype=np.int64)
        legal = np.zeros((len(programs), longest, self.size), dtype=bool)
        for row, program in enumerate(programs):
            tokens[row, : len(program)] = program
            for length in range(len(program)):
                legal[row, length] = self.legal(program[:length])
            legal[row, len(program) :, 0] = True
        return torch.from_numpy(tokens), torch.from_numpy(legal)
