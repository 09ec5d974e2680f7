"""A node as a process: `--help`, errors of one line, and a quiet end on Ctrl-C and SIGTERM."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import rclpy
from rclpy.exceptions import NameValidationException, ParameterException
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from rclpy.utilities import remove_ros_args

from grasp_ros.middleware import avoid_shared_memory
from grasp_ros.parameters import declare
from grasp_sim.cli import say
from grasp_sim.cli_help import describe
from grasp_sim.errors import UserError

EXIT_USER_ERROR = 1


def run_node(
    name: str,
    config_class: type,
    run: Callable[[Node, Any], None],
    help_text: str,
    *,
    node_class: type[Node] = Node,
    argv: Sequence[str] | None = None,
) -> int:
    """Make a node, declare its parameters from `config_class`, and call `run(node, config)` until it returns.

    Args:
        name: of the node, unless it is remapped.
        config_class: dataclass of its settings, see `grasp_ros.parameters`.
        run: spins the node while `goes_on()`.
        help_text: what the node is for, printed by `--help` above its parameters.
        node_class: `Node` or a class derived from it that is made by the name alone.
        argv: arguments with the program's name; `sys.argv` by default.

    Returns the exit code: 0 after Ctrl-C or SIGTERM too, 1 after a UserError, which becomes one line.
    """
    arguments = list(sys.argv if argv is None else argv)
    if "--help" in arguments or "-h" in arguments:
        text = describe(config_class, help_text, f"{name} --ros-args", {})
        print(text.replace("[key=value ...]", "[-p name:=value ...]").split("\n\n  --help")[0])
        return 0
    node: Node | None = None
    try:
        with _ending_in_order():
            try:
                _start_ros(arguments)
                node = node_class(name)
                run(node, declare(node, config_class))
            finally:
                if node is not None:
                    node.destroy_node()
                rclpy.try_shutdown()
    except KeyboardInterrupt:
        pass
    except (UserError, NameValidationException, ParameterException) as error:  # rclpy's of what was given
        say(f"{name}: {' '.join(str(error).split())}")
        return EXIT_USER_ERROR
    return 0


_ending = threading.Event()


def goes_on() -> bool:
    """Nobody has asked this process to end; loops of nodes ask it between two callbacks."""
    return not _ending.is_set()


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into the end of the node's loop; a second one interrupts whatever runs.

    rclpy's own handlers shut ROS down at once, under a callback that is about to publish.
    """

    def end(number: int, frame: object) -> None:
        if _ending.is_set():
            raise KeyboardInterrupt
        _ending.set()

    _ending.clear()
    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():  # nothing is left to be ended by yet another one
            signal.signal(number, signal.SIG_IGN if _ending.is_set() else handler)


def _start_ros(arguments: list[str]) -> None:
    hint = "parameters are given as in --ros-args -p name:=value, and --help lists them."
    try:
        left = remove_ros_args(arguments)[1:]
        if left:
            raise UserError(f"'{left[0]}' is not a ROS argument; {hint}")
        avoid_shared_memory()
        rclpy.init(args=arguments, signal_handler_options=SignalHandlerOptions.NO)
    except RuntimeError as error:  # what rcl makes of arguments that it cannot read
        reason = str(error).split(", at /")[0]
        raise UserError(f"the ROS arguments cannot be read: {reason}; {hint}") from error
