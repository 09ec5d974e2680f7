"""How messages travel: over UDP, and never through the shared memory of Fast DDS.

A process that is killed while it holds the mutex of its shared-memory port makes all who send to it wait in
`publish` until a watchdog frees it: 0.3 to 3 s, measured with subscribers killed at random beside a publisher
at 500 Hz, where UDP showed nothing above 15 ms. A safety filter that waits brakes nothing.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path

LOOPBACK = Path(__file__).with_name("loopback.xml")
"""Profile of Fast DDS: UDP on the loopback interface alone."""
_FAST_DDS = ("", "rmw_fastrtps_cpp", "rmw_fastrtps_dynamic_cpp")
_RANGE = "ROS_AUTOMATIC_DISCOVERY_RANGE"
_PROFILES, _OLD_PROFILES = "FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE"
_TRANSPORTS = "FASTDDS_BUILTIN_TRANSPORTS"


def avoid_shared_memory(environment: MutableMapping[str, str] = os.environ) -> None:
    """Choose the transports of this process; before ROS is initialised.

    Whoever has chosen other transports or a profile keeps them. With the range LOCALHOST `rmw_fastrtps` adds
    shared memory whatever the environment says, so that a profile takes the range's place; nodes of either
    kind hear each other.
    """
    ours = {_PROFILES: str(LOOPBACK), _OLD_PROFILES: "", _TRANSPORTS: "UDPv4"}
    if any(environment.get(name) not in (None, "", value) for name, value in ours.items()):
        return
    environment[_TRANSPORTS] = ours[_TRANSPORTS]
    fast_dds = environment.get("RMW_IMPLEMENTATION", "") in _FAST_DDS
    local = environment.get(_RANGE) == "LOCALHOST" or environment.get("ROS_LOCALHOST_ONLY") == "1"
    if fast_dds and local and not environment.get("ROS_STATIC_PEERS"):
        environment.pop("ROS_LOCALHOST_ONLY", None)
        environment[_RANGE] = "SYSTEM_DEFAULT"
        environment[_PROFILES] = ours[_PROFILES]
