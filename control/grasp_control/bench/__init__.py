"""`grasp-bench <what> [key=value ...]`: measure a part of the stack on this machine.

Every benchmark prints a table and writes the raw figures; none is a test, so none fails on a slow machine.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Sequence

BENCHMARKS = {
    "learning": "success against environment steps: EMPO2, PPO, SAC, SAC with demonstrations",
    "train": "the whole training loop: steps a second, shares of simulator, acting, memory and learner",
    "encoder": "what the encoders of the long-term memory retrieve, and the time of a refresh",
    "memory": "prioritised replay, retrieval, eviction, saving and loading of the long-term memory",
    "runs": "finished training runs side by side: table, figure and raw data",
    "recording": "what killed recorders lose, and how long checking 1,000 episodes takes",
    "sim": "control steps a second of every simulator and mode, resets, processes side by side",
    "expert": "success of the scripted expert in every environment and mode",
    "pictures": "one picture of every environment",
    "transfer": "success of policy bundles in environments they were not trained in",
}
"""Names, each a module of this package with `run(arguments) -> exit code`, and what they measure."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark that the first word names."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    listing = "\n".join(f"  {name:10} {text}" for name, text in BENCHMARKS.items())
    if not words or words[0] in ("-h", "--help"):
        print(f"Usage: grasp-bench <what> [key=value ...]\n\n{listing}\n")
        print("grasp-bench <what> --help lists the settings of one.")
        return 0 if words else 2
    if words[0] not in BENCHMARKS:
        near = difflib.get_close_matches(words[0], BENCHMARKS, 1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        print(
            f"grasp-bench: there is no benchmark '{words[0]}'.{hint} Benchmarks: {', '.join(BENCHMARKS)}.",
            file=sys.stderr,
        )
        return 2
    return importlib.import_module(f"{__name__}.{words[0]}").run(words[1:])
