"""Record demonstrations from the topics of a robot that something else moves, judged on a page.

ros2 launch grasp_ros record.launch.py out:=runs/real
"""

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, ExecuteProcess
from launch.substitutions import LaunchConfiguration

SETTINGS = {
    "out": "out",
    "env": "env.name",
    "episodes": "episodes",
    "device": "device",
    "host": "page.host",
    "port": "page.port",
    "token": "page.token",
    "object_size": "object_size",
    "object_symmetry": "object_symmetry",
    "tf_prefix": "topics.tf_prefix",
}
"""Arguments of this file and the settings of grasp-record that they are."""


def generate_launch_description():
    """The arguments and the recorder."""
    return LaunchDescription(
        [
            DeclareLaunchArgument(
                "out",
                default_value="runs/real",
                description="Folder of the data set; an existing one is gone on with.",
            ),
            DeclareLaunchArgument(
                "env",
                default_value="robosuite-lift",
                description="Environment that the episodes are for, <simulator>-<task>.",
            ),
            DeclareLaunchArgument(
                "episodes",
                default_value="20",
                description="Successful demonstrations wanted in the data set.",
            ),
            DeclareLaunchArgument(
                "device",
                default_value="browser",
                choices=["browser", "gamepad"],
                description="Where you begin and judge episodes; for keys run grasp-record in a terminal.",
            ),
            DeclareLaunchArgument(
                "host", default_value="127.0.0.1", description="Address that the page is served on."
            ),
            DeclareLaunchArgument("port", default_value="8080", description="Port of the page."),
            DeclareLaunchArgument(
                "token",
                default_value="",
                description="Word that opens the page; needed for any but the loopback address.",
            ),
            DeclareLaunchArgument(
                "object_size",
                default_value="[]",
                description="m, full extents, as in [0.04,0.04,0.06]; empty waits for /object_size.",
            ),
            DeclareLaunchArgument(
                "object_symmetry",
                default_value="4",
                description="How often the object looks the same in a turn about the vertical; 0: always.",
            ),
            DeclareLaunchArgument(
                "tf_prefix",
                default_value="",
                description="What the driver puts before each of the arm's joint names.",
            ),
            ExecuteProcess(
                cmd=[
                    "grasp-record",
                    "source=ros",
                    *([f"{key}=", LaunchConfiguration(name)] for name, key in SETTINGS.items()),
                ],
                output="screen",
                emulate_tty=True,
            ),
        ]
    )
