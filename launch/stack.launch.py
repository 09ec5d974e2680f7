"""The nodes between a driver and a policy: gripper_bridge, safety, servo and policy_server.

Included by sim.launch.py and ur.launch.py, which start what these nodes talk to.
"""

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue


def text(name):
    """An argument as text, even one that looks like a number or is empty."""
    return ParameterValue(LaunchConfiguration(name), value_type=str)


def number(name):
    """An argument as a number."""
    return ParameterValue(LaunchConfiguration(name), value_type=float)


def flag(name):
    """An argument that is true or false."""
    return ParameterValue(LaunchConfiguration(name), value_type=bool)


def node(executable, *parameters):
    """A node of this package; its settings in `config` yield to `parameters`."""
    return Node(
        package="grasp_ros",
        executable=executable,
        name=executable,
        output="screen",
        emulate_tty=True,
        parameters=[LaunchConfiguration("config"), *parameters],
    )


def generate_launch_description():
    """The arguments and the nodes."""
    prefix = {"tf_prefix": text("tf_prefix")}
    return LaunchDescription(
        [
            DeclareLaunchArgument("bundle", description="Folder of the policy bundle that is served."),
            DeclareLaunchArgument(
                "config", description="YAML file with further parameters of the nodes, such as limits."
            ),
            DeclareLaunchArgument(
                "shadow",
                default_value="true",
                choices=["true", "false"],
                description="true: the policy computes and says what it would do, and commands nothing.",
            ),
            DeclareLaunchArgument(
                "autostart",
                default_value="true",
                choices=["true", "false"],
                description="false: a lifecycle manager, or you, configure and activate policy_server.",
            ),
            DeclareLaunchArgument(
                "speed",
                default_value="1.0",
                description="Share of the speed at which the policy was trained, from 0.1 to 1.",
            ),
            DeclareLaunchArgument(
                "output",
                default_value="position",
                choices=["position", "velocity", "trajectory"],
                description="What the driver's active controller takes.",
            ),
            DeclareLaunchArgument(
                "controller",
                default_value="",
                description="Topic of that controller; empty takes the usual one of its kind.",
            ),
            DeclareLaunchArgument(
                "rate",
                default_value="500",
                choices=["125", "500"],
                description="Hz of the driver's joint states: 500 for an e-Series arm, 125 for a CB3.",
            ),
            DeclareLaunchArgument(
                "tf_prefix",
                default_value="",
                description="What the driver puts before each of the arm's joint names.",
            ),
            DeclareLaunchArgument(
                "finger_joint",
                default_value="finger_joint",
                description="The gripper's joint in /joint_states.",
            ),
            DeclareLaunchArgument(
                "finger_closed",
                default_value="0.8",
                description="rad of that joint with the gripper closed.",
            ),
            DeclareLaunchArgument(
                "gripper_interface",
                default_value="topic",
                choices=["topic", "parallel_gripper_command", "gripper_command"],
                description="How the gripper's driver takes commands: a topic, or an action of control_msgs.",
            ),
            node(
                "gripper_bridge",
                {
                    "finger_joint": text("finger_joint"),
                    "units.closed_position": number("finger_closed"),
                    "interface": text("gripper_interface"),
                },
            ),
            node(
                "safety",
                prefix,
                {
                    "output": text("output"),
                    "controller": text("controller"),
                    "limits.rate_hz": number("rate"),
                },
            ),
            node("servo", prefix),
            node(
                "policy_server",
                prefix,
                {
                    "bundle": text("bundle"),
                    "shadow": flag("shadow"),
                    "autostart": flag("autostart"),
                    "speed": number("speed"),
                },
            ),
        ]
    )
