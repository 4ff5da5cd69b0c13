"""Provider ports: what services ask of a cloud. Each port is small; a provider implements those that it can keep."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from costguard.quoting.offer import OfferListing

if TYPE_CHECKING:  # a type and no more: a quote that needs none of it does not pay for importing it
    from costguard.bills.bill_line import BillLines
    from costguard.metering.inventory import Poll
    from costguard.metering.observation import Observation, Price
    from costguard.values.calendar import Period
    from costguard.values.money import PrepaidBalance
    from costguard.values.provider import ActionResponse, HealthCheck
    from costguard.values.resource import ResourceKey, ScopeKey
    from costguard.values.sample import UtilizationSamples


class Cache(Protocol):
    """Bytes that are kept between two starts because they are dear to ask for and change slowly: price lists."""

    def get(self, name: str, youngest: datetime) -> bytes | None:
        """What was kept as `name` at or after `youngest`; None where there is no such thing or it is older."""

    def put(self, name: str, data: bytes) -> None:
        """Keep `data`. That it cannot be kept (a full disk) is no failure of whoever asked."""


class InstanceSource(Protocol):
    """One account of a provider: whoever can list what bills. What it raises is recorded as a failure and stops no other."""

    @property
    def providers(self) -> Sequence[str]:
        """The providers it speaks for, mostly one: where it cannot list its scopes, those known of them count as not seen."""

    def list_scopes(self) -> Sequence[ScopeKey]:
        """Every scope its credentials can see; CostguardError where it cannot say."""

    def poll(self, scope: ScopeKey) -> Poll:
        """One listing of `scope`, read to its end. It fails by answering Failed rather than by raising what the network did.

        Called from several threads at once, for different scopes.
        """


@runtime_checkable
class Inspector(Protocol):
    """A provider that can look up one resource by itself."""

    def look_up(self, key: ResourceKey) -> Observation | None:
        """The resource, or None where the provider says that there is none. CostguardError where it cannot be asked."""


@runtime_checkable
class IdentitySource(Protocol):
    """An account whose provider says who it is, by a name that two keys of one account share."""

    def fetch_identity(self) -> str | None:
        """What the provider calls the account; None where it does not say (today). ProviderError where it cannot be asked."""


@runtime_checkable
class UtilizationSource(Protocol):
    """A provider that is asked for measures of work, apart from its listing."""

    def fetch_utilization(self, observations: Sequence[Observation], period: Period) -> UtilizationSamples:
        """Samples of the running ones among `observations` within `period`. What cannot be measured is missing, never zero."""


@runtime_checkable
class PolledUtilizationSource(UtilizationSource, Protocol):
    """One that remembers between polls what cannot change any more, and need not be asked for again."""

    def poll_utilization(self, observations: Sequence[Observation], period: Period) -> UtilizationSamples:
        """The same. `observations`: all machines of its accounts. Before an act `fetch_utilization` asks for everything."""


@runtime_checkable
class LiveOfferSource(Protocol):
    """A provider that can be asked what it rents out now."""

    def list_live_offers(self, gpus: Collection[str] | None) -> OfferListing:
        """What can be rented now, of the canonical `gpus`; None: of every GPU. A ProviderError where it cannot be asked."""


@runtime_checkable
class BalanceSource(Protocol):
    """A provider that is paid in advance."""

    def fetch_balance(self) -> PrepaidBalance:
        """What is left. That it cannot be asked is an unknown balance with the reason, and no failure of anything else."""


@runtime_checkable
class ChargeSource(Protocol):
    """A provider that says what it charged."""

    def fetch_bill_lines(self, period: Period) -> BillLines:
        """Every line of `period`, as stated today. A ProviderError where it cannot be asked."""


@runtime_checkable
class OptionalChargeSource(ChargeSource, Protocol):
    """A `ChargeSource` that has a bill to read only where the settings name one."""

    def has_bill(self) -> bool:
        """Whether the settings name a bill; nothing is asked to answer it. Where False, every answer lacks all lines."""


@runtime_checkable
class Examiner(Protocol):
    """A provider that can be examined: its credentials, reach and rights, proven without acting."""

    def examine(self) -> Sequence[HealthCheck]:
        """What was found, in the order of looking. It raises nothing: that it cannot be asked is a finding."""


@runtime_checkable
class Stopper(Protocol):
    """A provider that can stop an instance and keep its disks."""

    def stop(self, key: ResourceKey, *, lose: frozenset[str] = frozenset()) -> ActionResponse:
        """Ask once, for this one instance. It never ends it for good, and never lifts a protection.

        `lose`: what may be lost, in the words of its `Handling.stop_loses`; where more would be lost it is not asked, but
        refused. It raises nothing: what the provider did not answer clearly is unclear.
        """


@runtime_checkable
class Terminator(Protocol):
    """A provider that can delete an instance permanently."""

    def terminate(self, key: ResourceKey) -> ActionResponse:
        """Ask once, for this one instance. It never lifts a protection, and raises nothing."""


@runtime_checkable
class ParallelActor(Protocol):
    """A provider whose published rate leaves room for several acts at once; any other has one act under way at a time."""

    @property
    def acts_at_once(self) -> int:
        """How many acts on one account may be under way. Its methods are then called from so many threads at once."""


@runtime_checkable
class Starter(Protocol):
    """A provider that can start an instance that is stopped."""

    def start_instance(self, key: ResourceKey) -> ActionResponse:
        """Ask once, for this one instance, and only if it is stopped. It creates nothing, and raises nothing."""

    def fetch_start_price(self, key: ResourceKey) -> Price:
        """What its computing would cost an hour if it started now; `rate` None where that is not known.

        A CostguardError where it cannot be asked.
        """
