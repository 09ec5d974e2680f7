"""Programs that were worth something, by problem."""

from __future__ import annotations

from grasp_sim.programs import Program


class ProgramMemory:
    """For each problem up to `most` programs with a reward above 0: the best, of equals the first found."""

    def __init__(self, most: int = 32) -> None:
        if most < 1:
            raise ValueError(f"a memory of {most} programs a problem holds nothing.")
        self._most = most
        self._programs: dict[str, dict[Program, float]] = {}

    def add(self, key: str, program: Program, reward: float) -> bool:
        """Keep a program; whether it was new and good enough."""
        if reward <= 0.0:
            return False
        held = self._programs.setdefault(key, {})
        if program in held:
            return False
        if len(held) >= self._most:
            worst = min(reversed(held), key=held.__getitem__)  # of equals the one found last
            if held[worst] >= reward:
                return False
            del held[worst]
        held[program] = reward
        return True

    def of(self, key: str) -> dict[Program, float]:
        """The problem's programs and their rewards; not to be changed."""
        return self._programs.get(key, {})

    def best(self, key: str) -> float:
        """The highest reward so far, 0 without any."""
        return max(self.of(key).values(), default=0.0)

    def __contains__(self, item: tuple[str, Program]) -> bool:
        return item[1] in self.of(item[0])

    def __len__(self) -> int:
        return sum(map(len, self._programs.values()))

    def state(self) -> dict[str, list[tuple[Program, float]]]:
        """Everything, in the order in which it was found."""
        return {key: list(held.items()) for key, held in self._programs.items()}

    def load(self, state: dict[str, list[tuple[Program, float]]]) -> None:
        """Inverse of `state`."""
        self._programs = {key: dict(held) for key, held in state.items()}
