"""Send a message to several recipients, each in as many parts as its channel needs, and collect what came back.

A channel yields a `PartSending` for each part that a recipient has not accepted yet; `deliver_parts` sends them in order. A
service that asks to wait ends the try, and a recipient that cannot be reached is not tried again in it. Example: a chat with
room for two of three alerts accepts the first part and answers 429 to the second: the result is not sent, the two alerts of the
first part count as delivered, and the next try sends the third alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta

from costguard.guard.alerts.alert import DeliveryResult, Notification
from costguard.guard.alerts.part_delivery import PartDelivery, add_parts
from costguard.notifiers import report_part

TOO_MANY_REQUESTS = 429


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSending:
    """A part that is about to be sent: `send` sends it to `recipient` once and raises nothing."""

    recipient: str
    send: Callable[[], PartDelivery]


def deliver_parts(message: Notification, sendings: Iterable[PartSending]) -> DeliveryResult:
    """Send what `message` still lacks; return what came back.

    It is sent if every recipient has accepted all of it, in this try or before, except those that no retry can reach, and if at
    least one has.
    """
    parts, unreachable, wait, is_stopped, has_rest = list[PartDelivery](), set[str](), None, False, False
    for sending in sendings:
        if sending.recipient in unreachable:
            continue
        if is_stopped:
            has_rest = True
            break
        part = sending.send()
        parts.append(part)
        has_rest |= part.sent and part.is_cut
        is_stopped = not report_part(part)
        if not part.sent and (part.is_refused or part.status is None):
            unreachable.add(sending.recipient)
        if part.status == TOO_MANY_REQUESTS or part.retry_after is not None:
            wait, is_stopped = part.retry_after, True
    result = add_parts(message, parts)
    failed = [one for one in parts if not one.sent]
    is_open = has_rest or any(one.again for one in failed)
    are_several = len({*(one.recipient for one in parts), *(name for name, _ in result.accepted), *result.refused}) > 1
    why = "; ".join(dict.fromkeys(f"{one.recipient}: {one.why}" if are_several else one.why for one in failed))
    if has_rest and not failed:
        wait, why = timedelta(), "the rest follows"
    sent = bool(result.accepted) and not is_open
    return DeliveryResult(sent=sent, why=why, again=is_open or sent, parts=tuple(parts), retry_after=wait)
