"""Archive, terminate and start one Instance: one look, at most one request, and never a second.

The act `stop` is `poweroff`, which releases the machine; never `stop_in_place`, after which it is billed as before. It ends the
billing of an Instance that its guest shut down, too. An Instance that runs is terminated by the action of that name, which
deletes its local volumes (SDK 2.12.0); a stopped one by a DELETE.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from costguard.errors import ConflictError, MissingError, ProviderError, shorten, to_one_line
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
from costguard_scaleway import NAME
from costguard_scaleway.api import ScalewayApi
from costguard_scaleway.translation import STATES, make_handling
from costguard_scaleway.wire import Server

LOOK_S = 8.0
"""Seconds for each look: with the act's own 20 s they stay near the 30 s after which an intent expires."""
ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
ZONE = re.compile(r"[a-z]{2}-[a-z]{3}-\d")
MOVING = ("starting", "stopping")

Check = Callable[[Server], ActionResponse | None]


def stop_server(api: ScalewayApi, account: str, key: ResourceKey, lose: frozenset[str]) -> ActionResponse:
    """Archive the Instance `key` (`poweroff`), unless more than `lose` would be lost."""

    def check(server: Server) -> ActionResponse | None:
        if server.state == "stopped":
            return ActionResponse(said=ALREADY, why="it is stopped")
        lost = [what for what in make_handling(server).stop_loses if what not in lose]
        if lost:
            return ActionResponse(said=REFUSED, why=f"a stop would lose {', '.join(lost)}")
        return _explain_hold(server, "stop", "poweroff")

    return _send_act(api, account, key, check, lambda _: api.send_action(key.region, key.id, "poweroff"), target="stopped")


def terminate_server(api: ScalewayApi, account: str, key: ResourceKey) -> ActionResponse:
    """Delete the Instance `key`: its local volumes with it, its block volumes and addresses stay."""

    def check(server: Server) -> ActionResponse | None:
        return _explain_hold(server, "terminate", "" if server.state == "stopped" else "terminate")

    def send(server: Server) -> bool:
        if server.state == "stopped":
            return api.delete_server(key.region, key.id)
        return api.send_action(key.region, key.id, "terminate")

    return _send_act(api, account, key, check, send, target="")


def start_server(api: ScalewayApi, account: str, key: ResourceKey) -> ActionResponse:
    """Start the archived Instance `key`; its zone may have no GPU for it."""

    def check(server: Server) -> ActionResponse | None:
        if server.state in ("running", "starting"):
            return ActionResponse(said=ALREADY, why=f"it is {server.state}")
        if server.state != "stopped":
            return ActionResponse(said=REFUSED, why=f"it is {_describe_state(server)}, not stopped")
        return _explain_hold(server, "start", "poweron")

    return _send_act(api, account, key, check, lambda _: api.send_action(key.region, key.id, "poweron"), target="running")


def _send_act(
    api: ScalewayApi,
    account: str,
    key: ResourceKey,
    check: Check,
    send: Callable[[Server], bool],
    *,
    target: str,
) -> ActionResponse:
    """Look, then send the request once. `target`: the state that shows it was done; "": the Instance is gone."""
    if key[:2] != (NAME, account) or not ID.fullmatch(key.id) or not ZONE.fullmatch(key.region):
        return ActionResponse(said=REFUSED, why=f"it is no Instance of the account '{account}'; nothing was sent")
    try:
        server = api.fetch_server(key.region, key.id, Deadline(LOOK_S))
    except ProviderError as broken:
        return interpret_act_error(broken, sent=False)
    response = check(server)
    if response is not None:
        return response
    try:
        is_confirmed = send(server)
    except ConflictError as broken:
        return _look_after_conflict(api, key, broken, target)
    except ProviderError as broken:
        return interpret_act_error(broken)
    return (
        ActionResponse(said=ACCEPTED)
        if is_confirmed
        else ActionResponse(said=UNCLEAR, why="the answer does not confirm the act")
    )


def _explain_hold(server: Server, act: str, action: str) -> ActionResponse | None:
    """Return why Scaleway or the Instance's owner forbids the act; None if nothing does."""
    if act in make_handling(server).protected:
        return ActionResponse(said=REFUSED, why="it is protected; costguard does not lift protection")
    if not action or server.allowed_actions is None or action in server.allowed_actions:
        return None
    if server.state in MOVING:
        return ActionResponse(said=POSTPONED, why=f"it is {server.state} and cannot take {action} yet; nothing was sent")
    allowed = ", ".join(to_one_line(shorten(one)) for one in server.allowed_actions[:5]) or "nothing"
    more = ""
    if STATES.get(server.state or "") == "paused":
        more = "; it is billed as before: power it on first, or terminate it"
    return ActionResponse(said=REFUSED, why=f"it is {_describe_state(server)} and allows {allowed}, not {action}{more}")


def _look_after_conflict(api: ScalewayApi, key: ResourceKey, broken: ConflictError, target: str) -> ActionResponse:
    """Return the result after a 409: somebody else may have acted first."""
    why = to_one_line(broken.what)
    try:
        state = api.fetch_server(key.region, key.id, Deadline(LOOK_S)).state
    except MissingError:
        return ActionResponse(said=MISSING, why=why)
    except ProviderError:
        return ActionResponse(said=REFUSED, why=why)
    return ActionResponse(said=ALREADY, why=f"it is {state}") if state == target else ActionResponse(said=REFUSED, why=why)


def _describe_state(server: Server) -> str:
    return to_one_line(shorten(server.state or "in no stated state"))
