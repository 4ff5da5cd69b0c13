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
from costguard_gcp.absence import Absence, none_there
from costguard_gcp.catalogue import Catalogue, PriceList
from costguard_gcp.listing import Listing, aggregated
from costguard_gcp.price_list import rate_of
from costguard_gcp.sdk import PAGE, Compute
from costguard_gcp.shapes import Shapes
from costguard_gcp.storage import address_observed, disk_observed
from costguard_gcp.translation import Asked, Reading, observed, unreadable
from costguard_gcp.wire import Address, Instance, PersistentDisk, last

T = TypeVar("T")

MOST_NOTES = 40

CLIENTS = {
    "instances": ("InstancesClient", "AggregatedListInstancesRequest"),
    "disks": ("DisksClient", "AggregatedListDisksRequest"),
    "addresses": ("AddressesClient", "AggregatedListAddressesRequest"),
}
SOURCE = "Cloud Billing Catalog"


class Lister:
    """Lists projects. `compute`, `catalogue` and `shapes` are the login's own."""

    def __init__(
        self, compute: Compute, catalogue: Catalogue, shapes: Shapes, absence: Absence, around: ProviderContext
    ) -> None:
        self.absence = absence
        self._compute, self._catalogue, self._shapes, self._around = compute, catalogue, shapes, around

    @property
    def clock(self) -> Clock:
        """The clock that dates listings."""
        return self._around.clock

    def listed(self, project: str, deadline: Deadline) -> tuple[Inventory, tuple[str, ...]]:
        """What `project` holds, and notes. That it cannot be asked is Failed."""
        try:
            instances = self._aggregated(project, "instances", Instance, deadline)
        except ProviderError as broken:
            doubt = self.absence.doubt(broken, project, deadline) if none_there(broken) else told(broken)
            if not doubt:
                return Complete(()), (f"{project}: no Compute Engine there ({broken.code})",)
            return Failed(to_one_line(f"{broken.what}; {doubt}") if none_there(broken) else doubt), ()
        items, why, notes = list[Observation](), list(instances.why), list[str]()
        reading = self.reading(project, instances, deadline, notes)
        _taken(instances, items, why, notes, lambda one, where: observed(one, where, reading))
        items += _named(instances, project, INSTANCE, why)
        self._disks(project, deadline, items, why, notes)
        self._addresses(project, deadline, items, why, notes)
        if items:
            self.absence.saw(project)
        shown = tuple(dict.fromkeys(notes))
        if len(shown) > MOST_NOTES:
            shown = (*shown[:MOST_NOTES], f"and {len(shown) - MOST_NOTES} more of the like")
        return (Partial(tuple(items), "; ".join(why)) if why else Complete(tuple(items))), shown

    def reading(self, project: str, found: Listing[Instance], deadline: Deadline, notes: list[str]) -> Reading:
        """What reading machines needs. Prices and types are asked for only where there are machines."""
        machines = {(last(one.zone) or where, last(one.machine_type)) for where, one in found.items if one.machine_type}
        self._shapes.learn(project, machines, deadline)
        listed = self._catalogue.current(deadline) if machines else None
        if listed is not None and listed.why:
            notes.append(listed.why)
        return Reading(
            project=project,
            gpus=self._around.gpus,
            machines=lambda zone, name: self._shapes.get(project, zone, name),
            price=_pricing(listed),
        )

    def _aggregated(self, project: str, what: str, kind: type[T], deadline: Deadline) -> Listing[T]:
        client, request = CLIENTS[what]

        def ask(token: str):  # type: ignore[no-untyped-def]  # noqa: ANN202 - a Reply
            fields = {"project": project, "max_results": PAGE, **({"page_token": token} if token else {})}
            return self._compute.ask(client, "aggregated_list", request, fields, deadline=deadline)

        return aggregated(ask, what, kind)

    def _disks(self, project: str, deadline: Deadline, items: list[Observation], why: list[str], notes: list[str]) -> None:
        try:
            disks = self._aggregated(project, "disks", PersistentDisk, deadline)
        except ProviderError as broken:
            why.append(f"disks: {told(broken)}")
            return
        why += disks.why
        _taken(disks, items, why, notes, lambda one, where: disk_observed(one, where, project))
        items += _named(disks, project, VOLUME, why)

    def _addresses(self, project: str, deadline: Deadline, items: list[Observation], why: list[str], notes: list[str]) -> None:
        try:
            addresses = self._aggregated(project, "addresses", Address, deadline)
        except ProviderError as broken:
            why.append(f"addresses: {told(broken)}")
            return
        why += addresses.why
        _taken(addresses, items, why, notes, lambda one, where: (address_observed(one, where, project), ()))
        items += _named(addresses, project, ADDRESS, why)


def told(broken: ProviderError) -> str:
    """The reason in one line, with what to do."""
    return to_one_line(broken.what if broken.hint is None else f"{broken.what}; {broken.hint}")


def _pricing(listed: PriceList | None) -> Callable[[Asked], tuple[Price, str]]:
    """Prices from the list; where there is none, its reason stands in the poll's notes once, and not at every machine."""

    def price(asked: Asked) -> tuple[Price, str]:
        if listed is None or listed.why:
            return Price(None), ""
        rate, why = rate_of(asked.machine, asked.accelerators, asked.sku_tier, asked.region, listed.prices)
        return Price(rate, source=SOURCE), why

    return price


def _taken(
    found: Listing[T],
    items: list[Observation],
    why: list[str],
    notes: list[str],
    translate: Callable[[T, str], tuple[Observation | None, tuple[str, ...]]],
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


def _named(found: Listing[T], project: str, kind: str, why: list[str]) -> list[Observation]:
    """Items of which only the id can be read: there, in an unknown state."""
    items: list[Observation] = []
    for where, one in found.named:
        try:
            items.append(unreadable(one, where, project, kind))
            why.append(f"{kind} {shorten(to_one_line(str(one.id)))} cannot be read but for its id")
        except InputError as odd:
            why.append(shorten(to_one_line(f"left out: {odd}"), 200))
    return items
