"""One poll of a region: its instances, volumes and addresses, fetched page by page and concurrently.

Requests: one for every 1,000 instances and every 1,000 volumes, one for the addresses. Types, list prices of machines, volume
types and addresses, and, if spot machines run, their price history are fetched beside it and cached. There is no request for a
single instance.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from xml.etree.ElementTree import Element

from costguard.errors import InputError, ProviderError, shorten
from costguard.metering.inventory import Complete, Failed, Inventory, Partial, Poll
from costguard.metering.observation import Observation, Price
from costguard.providers.transport import Deadline, pause_gc
from costguard.system.clock import Clock, make_executor
from costguard.values.resource import ADDRESS, INSTANCE, VOLUME, ResourceKey, ScopeKey
from costguard_aws.api import Ec2Api
from costguard_aws.ec2_pages import CutShortError, ItemPage
from costguard_aws.ec2_xml import read_text
from costguard_aws.errors import AWS, format_error
from costguard_aws.instance_types import GpuInstanceType, InstanceTypeCatalogue
from costguard_aws.item_memory import ItemMemory, KnownItem, compute_digest
from costguard_aws.price_list import OnDemandPrices, PriceKey
from costguard_aws.session import limit_requests
from costguard_aws.spot import LINUX, SpotHistory, SpotMarket
from costguard_aws.storage_prices import ADDRESS_KIND, StoragePrices
from costguard_aws.translation import (
    ListingScope,
    TypeAndPriceLookup,
    guess_price_key,
    is_usual_zone,
    make_price_key,
    observe_address,
    observe_instance,
    observe_volume,
)

MOST_NOTES = 50
LONGEST_WHY = 300
LOOK_S = 30.0
UNREADABLE = "unreadable"
ASKED_AFTER = 200
"""The most values of one filter: EC2's limit."""


@dataclass(slots=True)
class _PollNotes:
    """The distinct notes of a poll, limited in number.

    `deadline`: of the poll.
    """

    deadline: Deadline
    notes: dict[str, None] = field(default_factory=dict)
    missing: dict[str, None] = field(default_factory=dict)
    """Why the listing is not whole."""

    def share_deadline(self) -> AbstractContextManager[None]:
        """Limit requests beside the listing to a third of the remaining time, so that the next page still has enough."""
        return limit_requests(self.deadline.limit_to(self.deadline.compute_left() / 3))

    def note(self, sentence: str) -> None:
        if len(self.notes) < MOST_NOTES:
            self.notes[sentence] = None

    def note_all(self, sentences: Iterable[str]) -> None:
        for sentence in sentences:
            self.note(sentence)

    def add_gap(self, sentence: str) -> None:
        if len(self.missing) < MOST_NOTES:
            self.missing[sentence] = None


class RegionListing:
    """Polls of one account's regions.

    Different regions may be polled from several threads at once.
    """

    def __init__(
        self,
        ec2: Ec2Api,
        catalogue: InstanceTypeCatalogue,
        prices: OnDemandPrices,
        storage: StoragePrices,
        spot: SpotHistory,
        *,
        clock: Clock,
    ) -> None:
        self._ec2, self._catalogue, self._prices, self._storage = ec2, catalogue, prices, storage
        self._spot, self._clock = spot, clock
        self._instances: dict[ListingScope, ItemMemory[_InstanceFacts]] = {}
        self._volumes: dict[ListingScope, ItemMemory[_VolumeFacts]] = {}

    def poll(self, scope: ScopeKey, timeout_s: float) -> Poll:
        """Poll the region; returns Failed if its instances cannot be listed, and raises nothing."""
        asked_at, told = self._clock.now(), _PollNotes(Deadline(timeout_s))
        with limit_requests(told.deadline):
            inventory = self._read_inventory(scope, told)
        at = max(self._clock.now(), asked_at)
        return Poll(scope=scope, at=at, asked_at=asked_at, inventory=inventory, notes=tuple(told.notes))

    def observe_one(self, item: Element, place: ListingScope) -> tuple[Observation, tuple[str, ...]]:
        """Return one instance that was fetched alone, and notes of what could not be learned about it."""
        told = _PollNotes(Deadline(LOOK_S))
        found = self._read_instances([item], place, told)
        if not found:
            raise InputError("; ".join(told.missing) or "cannot be read", field=f"aws {place.region}")
        return self._price_spot(found, place.region, told)[0], tuple(told.notes)

    def _read_inventory(self, scope: ScopeKey, told: _PollNotes) -> Inventory:
        place = ListingScope(scope.account, scope.name)
        with make_executor(2, "costguard-aws") as beside:
            volumes = beside.submit(copy_context().run, self._list_volumes, place, told)
            addresses = beside.submit(copy_context().run, self._list_addresses, place, told)
            try:
                items = self._list_instances(place, told)
            except ProviderError as broken:
                return Failed(shorten(f"{scope.name}: {format_error(broken)}", LONGEST_WHY))
            disks, attached = volumes.result()
            others = addresses.result()
        if not told.missing:
            self._check_attached_volumes(attached - {item.key.id for item in items}, place, told)
        items += disks
        items += others
        if told.missing:
            return Partial(tuple(items), shorten("; ".join(told.missing), LONGEST_WHY))
        return Complete(tuple(items))

    def _list_instances(self, place: ListingScope, told: _PollNotes) -> list[Observation]:
        found: list[_SeenInstance] = []
        memory = self._instances.setdefault(place, ItemMemory())
        memory.begin()
        try:
            for page in self._ec2.poll_instances(place.region):
                found += self._read_page(page, place, told, memory)
        except CutShortError as short:
            told.add_gap(f"{place.region}: {short}")
        return self._price_spot(found, place.region, told)

    def _read_page(
        self, page: ItemPage, place: ListingScope, told: _PollNotes, memory: ItemMemory[_InstanceFacts]
    ) -> list[_SeenInstance]:
        """Return the instances of one page; all types and list prices that they need are learned first."""
        digests = list(map(compute_digest, page.pieces))
        known = list(map(memory.find, digests))
        guessed = [guess_price_key(page.pieces[i], place.region) for i, one in enumerate(known) if one is None]
        self._learn_prices({*guessed, *(one.facts.price_key for one in known if one)}, place, told)
        lookup = self._make_lookup(told)
        with pause_gc():
            for i, one in enumerate(known):
                if one is not None and lookup.look_up(one.facts.price_key) != one.facts.found:
                    known[i] = None
            missing = [i for i, one in enumerate(known) if one is None]
        fresh = iter(missing)
        seen: dict[int, _SeenInstance | None] = {}
        for lot in page.parse_pieces([page.pieces[i] for i in missing]):
            self._learn_prices({_read_price_key(item, place.region) for item in lot}, place, told)
            with pause_gc():
                for item, i in zip(lot, fresh, strict=False):
                    seen[i] = self._read_instance(item, place, told, lookup, partial(memory.keep, digests[i]))
        found = self._read_instances(page.elements, place, told)
        for i, one in enumerate(known):
            if one is not None:
                told.note_all(one.notes)
                memory.keep(digests[i], one)
            read = _SeenInstance(one.seen, one.facts.spot) if one is not None else seen.get(i)
            found += [read] if read is not None else []
        return found

    def _read_instances(self, items: Sequence[Element], place: ListingScope, told: _PollNotes) -> list[_SeenInstance]:
        """Return the instances of a page that was not cut."""
        self._learn_prices({_read_price_key(item, place.region) for item in items}, place, told)
        lookup = self._make_lookup(told)
        with pause_gc():
            found = [self._read_instance(item, place, told, lookup, _forget) for item in items]
        return [one for one in found if one is not None]

    def _learn_prices(self, keys: Collection[PriceKey], place: ListingScope, told: _PollNotes) -> None:
        with told.share_deadline():
            self._catalogue.learn({key.instance_type for key in keys}, place.region, told.note)
        with told.share_deadline():
            self._prices.learn([key for key in keys if key.instance_type])

    def _make_lookup(self, told: _PollNotes) -> _PageLookup:
        return _PageLookup(self._catalogue.find_type, partial(self._find_price, told=told))

    def _read_instance(
        self,
        item: Element,
        place: ListingScope,
        told: _PollNotes,
        lookup: _PageLookup,
        keep: Callable[[KnownItem[_InstanceFacts]], None],
    ) -> _SeenInstance | None:
        notes = list[str]()
        known = TypeAndPriceLookup(lookup.find_type, lookup.find_price)
        seen = _read_item(
            item, "instanceId", INSTANCE, place, told, read=lambda item: observe_instance(item, place, known, notes.append)
        )
        told.note_all(notes)
        if seen is None:
            return None
        spot = _parse_spot_market(item) if read_text(item, "instanceLifecycle") == "spot" else None
        key = _read_price_key(item, place.region)
        if seen.why != UNREADABLE:
            keep(KnownItem(seen, tuple(notes), _InstanceFacts(key, lookup.look_up(key), spot)))
        return _SeenInstance(seen, spot)

    def _find_price(self, key: PriceKey, told: _PollNotes) -> Price:
        stated = self._prices.peek_price(key)
        if stated.why:
            told.note(stated.why)
        return stated.price

    def _price_spot(self, found: list[_SeenInstance], region: str, told: _PollNotes) -> list[Observation]:
        """Return the observations, those of spot machines with the prices that they have paid since their start."""
        if not any(one.pays_spot for one in found):
            return [one.seen for one in found]
        now = self._clock.now()
        wanted: dict[SpotMarket, datetime] = {}
        for one in found:
            if one.market is not None and one.pays_spot:
                start = min(one.seen.started_at or now, now)
                wanted[one.market] = min(wanted.get(one.market, start), start)
        with told.share_deadline():
            why = self._spot.refresh(region, wanted, now)
        if why:
            told.note(why)
        return [
            replace(one.seen, prices=self._spot.list_prices(one.market, one.seen.started_at))
            if one.market is not None and one.pays_spot
            else one.seen
            for one in found
        ]

    def _check_attached_volumes(self, unlisted: set[str], place: ListingScope, told: _PollNotes) -> None:
        """Detect an incomplete listing that claims to be complete, by volumes attached to unlisted machines.

        Those machines are requested only in that case: one that was launched or terminated between the two lists looks the same
        at first.
        """
        asked = sorted(unlisted)[:ASKED_AFTER]
        try:
            there = self._ec2.list_existing(place.region, asked) if asked else []
        except ProviderError as broken:
            told.add_gap(f"{place.region}: disks hang on machines that are not listed, and not to be asked for: {broken.what}")
            return
        alive = [item for item in there if read_text(item, "instanceState/name") != "terminated"]
        if alive:
            told.add_gap(f"{place.region}: the listing lacks {len(alive)} machines on which its disks hang")

    def _list_volumes(self, place: ListingScope, told: _PollNotes) -> tuple[list[Observation], set[str]]:
        """Return every volume, and the ids of the machines to which volumes are attached."""
        found: list[Observation] = []
        attached: set[str] = set()
        memory = self._volumes.setdefault(place, ItemMemory())
        memory.begin()
        try:
            for page in self._ec2.poll_volumes(place.region):
                read = self._read_volumes(page, place, told, memory)
                attached.update(id_ for _, ids in read for id_ in ids)
                found += [seen for seen, _ in read if seen is not None]
        except (CutShortError, ProviderError) as broken:
            told.add_gap(f"{place.region}: volumes: {_format_reason(broken)}")
        return found, attached - {""}

    def _read_volumes(
        self, page: ItemPage, place: ListingScope, told: _PollNotes, memory: ItemMemory[_VolumeFacts]
    ) -> list[tuple[Observation | None, Sequence[str]]]:
        """Return the volumes of one page, each with the ids of the machines to which it is attached."""
        digests = list(map(compute_digest, page.pieces))
        known = list(map(memory.find, digests))
        self._learn_storage({one.facts.kind for one in known if one} - {""}, place, told)
        for i, one in enumerate(known):
            if one is not None and any(
                self._storage.find_price(place.region, one.facts.kind, line) != nano for line, nano in one.facts.found
            ):
                known[i] = None
        missing = [i for i, one in enumerate(known) if one is None]
        fresh, seen = iter(missing), dict[int, tuple[Observation | None, Sequence[str]]]()
        for lot in page.parse_pieces([page.pieces[i] for i in missing]):
            self._learn_storage({read_text(item, "volumeType") for item in lot} - {""}, place, told)
            for item, i in zip(lot, fresh, strict=False):
                seen[i] = self._read_volume(item, place, told, partial(memory.keep, digests[i]))
        self._learn_storage({read_text(item, "volumeType") for item in page.elements} - {""}, place, told)
        found = [self._read_volume(item, place, told, _forget) for item in page.elements]
        for i, one in enumerate(known):
            if one is not None:
                told.note_all(one.notes)
                memory.keep(digests[i], one)
            found.append((one.seen, one.facts.attached) if one is not None else seen[i])
        return found

    def _read_volume(
        self,
        item: Element,
        place: ListingScope,
        told: _PollNotes,
        keep: Callable[[KnownItem[_VolumeFacts]], None],
    ) -> tuple[Observation | None, Sequence[str]]:
        notes, prices = list[str](), list[tuple[str, int | None]]()
        seen = _read_item(
            item, "volumeId", VOLUME, place, told, read=lambda item: self.observe_disk(item, place, notes.append, prices.append)
        )
        told.note_all(notes)
        attached = tuple(read_text(one, "instanceId") for one in item.iterfind("attachmentSet/item"))
        if seen is not None and seen.why != UNREADABLE:
            keep(KnownItem(seen, tuple(notes), _VolumeFacts(seen.instance_type, tuple(prices), attached)))
        return seen, attached

    def _list_addresses(self, place: ListingScope, told: _PollNotes) -> list[Observation]:
        try:
            page = self._ec2.list_addresses(place.region)
        except ProviderError as broken:
            told.add_gap(f"{place.region}: addresses: {_format_reason(broken)}")
            return []
        if page:
            self._learn_storage({ADDRESS_KIND}, place, told)
        found = [
            _read_item(item, "allocationId", ADDRESS, place, told, read=lambda item: self.observe_ip(item, place))
            for item in page
        ]
        return [seen for seen in found if seen is not None]

    def _learn_storage(self, kinds: set[str], place: ListingScope, told: _PollNotes) -> None:
        with told.share_deadline():
            for why in self._storage.learn(place.region, kinds):
                told.note(why)

    def observe_disk(
        self,
        item: Element,
        place: ListingScope,
        told: Callable[[str], None],
        priced: Callable[[tuple[str, int | None]], None] = lambda _: None,
    ) -> Observation:
        """Return one volume with the prices that were learned for its type; `priced` receives each of them.

        Those of a Local Zone or an Outpost are others, which nobody was asked for.
        """

        def find_price(line: str) -> int | None:
            found = self._storage.find_price(place.region, kind, line)
            priced((line, found))
            return found

        kind, zone = read_text(item, "volumeType"), read_text(item, "availabilityZone")
        if read_text(item, "outpostArn") or (zone and not is_usual_zone(zone, place.region)):
            return observe_volume(item, place, told)
        return observe_volume(item, place, told, find_price)

    def observe_ip(self, item: Element, place: ListingScope) -> Observation | None:
        """Return one address with the price that was learned; None for a customer's own."""
        return observe_address(item, place, lambda line: self._storage.find_price(place.region, ADDRESS_KIND, line))


@dataclass(frozen=True, slots=True)
class _PageLookup:
    """Look-ups of types and prices for one page; a price is looked up once, and its note told once."""

    find_type: Callable[[str], GpuInstanceType | None]
    _ask_price: Callable[[PriceKey], Price]
    _prices: dict[PriceKey, Price] = field(default_factory=dict)

    def find_price(self, key: PriceKey) -> Price:
        if key not in self._prices:
            self._prices[key] = self._ask_price(key)
        return self._prices[key]

    def look_up(self, key: PriceKey) -> tuple[GpuInstanceType | None, Price]:
        """Return all that an instance's translation depends on beside its text."""
        return self.find_type(key.instance_type), self.find_price(key)


@dataclass(frozen=True, slots=True)
class _InstanceFacts:
    """`found`: type and price as they were looked up. `spot`: the market whose price a spot machine pays."""

    price_key: PriceKey
    found: tuple[GpuInstanceType | None, Price]
    spot: SpotMarket | None


@dataclass(frozen=True, slots=True)
class _VolumeFacts:
    """`found`: lines with the prices that were looked up. `attached`: ids of machines."""

    kind: str
    found: tuple[tuple[str, int | None], ...]
    attached: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _SeenInstance:
    """An instance, and the market whose price it pays if it is a spot machine."""

    seen: Observation
    market: SpotMarket | None

    @property
    def pays_spot(self) -> bool:
        return self.market is not None and self.seen.tier == "spot"


def _read_price_key(item: Element, region: str) -> PriceKey:
    return make_price_key({child.tag: child for child in item}, read_text(item, "instanceType"), region)


def _parse_spot_market(item: Element) -> SpotMarket:
    product = read_text(item, "platformDetails") or LINUX
    return SpotMarket(read_text(item, "instanceType"), read_text(item, "placement/availabilityZone"), product)


def _forget(item: object) -> None:
    """Remember nothing of an item that was not recognised by its text."""


def _read_item(
    item: Element,
    id_field: str,
    kind: str,
    place: ListingScope,
    told: _PollNotes,
    *,
    read: Callable[[Element], Observation | None],
) -> Observation | None:
    """Return one item of a list; None if it is none.

    One that cannot be read is tracked by its id alone, and one without an id makes the list partial.
    """
    try:
        return read(item)
    except (InputError, ValueError, OverflowError) as odd:
        return _make_bare_observation(read_text(item, id_field), kind, place, odd, told)


def _make_bare_observation(id: str, kind: str, place: ListingScope, odd: Exception, told: _PollNotes) -> Observation | None:  # noqa: A002 - the ledger's word
    why = shorten(odd.what if isinstance(odd, InputError) else type(odd).__name__)
    try:
        seen = Observation(key=ResourceKey(AWS, place.account, place.region, id), state="unknown", kind=kind, why=UNREADABLE)
    except InputError:
        told.add_gap(f"{place.region}: one {kind} cannot be read: {why}")
        return None
    told.note(f"{shorten(id)}: cannot be read ({why})")
    return seen


def _format_reason(broken: Exception) -> str:
    return broken.what if isinstance(broken, ProviderError) else str(broken)
