"""One poll of a region: its instances, volumes and addresses, fetched page by page and concurrently.

Requests: one for every 1,000 instances and every 1,000 volumes, one for the addresses. Types, list prices of machines, volume
types and addresses, and, if spot machines run, their price history are fetched beside it and cached. There is no request for a
single instance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, partial

from costguard.errors import InputError, ProviderError, shorten
from costguard.metering.inventory import Complete, Failed, Inventory, Partial, Poll
from costguard.metering.observation import Observation, Price
from costguard.providers.transport import Deadline, pause_gc
from costguard.system.clock import Clock, make_executor
from costguard.values.resource import ADDRESS, INSTANCE, VOLUME, ResourceKey, ScopeKey
from costguard_aws.api import CutShortError, Ec2Api, Ec2Item
from costguard_aws.errors import AWS, format_error
from costguard_aws.instance_types import InstanceTypeCatalogue
from costguard_aws.price_list import OnDemandPrices, PriceKey
from costguard_aws.session import limit_requests
from costguard_aws.spot import LINUX, SpotHistory, SpotMarket
from costguard_aws.storage_prices import ADDRESS_KIND, StoragePrices
from costguard_aws.translation import (
    BORDER_GROUP,
    ListingScope,
    TypeAndPriceLookup,
    add_surcharges,
    find_price_region,
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

    def poll(self, scope: ScopeKey, timeout_s: float) -> Poll:
        """Poll the region; returns Failed if its instances cannot be listed, and raises nothing."""
        asked_at, notes = self._clock.now(), _PollNotes(Deadline(timeout_s))
        with limit_requests(notes.deadline):
            inventory = self._read_inventory(scope, notes)
        at = max(self._clock.now(), asked_at)
        return Poll(scope=scope, at=at, asked_at=asked_at, inventory=inventory, notes=tuple(notes.notes))

    def observe_one(self, item: Ec2Item, place: ListingScope) -> tuple[Observation, tuple[str, ...]]:
        """Return one instance that was fetched alone, and notes of what could not be learned about it."""
        notes = _PollNotes(Deadline(LOOK_S))
        instances = self._read_instances([item], place, notes)
        if not instances:
            raise InputError("; ".join(notes.missing) or "cannot be read", field=f"aws {place.region}")
        return self._price_spot(instances, place.region, notes)[0], tuple(notes.notes)

    def _read_inventory(self, scope: ScopeKey, notes: _PollNotes) -> Inventory:
        place = ListingScope(scope.account, scope.name)
        with make_executor(2, "costguard-aws") as executor:
            volumes = executor.submit(copy_context().run, self._list_volumes, place, notes)
            addresses = executor.submit(copy_context().run, self._list_addresses, place, notes)
            try:
                items = self._list_instances(place, notes)
            except ProviderError as broken:
                return Failed(shorten(f"{scope.name}: {format_error(broken)}", LONGEST_WHY))
            disks, attached = volumes.result()
            others = addresses.result()
        if not notes.missing:
            self._check_attached_volumes(attached - {item.key.id for item in items}, place, notes)
        items += disks
        items += others
        if notes.missing:
            return Partial(tuple(items), shorten("; ".join(notes.missing), LONGEST_WHY))
        return Complete(tuple(items))

    def _list_instances(self, place: ListingScope, notes: _PollNotes) -> list[Observation]:
        instances: list[_SeenInstance] = []
        try:
            for page in self._ec2.list_instances(place.region):
                instances += self._read_instances(page, place, notes)
        except CutShortError as short:
            notes.add_gap(f"{place.region}: {short}")
        return self._price_spot(instances, place.region, notes)

    def _read_instances(self, items: Sequence[Ec2Item], place: ListingScope, notes: _PollNotes) -> list[_SeenInstance]:
        """Return the instances of one page; all types and list prices that they need are learned first."""
        keys = set[PriceKey]()
        for item in items:
            with suppress(AttributeError, TypeError):  # of a field that came twice, as `_read_item` says
                keys.add(make_price_key(item, place.region))
        with notes.share_deadline():
            self._catalogue.learn({key.instance_type for key in keys}, place.region, notes.note)
        with notes.share_deadline():
            self._prices.learn([key for key in keys if key.instance_type])
        lookup = TypeAndPriceLookup(self._catalogue.find_type, cache(partial(self._find_price, notes=notes)))
        with pause_gc():
            instances = [self._read_instance(item, place, notes, lookup) for item in items]
        return [one for one in instances if one is not None]

    def _read_instance(
        self, item: Ec2Item, place: ListingScope, notes: _PollNotes, lookup: TypeAndPriceLookup
    ) -> _SeenInstance | None:
        observation = _read_item(
            item, "InstanceId", INSTANCE, place, notes, read=lambda item: observe_instance(item, place, lookup, notes.note)
        )
        is_spot = observation is not None and observation.tier == "spot"
        return None if observation is None else _SeenInstance(observation, _parse_spot_market(item) if is_spot else None, item)

    def _find_price(self, key: PriceKey, notes: _PollNotes) -> Price:
        answer = self._prices.peek_price(key)
        if answer.why:
            notes.note(answer.why)
        return answer.price

    def _price_spot(self, instances: list[_SeenInstance], region: str, notes: _PollNotes) -> list[Observation]:
        """Return the observations, those of spot machines with the prices that they have paid since their start."""
        if not any(one.market is not None for one in instances):
            return [one.seen for one in instances]
        now = self._clock.now()
        starts: dict[SpotMarket, datetime] = {}
        for one in instances:
            if one.market is not None:
                start = min(one.seen.started_at or now, now)
                starts[one.market] = min(starts.get(one.market, start), start)
        with notes.share_deadline():
            why = self._spot.refresh(region, starts, now)
        if why:
            notes.note(why)
        return [
            add_surcharges(replace(one.seen, prices=self._spot.list_prices(one.market, one.seen.started_at)), one.item)
            if one.market is not None
            else one.seen
            for one in instances
        ]

    def _check_attached_volumes(self, unlisted: set[str], place: ListingScope, notes: _PollNotes) -> None:
        """Detect an incomplete listing that claims to be complete, by volumes attached to unlisted machines.

        Those machines are requested only in that case: one that was launched or terminated between the two lists looks the same
        at first.
        """
        ids = sorted(unlisted)[:ASKED_AFTER]
        try:
            items = self._ec2.list_existing(place.region, ids) if ids else []
        except ProviderError as broken:
            notes.add_gap(
                f"{place.region}: disks are attached to machines that are not listed and cannot be queried: {broken.what}"
            )
            return
        alive = [item for item in items if item.get("State", {}).get("Name") != "terminated"]
        if alive:
            notes.add_gap(f"{place.region}: the listing lacks {len(alive)} machines on which its disks hang")

    def _list_volumes(self, place: ListingScope, notes: _PollNotes) -> tuple[list[Observation], set[str]]:
        """Return every volume, and the ids of the machines to which volumes are attached."""
        observations: list[Observation | None] = []
        attached: set[str] = set()
        try:
            for page in self._ec2.list_volumes(place.region):
                for where in {find_price_region(item, place.region) for item in page}:
                    items = (item for item in page if find_price_region(item, place.region) == where)
                    self._learn_storage({item.get("VolumeType", "") for item in items} - {""}, where, notes)
                attached.update(str(one.get("InstanceId", "")) for item in page for one in item.get("Attachments", ()))
                with pause_gc():
                    observations += [self._read_volume(item, place, notes) for item in page]
        except (CutShortError, ProviderError) as broken:
            notes.add_gap(f"{place.region}: volumes: {_format_reason(broken)}")
        return [observation for observation in observations if observation is not None], attached - {""}

    def _read_volume(self, item: Ec2Item, place: ListingScope, notes: _PollNotes) -> Observation | None:
        return _read_item(item, "VolumeId", VOLUME, place, notes, read=lambda item: self.observe_disk(item, place, notes.note))

    def _list_addresses(self, place: ListingScope, notes: _PollNotes) -> list[Observation]:
        try:
            page = self._ec2.list_addresses(place.region)
        except ProviderError as broken:
            notes.add_gap(f"{place.region}: addresses: {_format_reason(broken)}")
            return []
        for where in {find_price_region(item, place.region, BORDER_GROUP) for item in page}:
            self._learn_storage({ADDRESS_KIND}, where, notes)
        observations = [
            _read_item(item, "AllocationId", ADDRESS, place, notes, read=lambda item: self.observe_ip(item, place))
            for item in page
        ]
        return [observation for observation in observations if observation is not None]

    def _learn_storage(self, kinds: set[str], region: str, notes: _PollNotes) -> None:
        with notes.share_deadline():
            for why in self._storage.learn(region, kinds):
                notes.note(why)

    def observe_disk(self, item: Ec2Item, place: ListingScope, note: Callable[[str], None]) -> Observation:
        """Return one volume with the prices that were learned for its type.

        Those of a Local Zone are others; on an Outpost there are none.
        """
        kind, where = item.get("VolumeType", ""), find_price_region(item, place.region)
        if item.get("OutpostArn"):
            return observe_volume(item, place, note)
        return observe_volume(item, place, note, lambda line: self._storage.find_price(where, kind, line))

    def observe_ip(self, item: Ec2Item, place: ListingScope) -> Observation | None:
        """Return one address with the price that was learned; None for a customer's own."""
        where = find_price_region(item, place.region, BORDER_GROUP)
        return observe_address(item, place, lambda line: self._storage.find_price(where, ADDRESS_KIND, line))


@dataclass(frozen=True, slots=True)
class _SeenInstance:
    """An instance, and the market whose price it pays if it is a spot machine."""

    seen: Observation
    market: SpotMarket | None
    item: Ec2Item


def _parse_spot_market(item: Ec2Item) -> SpotMarket:
    product = str(item.get("PlatformDetails") or LINUX)
    return SpotMarket(str(item.get("InstanceType")), str(item.get("Placement", {}).get("AvailabilityZone")), product)


def _read_item(
    item: Ec2Item,
    id_field: str,
    kind: str,
    place: ListingScope,
    notes: _PollNotes,
    *,
    read: Callable[[Ec2Item], Observation | None],
) -> Observation | None:
    """Return one item of a list; None if it is none.

    One that cannot be read is tracked by its id alone, and one without an id makes the list partial.
    """
    try:
        return read(item)
    except (
        InputError,
        ValueError,
        OverflowError,
        AttributeError,
        TypeError,
    ) as odd:  # a doubled element is a list
        return _make_bare_observation(str(item.get(id_field, "")), kind, place, odd, notes)


def _make_bare_observation(id: str, kind: str, place: ListingScope, odd: Exception, notes: _PollNotes) -> Observation | None:  # noqa: A002 - the ledger's word
    why = shorten(odd.what if isinstance(odd, InputError) else type(odd).__name__)
    try:
        observation = Observation(
            key=ResourceKey(AWS, place.account, place.region, id), state="unknown", kind=kind, why=UNREADABLE
        )
    except InputError:
        notes.add_gap(f"{place.region}: one {kind} cannot be read: {why}")
        return None
    notes.note(f"{shorten(id)}: cannot be read ({why})")
    return observation


def _format_reason(broken: Exception) -> str:
    return broken.what if isinstance(broken, ProviderError) else str(broken)
