"""Parameters from a dataclass, and how a node's process ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field

import pytest

pytest.importorskip("rclpy")

import rclpy
from rcl_interfaces.msg import ParameterType
from rclpy.context import Context
from rclpy.node import Node
from rclpy.parameter import Parameter

from grasp_ros.parameters import declare
from grasp_sim.errors import UserError


@dataclass
class Arm:
    speed: float = 0.5
    """rad/s, at most 3."""

    def __post_init__(self) -> None:
        if not 0.0 < self.speed <= 3.0:
            raise ValueError(f"arm.speed={self.speed} must be above 0 and at most 3.")


@dataclass
class Settings:
    name: str = "robot"
    """What it is called."""
    rate: int = 500
    """Hz."""
    shadow: bool = False
    """Only watch."""
    limits: list[float] = field(default_factory=lambda: [1.0, 2.0])
    """rad."""
    names: list[str] = field(default_factory=list)
    """Of joints."""
    arm: Arm = field(default_factory=Arm)


@pytest.fixture
def make(ros_domain):
    """Makes nodes with arguments of the command line."""
    made = []

    def node(*arguments: str, **values) -> Node:
        context = Context()
        rclpy.init(context=context)
        given = ["--ros-args", *(part for text in arguments for part in ("-p", text))]
        overrides = [Parameter(name, value=value) for name, value in values.items()]
        made.append((Node("tested", context=context, cli_args=given, parameter_overrides=overrides), context))
        return made[-1][0]

    yield node
    for node, context in made:
        node.destroy_node()
        context.try_shutdown()


def test_what_is_not_given_has_the_dataclass_default(make):
    node = make()
    assert declare(node, Settings) == Settings()
    assert node.get_parameter("rate").value == 500
    assert list(node.get_parameter("limits").value) == [1.0, 2.0]
    assert node.get_parameter("arm.speed").value == 0.5


def test_given_values_reach_the_dataclass_and_the_parameter(make):
    node = make("rate:=125", "shadow:=true", "limits:=[1,2,3]", "names:=[a,b]", "arm.speed:=2")
    config = declare(node, Settings)
    assert config == Settings(
        rate=125, shadow=True, limits=[1.0, 2.0, 3.0], names=["a", "b"], arm=Arm(speed=2.0)
    )
    assert [type(one) for one in config.limits] == [float] * 3
    assert (type(config.arm.speed), node.get_parameter("arm.speed").value) == (float, 2.0)
    assert declare(make("limits:=[]"), Settings).limits == []
    assert declare(make(rate=7), Settings).rate == 7
    assert declare(make("use_sim_time:=false"), Settings) == Settings()


def test_parameters_are_described_typed_and_fixed(make):
    node = make("arm.speed:=1")
    declare(node, Settings)
    described = node.describe_parameter("arm.speed")
    assert (described.description, described.read_only) == ("rad/s, at most 3.", True)
    assert described.type == ParameterType.PARAMETER_DOUBLE
    assert node.describe_parameter("limits").type == ParameterType.PARAMETER_DOUBLE_ARRAY
    (result,) = node.set_parameters([Parameter("rate", value=1)])
    assert not result.successful


WRONG = {
    "rate:=2.5": r"rate=2\.5 does not fit: it must be int",
    "rate:=true": r"rate=True does not fit: it must be int",
    "shadow:=1": r"shadow=1 does not fit: it must be bool",
    "name:=5": r"name=5 does not fit: it must be str",
    "limits:=3.0": r"limits=3\.0 does not fit: it must be a list of float",
    "limits:=[a,b]": r"limits=\['a', 'b'\] does not fit: it must be a list of float",
    "limits:=abc": r"limits=abc does not fit: it must be a list of float",
    "arm.speed:=.nan": r"arm\.speed=nan is not a number",
    "arm.speed:=4.0": r"arm\.speed=4\.0 must be above 0 and at most 3",
    "arm.sped:=1.0": r"there is no parameter 'arm\.sped'\. Did you mean 'arm\.speed'\? Parameters: name",
    "qos:=1": r"there is no parameter 'qos'",
}


@pytest.mark.parametrize("given", WRONG)
def test_what_does_not_fit_is_named(given, make):
    with pytest.raises(UserError, match=WRONG[given]):
        declare(make(given), Settings)


def test_a_parameter_without_default_must_be_given(make):
    @dataclass
    class Needs:
        bundle: str
        """File."""

    with pytest.raises(UserError, match="the parameter 'bundle' has no default and must be given"):
        declare(make(), Needs)
    assert declare(make("bundle:=a.onnx"), Needs) == Needs("a.onnx")


PROGRAM = """
import sys
from dataclasses import dataclass
from rclpy.executors import SingleThreadedExecutor
from grasp_ros.process import goes_on, run_node

@dataclass
class Settings:
    rate: float = 2.0
    \"\"\"Hz.\"\"\"
    def __post_init__(self):
        if not 0 < self.rate <= 500:
            raise ValueError(f"rate={self.rate} must be above 0 and at most 500.")

def run(node, config):
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    print("running", config.rate, flush=True)
    while goes_on():
        executor.spin_once(timeout_sec=0.1)

sys.exit(run_node("greeter", Settings, run, "Greets."))
"""


@pytest.fixture
def program(ros_domain, tmp_path):
    path = tmp_path / "greeter.py"
    path.write_text(PROGRAM)
    return [sys.executable, str(path)]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--ros-args", "-p", "rate:=600.0"], "greeter: rate=600.0 must be above 0 and at most 500."),
        (["--ros-args", "-p", "rat:=6.0"], "greeter: there is no parameter 'rat'. Did you mean 'rate'?"),
        (["rate:=6.0"], "greeter: 'rate:=6.0' is not a ROS argument; parameters are given as in --ros-args"),
        (["--ros-args", "-p", "rate=6.0"], "greeter: the ROS arguments cannot be read: Failed to parse"),
        (["--ros-args", "--rate"], "greeter: the ROS arguments cannot be read: ['--rate']; parameters are"),
    ],
)
def test_a_wrong_argument_is_one_line_and_exit_code_1(arguments, line, program):
    done = subprocess.run([*program, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    own = [text for text in done.stderr.splitlines() if not text.startswith("[ERROR]")]  # rcl's own
    assert len(own) == 1, done.stderr
    assert own[0].startswith(line)
    assert done.stdout == ""


def test_help_lists_the_parameters(program):
    done = subprocess.run([*program, "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "Greets." in done.stdout
    assert "Usage: greeter --ros-args [-p name:=value ...]" in done.stdout
    assert "rate=2.0  (float)\n      Hz." in done.stdout


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_quietly(number, count, program):
    process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "running 2.0\n"
    for _ in range(count):  # an impatient person
        process.send_signal(number)
        time.sleep(0.02)
    out, error = process.communicate(timeout=30)
    assert (process.returncode, out, error) == (0, "", "")
