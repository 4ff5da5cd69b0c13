"""Writes messages to stderr; this channel needs no disk, network or account."""

from __future__ import annotations

import sys

from costguard.guard.alerts.alert import DeliveryResult, Notification
from costguard.guard.alerts.dispatch import format_body, format_title
from costguard.notifiers import Channel


def notify(message: Notification, channel: Channel) -> DeliveryResult:  # noqa: ARG001 - it has no address
    """Write the title, then the indented text."""
    body = "".join(f"    {line}\n" if line else "\n" for line in format_body(message).splitlines())
    text = f"{format_title(message)}\n{body}"
    if sys.stderr is None:  # under pythonw, or where it was closed before the start
        return DeliveryResult(sent=False, why="there is no stderr", again=False)
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError) as broken:
        return DeliveryResult(sent=False, why=f"stderr cannot be written ({type(broken).__name__})")
    return DeliveryResult(sent=True)
