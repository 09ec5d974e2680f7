"""What hears the topics of a robot, offered by packages that demonstrations know nothing of."""

from __future__ import annotations

from importlib.metadata import entry_points

from grasp_demos.topics import Topics
from grasp_demos.watch import Receiver
from grasp_sim.errors import UserError

RECORDERS = "grasp_demos.recorders"
"""Entry points: `open_receiver(topics)` gives a `Receiver`."""


def load_receiver(name: str, topics: Topics) -> Receiver:
    """A receiver of the topics. Raises UserError where it is not installed, or what it needs is not."""
    found = list(entry_points(group=RECORDERS, name=name))
    if not found:
        raise UserError(
            f"no installed package offers the recorder {name!r} (entry points {RECORDERS}): install this one"
            " again with make install."
        )
    try:
        open_receiver = found[0].load()
    except ImportError as error:
        raise UserError(
            f"source={name} needs packages that cannot be imported ({error}):"
            " pip install -c requirements.lock -e '.[ros]'"
        ) from error
    return open_receiver(topics)
