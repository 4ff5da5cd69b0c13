"""Stop, terminate and start one pod: one check first, then one changing request, and never a second.

The check refuses what RunPod would refuse, what a person has locked, and what would lose more than allowed. A stop keeps the
volume disk and erases the container disk; a terminate erases both. Without a clear answer of RunPod the result is unclear.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from costguard.errors import ConflictError, MissingError, ProviderError, shorten
from costguard.providers.transport import HttpResponse, ProviderChannel
from costguard.values.provider import ACCEPTED, ALREADY, MISSING, REFUSED, UNCLEAR, ActionResponse, interpret_act_error
from costguard.values.resource import ResourceKey
from costguard_runpod.api import build_pod_path, fetch_pod, parse_pod
from costguard_runpod.translation import PROVIDER, make_handling
from costguard_runpod.wire import Pod

NO_CONTENT = 204
STARTED = ("PROVISIONING", "STARTING", "RUNNING")

Look = Callable[[Pod], ActionResponse | None]


def stop_pod(channel: ProviderChannel, account: str, key: ResourceKey, lose: frozenset[str]) -> ActionResponse:
    """Stop the pod `key`, unless more than `lose` would be lost."""

    def hindered(pod: Pod) -> ActionResponse | None:
        if pod.status == "EXITED":
            return ActionResponse(said=ALREADY, why="it is EXITED")
        if pod.status == "TERMINATED":
            return ActionResponse(said=MISSING, why="it is TERMINATED")
        lost = [what for what in make_handling(pod).stop_loses if what not in lose]
        if lost and not _explain_hold(pod, "stop"):
            return ActionResponse(said=REFUSED, why=f"a stop would lose {', '.join(lost)}")
        return _explain_hold(pod, "stop")

    def sent() -> ActionResponse:
        reply = channel.act("POST", f"{build_pod_path(key)}/action", body={"action": "stop"})
        parse_pod(channel, reply, key)
        return ActionResponse(said=ACCEPTED)

    return _send_act(channel, account, key, hindered, sent, targets=("EXITED",))


def terminate_pod(channel: ProviderChannel, account: str, key: ResourceKey) -> ActionResponse:
    """Terminate the pod `key`."""

    def hindered(pod: Pod) -> ActionResponse | None:
        if pod.status == "TERMINATED":
            return ActionResponse(said=ALREADY, why="it is TERMINATED")
        return _explain_hold(pod, "terminate")

    def sent() -> ActionResponse:
        reply = channel.act("DELETE", build_pod_path(key))
        return (
            ActionResponse(said=ACCEPTED)
            if _is_ended(reply, key)
            else ActionResponse(said=UNCLEAR, why="an answer without content")
        )

    return _send_act(channel, account, key, hindered, sent, targets=("TERMINATED",))


def start_pod(channel: ProviderChannel, account: str, key: ResourceKey) -> ActionResponse:
    """Start the stopped pod `key`, on the host that holds its volume; its GPU may be taken."""

    def hindered(pod: Pod) -> ActionResponse | None:
        if pod.status in STARTED:
            return ActionResponse(said=ALREADY, why=f"it is {pod.status}")
        if pod.status == "TERMINATED":
            return ActionResponse(said=MISSING, why="it is TERMINATED")
        if pod.status != "EXITED":
            return ActionResponse(said=REFUSED, why=f"it is {shorten(pod.status or 'of unknown state')}, not EXITED")
        return _explain_hold(pod, "start")

    def sent() -> ActionResponse:
        reply = channel.act("POST", f"{build_pod_path(key)}/action", body={"action": "start"})
        parse_pod(channel, reply, key)
        return ActionResponse(said=ACCEPTED)

    return _send_act(channel, account, key, hindered, sent, targets=STARTED)


def _send_act(
    channel: ProviderChannel,
    account: str,
    key: ResourceKey,
    hindered: Look,
    sent: Callable[[], ActionResponse],
    *,
    targets: tuple[str, ...],
) -> ActionResponse:
    """Check, then send the request once.

    `targets`: the statuses of a pod that is already in the target state.
    """
    if (key.provider, key.account) != (PROVIDER, account):
        return ActionResponse(said=REFUSED, why="it is not of this account")
    try:
        response = hindered(fetch_pod(channel, key, first=True))
    except ProviderError as broken:
        return interpret_act_error(broken, sent=False)
    if response is not None:
        return response
    try:
        return sent()
    except ConflictError as no:
        return _look_after_conflict(channel, key, no, targets)
    except ProviderError as broken:
        return interpret_act_error(broken)


def _explain_hold(pod: Pod, act: str) -> ActionResponse | None:
    """Return why RunPod or the pod's owner forbids the act; None if nothing does."""
    about = make_handling(pod)
    if about.controller:
        return ActionResponse(
            said=REFUSED, why=f"it is a member of {about.controller}, which can only be ended as a whole (DELETE /v2/clusters)"
        )
    if act in about.protected:
        return ActionResponse(said=REFUSED, why="it is locked; costguard does not unlock machines")
    if pod.actions is not None and act not in pod.actions:
        state, allowed = shorten(pod.status or "of unknown state"), ", ".join(map(shorten, pod.actions[:4])) or "nothing"
        return ActionResponse(said=REFUSED, why=f"it is {state} and allows {allowed}")
    return None


def _look_after_conflict(
    channel: ProviderChannel, key: ResourceKey, no: ConflictError, targets: tuple[str, ...]
) -> ActionResponse:
    """Return the result after a 409, which RunPod also returns for a pod that is already in the target state."""
    try:
        now = fetch_pod(channel, key, first=True).status
    except MissingError:
        return ActionResponse(said=MISSING, why=no.what)
    except ProviderError:
        return ActionResponse(said=REFUSED, why=no.what)
    return ActionResponse(said=ALREADY, why=f"it is {now}") if now in targets else ActionResponse(said=REFUSED, why=no.what)


def _is_ended(reply: HttpResponse, key: ResourceKey) -> bool:
    """Return whether the answer to a DELETE confirms it: 204 without a body, or the pod that is ending."""
    if reply.status == NO_CONTENT:
        return True
    try:
        pod = msgspec.json.decode(reply.body, type=Pod)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    return pod.id == key.id
