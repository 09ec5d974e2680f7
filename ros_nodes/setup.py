"""For colcon, which finds the package by `package.xml`; pip installs it with the rest of the repository."""

from glob import glob

from setuptools import setup

NODES = {
    "sim_robot": "sim_robot",
    "gripper_bridge": "gripper_bridge",
    "policy_server": "policy_server",
    "servo": "servo_node",
    "safety": "safety_node",
}
"""Executables and their modules."""

setup(
    name="grasp_ros",
    version="0.1.0",
    packages=["grasp_ros"],
    package_data={"grasp_ros": ["loopback.xml"]},
    data_files=[
        ("share/ament_index/resource_index/packages", ["resource/grasp_ros"]),
        ("share/grasp_ros", ["package.xml"]),
        ("share/grasp_ros/bundle", sorted(glob("grasp_ros/bundle/*"))),
        ("share/grasp_ros/launch", sorted(glob("../launch/*.launch.py") + glob("../launch/*.yaml"))),
    ],
    install_requires=["setuptools"],
    zip_safe=False,
    entry_points={
        "console_scripts": [f"{name} = grasp_ros.{module}:main" for name, module in NODES.items()],
    },
)
