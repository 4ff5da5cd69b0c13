"""One listing of a project: its machines, disks and addresses, with what is missing said. Never a quiet nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from costguard.errors import InputError, ProviderError, shorten, to_one_line
from costguard.metering.inventory import Complete, Failed, Inventory, Partial
from costguard.metering.observation import Observation, Price
from costguard.providers.transport import Deadline, ProviderContext
from costguard.system.clock import Clock
from costguard.values.resource import ADDRESS, INSTANCE, VOLUME
from costguard_gcp.absence import AbsenceCheck, is_no_compute_refusal
from costguard_gcp.catalogue import PriceCatalogue, PriceList
from costguard_gcp.listing import AggregatedList, read_aggregated
from costguard_gcp.price_list import compute_rate
from costguard_gcp.sdk import PAGE, ComputeSdk
from costguard_gcp.shapes import ShapeCatalogue
from costguard_gcp.storage import observe_address, observe_disk
from costguard_gcp.translation import ListingContext, PriceQuestion, observe_instance, observe_unreadable
from costguard_gcp.wire import Address, Instance, PersistentDisk, take_last_part

ResourceT = TypeVar("ResourceT")

MOST_NOTES = 40

CLIENTS = {
    "instances": ("InstancesClient", "AggregatedListInstancesRequest"),
    "disks": ("DisksClient", "AggregatedListDisksRequest"),
    "addresses": ("AddressesClient", "AggregatedListAddressesRequest"),
}
SOURCE = "Cloud Billing Catalog"


class ProjectLister:
    """Lists projects. `compute`, `catalogue` and `shapes` are the login's own."""

    def __init__(
        self,
        compute: ComputeSdk,
        catalogue: PriceCatalogue,
        shapes: ShapeCatalogue,
        absence: AbsenceCheck,
        around: ProviderContext,
    ) -> None:
        self.absence = absence
        self._compute, self._catalogue, self._shapes, self._around = compute, catalogue, shapes, around

    @property
    def clock(self) -> Clock:
        """The clock that dates listings."""
        return self._around.clock

    def list_project(self, project: str, deadline: Deadline) -> tuple[Inventory, tuple[str, ...]]:
        """What `project` holds, and notes. That it cannot be asked is Failed."""
        try:
            instances = self._list_aggregated(project, "instances", Instance, deadline)
        except ProviderError as broken:
            doubt = self.absence.doubt(broken, project, deadline) if is_no_compute_refusal(broken) else format_reason(broken)
            if not doubt:
                return Complete(()), (f"{project}: no Compute Engine there ({broken.code})",)
            return Failed(to_one_line(f"{broken.what}; {doubt}") if is_no_compute_refusal(broken) else doubt), ()
        items, why, notes = list[Observation](), list(instances.why), list[str]()
        reading = self.prepare_context(project, instances, deadline, notes)
        _take_items(instances, items, why, notes, lambda one, where: observe_instance(one, where, reading))
        items += _observe_named(instances, project, INSTANCE, why)
        self._add_disks(project, deadline, items, why, notes)
        self._add_addresses(project, deadline, items, why, notes)
        if items:
            self.absence.note_seen(project)
        shown = tuple(dict.fromkeys(notes))
        if len(shown) > MOST_NOTES:
            shown = (*shown[:MOST_NOTES], f"and {len(shown) - MOST_NOTES} more of the like")
        return (Partial(tuple(items), "; ".join(why)) if why else Complete(tuple(items))), shown

    def prepare_context(
        self, project: str, found: AggregatedList[Instance], deadline: Deadline, notes: list[str]
    ) -> ListingContext:
        """What reading machines needs. Prices and types are asked for only where there are machines."""
        machines = {
            (take_last_part(one.zone) or where, take_last_part(one.machine_type))
            for where, one in found.items
            if one.machine_type
        }
        self._shapes.learn(project, machines, deadline)
        listed = self._catalogue.read_current(deadline) if machines else None
        if listed is not None and listed.why:
            notes.append(listed.why)
        return ListingContext(
            project=project,
            gpus=self._around.gpus,
            machines=lambda zone, name: self._shapes.get(project, zone, name),
            price=_make_pricing(listed),
        )

    def _list_aggregated(self, project: str, what: str, kind: type[ResourceT], deadline: Deadline) -> AggregatedList[ResourceT]:
        client, request = CLIENTS[what]

        def ask(token: str):  # type: ignore[no-untyped-def]  # noqa: ANN202 - a Reply
            fields = {"project": project, "max_results": PAGE, **({"page_token": token} if token else {})}
            return self._compute.ask(client, "aggregated_list", request, fields, deadline=deadline)

        return read_aggregated(ask, what, kind)

    def _add_disks(self, project: str, deadline: Deadline, items: list[Observation], why: list[str], notes: list[str]) -> None:
        try:
            disks = self._list_aggregated(project, "disks", PersistentDisk, deadline)
        except ProviderError as broken:
            why.append(f"disks: {format_reason(broken)}")
            return
        why += disks.why
        _take_items(disks, items, why, notes, lambda one, where: observe_disk(one, where, project))
        items += _observe_named(disks, project, VOLUME, why)

    def _add_addresses(
        self, project: str, deadline: Deadline, items: list[Observation], why: list[str], notes: list[str]
    ) -> None:
        try:
            addresses = self._list_aggregated(project, "addresses", Address, deadline)
        except ProviderError as broken:
            why.append(f"addresses: {format_reason(broken)}")
            return
        why += addresses.why
        _take_items(addresses, items, why, notes, lambda one, where: (observe_address(one, where, project), ()))
        items += _observe_named(addresses, project, ADDRESS, why)


def format_reason(broken: ProviderError) -> str:
    """The reason in one line, with what to do."""
    return to_one_line(broken.what if broken.hint is None else f"{broken.what}; {broken.hint}")


def _make_pricing(listed: PriceList | None) -> Callable[[PriceQuestion], tuple[Price, str]]:
    """Prices from the list; where there is none, its reason stands in the poll's notes once, and not at every machine."""

    def price(asked: PriceQuestion) -> tuple[Price, str]:
        if listed is None or listed.why:
            return Price(None), ""
        rate, why = compute_rate(asked.machine, asked.accelerators, asked.sku_tier, asked.region, listed.prices)
        return Price(rate, source=SOURCE), why

    return price


def _take_items(
    found: AggregatedList[ResourceT],
    items: list[Observation],
    why: list[str],
    notes: list[str],
    translate: Callable[[ResourceT, str], tuple[Observation | None, tuple[str, ...]]],
) -> None:
    """Every item that a ledger can hold."""
    for where, one in found.items:
        try:
            seen, more = translate(one, where)
        except InputError as odd:
            why.append(shorten(to_one_line(f"left out: {odd}"), 200))
            continue
        notes += more
        if seen is not None:
            items.append(seen)


def _observe_named(found: AggregatedList[ResourceT], project: str, kind: str, why: list[str]) -> list[Observation]:
    """Items of which only the id can be read: there, in an unknown state."""
    items: list[Observation] = []
    for where, one in found.named:
        try:
            items.append(observe_unreadable(one, where, project, kind))
            why.append(f"{kind} {shorten(to_one_line(str(one.id)))} cannot be read but for its id")
        except InputError as odd:
            why.append(shorten(to_one_line(f"left out: {odd}"), 200))
    return items
