"""Notification channels, one module each: a function `notify` sends one message once and returns the result.

Retries, grouping and repeats are implemented elsewhere. Channels raise no errors, and never show an address, because most
addresses hold a secret.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from costguard.guard.alerts.alert import Attachment, DeliveryResult, Notification
from costguard.system.clock import Clock

WITHIN_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """A destination of messages.

    - `name`: its name in messages to people. `address` and `secret` are never shown.
    - `secret`: key for signatures; "": none. `within_s`: maximum seconds of one try.
    - `allow_private`: the address may be in a private network.
    - `ca_file`: certificate authorities to trust instead of the system's.
    - `proxy`: http(s) URL of the proxy for chats; a webhook connects directly to the checked address.
    - `person`: recipient of a mail; "": the recipients in the server's address.
    """

    name: str
    clock: Clock
    address: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)
    within_s: float = WITHIN_S
    allow_private: bool = False
    ca_file: Path | None = None
    proxy: str | None = field(default=None, repr=False)
    person: str = ""


class ChannelPlugin(Protocol):
    """The function that an entry point of `costguard.notifiers` names."""

    def __call__(self, message: Notification, channel: Channel) -> DeliveryResult:
        """Send `message` once; raise nothing."""


def pack_content(content: bytes) -> str:
    """Return `content` compressed and encoded as text, as an attachment stores it."""
    return b64encode(zlib.compress(content, level=9)).decode()


def unpack_enclosure(enclosure: Attachment) -> bytes:
    """Return the content that `pack_content` packed."""
    return zlib.decompress(b64decode(enclosure.packed))
