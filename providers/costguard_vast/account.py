"""One Vast account: its contracts, credit and charges, and the two acts on a contract.

The ledger identifies it by its user id, which is requested once. One listing covers all of it: contracts, and their volumes.

This module also opens accounts from `[providers.vast]` (settings, key, address), and finds keys where Vast's own tools store
them: the environment variable, which takes precedence, then the files of the vastai command.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from costguard.bills.bill_line import BillLines
from costguard.errors import CredentialsError, ForbiddenError, InputError, InvalidAnswerError, ProviderError
from costguard.metering.inventory import Complete, Failed, Inventory, Partial, Poll
from costguard.metering.observation import Observation, Price
from costguard.providers.api_keys import (
    KeyedAccount,
    KeyLocations,
    check_account_table,
    open_keyed_accounts,
    read_plain_key,
    read_timeout,
)
from costguard.providers.ports import InstanceSource
from costguard.providers.transport import Deadline, ProviderContext, check_url
from costguard.quoting.offer import OfferListing
from costguard.values.calendar import Period
from costguard.values.checks import require
from costguard.values.money import Money, PrepaidBalance
from costguard.values.provider import ActionResponse, HealthCheck
from costguard.values.resource import ResourceKey, ScopeKey
from costguard.values.sample import Sample
from costguard_vast import BASE_URL, MANIFEST, actions, charges, examination, offers, translation
from costguard_vast.api import NOT_THERE, PAGE, STATE_IT, VastApi, format_reason, read_rows
from costguard_vast.prices import MB_PER, describe_increase
from costguard_vast.translation import PROVIDER, REGION, SCOPE, VOLUME_MARK, ItemReader, PollNotes, VastGpuNames
from costguard_vast.wire import User, parse_finite, to_nano

INCREASES_EVERY = timedelta(minutes=10)
"""How often proposed price increases are asked for; a host's proposal stands for days: an assumption, 2026-11."""


IDENTITY_S = 10.0
"""Seconds of a poll, half of it at most, that the user's id may take where the settings state it: an assumption, 2026-11."""


def is_identity_unavailable(broken: ProviderError) -> bool:
    """Return whether Vast will never state the owner of a key: the key may not read it, or the address does not exist."""
    is_there = isinstance(broken, CredentialsError) or broken.status not in NOT_THERE
    return isinstance(broken, ForbiddenError) or not is_there


class VastAccount:
    """The account of one key, and the user id that the settings expect, if any."""

    def __init__(
        self,
        *,
        api: VastApi,
        around: ProviderContext,
        key: KeyedAccount,
        timeout_s: int = 60,
        traffic_unit: str = "",
        unverified: bool = False,
    ) -> None:
        self.api, self.clock, self.key, self.timeout_s = api, around.clock, key, timeout_s
        self.stated, self.traffic_unit, self.unverified = key.account, traffic_unit, unverified
        self.naming = VastGpuNames(around.gpus)
        self._lock = threading.Lock()
        self._id = ""
        self._is_id_read = False
        self._proven: set[str] = set()
        self._increases: tuple[str, ...] = ()
        self._increases_at: datetime | None = None
        self.searches_closed_until: datetime | None = None
        """When the daily quota of searches begins anew; None: it is not known to be used up."""

    @property
    def providers(self) -> Sequence[str]:
        """Vast alone."""
        return (PROVIDER,)

    @property
    def key_name(self) -> str:
        """Return where the key was found, or the user that the settings state."""
        return self.stated or self.key.source

    def list_scopes(self) -> Sequence[ScopeKey]:
        """Return the account's one scope.

        If the settings state the id, nothing is requested: the poll checks it.
        """
        return (ScopeKey(PROVIDER, self.stated or self.fetch_account_id(self.make_deadline()), SCOPE),)

    def make_deadline(self) -> Deadline:
        """Return the deadline for all requests of one call."""
        return Deadline(self.timeout_s)

    def fetch_identity(self) -> str | None:
        """Return the user id; None if the key may not read it."""
        id_ = self.fetch_account_id(self.make_deadline())
        return id_ if self._is_id_read else None

    def fetch_account_id(self, deadline: Deadline) -> str:
        """Return the user id, requested once; the id of the settings if the key may not read it."""
        with self._lock:
            if not self._id:
                self._id = self._resolve_account_id(deadline)
            return self._id

    def _resolve_account_id(self, deadline: Deadline) -> str:
        try:
            user = self.fetch_user(deadline)
        except ProviderError as broken:
            if not is_identity_unavailable(broken):
                raise
            if self.stated:
                return self.stated
            hint = broken.hint if isinstance(broken, ForbiddenError) else STATE_IT
            what = f"does not name the user of the key: {broken.what}"
            raise type(broken)(what, provider=PROVIDER, status=broken.status, code=broken.code, hint=hint) from None
        id_ = self._check_agreed(f"{user.id}".strip())
        self._is_id_read = True
        return id_

    def fetch_user(self, deadline: Deadline) -> User:
        """Request and return the key's owner."""
        return self.api.fetch_user(deadline)

    def _check_agreed(self, id_: str) -> str:
        if not (id_.isascii() and id_.isdigit()):
            raise InvalidAnswerError("does not name the user of the key", provider=PROVIDER)
        if self.stated and self.stated != id_:
            hint = f"correct account to {id_}, or give the key of user {self.stated}"
            raise InputError(f"is {self.stated}, and its key is of user {id_}", field="providers.vast.account", hint=hint)
        return id_

    def poll(self, scope: ScopeKey) -> Poll:
        """Poll every contract and volume, page by page."""
        clock = self.clock
        asked_at, deadline, telling = clock.now(), self.make_deadline(), PollNotes()
        try:
            account = self._check_scope_owner(scope, deadline)
            items, measured = self._list_contracts(account, deadline, telling)
        except (ProviderError, InputError) as broken:
            why = format_reason(broken) if isinstance(broken, ProviderError) else str(broken).splitlines()[0]
            return Poll(scope=scope, asked_at=asked_at, at=clock.now(), inventory=Failed(why))
        items += self._list_volumes(account, deadline, telling)
        notes = (*telling.notes, *self._list_proposed_increases(deadline))
        inventory: Inventory = Partial(tuple(items), "; ".join(telling.lost)) if telling.lost else Complete(tuple(items))
        return Poll(scope=scope, asked_at=asked_at, at=clock.now(), inventory=inventory, samples=measured, notes=notes)

    def _check_scope_owner(self, scope: ScopeKey, deadline: Deadline) -> str:
        """Return the user id; raises InputError if the scope is not of this account.

        An id of the settings stands in for one that cannot be read today: then the listing proves nothing about whose it is.
        """
        try:
            account = self.fetch_account_id(
                deadline.limit_to(min(IDENTITY_S, deadline.compute_left() / 2)) if self.stated else deadline
            )
        except ProviderError as broken:
            if not self.stated or isinstance(broken, CredentialsError):
                raise
            account = self.stated
        if (scope.account, scope.name) != (account, SCOPE):
            raise InputError("is not a scope of this account", field="/".join(scope))
        return account

    def _list_contracts(
        self, account: str, deadline: Deadline, telling: PollNotes
    ) -> tuple[list[Observation], tuple[Sample, ...]]:
        listed = read_rows(lambda token: self.api.fetch_page(token, deadline, PAGE))
        if listed.why:
            telling.lost.setdefault(listed.why)
        reader, now = self.make_reader(account), self.clock.now()
        items, measured = list[Observation](), list[Sample]()
        for raw in listed.items:
            observation, one = reader.read_instance(raw, telling)
            if observation is not None:
                items.append(observation)
            if observation is not None and one is not None and observation.state in ("running", "paused"):
                measured += translation.build_samples(
                    one, observation.key, now, self._proven, telling.make_voice(observation.key.id)
                )
        return items, tuple(measured)

    def _list_volumes(self, account: str, deadline: Deadline, telling: PollNotes) -> list[Observation]:
        try:
            listed = self.api.fetch_volumes(deadline)
        except ProviderError as broken:
            telling.lost.setdefault(f"volumes: {format_reason(broken)}")
            return []
        reader = self.make_reader(account)
        observations = (reader.read_volume(raw, telling) for raw in listed)
        return [one for one in observations if one is not None]

    def _list_proposed_increases(self, deadline: Deadline) -> tuple[str, ...]:
        """Return notes about hosts' proposed price increases, fetched occasionally; a failure is only noted."""
        now = self.clock.now()
        if self._increases_at is not None and now < self._increases_at + INCREASES_EVERY:
            return self._increases
        try:
            increase_list = self.api.fetch_increases(deadline)
        except ProviderError as broken:
            return (f"{PROVIDER}: proposed price increases cannot be listed: {format_reason(broken)}",)
        more = ("vast: more price increases are proposed than were listed",) if increase_list.truncated else ()
        self._increases = (*(describe_increase(one) for one in increase_list.pending_price_increases), *more)
        self._increases_at = now
        return self._increases

    def make_reader(self, account: str) -> ItemReader:
        """Return the reader that translates items of this account to observations."""
        return ItemReader(account=account, naming=self.naming, traffic_unit=self.traffic_unit)

    def look_up(self, key: ResourceKey) -> Observation | None:
        """Return one contract or volume; None if Vast states that it does not exist."""
        deadline, telling = self.make_deadline(), PollNotes()
        account = self.fetch_account_id(deadline)
        if (key.provider, key.account, key.region) != (PROVIDER, account, REGION):
            raise InvalidAnswerError(f"cannot query '{key.id}', which is of another account", provider=PROVIDER)
        if key.id.startswith(VOLUME_MARK):
            observations = [self.make_reader(account).read_volume(raw, telling) for raw in self.api.fetch_volumes(deadline)]
            observation = next((one for one in observations if one is not None and one.key == key), None)
            if observation is None and telling.lost:
                raise InvalidAnswerError(next(iter(telling.lost)), provider=PROVIDER)
            return observation
        if not actions.is_instance_id(key.id):
            return None
        raw = self.api.fetch_instance(key.id, deadline)
        return None if raw is None else self._observe_looked_up(raw, key, telling)

    def _observe_looked_up(self, raw: msgspec.Raw, key: ResourceKey, telling: PollNotes) -> Observation:
        observation, _ = self.make_reader(key.account).read_instance(raw, telling)
        if observation is None or observation.key != key:
            raise InvalidAnswerError(f"returned another resource instead of instance {key.id}", provider=PROVIDER)
        return observation

    def fetch_balance(self) -> PrepaidBalance:
        """Return the account's credit, less what a negative balance owes: Vast stops machines when nothing is left of it."""
        at = self.clock.now()
        try:
            deadline = self.make_deadline()
            account, user = self.fetch_account_id(deadline), self.fetch_user(deadline)
        except (ProviderError, InputError) as broken:
            why = "; ".join(str(broken).splitlines())
            return PrepaidBalance(provider=PROVIDER, account=self._id or self.stated, at=at, amount=None, why=why)
        credit, other = parse_finite(user.credit), parse_finite(user.balance)
        note = "" if other is None else f"its other figure, balance, is ${other:f}"
        if credit is None:
            why = "; ".join(filter(None, ("Vast does not state the credit", note)))
            return PrepaidBalance(provider=PROVIDER, account=account, at=at, amount=None, why=why)
        left = credit + min(0, other or 0)
        note += f", which is taken off the credit of ${credit:f}" if left != credit else ""
        return PrepaidBalance(provider=PROVIDER, account=account, at=at, amount=Money(nano=to_nano(left)), why=note)

    def list_live_offers(self, gpus: Collection[str] | None) -> OfferListing:
        """Return the current offers of verified hosts."""
        return offers.list_live_offers(self, gpus)

    def fetch_bill_lines(self, period: Period) -> BillLines:
        """Return Vast's charges, by UTC day."""
        return charges.fetch_billed(self, period)

    def examine(self) -> Sequence[HealthCheck]:
        """Check key, reachability, identity, rights, clock and metrics."""
        return examination.examine_account(self)

    def stop(self, key: ResourceKey, *, lose: frozenset[str] = frozenset()) -> ActionResponse:
        """Stop one contract: its disk stays and is billed, its GPU returns to the market.

        `lose` is ignored: nothing is lost.
        """
        del lose
        return actions.stop_contract(self.api, self._explain_refusal(key), key)

    def terminate(self, key: ResourceKey) -> ActionResponse:
        """Destroy one contract and its disk.

        Volumes stay.
        """
        return actions.terminate_contract(self.api, self._explain_refusal(key), key)

    def start_instance(self, key: ResourceKey) -> ActionResponse:
        """Start one stopped contract: it gets its GPU back, or waits for it."""
        return actions.start_contract(self.api, self._explain_refusal(key), key)

    def fetch_start_price(self, key: ResourceKey) -> Price:
        """Return the contract's price of its GPUs, which a stop does not change."""
        observation = self.look_up(key)
        return observation.prices[-1] if observation is not None and observation.prices else Price(None)

    def _explain_refusal(self, key: ResourceKey) -> str:
        """Return why nothing must be sent for `key`, or ""."""
        if not actions.is_instance_id(key.id) or key.provider != PROVIDER or key.region != REGION:
            return f"'{key.id[:40]}' is not an instance of Vast"
        try:
            account = self.fetch_account_id(self.make_deadline().limit_to(actions.BEFORE_S))
        except (ProviderError, InputError) as broken:
            return "; ".join(str(broken).splitlines())
        return "" if key.account == account else f"it is of account {key.account[:40]}, and this key is of {account}"


WHERE = "providers.vast"


def open_accounts(table: Mapping[str, object], around: ProviderContext) -> Sequence[InstanceSource]:
    """Return a source for each account; finds every key and sends no request."""
    settings = check_account_table(table, MANIFEST)
    base_url = parse_base_url(str(settings.get("base_url", BASE_URL)))
    unit, timeout_s = _parse_traffic_unit(str(settings.get("traffic_unit", "")).strip()), read_timeout(settings, MANIFEST)
    _check_account_ids(settings)

    def account(key: KeyedAccount) -> VastAccount:
        return VastAccount(
            api=VastApi(around.transport, base_url=base_url, key=key),
            around=around,
            key=key,
            timeout_s=timeout_s,
            traffic_unit=unit,
            unverified=settings.get("unverified") is True,
        )

    return open_keyed_accounts(settings, MANIFEST, list_key_places(around.home, around.environ), around, account, nameless="")


def parse_base_url(url: str) -> str:
    """Return the API's address without its /api and version, because both versions are used."""
    base = check_url(url, f"{WHERE}.base_url")
    return re.sub(r"/api(?:/v[01])?$", "", base)


def _parse_traffic_unit(unit: str) -> str:
    """Return the unit of traffic, "" if it is not set."""
    hint = "leave it out if you are unsure"
    require(not unit or unit in MB_PER, f"{WHERE}.traffic_unit", f"must be {' or '.join(MB_PER)}", hint)
    return unit


def _check_account_ids(settings: Mapping[str, object]) -> None:
    """Raise InputError unless each account's name is a user id, which Vast itself states."""
    several = settings.get("accounts")
    for one in (settings, *(several if isinstance(several, list) else ())):
        name = str(one.get("account", "0")).strip()
        hint = "`costguard doctor` shows the user id of a key"
        require(name.isascii() and name.isdigit(), f"{WHERE}.account", "must be a user id, which is a whole number", hint)


def list_key_places(home: Path, environ: Mapping[str, str]) -> KeyLocations:
    """Return the places of keys in order of precedence: the current file, then that of former versions."""
    config_home = environ.get("XDG_CONFIG_HOME", "")
    config = Path(config_home) if config_home.startswith("/") else home / ".config"
    return KeyLocations(
        env="VAST_API_KEY",
        files=((config / "vastai" / "vast_api_key", read_plain_key), (home / ".vast_api_key", read_plain_key)),
    )
