"""Deallocate, start and delete one machine: one look, at most one request.

A stop is `deallocate`, never `powerOff`, which bills on. Azure answers 202 and goes on by itself: costguard does not wait for
that operation, which may still fail; a listing proves the act. Azure acts on names, and a name may be taken again: the caller
compares the life. A lock (`ScopeLocked`, 409) is Azure's refusal; costguard lifts none.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from costguard.errors import ProviderError, to_one_line
from costguard.providers.transport import Deadline, HttpResponse
from costguard.values.provider import ACCEPTED, ALREADY, MISSING, REFUSED, UNCLEAR, ActionResponse, interpret_act_error
from costguard.values.resource import ResourceKey
from costguard_azure.api import AzureApi, make_item_path
from costguard_azure.sizes import parse_size
from costguard_azure.translation import LOCAL, find_controller, find_size_name, is_ephemeral, translate_state
from costguard_azure.wire import Machine, MachineProperties

LOOK_S, ACT_S = 8.0, 20.0
"""Seconds: together less than the 30 s after which an intent expires."""
TAKEN = 202
POLLERS = ("azure-asyncoperation", "location")
"""A taken request has one of these headers at least (Resource Manager, asynchronous operations; azure-mgmt-core 1.6.0)."""
NOT_THERE = "there is no such machine"
_GROUP = re.compile(r"[\w().-]{1,90}")
_PLAIN = re.compile(r"[\w.-]{1,80}")

Refuse = Callable[[Machine], ActionResponse | None]


def is_plain(group: str, name: str) -> bool:
    """Return whether the names may stand in a path."""
    return bool(_GROUP.fullmatch(group) and _PLAIN.fullmatch(name)) and not {group, name} & {".", ".."}


def make_machine_path(key: ResourceKey) -> str:
    """Return the path of the machine of `key`; "" if its id is not one of a machine ("group/name")."""
    group, _, name = key.id.partition("/")
    return make_item_path(key.account, group, "Microsoft.Compute/virtualMachines", name) if is_plain(group, name) else ""


def send_act(
    api: AzureApi, key: ResourceKey, machine: Machine | None, refuse: Refuse, request: tuple[str, str]
) -> ActionResponse:
    """Send `request` (method, and what follows the machine's path) for `machine`, which was just found for `key`."""
    if machine is None:
        if not make_machine_path(key):
            why = "it is no virtual machine of its own: change its scale set, or act in Azure; nothing was sent"
            return ActionResponse(said=REFUSED, why=why)
        return ActionResponse(said=MISSING, why=NOT_THERE)
    response = refuse(machine)
    if response is not None:
        return response
    method, tail = request
    try:
        reply = api.send_act(key.account, method, f"{make_machine_path(key)}{tail}", Deadline(ACT_S))
    except ProviderError as broken:
        return interpret_act_error(broken, why=_explain_error(broken))
    return interpret_reply(reply)


def interpret_reply(reply: HttpResponse) -> ActionResponse:
    """Return what a good status means: only a request that was taken as an operation is accepted."""
    if reply.status == TAKEN and any(name in reply.headers for name in POLLERS):
        return ActionResponse(said=ACCEPTED)
    return ActionResponse(said=UNCLEAR, why=f"the answer ({reply.status}) names no operation")


def refuse_stop(machine: Machine, lose: frozenset[str]) -> ActionResponse | None:
    """Return why a deallocation must not be sent; None if it may be."""
    state, word = translate_state(machine.properties or MachineProperties())
    if state in ("stopped", "stopping"):
        return ActionResponse(said=ALREADY, why=f"it is {to_one_line(word)}")
    refused = _refuse_controlled(machine)
    if refused is not None:
        return refused
    if is_ephemeral(machine.properties.storage_profile if machine.properties else None):
        why = "its system's disk is ephemeral, so it cannot be deallocated: only a termination ends its charges"
        return ActionResponse(said=REFUSED, why=why)
    if parse_size(find_size_name(machine)).scratch and LOCAL not in lose:
        return ActionResponse(said=REFUSED, why=f"a stop would lose {LOCAL}, which was not approved")
    return None


def refuse_terminate(machine: Machine) -> ActionResponse | None:
    """Return why a deletion must not be sent; None if it may be."""
    if (machine.properties or MachineProperties()).provisioning_state == "Deleting":
        return ActionResponse(said=ALREADY, why="it is being deleted")
    return _refuse_controlled(machine)


def refuse_start(machine: Machine) -> ActionResponse | None:
    """Return why a start must not be sent; None for a deallocated machine."""
    state, word = translate_state(machine.properties or MachineProperties())
    if state in ("running", "starting", "pending"):
        return ActionResponse(said=ALREADY, why=f"it is {to_one_line(word)}")
    if state != "stopped":
        shown = to_one_line(word[:60]) or "in no known state"
        return ActionResponse(said=REFUSED, why=f"it is {shown}: only a deallocated machine is started")
    return _refuse_controlled(machine)


def _refuse_controlled(machine: Machine) -> ActionResponse | None:
    owner = find_controller(machine)
    if not owner:
        return None
    return ActionResponse(said=REFUSED, why=f"{owner} starts and stops it: change {owner.partition(',')[0]} instead")


def _explain_error(broken: ProviderError) -> str:
    if broken.code == "ScopeLocked":
        return (
            f"a lock on the machine, its group or its subscription forbids it; lift the lock first ({to_one_line(broken.what)})"
        )
    return to_one_line(broken.what)
