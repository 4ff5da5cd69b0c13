"""One RunPod account: what it holds, what it costs, what could be rented, and the acts.

A poll asks for every page of pods, members of clusters among them, then for the network volumes, and for the catalogue only
where a pod that may be billed does not say what it costs: two requests for an account of up to 1,000 pods, mostly.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta

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
from costguard.metering.observation import Observation
from costguard.providers.api_keys import DEFAULT_ACCOUNT, KeyedAccount, check_account_table, open_keyed_accounts, read_timeout
from costguard.providers.ports import InstanceSource
from costguard.providers.transport import Deadline, ProviderChannel, ProviderContext
from costguard.quoting.offer import OfferListing
from costguard.values.acting import ActionResponse
from costguard.values.balance import PrepaidBalance
from costguard.values.health import HealthCheck
from costguard.values.period import Period
from costguard.values.resource import ResourceKey, ScopeKey
from costguard_runpod import MANIFEST, actions, api, billing
from costguard_runpod.examination import Examined, examined
from costguard_runpod.keys import places
from costguard_runpod.pagination import decode_pods, decode_volumes, read_all
from costguard_runpod.translation import PROVIDER, Told, Words, bills_unpriced, observations, pod_observed
from costguard_runpod.wire import GpuType, Pod

SCOPE = "account"
KEPT = timedelta(hours=1)
"""For so long the catalogue is kept: RunPod moves list prices a few times a year."""
MOST_NOTES = 50
CHUNK = timedelta(days=7)
"""Of a bill that is asked for at once: 168 hours of 400 pods are near the 16 MiB that an answer may have."""


def opened(table: Mapping[str, object], around: ProviderContext) -> Sequence[InstanceSource]:
    """An account for each that `table` states, or the one of the environment."""
    stated = check_account_table(table, MANIFEST)
    return open_keyed_accounts(
        stated, MANIFEST, places(around.home), around, lambda key: Account(key.account or DEFAULT_ACCOUNT, key, around, stated)
    )


class Account:
    """One account. `stated`: the settings that all accounts share."""

    def __init__(self, name: str, key: KeyedAccount, around: ProviderContext, stated: Mapping[str, object]) -> None:
        self.name, self.key = name, key
        self._clock, self._names = around.clock, around.gpus
        self._timeout_s = read_timeout(stated, MANIFEST)
        per_minute = _whole(stated, "requests_per_minute", api.PER_MINUTE)
        self.rest: ProviderChannel = api.rest(around, key, name, api.base_url(stated.get("base_url")), per_minute)
        self.graphql: ProviderChannel = api.graphql(
            around, key, name, str(stated.get("graphql_url") or _graphql(stated)), per_minute
        )
        self._words = Words(account=name, names=self._names)
        self._catalogue_at: datetime | None = None

    @property
    def providers(self) -> Sequence[str]:
        """RunPod."""
        return (PROVIDER,)

    def list_scopes(self) -> Sequence[ScopeKey]:
        """The account: one listing shows all of it."""
        return (ScopeKey(PROVIDER, self.name, SCOPE),)

    def poll(self, scope: ScopeKey) -> Poll:
        """Pods and network volumes."""
        asked_at, deadline, told = self._clock.now(), Deadline(self._timeout_s), Told()
        try:
            inventory, told = self._listed(asked_at, deadline)
        except ProviderError as broken:
            inventory = Failed(reason(broken))
        notes = tuple(told.notes[:MOST_NOTES])
        if told.notes[MOST_NOTES:]:
            notes += (f"and {len(told.notes) - MOST_NOTES} notes more",)
        at = max(asked_at, self._clock.now())
        return Poll(scope=scope, asked_at=asked_at, at=at, inventory=inventory, samples=tuple(told.samples), notes=notes)

    def _listed(self, asked_at: datetime, deadline: Deadline) -> tuple[Inventory, Told]:
        pods = read_all(self.rest, "/v2/pods", decode_pods, deadline, includeClusterPods="true")
        notes, missing = list(pods.notes), [pods.why] if pods.why else []
        try:
            found = read_all(self.rest, "/v2/network-volumes", decode_volumes, deadline)
            volumes, notes, missing = found.items, notes + found.notes, missing + ([found.why] if found.why else [])
        except ProviderError as broken:
            volumes = []
            missing.append(f"network volumes: {reason(broken)}")
        if any(map(bills_unpriced, pods.items)):
            notes += self._priced(asked_at, deadline)
        told = observations(pods.items, volumes, self._words, asked_at)
        told.notes[:0] = notes
        if told.lost:
            missing.append(f"{told.lost} items claim what cannot be")
        items = tuple(told.items)
        return Partial(items, "; ".join(missing)) if missing else Complete(items), told

    def _priced(self, now: datetime, deadline: Deadline | None) -> list[str]:
        """Have a catalogue that is young enough; a note where there is none. An older one is better than none."""
        if self._catalogue_at is not None and now - self._catalogue_at < KEPT:
            return []
        try:
            self._words.catalogue = by_id(api.catalogue(self.rest, deadline))
        except ProviderError as broken:
            return [f"the catalogue of prices cannot be asked: {reason(broken)}"]
        self._catalogue_at = now
        return []

    def look_up(self, key: ResourceKey) -> Observation | None:
        """The pod `key`, or the network volume of that id."""
        try:
            pod = api.one_pod(self.rest, key)
        except MissingError:
            return self._volume(key)
        return self.observed(pod)

    def observed(self, pod: Pod) -> Observation:
        """One pod in our words."""
        if bills_unpriced(pod):
            self._priced(self._clock.now(), None)
        try:
            return pod_observed(pod, self._words, [])
        except InputError as odd:
            raise InvalidAnswerError(odd.what, provider=PROVIDER, account=self.name) from None

    def _volume(self, key: ResourceKey) -> Observation | None:
        found = read_all(self.rest, "/v2/network-volumes", decode_volumes, Deadline(self._timeout_s))
        told = observations((), (one for one in found.items if one.id == key.id), self._words, self._clock.now())
        if not told.items and (found.why or told.lost):
            raise InvalidAnswerError(found.why or told.notes[-1], provider=PROVIDER, account=self.name)
        return told.items[0] if told.items else None

    def fetch_identity(self) -> str | None:
        """The id of the user behind the key; None where GraphQL, which alone tells it, is gone or not allowed."""
        try:
            found = api.myself(self.graphql)
        except (ForbiddenError, MissingError, RefusedError):
            return None
        return found.id if found else None

    def list_live_offers(self, gpus: Collection[str] | None) -> OfferListing:
        """Both clouds, each asked whether one GPU can be had there now."""
        catalogues = {cloud: api.catalogue(self.rest, cloud=cloud) for cloud in ("SECURE", "COMMUNITY")}
        return billing.offers(catalogues, gpus, self._words, self._clock.now().date())

    def fetch_balance(self) -> PrepaidBalance:
        """By GraphQL; unknown, with the reason, where it does not answer."""
        try:
            return billing.balance(api.myself(self.graphql), self.name, self._clock.now())
        except ProviderError as broken:
            return billing.no_balance(self.name, self._clock.now(), reason(broken))

    def fetch_bill_lines(self, period: Period) -> BillLines:
        """Hourly lines of pods and network volumes, and of what has no resource of its own."""
        lines, missing = list[BillLine](), list[str]()
        for kind in (billing.PODS, billing.VOLUMES, billing.TOTALS):
            try:
                unread = self._bill(kind, period, lines)
            except ProviderError as broken:
                if kind == billing.PODS:
                    raise
                missing.append(f"{kind or 'serverless and clusters'}: {reason(broken)}")
                continue
            if unread:
                missing.append(f"{unread} records of {kind or 'serverless and clusters'} cannot be read")
        return BillLines(lines=tuple(lines), why="; ".join(missing))

    def _bill(self, kind: str, period: Period, lines: list[BillLine]) -> int:
        """Add the lines of one statement, asked for in pieces; how many records could not be read."""
        path = f"/v2/billing/{kind}".rstrip("/")
        about = billing.Statement(kind=kind, account=self.name, now=self._clock.now(), period=period)
        start, unread, known = period.start, 0, {line.id for line in lines}
        while start < period.end:
            end = min(start + CHUNK, period.end)
            window = {"startTime": _stamp(start), "endTime": _stamp(end), "bucketSize": "hour"}
            found, lost = billing.bill_lines(api.bill(self.rest, path, window).records, about)
            lines += [line for line in found if line.id not in known]
            known |= {line.id for line in found}
            start, unread = end, unread + lost
        return unread

    def stop(self, key: ResourceKey, *, lose: frozenset[str] = frozenset()) -> ActionResponse:
        """`POST /v2/pods/ID/action`, once, after one look."""
        return actions.stop(self.rest, self.name, key, lose)

    def terminate(self, key: ResourceKey) -> ActionResponse:
        """`DELETE /v2/pods/ID`, once, after one look. A network volume is never deleted."""
        return actions.terminate(self.rest, self.name, key)

    def examine(self) -> Sequence[HealthCheck]:
        """Ask once for each thing that costguard needs."""
        return examined(Examined(rest=self.rest, graphql=self.graphql, key=self.key, now=self._clock.now))


def reason(broken: ProviderError) -> str:
    """Why, in one line, with what to do about it."""
    hint = (
        f" ({to_one_line(broken.hint)})"
        if broken.hint and isinstance(broken, CredentialsError | ForbiddenError | UnreachableError)
        else ""
    )
    hint = f" ({to_one_line(broken.hint)})" if broken.hint and broken.status == api.GONE else hint
    return f"{broken.what}{hint}"


def by_id(gpus: Sequence[GpuType]) -> dict[str, GpuType]:
    """The catalogue by RunPod's names."""
    return {gpu.id: gpu for gpu in gpus}


def _whole(stated: Mapping[str, object], name: str, otherwise: int) -> int:
    value = stated.get(name, otherwise)
    if not isinstance(value, int) or value < 1:
        raise InputError("must be 1 or more", field=f"providers.runpod.{name}", hint=f"write {otherwise}")
    return value


def _graphql(stated: Mapping[str, object]) -> str:
    """Beside REST, so that a test's or a tunnel's address is not mixed with RunPod's own: no key goes where nobody said."""
    return f"{api.base_url(stated['base_url'])}/graphql" if "base_url" in stated else api.GRAPHQL_URL


def _stamp(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
