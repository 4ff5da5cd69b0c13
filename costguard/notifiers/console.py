"""Writes messages to stderr; this channel needs no disk, network or account."""

from __future__ import annotations

import sys

from costguard.guard.alerts.alert import DeliveryResult, Notification
from costguard.notifiers import Channel, format_body, format_title


def notify(message: Notification, channel: Channel) -> DeliveryResult:
    """Write the title, then the indented text; with the time left until an act in a terminal, which is read at once."""
    if sys.stderr is None:  # under pythonw, or where it was closed before the start
        return DeliveryResult(sent=False, why="there is no stderr", again=False)
    try:
        now = channel.clock.now() if sys.stderr.isatty() else None
        body = "".join(f"    {line}\n" if line else "\n" for line in format_body(message, now=now).splitlines())
        sys.stderr.write(f"{format_title(message, now=now)}\n{body}")
        sys.stderr.flush()
    except (OSError, ValueError) as broken:
        return DeliveryResult(sent=False, why=f"stderr cannot be written ({type(broken).__name__})")
    return DeliveryResult(sent=True)
