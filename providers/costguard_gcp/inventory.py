"""List a project's machines, disks and addresses, and report what is missing.

An aggregated list covers every zone of a project, page by page. A zone appears once on every page, so pages are merged. Zones
that could not be reached are in `unreachables` or have a warning: their content is unknown, not empty.

A refusal may mean that a project is empty, because Compute Engine or billing is off there. It is accepted only if it names this
project. Google names the project whose API is off, and with a user's credentials that is the project which pays for the
requests: the requested project may be full of machines.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from costguard.errors import ForbiddenError, InputError, InvalidAnswerError, ProviderError, shorten, to_one_line
from costguard.metering.inventory import Complete, Failed, Inventory, Partial
from costguard.metering.observation import Observation, Price
from costguard.providers.transport import Deadline, ProviderContext
from costguard.system.clock import Clock
from costguard.values.resource import ADDRESS, INSTANCE, VOLUME
from costguard_gcp.api import DISABLED, PAGE, RESOURCES, SPEAKS_OF, UNBILLED, ComputeSdk, GoogleApi, explain_odd_body
from costguard_gcp.machine_types import ShapeCatalogue
from costguard_gcp.price_list import (
    SOURCE,
    PriceCatalogue,
    Prices,
    compute_rate,
    find_address_price,
    find_disk_price,
    find_local_ssd_price,
)
from costguard_gcp.translation import (
    ListingContext,
    PriceQuestion,
    StoragePricing,
    observe_address,
    observe_disk,
    observe_instance,
    observe_unreadable,
)
from costguard_gcp.wire import Named, ProjectNumber, take_last_part

MOST_NOTES = 40

CLIENTS = {
    "instances": ("InstancesClient", "AggregatedListInstancesRequest", "InstanceAggregatedList", "Instance"),
    "disks": ("DisksClient", "AggregatedListDisksRequest", "DiskAggregatedList", "Disk"),
    "addresses": ("AddressesClient", "AggregatedListAddressesRequest", "AddressAggregatedList", "Address"),
}
"""List -> the SDK's client, and its types of a request, a page and an item."""
FALL_BACK = "last known and public prices replace it; exact ones need: gcloud services enable cloudbilling.googleapis.com"


class ProjectLister:
    """Lists projects.

    `compute`, `catalogue` and `shapes` are the login's.
    """

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
        """Return the inventory of `project`, and notes; Failed if it cannot be listed."""
        try:
            instances = list_aggregated(self._compute, project, "instances", deadline)
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

    def prepare_context(self, project: str, listing: AggregatedList, deadline: Deadline, notes: list[str]) -> ListingContext:
        """Return the data needed to translate machines.

        Prices and types are fetched only if there are machines; disks and addresses fetch prices by themselves.
        """
        machines = {
            (take_last_part(one.zone) or where, take_last_part(one.machine_type))
            for where, one in listing.items
            if one.machine_type
        }
        self._shapes.learn(project, machines, deadline)
        prices = self._read_prices(deadline, notes) if machines else {}
        return ListingContext(
            project=project,
            gpus=self._around.gpus,
            machines=lambda zone, name: self._shapes.get(project, zone, name),
            price=_make_pricing(prices),
            local_ssd=lambda tier, region: find_local_ssd_price(tier, region, prices),
            at=self.clock.now(),
        )

    def _read_prices(self, deadline: Deadline, notes: list[str]) -> Prices:
        """Return today's price list, as far as it can be read; notes what is wrong with it."""
        listed = self._catalogue.read_current(deadline)
        if listed.why:
            notes.append(f"{listed.why}; {FALL_BACK}")
        return listed.prices

    def _add_disks(self, project: str, deadline: Deadline, items: list[Observation], why: list[str], notes: list[str]) -> None:
        try:
            disks = list_aggregated(self._compute, project, "disks", deadline)
        except ProviderError as broken:
            why.append(f"disks: {format_reason(broken)}")
            return
        why += disks.why
        pricing = make_storage_pricing(self._read_prices(deadline, notes) if disks.items else {})
        _take_items(
            disks,
            items,
            why,
            notes,
            lambda one, where: observe_disk(one, where, project, pricing.disk),
        )
        items += _observe_named(disks, project, VOLUME, why)

    def _add_addresses(
        self, project: str, deadline: Deadline, items: list[Observation], why: list[str], notes: list[str]
    ) -> None:
        try:
            addresses = list_aggregated(self._compute, project, "addresses", deadline)
        except ProviderError as broken:
            why.append(f"addresses: {format_reason(broken)}")
            return
        why += addresses.why
        pricing = make_storage_pricing(self._read_prices(deadline, notes) if addresses.items else {})
        _take_items(
            addresses,
            items,
            why,
            notes,
            lambda one, where: (observe_address(one, where, project, pricing.address), ()),
        )
        items += _observe_named(addresses, project, ADDRESS, why)


def format_reason(broken: ProviderError) -> str:
    """Return the error and its hint in one line."""
    return to_one_line(broken.what if broken.hint is None else f"{broken.what}; {broken.hint}")


def make_storage_pricing(prices: Prices) -> StoragePricing:
    """Return the prices of disks and addresses in the list."""
    return StoragePricing(
        disk=lambda line, region: find_disk_price(line, region, prices),
        address=lambda region: find_address_price(region, prices),
    )


def _make_pricing(prices: Prices) -> Callable[[PriceQuestion], tuple[Price, str]]:
    """Return a price function from the list; if there is no list, the reason is noted once and not per machine."""

    def price(question: PriceQuestion) -> tuple[Price, str]:
        if not prices:
            return Price(None), ""
        rate, why = compute_rate(question.machine, question.accelerators, question.sku_tier, question.region, prices)
        return Price(rate, source=SOURCE), why

    return price


def _take_items(
    listing: AggregatedList,
    items: list[Observation],
    why: list[str],
    notes: list[str],
    translate: Callable[[Any, str], tuple[Observation | None, tuple[str, ...]]],
) -> None:
    """Add every item that a ledger can store."""
    for where, one in listing.items:
        try:
            observation, more = translate(one, where)
        except InputError as odd:
            why.append(shorten(to_one_line(f"left out: {odd}"), 200))
            continue
        notes += more
        if observation is not None:
            items.append(observation)


def _observe_named(listing: AggregatedList, project: str, kind: str, why: list[str]) -> list[Observation]:
    """Return items of which only the id can be read, in an unknown state."""
    items: list[Observation] = []
    for where, one in listing.named:
        try:
            items.append(observe_unreadable(one, where, project, kind))
            why.append(f"{kind} {shorten(to_one_line(str(one.id)))} cannot be read but for its id")
        except InputError as odd:
            why.append(shorten(to_one_line(f"left out: {odd}"), 200))
    return items


MOST_PAGES, MOST_ITEMS = 1000, 50_000
"""Of one list of one project: more is refused, and said."""
EMPTY = "NO_RESULTS_ON_PAGE"


@dataclass(slots=True, kw_only=True)
class AggregatedList:
    """The SDK's items with their zone or region.

    `named`: those of which only the id can be read. `why`: what is missing.
    """

    items: list[tuple[str, Any]] = field(default_factory=list)
    named: list[tuple[str, Named]] = field(default_factory=list)
    why: list[str] = field(default_factory=list)
    pages: int = 0


Ask = Callable[[str, Callable[[bytes], Any]], Any]
"""The page that a token names, "" for the first; and what makes a page of a body that the SDK refuses."""


def list_aggregated(compute: ComputeSdk, project: str, what: str, deadline: Deadline) -> AggregatedList:
    """Return the list `what` ("instances") of a project; raises a ProviderError if its first page fails."""
    client, request, page_kind, kind = CLIENTS[what]

    def ask(token: str, repair: Callable[[bytes], Any]) -> Any:  # noqa: ANN401 - a message of the SDK
        fields = {"project": project, "max_results": PAGE, **({"page_token": token} if token else {})}
        return compute.ask(client, "aggregated_list", request, fields, deadline=deadline, repair=repair)

    sdk = compute.import_sdk()
    return read_aggregated(ask, what, getattr(sdk, page_kind), getattr(sdk, kind))


def read_aggregated(ask: Ask, what: str, page_kind: Any, kind: Any) -> AggregatedList:  # noqa: ANN401 - types of the SDK
    """Read every page of the list `what`, of the SDK's types `page_kind` and `kind`.

    Raises a ProviderError if the first page fails; a later failure is added to `why`.
    """
    listing = AggregatedList()
    token, page_tokens = "", set[str]()
    repair = partial(_repair_page, what=what, page_kind=page_kind, kind=kind, listing=listing)
    while True:
        try:
            page = ask(token, repair)
            check_page(page, what)
        except ProviderError as broken:
            if not listing.pages:
                raise
            listing.why.append(f"page {listing.pages + 1} of {what}: {to_one_line(broken.what)}")
            return listing
        listing.pages += 1
        _merge_page(page, what, listing)
        if len(listing.items) > MOST_ITEMS:
            del listing.items[MOST_ITEMS:]
            listing.why.append(f"more than {MOST_ITEMS} {what}")
            return listing
        token = page.next_page_token
        if not token:
            return listing
        if token in page_tokens or listing.pages >= MOST_PAGES:
            listing.why.append(f"the pages of {what} {'repeat' if token in page_tokens else 'do not end'}")
            return listing
        page_tokens.add(token)


def check_page(page: Any, what: str) -> None:  # noqa: ANN401 - a message of the SDK
    """Raise InvalidAnswerError if the page is none of an aggregated list."""
    if not page.items and not page.kind.endswith("AggregatedList"):
        raise InvalidAnswerError(f"the answer is not a list of {what}", provider="gcp")


def _merge_page(page: Any, what: str, listing: AggregatedList) -> None:  # noqa: ANN401 - a message of the SDK
    for scope, scoped in page.items.items():
        where, items = take_last_part(scope), getattr(scoped, what)
        if "warning" in scoped and scoped.warning.code != EMPTY:  # the scope's content is unknown
            listing.why.append(f"{_shorten_text(where)}: {_shorten_text(scoped.warning.code or 'a warning without a code')}")
        elif "warning" not in scoped and not items:  # Google warns of an empty scope; protobuf makes one of any other shape
            listing.why.append(f"{_shorten_text(where)} cannot be read")
        for one in items:
            if "id" in one:
                listing.items.append((where, one))
            else:
                listing.why.append(f"an item in {_shorten_text(where)} cannot be read, not even its id")
    dead = sorted({_shorten_text(take_last_part(one)) for one in page.unreachables})
    if dead:
        listing.why.append(f"not reached: {', '.join(dead)}")
    if page.warning.code not in ("", EMPTY):
        listing.why.append(_shorten_text(page.warning.code))


def _repair_page(body: bytes, what: str, page_kind: Any, kind: Any, listing: AggregatedList) -> Any:  # noqa: ANN401 - types of the SDK
    """Return the page without the items that the SDK refuses, for which it refuses a whole page of 500 machines.

    They are added to `listing.named`, or to `listing.why`.
    """
    try:
        page = json.loads(body)
    except (ValueError, RecursionError) as odd:
        raise explain_odd_body(body, odd) from None
    scopes = page.get("items") if isinstance(page, dict) else None
    for scope, scoped in list(scopes.items() if isinstance(scopes, dict) else ()):
        items = scoped.get(what) or [] if isinstance(scoped, dict) else None
        if isinstance(items, list):
            scoped[what] = [one for one in items if _is_sound(one, take_last_part(scope), kind, listing)]
            if items and not scoped[what]:
                scoped.setdefault("warning", {"code": EMPTY})
        else:
            listing.why.append(f"{_shorten_text(take_last_part(scope))} cannot be read")
            del page["items"][scope]
    try:
        return page_kind.from_json(json.dumps(page), ignore_unknown_fields=True)
    except Exception as odd:  # noqa: BLE001 - protobuf has an error of its own, and raises others
        raise explain_odd_body(body, odd) from None


def _is_sound(item: Any, where: str, kind: Any, listing: AggregatedList) -> bool:  # noqa: ANN401 - whatever stands there
    try:
        kind.from_json(json.dumps(item), ignore_unknown_fields=True)
    except Exception:  # noqa: BLE001 - as above
        for partly in (item, {"id": item.get("id")} if isinstance(item, dict) else None):
            try:
                listing.named.append((where, msgspec.convert(partly, Named)))
            except msgspec.ValidationError:
                continue
            return False
        listing.why.append(f"an item in {_shorten_text(where)} cannot be read, not even its id")
        return False
    return True


def _shorten_text(text: str) -> str:
    return shorten(to_one_line(text))


ASKED_S = 5.0
"""Seconds for the question which number a project has."""


class AbsenceCheck:
    """The known numbers of one login's projects, and the projects in which it saw resources."""

    def __init__(self, google: GoogleApi) -> None:
        self._google, self._lock = google, threading.Lock()
        self._saw = set[str]()
        self._numbers = dict[str, str]()
        self._named = dict[str, set[str]]()

    def note_seen(self, project: str) -> None:
        """Record that `project` has resources, and so Compute Engine."""
        self._saw.add(project)

    def doubt(self, broken: ProviderError, project: str, deadline: Deadline) -> str:
        """Return why `broken`, an `is_no_compute_refusal`, does not prove `project` empty; "" if it does."""
        if project in self._saw:
            return "machines were seen there before, so an empty list is not accepted"
        for other in _list_named_numbers(broken):
            if other != project and not (other.isdigit() and self._may_be_number_of(other, project, deadline)):
                return f"that is another project than {project}: pass its quota project, or enable the API there"
        return ""

    def _may_be_number_of(self, number: str, project: str, deadline: Deadline) -> bool:
        """Return whether `number` may be that of `project`.

        If that cannot be read, a number with which two projects were refused does not count.
        """
        with self._lock:
            among = self._named.setdefault(number, set())
            among.add(project)
        project_number = self._numbers.get(project) or self._fetch_number(project, deadline)
        return project_number == number if project_number else len(among) == 1

    def _fetch_number(self, project: str, deadline: Deadline) -> str:
        """Return the project's number, "" if the Resource Manager does not return it."""
        try:
            path, limit = f"/v3/projects/{project}", deadline.limit_to(ASKED_S)
            reply = self._google.read(RESOURCES, project, path, deadline=limit)
            number = take_last_part(self._google.decode(RESOURCES, project, reply, ProjectNumber, "the project").name)
        except ProviderError:
            return ""
        if number.isdigit():
            self._numbers[project] = number
        return self._numbers.get(project, "")


def is_no_compute_refusal(broken: ProviderError) -> bool:
    """Return whether the refusal states, by its exact reason, that a project has no Compute Engine or no billing."""
    return isinstance(broken, ForbiddenError) and broken.code in DISABLED | UNBILLED


_PROJECT_NUMBER = re.compile(re.escape(SPEAKS_OF) + r"([a-z0-9:., -]+)")


def _list_named_numbers(broken: ProviderError) -> list[str]:
    match = _PROJECT_NUMBER.search(broken.what)
    return match[1].split(", ") if match else []
