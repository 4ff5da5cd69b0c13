"""Channels: one file each, with a function `notify` that sends one message once and says what came of it.

Retrying, grouping and repeats are not theirs. They raise nothing, and show no address: most addresses hold a secret.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from costguard.errors import InputError
from costguard.guard.alerts.alert import Attachment, DeliveryResult, Notification
from costguard.system.clock import Clock

WITHIN_S = 10.0
LONGEST_FILE = 4096
LEAST_SECRET = 16
"""Characters of a secret that signs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """Where to. `name`: what people see of it. `address` and `secret` are shown nowhere.

    `secret`: signs, "" for none. `within_s`: seconds that one try may take. `allow_private`: an address may be within a private
    network. `ca_file`: a file of authorities to trust instead of the system's. `proxy`: an http(s) URL through which chats are
    asked; a webhook goes to the address that was looked at, and through nobody. `person`: whose mail it is, "" for whom the
    address of the server names.
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
    """What an entry point of `costguard.notifiers` names."""

    def __call__(self, message: Notification, channel: Channel) -> DeliveryResult:
        """Send `message` once. It raises nothing."""


def read_channel_secret(*, env: str, file: str, environ: Mapping[str, str], field: str) -> str:
    """The secret in the variable `env` or in the file `file`, whichever is stated; "" where neither is.

    InputError where it is stated and not there, or so short that it can be guessed.
    """
    if not env and not file:
        return ""
    place = f"the variable {env}" if env else f"the file {file}"
    try:
        text = environ.get(env, "") if env else Path(file).expanduser().read_bytes()[: LONGEST_FILE + 1].decode()
    except (OSError, ValueError):
        text = ""
    secret = text.strip()
    if not LEAST_SECRET <= len(secret) <= LONGEST_FILE:
        raise InputError(
            f"{place} holds no secret of {LEAST_SECRET} characters or more", field=field, hint="openssl rand -hex 32"
        )
    return secret


def pack_content(content: bytes) -> str:
    """`content` as an enclosure carries it: small, and text."""
    return b64encode(zlib.compress(content, level=9)).decode()


def unpack_enclosure(enclosure: Attachment) -> bytes:
    """What `packed` packed."""
    return zlib.decompress(b64decode(enclosure.packed))
