"""Look up, stop, start and delete one machine.

Compute Engine acts on names, and names are reused, so the machine is found by its number first, and the number of the one acted
on is compared with it. An operation may come back DONE and have failed.

A disk or address is looked up by its number as well: its absence from a listing is not trusted without that.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from costguard.errors import InvalidAnswerError, MissingError, ProviderError, shorten, to_one_line
from costguard.metering.observation import Observation
from costguard.providers.transport import Deadline
from costguard.values.provider import ACCEPTED, ALREADY, REFUSED, UNCLEAR, ActionResponse, interpret_act_error
from costguard.values.resource import ResourceKey
from costguard_gcp.api import PAGE, ComputeSdk
from costguard_gcp.inventory import EMPTY, MOST_PAGES, format_reason, list_aggregated
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
from costguard_gcp.wire import take_last_part

if TYPE_CHECKING:  # the SDK is imported when it is asked
    from google.cloud.compute_v1 import Instance, Operation

LOOK_S, ACT_S = 8.0, 20.0
"""Seconds: together less than the 30 s after which an intent expires."""

GONE_OR_STOPPED = frozenset(("TERMINATED", "STOPPED", "STOPPING", "PENDING_STOP"))
STARTED = frozenset(("PROVISIONING", "STAGING", "RUNNING"))
NOT_THERE = "its zone has no machine with that number"
OPERATING = frozenset(("PENDING", "RUNNING", "DONE"))


def find_instance(compute: ComputeSdk, key: ResourceKey, deadline: Deadline) -> Instance | None:
    """Return the machine with the number of `key` in its zone; None if there is none.

    Raises a ProviderError if the zone gives no usable answer.
    """
    try:
        instances: list[Instance] = list_by_id(
            compute, ("InstancesClient", "ListInstancesRequest"), {"zone": key.region}, key, deadline
        )
    except MissingError:
        instance: Instance | None = find_in_project(compute, "instances", key, deadline)
        return instance
    return instances[0] if instances else None


def list_by_id(
    compute: ComputeSdk, listed: tuple[str, str], where: dict[str, str], key: ResourceKey, deadline: Deadline
) -> list[Any]:
    """Return what a zone or region lists for the number of `key`: one item or none.

    `listed`: client and request. A page of a filtered list may be empty without being the last; and the answer is checked, in
    case the filter was ignored.
    """
    if not (key.id.isascii() and key.id.isdigit()):
        return []
    fields = {"project": key.account, **where, "filter": f"id = {key.id}", "max_results": PAGE}
    token, page_tokens, doubtful = "", set[str](), False
    while token not in page_tokens and len(page_tokens) < MOST_PAGES:
        page_tokens.add(token)
        page = compute.ask(listed[0], "list", listed[1], fields | ({"page_token": token} if token else {}), deadline=deadline)
        if not page.items and not page.kind.endswith("List"):
            raise InvalidAnswerError("the answer is not a list", provider="gcp", account=key.account)
        for one in page.items:
            if "id" in one and str(one.id) == key.id:
                return [one]
        unwell = "warning" in page and page.warning.code != EMPTY
        doubtful, token = doubtful or unwell or any("id" not in one for one in page.items), page.next_page_token
        if not token and not doubtful:
            return []
        if not token:
            break
    raise InvalidAnswerError("the answer is not a complete list", provider="gcp", account=key.account)


def find_in_project(compute: ComputeSdk, what: str, key: ResourceKey, deadline: Deadline) -> Any:  # noqa: ANN401 - an item of the SDK
    """Return the machine or disk from the list of its whole project, for a zone that cannot be listed alone; None: no such."""
    listed = list_aggregated(compute, key.account, what, deadline)
    for where, one in listed.items:
        if str(one.id) == key.id and (take_last_part(one.zone) or where) == key.region:
            return one
    if listed.why or any(str(one.id) == key.id for _, one in listed.named):
        raise InvalidAnswerError(f"it is not in the readable part of the {what}", provider="gcp", account=key.account)
    return None


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
            return ActionResponse(said=REFUSED, why=f"{owner} would start it again: change {owner} instead")
        shape = self.shapes.get(key.account, key.region, take_last_part(instance.machine_type))
        missing = [one for one in make_handling(instance, shape, None).stop_loses if one not in lose]
        if missing:
            return ActionResponse(said=REFUSED, why=f"a stop would lose {', '.join(missing)}, which was not approved")
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
            return ActionResponse(said=REFUSED, why=f"{owner} starts and stops it: change {owner} instead")
        return self._send_act("start_unary", "StartInstanceRequest", _build_fields(key, instance), key)

    def terminate(self, key: ResourceKey, instance: Instance) -> ActionResponse:
        """Delete `instance`, which was just found for `key`.

        Deletion protection is checked here, and never lifted.
        """
        if instance.deletion_protection:
            return ActionResponse(said=REFUSED, why="deletion protection is on; lift it first")
        if owner := find_replacer(instance):
            return ActionResponse(said=REFUSED, why=f"{owner} would start it again: change {owner} instead")
        return self._send_act("delete_unary", "DeleteInstanceRequest", _build_fields(key, instance), key)

    def _send_act(self, method: str, request: str, fields: dict[str, object], key: ResourceKey) -> ActionResponse:
        """Send the one request that changes something."""
        try:
            operation = self.compute.ask("InstancesClient", method, request, fields, deadline=Deadline(ACT_S), act=True)
        except ProviderError as broken:
            return interpret_error(broken)
        return interpret_operation(operation, key)


def _has_ssd(instance: Instance, shape: MachineShape | None) -> bool:
    """Return whether a stop request must state what happens to local SSD, listed or bundled; Google refuses it otherwise."""
    return bool(sum_scratch_gb(instance, shape)) or any(disk.type_ == "SCRATCH" for disk in instance.disks)


def _build_fields(key: ResourceKey, instance: Instance) -> dict[str, object]:
    return {"project": key.account, "zone": key.region, "instance": instance.name, "request_id": str(uuid.uuid4())}


def interpret_error(broken: ProviderError, *, looking: bool = False) -> ActionResponse:
    """Return the result of an act that raised an error.

    `looking`: the error came from the check before the act, so nothing was sent; there, a zone or project that is not found
    proves nothing.
    """
    why = format_reason(broken)
    if looking and isinstance(broken, MissingError):
        return ActionResponse(said=REFUSED, why=f"not sent, because its state could not be checked: {why}")
    return interpret_act_error(broken, sent=not looking, why=why)


def interpret_operation(operation: Operation, key: ResourceKey) -> ActionResponse:
    """Return the result stated by an act's operation."""
    if operation.status.name not in OPERATING:
        return ActionResponse(said=UNCLEAR, why="the answer is not an operation in a known state")
    if operation.target_id and str(operation.target_id) != key.id:
        return ActionResponse(said=UNCLEAR, why=f"the name belongs to another machine, {operation.target_id}")
    errors = operation.error.errors
    if errors or operation.http_error_status_code >= 400:  # noqa: PLR2004 - HTTP's own line
        error_texts = [f"{one.code or '?'}{f': {one.message}' if one.message else ''}" for one in errors]
        summary = shorten(to_one_line("; ".join(error_texts)), 200) or str(operation.http_error_status_code)
        return ActionResponse(said=REFUSED, why=f"the operation failed ({summary})")
    return ActionResponse(said=ACCEPTED)


GLOBAL = "global"


def find_resource(compute: ComputeSdk, key: ResourceKey, deadline: Deadline, pricing: StoragePricing) -> Observation | None:
    """Return the disk or address with the number of `key` in its zone or region, or globally; None if there is none."""
    if key.region.count("-") > 1:
        return _find_zonal(compute, key, deadline, pricing)
    if key.region == GLOBAL:
        return _find_address(compute, ("GlobalAddressesClient", "ListGlobalAddressesRequest"), {}, key, deadline, pricing)
    where = {"region": key.region}
    disk = _find_disk(compute, ("RegionDisksClient", "ListRegionDisksRequest"), where, key, deadline, pricing)
    return disk or _find_address(compute, ("AddressesClient", "ListAddressesRequest"), where, key, deadline, pricing)


def _find_zonal(compute: ComputeSdk, key: ResourceKey, deadline: Deadline, pricing: StoragePricing) -> Observation | None:
    """Return the disk in the zone, None if there is none.

    Also None if the project's disks cannot be listed: its machines were requested before, in the same zone.
    """
    try:
        return _find_disk(compute, ("DisksClient", "ListDisksRequest"), {"zone": key.region}, key, deadline, pricing)
    except MissingError:
        with suppress(MissingError):
            disk = find_in_project(compute, "disks", key, deadline)
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
    for disk in list_by_id(compute, listed, where, key, deadline):
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
    for address in list_by_id(compute, listed, where, key, deadline):
        return observe_address(address, key.region, key.account, pricing.address)
    return None
