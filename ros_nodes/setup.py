"""For colcon, which finds the package by `package.xml`; pip installs it with the rest of the repository."""

from setuptools import setup

setup(
    name="grasp_ros",
    version="0.1.0",
    packages=["grasp_ros"],
    data_files=[
        ("share/ament_index/resource_index/packages", ["resource/grasp_ros"]),
        ("share/grasp_ros", ["package.xml"]),
    ],
    install_requires=["setuptools"],
    entry_points={"console_scripts": ["sim_robot = grasp_ros.sim_robot:main"]},
    zip_safe=True,
)
