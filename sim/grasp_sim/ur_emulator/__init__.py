"""Stands for a Universal Robots controller with a Robotiq gripper on the network; see `command.py`."""
