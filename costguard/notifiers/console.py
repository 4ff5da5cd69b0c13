"""Lines on stderr: the channel that needs no disk, no network and no account."""

from __future__ import annotations

import sys

from costguard.guard.alerts.alert import Delivery, Message
from costguard.guard.alerts.letters import body_of, title_of
from costguard.notifiers import Channel


def notify(message: Message, channel: Channel) -> Delivery:  # noqa: ARG001 - it has no address
    """Write the title and, indented, the text."""
    body = "".join(f"    {line}\n" if line else "\n" for line in body_of(message).splitlines())
    text = f"{title_of(message)}\n{body}"
    if sys.stderr is None:  # under pythonw, or where it was closed before the start
        return Delivery(sent=False, why="there is no stderr", again=False)
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError) as broken:
        return Delivery(sent=False, why=f"stderr cannot be written ({type(broken).__name__})")
    return Delivery(sent=True)
