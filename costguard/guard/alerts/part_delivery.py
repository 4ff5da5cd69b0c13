"""What each recipient answered to each part of a notification, and what of it is still to be sent.

A chat with room for two of three alerts gets them in two parts, and a mail to three people is accepted by two of them. An alert
counts as delivered once one recipient has accepted a part in which it stood whole; each recipient is sent what it has not
accepted. An alert is known by its number in the notification, a line of a letter by its number in the letter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from costguard.guard.alerts.alert import Alert, Notification


@dataclass(frozen=True, slots=True, kw_only=True)
class PartDelivery:
    """What one recipient answered to one part.

    `recipient`: a mail address, or "recipient 2 of 3 (9f86d081)" (a hash: addresses of chats hold secrets); "" for a channel's
    only one. `alerts`: the numbers of what stood in the part whole. `sent`: it was accepted; else `why` not, and `again`
    whether a retry may help. `status`: of HTTP or SMTP; None: no answer. `retry_after`: the wait that a service asks for.
    `answer`: the text of the answer, without secrets. `is_cut`: the part was accepted without its end, and
    `alerts` are those before it; `sent` is False if there are none.
    """

    recipient: str = ""
    alerts: tuple[int, ...] = ()
    sent: bool
    why: str = ""
    again: bool = True
    status: int | None = None
    retry_after: timedelta | None = None
    answer: str = ""
    is_cut: bool = False

    @property
    def is_refused(self) -> bool:
        """Return whether no retry can reach the recipient."""
        return not self.sent and not self.again


def list_numbers(message: Notification) -> range:
    """Return the numbers of the alerts of `message`, or of the lines of its letter; 0 for a title alone."""
    return range(max(1, len(message.notices) or sum(map(len, message.letter))))


def list_missing(message: Notification, recipient: str) -> tuple[int, ...]:
    """Return the numbers of what `recipient` has not accepted; () for one that cannot be reached."""
    accepted = {number for name, number in message.accepted if name == recipient}
    return () if recipient in message.refused else tuple(one for one in list_numbers(message) if one not in accepted)


def add_parts(message: Notification, parts: Iterable[PartDelivery]) -> Notification:
    """Return `message` with what `parts` delivered, and with the recipients that they cannot reach."""
    parts = tuple(parts)
    accepted = (*message.accepted, *((one.recipient, number) for one in parts if one.sent for number in one.alerts))
    refused = (*message.refused, *(one.recipient for one in parts if one.is_refused))
    return replace(message, accepted=tuple(dict.fromkeys(accepted)), refused=tuple(dict.fromkeys(refused)))


def list_undelivered(message: Notification) -> tuple[Alert, ...]:
    """Return the alerts of `message` that no recipient has accepted."""
    accepted = {number for _, number in message.accepted}
    return tuple(one for number, one in enumerate(message.notices) if number not in accepted)
