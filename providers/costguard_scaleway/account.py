"""One Scaleway account: its Instances, volumes and addresses by zone, its offers and acts.

A poll of a zone takes four requests for up to 100 items each, and once an hour one for the catalogue of prices: none for each
machine. Keys are found where Scaleway's own tools store them: the environment variable, then the file of its command line.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from costguard.errors import (
    CredentialsError,
    ForbiddenError,
    InputError,
    InvalidAnswerError,
    MissingError,
    ProviderError,
    RefusedError,
    UnreachableError,
    to_one_line,
)
from costguard.metering.inventory import Complete, Failed, Inventory, Partial, Poll
from costguard.metering.observation import Observation, Price
from costguard.providers.api_keys import (
    DEFAULT_ACCOUNT,
    KeyedAccount,
    KeyLocations,
    check_account_table,
    open_keyed_accounts,
    read_timeout,
)
from costguard.providers.ports import InstanceSource
from costguard.providers.transport import Deadline, ProviderChannel, ProviderContext, TokenBucket, check_url
from costguard.quoting.offer import Offer, OfferListing
from costguard.values.money import ExchangeRate, parse_exchange_rate
from costguard.values.provider import ActionResponse, HealthCheck
from costguard.values.resource import ResourceKey, ScopeKey
from costguard_scaleway import MANIFEST, NAME
from costguard_scaleway.actions import ID, ZONE, start_server, stop_server, terminate_server
from costguard_scaleway.api import Listing, ScalewayApi, read_fault
from costguard_scaleway.examination import ExaminedAccount, examine_account
from costguard_scaleway.translation import (
    ListingContext,
    ListingResult,
    add_address,
    add_server,
    add_volume,
    list_offers,
    make_price,
)
from costguard_scaleway.wire import ServerType

BASE_URL = "https://api.scaleway.com"
ZONES = (
    *("fr-par-1", "fr-par-2", "fr-par-3", "nl-ams-1", "nl-ams-2", "nl-ams-3", "pl-waw-1", "pl-waw-2"),  # SDK 2.12.0
    "pl-waw-3",  # not in the SDK's list; a public tool polls it (2026-09)
)
PER_S = 10.0
"""Requests a second of one key: an assumption, 2026-12; no rate is published for these lists."""
CATALOGUE_AGE_MAX = timedelta(hours=1)
"""For so long the catalogue is kept: list prices move a few times a year."""
MOST_NOTES, MOST_FAULTS = 50, 3
ADVICE = {
    CredentialsError: f"make an API key at {MANIFEST.key_at} and set SCW_SECRET_KEY",
    ForbiddenError: "give the key's IAM application InstancesReadOnly and BlockStorageReadOnly; InstancesFullAccess to act",
    UnreachableError: "see https://status.scaleway.com",
}

ExtraList = tuple[str, Callable[[str, Deadline], Listing[Any]], Callable[[ListingResult, Any, ListingContext], None]]
"""What a list holds, in words, how it is asked for, and how one of its items is added."""


def open_accounts(table: Mapping[str, object], around: ProviderContext) -> Sequence[InstanceSource]:
    """Return an account for each in `table`, or that of the environment."""
    settings = check_account_table(table, MANIFEST)
    zones, exchange = _read_zones(settings.get("zones")), _read_exchange(settings.get("exchange_rate"))
    base_url = check_url(str(settings.get("base_url", BASE_URL)), f"providers.{NAME}.base_url")
    timeout_s = read_timeout(settings, MANIFEST)

    def make(key: KeyedAccount) -> ScalewayAccount:
        name = key.account or DEFAULT_ACCOUNT
        channel = ProviderChannel(
            around.transport,
            provider=NAME,
            base_url=base_url,
            account=name,
            headers={"X-Auth-Token": key.key, "Accept": "application/json"},
            buckets={"": TokenBucket(PER_S)},
            fault=read_fault,
            advice=ADVICE,
        )
        return ScalewayAccount(name, ScalewayApi(channel), key, around, zones=zones, exchange=exchange, timeout_s=timeout_s)

    return open_keyed_accounts(settings, MANIFEST, list_key_places(around.home), around, make)


class ScalewayAccount:
    """The account of one key. `name`: its name in the ledger. Each zone is a scope: a listing covers one."""

    providers: Sequence[str] = (NAME,)

    def __init__(
        self,
        name: str,
        api: ScalewayApi,
        key: KeyedAccount,
        around: ProviderContext,
        *,
        zones: Sequence[str],
        exchange: ExchangeRate | None,
        timeout_s: int,
    ) -> None:
        self.name, self.api, self.key = name, api, key
        self._clock, self._gpus = around.clock, around.gpus
        self._zones, self._exchange, self._timeout_s = zones, exchange, timeout_s
        self._catalogues: dict[str, tuple[datetime, Mapping[str, ServerType]]] = {}

    def list_scopes(self) -> Sequence[ScopeKey]:
        """Return a scope for each watched zone."""
        return tuple(ScopeKey(NAME, self.name, zone) for zone in self._zones)

    def poll(self, scope: ScopeKey) -> Poll:
        """Poll the Instances, volumes and addresses of one zone."""
        asked_at, listing = self._clock.now(), ListingResult()
        inventory = self._read_inventory(scope.name, Deadline(self._timeout_s), listing)
        notes = () if isinstance(inventory, Failed) else tuple(listing.notes[:MOST_NOTES])
        if listing.notes[MOST_NOTES:]:
            notes += (f"and {len(listing.notes) - MOST_NOTES} notes more",)
        return Poll(scope=scope, asked_at=asked_at, at=max(asked_at, self._clock.now()), inventory=inventory, notes=notes)

    def _read_inventory(self, zone: str, deadline: Deadline, listing: ListingResult) -> Inventory:
        try:
            servers = self.api.list_servers(zone, deadline)
        except ProviderError as broken:
            return Failed(_format_reason(broken))
        listing.notes.extend(servers.notes)
        listing.faults.extend(filter(None, (servers.why,)))
        context = self._make_context(zone, deadline, listing.notes, priced=bool(servers.items))
        for server in servers.items.values():
            add_server(listing, server, context)
        for extra in self._list_extras():
            self._add_list(extra, context, deadline, listing)
        if not listing.faults:
            return Complete(tuple(listing.items))
        more = f"; and {len(listing.faults) - MOST_FAULTS} more" if len(listing.faults) > MOST_FAULTS else ""
        return Partial(tuple(listing.items), "; ".join(listing.faults[:MOST_FAULTS]) + more)

    def _list_extras(self) -> tuple[ExtraList, ...]:
        """Return the lists of what bills beside the Instances."""
        return (
            ("local volumes", self.api.list_local_volumes, add_volume),
            ("block volumes", self.api.list_block_volumes, add_volume),
            ("addresses", self.api.list_addresses, add_address),
        )

    def _add_list(self, extra: ExtraList, context: ListingContext, deadline: Deadline, listing: ListingResult) -> None:
        """Add one of those lists; one that fails makes the listing partial."""
        what, ask, add = extra
        try:
            listed = ask(context.zone, deadline)
        except ProviderError as broken:
            listing.faults.append(f"{what} cannot be listed: {_format_reason(broken)}")
            return
        listing.notes.extend(listed.notes)
        listing.faults.extend(filter(None, (listed.why,)))
        for one in listed.items.values():
            add(listing, one, context)

    def _make_context(self, zone: str, deadline: Deadline, notes: list[str], *, priced: bool = True) -> ListingContext:
        """Return the context of a listing; the catalogue is asked for where it is missing or old."""
        now = self._clock.now()
        at, catalogue = self._catalogues.get(zone, (None, {}))
        if priced and (at is None or now - at >= CATALOGUE_AGE_MAX):
            try:
                listed = self.api.list_types(zone, deadline)
            except ProviderError as broken:
                notes.append(f"the price catalogue of {zone} cannot be fetched: {_format_reason(broken)}")
            else:
                notes.extend(filter(None, (listed.why,)))
                catalogue = listed.items
                self._catalogues[zone] = (now, catalogue)
        return ListingContext(account=self.name, zone=zone, gpus=self._gpus, catalogue=catalogue, exchange=self._exchange)

    def look_up(self, key: ResourceKey) -> Observation | None:
        """Return one Instance, volume or address of a zone; None if there is none."""
        if key[:2] != (NAME, self.name) or not ZONE.fullmatch(key.region):
            raise RefusedError("cannot look up a resource of another account or zone", provider=NAME, account=self.name)
        deadline, listing = Deadline(self._timeout_s), ListingResult()
        context = self._make_context(key.region, deadline, listing.notes)
        if ID.fullmatch(key.id):
            try:
                add_server(listing, self.api.fetch_server(key.region, key.id, deadline), context)
            except MissingError:
                for extra in self._list_extras():
                    self._add_list(extra, context, deadline, listing)
        observation = next((one for one in listing.items if one.key.id == key.id), None)
        if observation is None and listing.faults:
            raise InvalidAnswerError(listing.faults[0], provider=NAME, account=self.name)
        return observation

    def list_live_offers(self, gpus: Collection[str] | None) -> OfferListing:
        """Return the GPU types of every watched zone that are not in shortage."""
        offers, unnamed, missing = list[Offer](), set[str](), list[str]()
        deadline, today = Deadline(self._timeout_s), self._clock.now().date()
        for zone in self._zones:
            try:
                context, shortages = self._make_context(zone, deadline, missing), self.api.list_shortages(zone, deadline)
            except ProviderError as broken:
                missing.append(f"{zone}: {_format_reason(broken)}")
                continue
            offers += list_offers(context, shortages, today, unnamed)
        chosen = tuple(one for one in offers if gpus is None or one.gpu in gpus)
        return OfferListing(offers=chosen, why="; ".join(missing[:MOST_FAULTS]), unnamed=tuple(sorted(unnamed)))

    def stop(self, key: ResourceKey, *, lose: frozenset[str] = frozenset()) -> ActionResponse:
        """Archive one Instance: `poweroff`, once, after one look; never `stop_in_place`, which saves nothing."""
        return stop_server(self.api, self.name, key, lose)

    def terminate(self, key: ResourceKey) -> ActionResponse:
        """Delete one Instance with its local volumes; block volumes and addresses stay, and bill."""
        return terminate_server(self.api, self.name, key)

    def start_instance(self, key: ResourceKey) -> ActionResponse:
        """Start one archived Instance."""
        return start_server(self.api, self.name, key)

    def fetch_start_price(self, key: ResourceKey) -> Price:
        """Return the price of its type in the catalogue of its zone."""
        deadline, notes = Deadline(self._timeout_s), list[str]()
        server = self.api.fetch_server(key.region, key.id, deadline)
        sold = self._make_context(key.region, deadline, notes).catalogue.get(server.commercial_type or "")
        count = int(sold.gpu or 0) if sold else 0
        return make_price(sold, count, self._exchange, f"Instance {key.id}", notes)

    def examine(self) -> Sequence[HealthCheck]:
        """Check each thing that costguard needs with one request."""
        return examine_account(
            ExaminedAccount(
                api=self.api,
                key=self.key,
                zone=self._zones[0],
                now=self._clock.now,
                timeout_s=self._timeout_s,
                exchange=self._exchange,
            )
        )


def _format_reason(broken: ProviderError) -> str:
    return to_one_line(broken.what if broken.hint is None else f"{broken.what} ({broken.hint})")


def _read_zones(value: object) -> tuple[str, ...]:
    zones = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else ZONES
    for zone in zones:
        if not ZONE.fullmatch(str(zone)):
            raise InputError(f"has no zone '{zone}'", field=f"providers.{NAME}.zones", hint='write zones such as "fr-par-2"')
    if not zones or len(set(zones)) < len(zones):
        raise InputError("is empty or names a zone twice", field=f"providers.{NAME}.zones", hint="leave it out to watch all")
    return tuple(str(zone) for zone in zones)


def _read_exchange(value: object) -> ExchangeRate | None:
    field = f"providers.{NAME}.exchange_rate"
    rate = parse_exchange_rate(str(value), field) if value is not None else None
    if rate is not None and rate.currency != "EUR":
        raise InputError(f"is a rate of {rate.currency}", field=field, hint="Scaleway's prices are in EUR")
    return rate


def list_key_places(home: Path) -> KeyLocations:
    """Return the places of keys in order of precedence."""
    return KeyLocations(env="SCW_SECRET_KEY", files=((home / ".config" / "scw" / "config.yaml", parse_key),))


def parse_key(text: str) -> str:
    """Return the secret key of the default profile in Scaleway's file (YAML, at the outermost level); "" if there is none."""
    for line in text.splitlines():
        name, separator, value = line.partition(":")
        if separator and name == "secret_key":
            return value.split("#")[0].strip().strip("\"'")
    return ""
