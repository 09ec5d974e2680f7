"""The stack on a UR5e behind the Universal Robots driver, with the limits of a first run.

    ros2 launch grasp_ros ur.launch.py bundle:=runs/lift/bundle robot_ip:=192.168.1.10

The policy commands nothing until shadow:=false. The gripper's driver and the perception of the object
(/object_pose, /object_size) are started by themselves.
"""

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription
from launch.conditions import IfCondition
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import (
    EqualsSubstitution,
    IfElseSubstitution,
    LaunchConfiguration,
    PathJoinSubstitution,
    ThisLaunchFileDir,
)
from launch_ros.substitutions import FindPackageShare

OUTPUT = LaunchConfiguration("output")
CONTROLLER = IfElseSubstitution(
    EqualsSubstitution(OUTPUT, "position"),
    "forward_position_controller",
    IfElseSubstitution(
        EqualsSubstitution(OUTPUT, "velocity"),
        "forward_velocity_controller",
        LaunchConfiguration("trajectory_controller"),
    ),
)
"""The controller that the driver activates."""
TOPIC = IfElseSubstitution(
    EqualsSubstitution(OUTPUT, "trajectory"),
    ["/", LaunchConfiguration("trajectory_controller"), "/joint_trajectory"],
    ["/", CONTROLLER, "/commands"],
)
"""Where it takes commands."""


def generate_launch_description():
    """The arguments, the driver where it is wanted, and the stack."""
    return LaunchDescription(
        [
            DeclareLaunchArgument("bundle", description="Folder of the policy bundle that is served."),
            DeclareLaunchArgument(
                "shadow",
                default_value="true",
                choices=["true", "false"],
                description="true: the policy computes and says what it would do, and commands nothing. See"
                " /shadow/requested_action before the first run with false.",
            ),
            DeclareLaunchArgument(
                "speed",
                default_value="0.3",
                description="Share of the speed that the policy was trained at, from 0.1 to 1; the default is"
                " for a first run.",
            ),
            DeclareLaunchArgument(
                "config",
                default_value=PathJoinSubstitution([ThisLaunchFileDir(), "ur.yaml"]),
                description="YAML file with the limits; the default's are for a first run.",
            ),
            DeclareLaunchArgument(
                "launch_driver",
                default_value="true",
                choices=["true", "false"],
                description="Start ur_robot_driver too; false where it runs already.",
            ),
            DeclareLaunchArgument(
                "robot_ip",
                default_value="192.168.56.101",
                description="Address of the robot's controller; the default is the one of URSim.",
            ),
            DeclareLaunchArgument(
                "use_fake",
                default_value="false",
                choices=["true", "false"],
                description="Let the driver move joints in its imagination instead of a robot.",
            ),
            DeclareLaunchArgument(
                "headless",
                default_value="false",
                choices=["true", "false"],
                description="true: the driver sends its program itself; false: start External Control on the"
                " teach pendant.",
            ),
            DeclareLaunchArgument(
                "output",
                default_value="position",
                choices=["position", "velocity", "trajectory"],
                description="Kind of the driver's controller: forward_position_controller,"
                " forward_velocity_controller, or the one named by trajectory_controller.",
            ),
            DeclareLaunchArgument(
                "trajectory_controller",
                default_value="scaled_joint_trajectory_controller",
                description="The trajectory controller; newer drivers have joint_trajectory_controller.",
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
                default_value="robotiq_85_left_knuckle_joint",
                description="The gripper's joint in /joint_states; this is Robotiq's driver's name for it.",
            ),
            DeclareLaunchArgument(
                "finger_closed",
                default_value="0.7929",
                description="rad of that joint with the gripper closed.",
            ),
            DeclareLaunchArgument(
                "gripper_interface",
                default_value="parallel_gripper_command",
                choices=["topic", "parallel_gripper_command", "gripper_command"],
                description="How the gripper's driver takes commands: a topic, or an action of control_msgs.",
            ),
            DeclareLaunchArgument(
                "autostart",
                default_value="true",
                choices=["true", "false"],
                description="false: a lifecycle manager, or you, configure and activate policy_server.",
            ),
            IncludeLaunchDescription(
                PythonLaunchDescriptionSource(
                    PathJoinSubstitution(
                        [FindPackageShare("ur_robot_driver"), "launch", "ur_control.launch.py"]
                    )
                ),
                condition=IfCondition(LaunchConfiguration("launch_driver")),
                launch_arguments={
                    "ur_type": "ur5e",
                    "robot_ip": LaunchConfiguration("robot_ip"),
                    # The name that Humble's driver has for it, and the one that later ones have.
                    "use_fake_hardware": LaunchConfiguration("use_fake"),
                    "use_mock_hardware": LaunchConfiguration("use_fake"),
                    "headless_mode": LaunchConfiguration("headless"),
                    "initial_joint_controller": CONTROLLER,
                    "tf_prefix": LaunchConfiguration("tf_prefix"),
                    "launch_rviz": "false",
                }.items(),
            ),
            IncludeLaunchDescription(
                PythonLaunchDescriptionSource(PathJoinSubstitution([ThisLaunchFileDir(), "stack.launch.py"])),
                launch_arguments={
                    "controller": TOPIC,
                    **{
                        name: LaunchConfiguration(name)
                        for name in (
                            *("bundle", "config", "shadow", "autostart", "speed", "output", "rate"),
                            *("tf_prefix", "finger_joint", "finger_closed", "gripper_interface"),
                        )
                    },
                }.items(),
            ),
        ]
    )
