"""One RunPod account: its resources, costs, offers and acts.

A poll requests every page of pods, including members of clusters, then the network volumes, and the catalogue only if a pod
that may be billed does not state its price: usually two requests for an account of up to 1,000 pods.

Keys are found where RunPod's own tools store them: the environment variable, then the file of runpodctl and of the Python SDK.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from costguard.bills.bill_line import BillLine, BillLines
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
from costguard.providers.transport import Deadline, ProviderChannel, ProviderContext
from costguard.quoting.offer import OfferListing
from costguard.values.calendar import Period
from costguard.values.money import PrepaidBalance
from costguard.values.provider import ActionResponse, HealthCheck
from costguard.values.resource import ResourceKey, ScopeKey
from costguard_runpod import MANIFEST, actions, api, billing
from costguard_runpod.examination import ExaminedAccount, examine_account
from costguard_runpod.pagination import decode_pods, decode_volumes, read_all_pages
from costguard_runpod.translation import (
    PROVIDER,
    ListingResult,
    TranslationContext,
    find_start_price,
    is_billed_unpriced,
    observe_all,
    observe_pod,
)
from costguard_runpod.wire import CatalogueGpu, Pod

SCOPE = "account"
KEPT = timedelta(hours=1)
"""For so long the catalogue is kept: RunPod moves list prices a few times a year."""
MOST_NOTES = 50
CHUNK = timedelta(days=7)
"""Of a bill that is asked for at once: 168 hours of 400 pods are near the 16 MiB that an answer may have."""


def open_accounts(table: Mapping[str, object], around: ProviderContext) -> Sequence[InstanceSource]:
    """Return an account for each in `table`, or that of the environment."""
    settings = check_account_table(table, MANIFEST)
    return open_keyed_accounts(
        settings,
        MANIFEST,
        list_key_places(around.home),
        around,
        lambda key: RunpodAccount(key.account or DEFAULT_ACCOUNT, key, around, settings),
    )


class RunpodAccount:
    """One account.

    `settings`: those shared by all accounts.
    """

    def __init__(self, name: str, key: KeyedAccount, around: ProviderContext, settings: Mapping[str, object]) -> None:
        self.name, self.key = name, key
        self._clock, self._names = around.clock, around.gpus
        self._timeout_s = read_timeout(settings, MANIFEST)
        per_minute = _parse_whole_setting(settings, "requests_per_minute", api.PER_MINUTE)
        self.rest: ProviderChannel = api.open_rest_channel(
            around, key, name, api.parse_base_url(settings.get("base_url")), per_minute
        )
        self.graphql: ProviderChannel = api.open_graphql_channel(
            around, key, name, str(settings.get("graphql_url") or _find_graphql_url(settings)), per_minute
        )
        self._words = TranslationContext(account=name, names=self._names)
        self._catalogue_at: datetime | None = None

    @property
    def providers(self) -> Sequence[str]:
        """RunPod."""
        return (PROVIDER,)

    def list_scopes(self) -> Sequence[ScopeKey]:
        """Return the account's one scope: a listing covers all of it."""
        return (ScopeKey(PROVIDER, self.name, SCOPE),)

    def poll(self, scope: ScopeKey) -> Poll:
        """Poll pods and network volumes."""
        asked_at, deadline, listing = self._clock.now(), Deadline(self._timeout_s), ListingResult()
        try:
            inventory, listing = self._list_resources(asked_at, deadline)
        except ProviderError as broken:
            inventory = Failed(format_reason(broken))
        notes = tuple(listing.notes[:MOST_NOTES])
        if listing.notes[MOST_NOTES:]:
            notes += (f"and {len(listing.notes) - MOST_NOTES} notes more",)
        at = max(asked_at, self._clock.now())
        return Poll(scope=scope, asked_at=asked_at, at=at, inventory=inventory, samples=tuple(listing.samples), notes=notes)

    def _list_resources(self, asked_at: datetime, deadline: Deadline) -> tuple[Inventory, ListingResult]:
        pods = read_all_pages(self.rest, "/v2/pods", decode_pods, deadline, includeClusterPods="true")
        notes, missing = list(pods.notes), [pods.why] if pods.why else []
        try:
            pages = read_all_pages(self.rest, "/v2/network-volumes", decode_volumes, deadline)
            volumes, notes, missing = pages.items, notes + pages.notes, missing + ([pages.why] if pages.why else [])
        except ProviderError as broken:
            volumes = []
            missing.append(f"network volumes: {format_reason(broken)}")
        if any(map(is_billed_unpriced, pods.items)):
            notes += self._refresh_catalogue(asked_at, deadline)
        listing = observe_all(pods.items, volumes, self._words, asked_at)
        listing.notes[:0] = notes
        if listing.lost:
            missing.append(f"{listing.lost} items have impossible values")
        items = tuple(listing.items)
        return Partial(items, "; ".join(missing)) if missing else Complete(items), listing

    def _refresh_catalogue(self, now: datetime, deadline: Deadline | None) -> list[str]:
        """Fetch the catalogue if it is too old; if that fails, return a note and keep the old one."""
        if self._catalogue_at is not None and now - self._catalogue_at < KEPT:
            return []
        try:
            self._words.catalogue = index_gpus(api.fetch_catalogue(self.rest, deadline))
        except ProviderError as broken:
            return [f"the price catalogue cannot be fetched: {format_reason(broken)}"]
        self._catalogue_at = now
        return []

    def look_up(self, key: ResourceKey) -> Observation | None:
        """Return the pod `key`, or the network volume with that id; None if there is neither."""
        try:
            pod = api.fetch_pod(self.rest, key)
        except MissingError:
            return self._find_volume(key)
        return self.observe_pod(pod)

    def observe_pod(self, pod: Pod) -> Observation:
        """Return the observation of one pod."""
        if is_billed_unpriced(pod):
            self._refresh_catalogue(self._clock.now(), None)
        try:
            return observe_pod(pod, self._words, [])
        except InputError as odd:
            raise InvalidAnswerError(odd.what, provider=PROVIDER, account=self.name) from None

    def _find_volume(self, key: ResourceKey) -> Observation | None:
        volumes = read_all_pages(self.rest, "/v2/network-volumes", decode_volumes, Deadline(self._timeout_s))
        listing = observe_all((), (one for one in volumes.items if one.id == key.id), self._words, self._clock.now())
        if not listing.items and (volumes.why or listing.lost):
            raise InvalidAnswerError(volumes.why or listing.notes[-1], provider=PROVIDER, account=self.name)
        return listing.items[0] if listing.items else None

    def fetch_identity(self) -> str | None:
        """Return the user id of the key; None if GraphQL, its only source, is retired or not allowed."""
        try:
            owner = api.fetch_key_owner(self.graphql)
        except (ForbiddenError, MissingError, RefusedError):
            return None
        return owner.id if owner else None

    def list_live_offers(self, gpus: Collection[str] | None) -> OfferListing:
        """Return the offers of both clouds for which one GPU is available now."""
        catalogues = {cloud: api.fetch_catalogue(self.rest, cloud=cloud) for cloud in ("SECURE", "COMMUNITY")}
        return billing.list_offers(catalogues, gpus, self._words, self._clock.now().date())

    def fetch_balance(self) -> PrepaidBalance:
        """Return the balance by GraphQL; unknown, with the reason, if it does not answer."""
        try:
            return billing.parse_balance(api.fetch_key_owner(self.graphql), self.name, self._clock.now())
        except ProviderError as broken:
            return billing.make_unknown_balance(self.name, self._clock.now(), format_reason(broken))

    def fetch_bill_lines(self, period: Period) -> BillLines:
        """Return hourly lines of pods and network volumes, and of charges without a resource."""
        lines, missing = list[BillLine](), list[str]()
        for kind in (billing.PODS, billing.VOLUMES, billing.TOTALS):
            try:
                unread = self._add_bill_lines(kind, period, lines)
            except ProviderError as broken:
                if kind == billing.PODS:
                    raise
                missing.append(f"{kind or 'serverless and clusters'}: {format_reason(broken)}")
                continue
            if unread:
                missing.append(f"{unread} records of {kind or 'serverless and clusters'} cannot be read")
        return BillLines(lines=tuple(lines), why="; ".join(missing))

    def _add_bill_lines(self, kind: str, period: Period, lines: list[BillLine]) -> int:
        """Add the lines of one statement, fetched in windows, and return how many records could not be read."""
        path = f"/v2/billing/{kind}".rstrip("/")
        about = billing.BillStatement(kind=kind, account=self.name, now=self._clock.now(), period=period)
        start, unread, line_ids = period.start, 0, {line.id for line in lines}
        while start < period.end:
            end = min(start + CHUNK, period.end)
            window = {"startTime": _format_instant(start), "endTime": _format_instant(end), "bucketSize": "hour"}
            page = api.fetch_bill(self.rest, path, window)
            window_lines, lost = billing.parse_bill_lines(page.records, about)
            if page.metadata is None or page.metadata.record_count != len(page.records):
                lost += 1
            lines += [line for line in window_lines if line.id not in line_ids]
            line_ids |= {line.id for line in window_lines}
            start, unread = end, unread + lost
        return unread

    def stop(self, key: ResourceKey, *, lose: frozenset[str] = frozenset()) -> ActionResponse:
        """Send `POST /v2/pods/ID/action` once, after one check."""
        return actions.stop_pod(self.rest, self.name, key, lose)

    def terminate(self, key: ResourceKey) -> ActionResponse:
        """Send `DELETE /v2/pods/ID` once, after one check.

        A network volume is never deleted.
        """
        return actions.terminate_pod(self.rest, self.name, key)

    def start_instance(self, key: ResourceKey) -> ActionResponse:
        """Send `POST /v2/pods/ID/action` once, after one check."""
        return actions.start_pod(self.rest, self.name, key)

    def fetch_start_price(self, key: ResourceKey) -> Price:
        """Return the price of its GPUs in the catalogue, asked now: a stopped pod states 0."""
        pod = api.fetch_pod(self.rest, key)
        self._words.catalogue = index_gpus(api.fetch_catalogue(self.rest))
        return find_start_price(pod, self._words)

    def examine(self) -> Sequence[HealthCheck]:
        """Check each thing that costguard needs with one request."""
        return examine_account(ExaminedAccount(rest=self.rest, graphql=self.graphql, key=self.key, now=self._clock.now))


def format_reason(broken: ProviderError) -> str:
    """Return the error in one line, with a hint."""
    hint = (
        f" ({to_one_line(broken.hint)})"
        if broken.hint and isinstance(broken, CredentialsError | ForbiddenError | UnreachableError)
        else ""
    )
    hint = f" ({to_one_line(broken.hint)})" if broken.hint and broken.status == api.GONE else hint
    return f"{broken.what}{hint}"


def index_gpus(gpus: Sequence[CatalogueGpu]) -> dict[str, CatalogueGpu]:
    """Return the catalogue by RunPod's names."""
    return {gpu.id: gpu for gpu in gpus}


def _parse_whole_setting(settings: Mapping[str, object], name: str, otherwise: int) -> int:
    value = settings.get(name, otherwise)
    if not isinstance(value, int) or value < 1:
        raise InputError("must be 1 or more", field=f"providers.runpod.{name}", hint=f"write {otherwise}")
    return value


def _find_graphql_url(settings: Mapping[str, object]) -> str:
    """Return GraphQL's address: below a configured REST address, so that the key is sent to no other host; else RunPod's."""
    return f"{api.parse_base_url(settings['base_url'])}/graphql" if "base_url" in settings else api.GRAPHQL_URL


def _format_instant(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def list_key_places(home: Path) -> KeyLocations:
    """Return the places of keys in order of precedence."""
    return KeyLocations(env="RUNPOD_API_KEY", files=((home / ".runpod" / "config.toml", parse_key),))


def parse_key(text: str) -> str:
    """Return the key in RunPod's file: `apikey` (runpodctl), or `api_key` under [default] (Python SDK); "" if none."""
    try:
        table: Mapping[str, object] = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return ""
    default = table.get("default")
    tables = (table, default) if isinstance(default, Mapping) else (table,)
    keys = (one.get(name) for one in tables for name in ("apikey", "api_key", "apiKey"))
    return next((key for key in keys if isinstance(key, str)), "")
