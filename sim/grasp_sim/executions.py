"""What programs were worth, kept on disk: executing one costs milliseconds, looking it up microseconds."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from grasp_sim.errors import UserError
from grasp_sim.programs import Program

_PATIENCE_S = 60.0
"""For which a process waits for another that writes."""


class ExecutionStore:
    """Rewards by (problem, program) in an SQLite file that several processes may use at once.

    Every reward is there for all as soon as it was added, and survives whatever happens to the process.
    """

    def __init__(self, path: Path | str, identity: str) -> None:
        """Open or make the file. `identity` says what the rewards depend on besides problem and program.

        Raises UserError where the file is no such store, or one of another identity.
        """
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = sqlite3.connect(self.path, timeout=_PATIENCE_S, isolation_level=None)
            # The last rewards may be lost with the machine's power, which costs their execution.
            self._file.execute("PRAGMA journal_mode=WAL")
            self._file.execute("PRAGMA synchronous=NORMAL")
            self._file.execute("CREATE TABLE IF NOT EXISTS identity (name TEXT PRIMARY KEY)")
            self._file.execute(
                "CREATE TABLE IF NOT EXISTS rewards"
                " (problem TEXT, program TEXT, reward REAL, PRIMARY KEY (problem, program)) WITHOUT ROWID"
            )
            self._file.execute(
                "INSERT INTO identity SELECT ? WHERE NOT EXISTS (SELECT 1 FROM identity)", (identity,)
            )
            stored = self._file.execute("SELECT name FROM identity").fetchone()[0]
        except (sqlite3.Error, OSError) as error:
            raise UserError(
                f"{path} cannot be used as a store of executions ({error}): name another file, or remove it."
            ) from error
        if stored != identity:
            self.close()
            raise UserError(f"{path} holds rewards of {stored}, not of {identity}: name another file.")

    def get(self, key: str, program: Program) -> float | None:
        """The reward, or None where it is not known."""
        query = "SELECT reward FROM rewards WHERE problem = ? AND program = ?"
        found = self._file.execute(query, (key, _text(program))).fetchone()
        return None if found is None else float(found[0])

    def add(self, key: str, program: Program, reward: float) -> None:
        """Keep a reward; one that is there stays."""
        self._file.execute(
            "INSERT OR IGNORE INTO rewards VALUES (?, ?, ?)", (key, _text(program), float(reward))
        )

    def __len__(self) -> int:
        with closing(self._file.execute("SELECT COUNT(*) FROM rewards")) as counted:
            return int(counted.fetchone()[0])

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _text(program: Program) -> str:
    return " ".join(map(str, program))
