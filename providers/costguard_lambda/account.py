"""One Lambda Cloud account: its queries, and its one act.

Lambda has no stop and states no utilisation, no balance and no bill, so this account implements none of those ports.

This module also opens accounts from `[providers.lambda]` (settings, keys, one rate limiter per key), and finds keys where other
tools store them: the environment variable, and SkyPilot's file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from costguard.errors import (
    CredentialsError,
    ForbiddenError,
    InvalidAnswerError,
    MissingError,
    ProviderError,
    RefusedError,
    ThrottledError,
    UnreachableError,
    shorten,
    to_one_line,
)
from costguard.metering.inventory import Complete, Failed, Inventory, Partial, Poll
from costguard.metering.observation import Observation
from costguard.providers.api_keys import (
    DEFAULT_ACCOUNT,
    KeyedAccount,
    KeyLocations,
    check_account_table,
    open_keyed_accounts,
    read_timeout,
)
from costguard.providers.ports import InstanceSource
from costguard.providers.transport import Deadline, ProviderChannel, ProviderContext, Secret, TokenBucket, check_url
from costguard.quoting.offer import Offer, OfferListing
from costguard.values.provider import REFUSED, ActionResponse, HealthCheck
from costguard.values.resource import INSTANCE, VOLUME, ResourceKey, ScopeKey
from costguard_lambda import MANIFEST
from costguard_lambda.actions import terminate_instance
from costguard_lambda.api import MOST_ITEMS, NAME, LambdaApi, make_fault_reader
from costguard_lambda.examination import examine_account
from costguard_lambda.launches import LONGEST_S, LaunchTimes
from costguard_lambda.translation import (
    ListingContext,
    ListingResult,
    add_filesystem,
    add_instance,
    add_unreadable,
    list_offers,
)
from costguard_lambda.wire import Filesystem, Instance, ItemPage

SCOPE = "account"
PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
"""Ids that may stand in a path. Lambda's own are 32 hexadecimal digits."""
MOST_TOLD = 3
"""Faults of a listing that are told in full."""


class LambdaAccount:
    """The account of one key.

    `name`: its name in the ledger; Lambda has no account name that every key may read.
    """

    providers: Sequence[str] = (NAME,)

    def __init__(self, *, name: str, api: LambdaApi, key: KeyedAccount, around: ProviderContext, timeout_s: int) -> None:
        self.name, self._api, self._key, self._timeout_s = name, api, key, timeout_s
        self._clock, self._gpus = around.clock, around.gpus
        self._launches = LaunchTimes(around.cache, f"lambda-launches-{name}")

    def __repr__(self) -> str:
        return f"LambdaAccount({self.name!r})"

    def list_scopes(self) -> Sequence[ScopeKey]:
        """Return one scope: a listing covers every region."""
        return (ScopeKey(NAME, self.name, SCOPE),)

    def poll(self, scope: ScopeKey) -> Poll:
        """Poll every instance and filesystem with two requests; more only while a launch time is unknown."""
        asked_at, deadline, listing = self._clock.now(), Deadline(self._timeout_s), ListingResult()
        inventory = self._read_inventory(deadline, listing)
        notes = () if isinstance(inventory, Failed) else tuple(listing.notes)
        return Poll(scope=scope, asked_at=asked_at, at=max(asked_at, self._clock.now()), inventory=inventory, notes=notes)

    def _read_inventory(self, deadline: Deadline, listing: ListingResult) -> Inventory:
        try:
            machines = self._api.list_instances(deadline)
        except ProviderError as broken:
            return Failed(_format_reason(broken))
        disks: ItemPage[Filesystem] = ItemPage(items=())
        try:
            disks = self._api.list_filesystems(deadline)
        except ProviderError as broken:
            listing.faults.append(f"filesystems cannot be listed: {_format_reason(broken)}")
        self._translate(machines, disks, deadline, listing)
        if not listing.faults:
            return Complete(tuple(listing.items))
        more = f"; and {len(listing.faults) - MOST_TOLD} more" if len(listing.faults) > MOST_TOLD else ""
        return Partial(tuple(listing.items), "; ".join(listing.faults[:MOST_TOLD]) + more)

    def _translate(
        self, machines: ItemPage[Instance], disks: ItemPage[Filesystem], deadline: Deadline, listing: ListingResult
    ) -> None:
        ids = [one.id for one in machines.items] + [one.id for one in machines.odd if one.id]
        why = self._learn_launches(ids, deadline)
        context = self._make_context()
        listing.notes.extend((*machines.half_read, *disks.half_read))
        for machine in machines.items:
            add_instance(listing, machine, context)
        for odd in machines.odd:
            add_unreadable(listing, odd, context, kind=INSTANCE)
        for disk in disks.items:
            add_filesystem(listing, disk, context)
        for odd in disks.odd:
            add_unreadable(listing, odd, context, kind=VOLUME)
        if machines.cut or disks.cut:
            listing.faults.insert(0, f"the listing holds more than {MOST_ITEMS} items")
        if why:
            listing.notes.append(why)

    def _learn_launches(self, ids: Collection[str], deadline: Deadline) -> str:
        within = deadline.limit_to(LONGEST_S)
        return self._launches.learn(
            ids, lambda start, token: self._api.list_events(within, start=start, token=token), self._clock.now(), within
        )

    def _make_context(self) -> ListingContext:
        return ListingContext(account=self.name, gpus=self._gpus, launched=self._launches.list_dated(self._clock.now()))

    def look_up(self, key: ResourceKey) -> Observation | None:
        """Return one instance by its id, else one filesystem, for which all are listed; None if there is neither."""
        deadline, listing = Deadline(self._timeout_s), ListingResult()
        if key[:2] != (NAME, self.name):
            raise RefusedError("cannot look up a resource of another account", provider=NAME, account=self.name)
        if PLAIN_ID.fullmatch(key.id):
            try:
                add_instance(listing, self._api.fetch_instance(key.id, deadline), self._make_context())
                return self._find_only(listing, key)
            except MissingError:
                pass
        listed = self._api.list_filesystems(deadline)
        for disk in listed.items:
            if disk.id == key.id:
                add_filesystem(listing, disk, self._make_context())
                return self._find_only(listing, key)
        if listed.odd or listed.cut:
            raise self._api.make_odd_answer(
                f"whether {to_one_line(shorten(key.id))} is a filesystem is unknown: the list is incomplete"
            )
        return None

    def _find_only(self, listing: ListingResult, key: ResourceKey) -> Observation:
        if not listing.items:
            raise InvalidAnswerError(f"{to_one_line(shorten(key.id))} cannot be read", provider=NAME, account=self.name)
        return listing.items[0]

    def fetch_identity(self) -> str | None:
        """Return the account that owns the resources of the audit log; None if the log is empty or may not be read."""
        if self._launches.owner is None:
            try:
                page = self._api.list_events(Deadline(self._timeout_s), start=None, token="", kind="")
            except (ForbiddenError, MissingError):
                return None
            owners = (event.resource_owner_lrn or "" for event in page.items)
            self._launches.owner = next((owner for owner in owners if ":account:" in owner), None)
        return self._launches.owner

    def list_live_offers(self, gpus: Collection[str] | None) -> OfferListing:
        """Return every type in each region with current capacity."""
        page = self._api.list_types(Deadline(self._timeout_s))
        offers, unnamed = list[Offer](), set[str]()
        for sold in page.items:
            offers += list_offers(sold, self._gpus, self._clock.now().date(), unnamed)
        why = f"{len(page.odd)} types cannot be read" if page.odd else ""
        chosen = tuple(one for one in offers if gpus is None or one.gpu in gpus)
        return OfferListing(offers=chosen, why=why, unnamed=tuple(sorted(unnamed)))

    def terminate(self, key: ResourceKey) -> ActionResponse:
        """Terminate one instance.

        Its local disk is lost at once; filesystems stay and are still billed.
        """
        if key[:2] != (NAME, self.name):
            return ActionResponse(said=REFUSED, why=f"it is not of the account '{self.name}'; nothing was sent")
        if not PLAIN_ID.fullmatch(key.id):
            return ActionResponse(said=REFUSED, why="the id is not a Lambda id; nothing was sent")
        return terminate_instance(self._api, key.id, self._timeout_s)

    def examine(self) -> Sequence[HealthCheck]:
        """Check the account without acting, at one request a second."""
        return examine_account(self, self._api, self._key, self._clock, self._timeout_s)


def _format_reason(broken: ProviderError) -> str:
    """Return the error in one line, without the provider's name, which the scope has."""
    return to_one_line(broken.what if broken.hint is None else f"{broken.what} ({broken.hint})")


WHERE = "providers.lambda"
VERSION = "/api/v1"
BASE_URL = f"https://cloud.lambda.ai{VERSION}"
"""The old host, cloud.lambdalabs.com, is marked as deprecated (OpenAPI 1.10.0, 2026-08)."""
ADVICE = {
    CredentialsError: "make a key at https://cloud.lambda.ai/api-keys and set LAMBDA_API_KEY",
    ForbiddenError: "check the account at https://cloud.lambda.ai: what runs in an unpaid one may go on billing",
    ThrottledError: "Lambda allows about one request a second for all keys and tools of an account together",
    UnreachableError: "see https://status.lambda.ai",
}


def open_accounts(
    table: Mapping[str, object], around: ProviderContext, *, per_s: float, pause_s: float
) -> Sequence[InstanceSource]:
    """Return an account for each in `table`; without any, that of the default key."""
    settings = check_account_table(table, MANIFEST)
    base_url, timeout_s = parse_base_url(str(settings.get("base_url", BASE_URL))), read_timeout(settings, MANIFEST)

    def account(key: KeyedAccount) -> LambdaAccount:
        name = key.account or DEFAULT_ACCOUNT
        api = LambdaApi(_open_channel(around, key, name, base_url, per_s=per_s, pause_s=pause_s))
        return LambdaAccount(name=name, api=api, key=key, around=around, timeout_s=timeout_s)

    return open_keyed_accounts(settings, MANIFEST, list_key_places(around.home), around, account)


def parse_base_url(url: str) -> str:
    """Return the API's base address.

    Lambda's spec names only the host as its server, and begins every path with the version.
    """
    base = check_url(url, f"{WHERE}.base_url")
    return base if urlsplit(base).path else f"{base}{VERSION}"


def _open_channel(
    around: ProviderContext, key: KeyedAccount, name: str, base_url: str, *, per_s: float, pause_s: float
) -> ProviderChannel:
    """Return a channel with one bucket for all requests: a burst of one, in which an act precedes every waiting read."""
    return ProviderChannel(
        around.transport,
        provider=MANIFEST.name,
        base_url=base_url,
        account=name,
        headers={"Authorization": Secret(f"Bearer {key.key.reveal()}"), "Accept": "application/json"},
        buckets={"": TokenBucket(per_s)},
        fault=make_fault_reader(pause_s),
        advice=ADVICE,
    )


def list_key_places(home: Path) -> KeyLocations:
    """Return the places of keys in order of precedence."""
    return KeyLocations(env="LAMBDA_API_KEY", files=((home / ".lambda_cloud" / "lambda_keys", parse_key),))


def parse_key(text: str) -> str:
    """Return the key in `text`: of the line `api_key = KEY` (SkyPilot's form), else all of it; "" if it is empty."""
    for line in text.splitlines():
        name, separator, value = line.partition("=")
        if separator and name.strip() == "api_key":
            return value.strip().strip("\"'")
    return text.strip()
