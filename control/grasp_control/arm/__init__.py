"""Real-time control of an arm: from measured messages to a command that is safe to send. No ROS here."""
