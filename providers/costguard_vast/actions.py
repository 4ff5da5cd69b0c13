"""The three acts on a contract: each is sent once, and its result is returned, never raised."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from costguard.errors import ProviderError, RefusedError
from costguard.providers.transport import Deadline
from costguard.values.provider import (
    ACCEPTED,
    ALREADY,
    MISSING,
    POSTPONED,
    REFUSED,
    UNCLEAR,
    ActionResponse,
    interpret_act_error,
)
from costguard.values.resource import ResourceKey
from costguard_vast.api import VastApi, format_reason
from costguard_vast.translation import is_settled
from costguard_vast.wire import ActAnswer, Instance

BEFORE_S = 5.0
"""Seconds for the look before a stop: it saves a call and no more, so it must not delay the stop."""
LONGEST_ID = 18


def is_instance_id(text: str) -> bool:
    """Return whether `text` is an instance id, a whole number as Vast writes it.

    Nothing else is put into a path.
    """
    return text.isascii() and text.isdigit() and text[0] != "0" and len(text) <= LONGEST_ID


def stop_contract(api: VastApi, refusal: str, key: ResourceKey) -> ActionResponse:
    """Stop one contract, unless `refusal` states why not.

    A contract that is already stopped gets no request, except an interruptible one: if it was outbid it looks the same, and
    would resume by itself.
    """
    if refusal:
        return ActionResponse(said=REFUSED, why=refusal)
    instance = _look_before(api, key.id)
    if isinstance(instance, ActionResponse):
        return instance
    if instance is not None and is_settled(instance) and not instance.is_bid:
        return ActionResponse(said=ALREADY, why="it is stopped or stopping")
    return _send_act(lambda: api.stop(key.id))


def start_contract(api: VastApi, refusal: str, key: ResourceKey) -> ActionResponse:
    """Start one stopped contract, unless `refusal` states why not. It waits for its GPU if another customer rents it."""
    if refusal:
        return ActionResponse(said=REFUSED, why=refusal)
    instance = _look_before(api, key.id)
    if isinstance(instance, ActionResponse):
        return instance
    if instance is None:
        return ActionResponse(said=POSTPONED, why="its state could not be checked, so nothing was sent")
    if not is_settled(instance):
        return ActionResponse(said=ALREADY, why="it is running or starting")
    return _send_act(lambda: api.start(key.id))


def terminate_contract(api: VastApi, refusal: str, key: ResourceKey) -> ActionResponse:
    """Destroy one contract, unless `refusal` states why not."""
    return ActionResponse(said=REFUSED, why=refusal) if refusal else _send_act(lambda: api.destroy(key.id))


def _look_before(api: VastApi, id_: str) -> Instance | ActionResponse | None:
    """Return the contract before the stop; None if it cannot be read, which does not prevent the stop."""
    try:
        raw = api.fetch_instance(id_, Deadline(BEFORE_S))
        if raw is None:
            return ActionResponse(said=MISSING, why="Vast has no such instance")
        return msgspec.json.decode(raw, type=Instance)
    except (ProviderError, msgspec.DecodeError, RecursionError):
        return None


def _send_act(act: Callable[[], ActAnswer]) -> ActionResponse:
    try:
        answer = act()
    except ProviderError as broken:
        if isinstance(broken, RefusedError) and 200 <= broken.status < 300:  # noqa: PLR2004 - HTTP's own line
            return ActionResponse(said=UNCLEAR, why=format_reason(broken))
        return interpret_act_error(broken, why=format_reason(broken))
    if answer.success is True:
        return ActionResponse(said=ACCEPTED)
    return ActionResponse(said=UNCLEAR, why="Vast answered 200 without confirming the request")
