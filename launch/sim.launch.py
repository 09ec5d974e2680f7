"""A simulated UR5e with gripper and perception, and the stack on it.

ros2 launch grasp_ros sim.launch.py
ros2 service call /policy_server/start std_srvs/srv/Trigger
"""

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import (
    EqualsSubstitution,
    IfElseSubstitution,
    LaunchConfiguration,
    PathJoinSubstitution,
    ThisLaunchFileDir,
)
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue
from launch_ros.substitutions import FindPackageShare

OUTPUT = LaunchConfiguration("output")
CONTROLLER = IfElseSubstitution(
    EqualsSubstitution(OUTPUT, "position"),
    "forward_position_controller",
    IfElseSubstitution(
        EqualsSubstitution(OUTPUT, "velocity"),
        "forward_velocity_controller",
        "scaled_joint_trajectory_controller",
    ),
)
"""The active controller of the simulated driver."""


def generate_launch_description():
    """The arguments, the simulated robot, and the stack."""
    return LaunchDescription(
        [
            DeclareLaunchArgument(
                "bundle",
                default_value=PathJoinSubstitution([FindPackageShare("grasp_ros"), "bundle"]),
                description="Folder of the policy bundle that is served; the default comes with the package.",
            ),
            DeclareLaunchArgument(
                "env",
                default_value="pybullet-lift",
                description="Environment that is simulated, <simulator>-<task>, such as robosuite-lift.",
            ),
            DeclareLaunchArgument(
                "seed", default_value="0", description="Of the first start; each reset takes the next."
            ),
            DeclareLaunchArgument(
                "rate",
                default_value="500",
                choices=["125", "500"],
                description="Hz of the simulated driver: 500 for an e-Series arm, 125 for a CB3.",
            ),
            DeclareLaunchArgument(
                "output",
                default_value="position",
                choices=["position", "velocity", "trajectory"],
                description="Which of the driver's controllers is active and commanded.",
            ),
            DeclareLaunchArgument(
                "shadow",
                default_value="false",
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
                "config",
                default_value=PathJoinSubstitution([ThisLaunchFileDir(), "sim.yaml"]),
                description="YAML file with further parameters of the nodes, such as limits.",
            ),
            Node(
                package="grasp_ros",
                executable="sim_robot",
                name="sim_robot",
                output="screen",
                emulate_tty=True,
                parameters=[
                    LaunchConfiguration("config"),
                    {
                        "env": ParameterValue(LaunchConfiguration("env"), value_type=str),
                        "seed": ParameterValue(LaunchConfiguration("seed"), value_type=int),
                        "rate": ParameterValue(LaunchConfiguration("rate"), value_type=int),
                        "controller": ParameterValue(CONTROLLER, value_type=str),
                    },
                ],
            ),
            IncludeLaunchDescription(
                PythonLaunchDescriptionSource(PathJoinSubstitution([ThisLaunchFileDir(), "stack.launch.py"])),
                launch_arguments={
                    name: LaunchConfiguration(name)
                    for name in ("bundle", "rate", "output", "shadow", "autostart", "config")
                }.items(),
            ),
        ]
    )
