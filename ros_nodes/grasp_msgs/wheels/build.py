"""Builds grasp_msgs against the ROS 2 wheels of the environment whose Python runs this, installs it there.

Usage: python build.py STAMP; the file STAMP is written when it is done. With a ROS distribution nothing of
this folder is needed: colcon builds the package by its CMakeLists.txt.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PREFIX = Path(sys.prefix)


def tool(name: str) -> str:
    """Path of a program, first looked for in the environment; ends the command where there is none."""
    found = shutil.which(name, path=f"{PREFIX / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        sys.exit(f"error: {name} is needed to build grasp_msgs: install the extra ros-build with pip")
    return found


def run(log: Path, environment: dict[str, str], *command: str) -> None:
    """Run a step; where it fails, show the end of what it wrote and end the command."""
    with log.open("a") as file:
        done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, env=environment, check=False)
    if done.returncode:
        print("\n".join(log.read_text(errors="replace").splitlines()[-40:]), file=sys.stderr)
        sys.exit(
            f"error: grasp_msgs could not be built: {' '.join(command[:2])} ended with {done.returncode}"
        )


def main() -> None:
    """Configure, build and install."""
    compiler = os.environ.get("CXX", "c++").split()[0]
    if not shutil.which(compiler):
        print(f"note: without a C++ compiler ({compiler}) grasp_msgs is not built; the nodes offer no Grasp"
              " action: install g++, then `make grasp-msgs`.", file=sys.stderr)  # fmt: skip
        return
    environment = {
        # Libraries of the wheels are for Python alone; they would come before those of the build tools.
        **{
            name: value
            for name, value in os.environ.items()
            if name not in ("LD_LIBRARY_PATH", "_ROS_WHEELS_BOOTSTRAP_COMPLETE", "PYTHONPATH")
        },
        "AMENT_PREFIX_PATH": str(PREFIX),
        "CMAKE_PREFIX_PATH": str(PREFIX),
    }
    with tempfile.TemporaryDirectory(prefix="grasp_msgs-") as folder:
        log, build = Path(folder, "log"), str(Path(folder, "build"))
        settings = {
            "CMAKE_MAKE_PROGRAM": tool("ninja"),
            "CMAKE_INSTALL_PREFIX": PREFIX,
            "BUILD_TESTING": "OFF",
            "Python3_EXECUTABLE": sys.executable,
            "rosidl_default_generators_DIR": HERE,
            "CMAKE_PROJECT_grasp_msgs_INCLUDE": HERE / "project.cmake",
        }
        configure = ["-S", str(HERE.parent), "-B", build, "-G", "Ninja"]
        configure += [f"-D{name}={value}" for name, value in settings.items()]
        run(log, environment, tool("cmake"), *configure)
        run(log, environment, tool("cmake"), "--build", build)
        # What an earlier version of the action left behind would be imported with the new one.
        shutil.rmtree(Path(sysconfig.get_path("purelib"), "grasp_msgs"), ignore_errors=True)
        run(log, environment, tool("cmake"), "--install", build)
    Path(sys.argv[1]).touch()


if __name__ == "__main__":
    main()
