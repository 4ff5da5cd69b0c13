"""What systemd is told: a datagram to the socket that it names (sd_notify(3)), and nothing where it names none."""

from __future__ import annotations

import os
import socket
import time

READY, STOPPING, ALIVE = "READY=1", "STOPPING=1", "WATCHDOG=1"


def notify_systemd(*facts: str) -> bool:
    """Send `facts` ("READY=1", "STATUS=..."), each on a line. Whether they were sent; it raises nothing."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if not place.startswith(("/", "@")):
        return False
    lines = (fact.replace("\n", " ") for fact in facts)  # a name in a status cannot forge a READY=1 of its own
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as line:
            line.settimeout(1)
            line.connect(f"\0{place[1:]}" if place.startswith("@") else place)
            line.send("\n".join(lines).encode(errors="replace"))
    except OSError:
        return False
    return True


def build_reload_facts() -> tuple[str, str]:
    """What is sent when a reload begins; READY ends it. systemd wants the instant by its own clock, in microseconds."""
    return "RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}"
