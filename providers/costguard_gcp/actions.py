"""Look up, stop, start and delete one machine.

Compute Engine acts on names, and names are reused, so the machine is found by its number first, and the number of the one acted
on is compared with it. An operation may come back DONE and have failed.

A disk or address is looked up by its number as well: its absence from a listing is not trusted without that.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from costguard.errors import (
    ConflictError,
    CredentialsError,
    ForbiddenError,
    InvalidAnswerError,
    MissingError,
    ProviderError,
    RefusedError,
    ThrottledError,
    shorten,
    to_one_line,
)
from costguard.metering.observation import Observation
from costguard.providers.transport import Deadline, HttpResponse
from costguard.values.provider import ACCEPTED, ALREADY, MISSING, REFUSED, UNCLEAR, ActionResponse
from costguard.values.resource import ResourceKey
from costguard_gcp.api import PAGE, ComputeSdk
from costguard_gcp.inventory import CLIENTS, MOST_PAGES, format_reason, read_aggregated
from costguard_gcp.machine_types import MachineShape, ShapeCatalogue
from costguard_gcp.translation import (
    STOPPED_WORDS,
    StoragePricing,
    find_replacer,
    make_handling,
    observe_address,
    observe_disk,
    sum_scratch_gb,
)
from costguard_gcp.wire import Address, Instance, Numbered, Operation, PersistentDisk, WireObject, take_last_part

T = TypeVar("T", Instance, PersistentDisk)

LOOK_S, ACT_S = 8.0, 20.0
"""Seconds: together less than the 30 s after which an intent expires."""

GONE_OR_STOPPED = frozenset(("TERMINATED", "STOPPED", "STOPPING", "PENDING_STOP"))
STARTED = frozenset(("PROVISIONING", "STAGING", "RUNNING"))
NOT_THERE = "its zone has no machine with that number"
OPERATING = frozenset(("PENDING", "RUNNING", "DONE"))


class _Zonal(WireObject):
    """A page of a list of one zone."""

    next_page_token: str | None = None
    kind: str | None = None
    items: list[msgspec.Raw] | None = None
    warning: msgspec.Raw | None = None


def find_instance(compute: ComputeSdk, key: ResourceKey, deadline: Deadline) -> Instance | None:
    """Return the machine with the number of `key` in its zone; None if there is none.

    Raises a ProviderError if the zone gives no usable answer.
    """
    try:
        found = list_by_id(compute, ("InstancesClient", "ListInstancesRequest"), {"zone": key.region}, key, deadline)
    except MissingError:
        return find_in_project(compute, "instances", Instance, key, deadline)
    return _parse_instance(found[0]) if found else None


def list_by_id(
    compute: ComputeSdk, listed: tuple[str, str], where: dict[str, str], key: ResourceKey, deadline: Deadline
) -> list[msgspec.Raw]:
    """Return what a zone or region lists for the number of `key`: one item or none.

    `listed`: client and request. A page of a filtered list may be empty without being the last; and the answer is checked, in
    case the filter was ignored.
    """
    if not (key.id.isascii() and key.id.isdigit()):
        return []
    fields = {"project": key.account, **where, "filter": f"id = {key.id}", "max_results": PAGE}
    token, seen, doubtful = "", set[str](), False
    while token not in seen and len(seen) < MOST_PAGES:
        seen.add(token)
        reply = compute.ask(listed[0], "list", listed[1], fields | ({"page_token": token} if token else {}), deadline=deadline)
        page = _parse_page(reply, key.account)
        ids = [_parse_id(raw) for raw in page.items or ()]
        if key.id in ids:
            return [(page.items or [])[ids.index(key.id)]]
        unwell = page.warning is not None and b"NO_RESULTS_ON_PAGE" not in bytes(page.warning)
        doubtful, token = doubtful or unwell or None in ids, page.next_page_token or ""
        if not token and not doubtful:
            return []
        if not token:
            break
    raise InvalidAnswerError("the answer is not a whole list", provider="gcp", account=key.account)


def _parse_page(reply: HttpResponse, project: str) -> _Zonal:
    try:
        page = msgspec.json.decode(reply.body, type=_Zonal)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise InvalidAnswerError("the answer is not a list", provider="gcp", account=project, status=reply.status) from None
    if page.items is None and not (page.kind or "").endswith("List"):
        raise InvalidAnswerError("the answer is not a list", provider="gcp", account=project, status=reply.status)
    return page


def _parse_id(raw: msgspec.Raw) -> str | None:
    """Return the number of an item; None if it cannot be read."""
    try:
        return str(msgspec.json.decode(raw, type=Numbered).id)
    except (msgspec.DecodeError, RecursionError):
        return None


def find_in_project(compute: ComputeSdk, what: str, kind: type[T], key: ResourceKey, deadline: Deadline) -> T | None:
    """Return the machine or disk from the list of its whole project, for a zone that cannot be listed alone."""
    client, request = CLIENTS[what]

    def ask(token: str) -> HttpResponse:
        fields = {"project": key.account, "max_results": PAGE, **({"page_token": token} if token else {})}
        return compute.ask(client, "aggregated_list", request, fields, deadline=deadline)

    listed = read_aggregated(ask, what, kind)
    for where, one in listed.items:
        if str(one.id) == key.id and (take_last_part(one.zone) or where) == key.region:
            return one
    if listed.why or any(str(one.id) == key.id for _, one in listed.named):
        raise InvalidAnswerError(f"it is not in what could be read of the {what}", provider="gcp", account=key.account)
    return None


def _parse_instance(raw: msgspec.Raw) -> Instance:
    try:
        return msgspec.json.decode(raw, type=Instance)
    except (msgspec.DecodeError, RecursionError):
        raise InvalidAnswerError("the machine cannot be read", provider="gcp") from None


@dataclass(frozen=True, slots=True)
class InstanceActions:
    """Acts on one machine at a time.

    `compute` and `shapes` are the login's.
    """

    compute: ComputeSdk
    shapes: ShapeCatalogue

    def stop(self, key: ResourceKey, lose: frozenset[str], instance: Instance) -> ActionResponse:
        """Stop `instance`, which was just found for `key`; refused if it would lose more than `lose`, such as local SSD."""
        if instance.status in GONE_OR_STOPPED:
            return ActionResponse(said=ALREADY, why=f"it is {instance.status}")
        if owner := find_replacer(instance):
            return ActionResponse(said=REFUSED, why=f"{owner} would start it again: change that in its place")
        shape = self.shapes.get(key.account, key.region, take_last_part(instance.machine_type))
        missing = [one for one in make_handling(instance, shape, None).stop_loses if one not in lose]
        if missing:
            return ActionResponse(said=REFUSED, why=f"a stop would lose {', '.join(missing)}, which was not agreed to")
        fields = _build_fields(key, instance)
        if _has_ssd(instance, shape):
            fields["discard_local_ssd"] = True
        return self._send_act("stop_unary", "StopInstanceRequest", fields, key)

    def start(self, key: ResourceKey, instance: Instance) -> ActionResponse:
        """Start `instance`, which was just found for `key`, if it is stopped; Google may have no capacity for its GPUs."""
        if instance.status in STARTED:
            return ActionResponse(said=ALREADY, why=f"it is {instance.status}")
        if instance.status not in STOPPED_WORDS:
            word = shorten(to_one_line(instance.status or "in no known state"))
            return ActionResponse(said=REFUSED, why=f"it is {word}: only a stopped machine is started")
        if owner := find_replacer(instance):
            return ActionResponse(said=REFUSED, why=f"{owner} starts and stops it: change that in its place")
        return self._send_act("start_unary", "StartInstanceRequest", _build_fields(key, instance), key)

    def terminate(self, key: ResourceKey, instance: Instance) -> ActionResponse:
        """Delete `instance`, which was just found for `key`.

        Deletion protection is checked here, and never lifted.
        """
        if instance.deletion_protection:
            return ActionResponse(said=REFUSED, why="deletion protection is on; lift it first")
        if owner := find_replacer(instance):
            return ActionResponse(said=REFUSED, why=f"{owner} would start it again: change that in its place")
        return self._send_act("delete_unary", "DeleteInstanceRequest", _build_fields(key, instance), key)

    def _send_act(self, method: str, request: str, fields: dict[str, object], key: ResourceKey) -> ActionResponse:
        """Send the one request that changes something."""
        try:
            reply = self.compute.ask("InstancesClient", method, request, fields, deadline=Deadline(ACT_S), act=True)
        except ProviderError as broken:
            return interpret_error(broken)
        return interpret_operation(reply, key)


def _has_ssd(instance: Instance, shape: MachineShape | None) -> bool:
    """Return whether a stop request must state what happens to local SSD, listed or bundled; Google refuses it otherwise."""
    return bool(sum_scratch_gb(instance, shape)) or any(disk.type == "SCRATCH" for disk in instance.disks or ())


def _build_fields(key: ResourceKey, instance: Instance) -> dict[str, object]:
    return {"project": key.account, "zone": key.region, "instance": instance.name, "request_id": str(uuid.uuid4())}


def interpret_error(broken: ProviderError, *, looking: bool = False) -> ActionResponse:
    """Return the result of an act that raised an error: refused, missing, or unclear.

    `looking`: the error came from the check before the act, so nothing was sent; there, a zone or project that is not found
    proves nothing.
    """
    why = format_reason(broken)
    if looking:
        return ActionResponse(said=REFUSED, why=f"not sent, because its state could not be checked: {why}")
    if isinstance(broken, MissingError):
        return ActionResponse(said=MISSING, why=why)
    if isinstance(broken, ConflictError | CredentialsError | ForbiddenError | RefusedError):
        return ActionResponse(said=REFUSED, why=why)
    return ActionResponse(said=REFUSED if isinstance(broken, ThrottledError) and broken.code else UNCLEAR, why=why)


def interpret_operation(reply: HttpResponse, key: ResourceKey) -> ActionResponse:
    """Return the result stated by an act's operation."""
    try:
        operation = msgspec.json.decode(reply.body, type=Operation)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return ActionResponse(said=UNCLEAR, why="the answer is not an operation")
    if operation.status not in OPERATING:
        return ActionResponse(said=UNCLEAR, why=f"the operation is {shorten(to_one_line(operation.status))}")
    if operation.target_id is not None and str(operation.target_id) not in (key.id, "0", ""):
        return ActionResponse(
            said=UNCLEAR, why=f"the name led to another machine, {shorten(to_one_line(str(operation.target_id)))}"
        )
    errors = operation.error.errors if operation.error else None
    if errors or (operation.http_error_status_code or 0) >= 400:  # noqa: PLR2004 - HTTP's own line
        stated = [f"{one.code or '?'}{f': {one.message}' if one.message else ''}" for one in errors or ()]
        said = shorten(to_one_line("; ".join(stated)), 200) or str(operation.http_error_status_code)
        return ActionResponse(said=REFUSED, why=f"the operation failed ({said})")
    return ActionResponse(said=ACCEPTED)


ItemT = TypeVar("ItemT")

GLOBAL = "global"


def find_resource(compute: ComputeSdk, key: ResourceKey, deadline: Deadline, pricing: StoragePricing) -> Observation | None:
    """Return the disk or address with the number of `key` in its zone or region, or globally; None if there is none."""
    if key.region.count("-") > 1:
        return _find_zonal(compute, key, deadline, pricing)
    if key.region == GLOBAL:
        return _find_address(compute, ("GlobalAddressesClient", "ListGlobalAddressesRequest"), {}, key, deadline, pricing)
    where = {"region": key.region}
    found = _find_disk(compute, ("RegionDisksClient", "ListRegionDisksRequest"), where, key, deadline, pricing)
    return found or _find_address(compute, ("AddressesClient", "ListAddressesRequest"), where, key, deadline, pricing)


def _find_zonal(compute: ComputeSdk, key: ResourceKey, deadline: Deadline, pricing: StoragePricing) -> Observation | None:
    """Return the disk in the zone, None if there is none.

    Also None if the project's disks cannot be listed: its machines were requested before, in the same zone.
    """
    try:
        return _find_disk(compute, ("DisksClient", "ListDisksRequest"), {"zone": key.region}, key, deadline, pricing)
    except MissingError:
        with suppress(MissingError):
            disk = find_in_project(compute, "disks", PersistentDisk, key, deadline)
            return None if disk is None else observe_disk(disk, key.region, key.account, pricing.disk)[0]
    return None


def _find_disk(  # noqa: PLR0917 - what is asked of whom, and what it costs
    compute: ComputeSdk,
    listed: tuple[str, str],
    where: dict[str, str],
    key: ResourceKey,
    deadline: Deadline,
    pricing: StoragePricing,
) -> Observation | None:
    for raw in list_by_id(compute, listed, where, key, deadline):
        disk = _parse_item(raw, PersistentDisk)
        if str(disk.id) == key.id:
            return observe_disk(disk, key.region, key.account, pricing.disk)[0]
    return None


def _find_address(  # noqa: PLR0917 - what is asked of whom, and what it costs
    compute: ComputeSdk,
    listed: tuple[str, str],
    where: dict[str, str],
    key: ResourceKey,
    deadline: Deadline,
    pricing: StoragePricing,
) -> Observation | None:
    for raw in list_by_id(compute, listed, where, key, deadline):
        address = _parse_item(raw, Address)
        if str(address.id) == key.id:
            return observe_address(address, key.region, key.account, pricing.address)
    return None


def _parse_item(raw: msgspec.Raw, kind: type[ItemT]) -> ItemT:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, RecursionError):
        raise InvalidAnswerError("the item cannot be read", provider="gcp") from None
