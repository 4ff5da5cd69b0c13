"""The shapes of the outside: what the flows ask for, and whoever can keep the promise may answer.

A port is small on purpose: a provider implements those it can keep and leaves out the rest. Those of the guard stand in
`ports.guarding`, which a quote does not import.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from costguard.core.architecture import Architecture
from costguard.core.document import Document
from costguard.core.gpu import Gpu
from costguard.core.job import Job, Table
from costguard.core.offer import Offer, OfferListing, Selection
from costguard.core.speed.duration import Efficiency
from costguard.core.speed.interruption import Interruptions
from costguard.core.storage import StorageRate
from costguard.core.subscription import Subscription

if TYPE_CHECKING:  # a type and no more: a quote that needs none of it does not pay for importing it
    from costguard.core.acting import Reception
    from costguard.core.balance import Balance
    from costguard.core.billed import Billed
    from costguard.core.exact import Exact
    from costguard.core.health import Check
    from costguard.core.metering.accrued import Accrued
    from costguard.core.metering.billing import BillingRule
    from costguard.core.metering.inventory import Poll
    from costguard.core.metering.observation import Observation
    from costguard.core.metering.resource import ResourceKey, ScopeKey
    from costguard.core.period import Period
    from costguard.core.sample import Measured, Sample
    from costguard.core.spending import Live, ScopeNow, Spending, Stretch


class Renderer(Protocol):
    """Turns any answer into text of one format."""

    def __call__(self, document: Document) -> str:
        """The text, ending in a newline. Pure: the same document gives the same text for the same terminal."""


class LongRenderer(Protocol):
    """The same for what can be too long for memory, or is no text: in pieces, in order.

    `options`: of those flags that the format's module names in OPTIONS, the ones that were given.
    """

    def __call__(self, document: Document, **options: str) -> Iterator[str] | Iterator[bytes]:
        """The pieces. What can be known to be wrong is said before the first one."""


class OfferSource(Protocol):
    """Something that can say what could be rented, at what price and how old that price is."""

    def classes(self, selection: Selection) -> list[tuple[str, int]]:
        """(canonical GPU, GPUs an instance) of every selected offer, each once."""

    def best(self, gpu: str, gpu_count: int, selection: Selection) -> list[Offer]:
        """The cheapest offer with a known price of each provider and tier in one class."""

    def offers(self, selection: Selection, *, sort: str, limit: int | None) -> Iterator[Offer]:
        """Selected offers; those of unknown price last."""


class FactSource(Protocol):
    """Shipped, dated facts."""

    def architecture(self, name: str) -> Architecture:
        """The shape of a shipped model; UnknownNameError with the nearest names."""

    def gpus(self) -> Mapping[str, Gpu]:
        """Every known GPU by its canonical name."""

    def efficiency(self) -> Efficiency:
        """Fitted constants that turn peak FLOPs into tokens a second."""

    def storage_rates(self) -> Mapping[str, StorageRate]:
        """What a disk costs, by provider; a provider that is absent is unknown."""

    def billing_rules(self) -> Mapping[str, BillingRule]:
        """What bills when, by provider; one that is absent gets a careful rule."""

    def interruptions(self) -> Mapping[str, Interruptions]:
        """How often spot machines are taken back, by provider; `*` for the rest."""

    def subscriptions(self) -> tuple[Subscription, ...]:
        """Plans that sell access rather than machines (Colab)."""


class ExactSizer(Protocol):
    """Something that can run a training step without a GPU and say what it held."""

    def exact(self, config: Table, job: Job) -> Exact:
        """The memory of `job` on the model of `config` (a parsed config.json); InputError where it cannot be run."""


class Clock(Protocol):
    """The time of day."""

    def now(self) -> datetime:
        """This instant, in UTC."""


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

    def scopes(self) -> Sequence[ScopeKey]:
        """Every scope its credentials can see; CostguardError where it cannot say."""

    def poll(self, scope: ScopeKey) -> Poll:
        """One listing of `scope`, read to its end. It fails by answering Failed rather than by raising what the network did.

        Called from several threads at once, for different scopes.
        """


@runtime_checkable
class Inspector(Protocol):
    """A provider that can look up one resource by itself."""

    def look(self, key: ResourceKey) -> Observation | None:
        """The resource, or None where the provider says that there is none. CostguardError where it cannot be asked."""


@runtime_checkable
class Identified(Protocol):
    """An account whose provider says who it is, by a name that two keys of one account share."""

    def identity(self) -> str | None:
        """What the provider calls the account; None where it does not say (today). ProviderError where it cannot be asked."""


@runtime_checkable
class UtilizationSource(Protocol):
    """A provider that is asked for measures of work, apart from its listing."""

    def utilization(self, seen: Sequence[Observation], period: Period) -> Measured:
        """Samples of the running ones among `seen` within `period`. What cannot be measured is missing, never zero."""


@runtime_checkable
class LiveOfferSource(Protocol):
    """A provider that can be asked what it rents out now."""

    def live_offers(self, gpus: Collection[str] | None) -> OfferListing:
        """What can be rented now, of the canonical `gpus`; None: of every GPU. A ProviderError where it cannot be asked."""


@runtime_checkable
class BalanceSource(Protocol):
    """A provider that is paid in advance."""

    def balance(self) -> Balance:
        """What is left. That it cannot be asked is an unknown balance with the reason, and no failure of anything else."""


@runtime_checkable
class ChargeSource(Protocol):
    """A provider that says what it charged."""

    def bill_lines(self, period: Period) -> Billed:
        """Every line of `period`, as stated today. A ProviderError where it cannot be asked."""


@runtime_checkable
class Examiner(Protocol):
    """A provider that can be examined: its credentials, reach and rights, proven without acting."""

    def examine(self) -> Sequence[Check]:
        """What was found, in the order of looking. It raises nothing: that it cannot be asked is a finding."""


@runtime_checkable
class Stopper(Protocol):
    """A provider that can stop an instance and keep its disks."""

    def stop(self, key: ResourceKey, *, lose: frozenset[str] = frozenset()) -> Reception:
        """Ask once, for this one instance. It never ends it for good, and never lifts a protection.

        `lose`: what may be lost, in the words of its `Handling.stop_loses`; where more would be lost it is not asked, but
        refused. It raises nothing: what the provider did not answer clearly is unclear.
        """


@runtime_checkable
class Terminator(Protocol):
    """A provider that can end an instance for good."""

    def terminate(self, key: ResourceKey) -> Reception:
        """Ask once, for this one instance. It never lifts a protection, and raises nothing."""


class Ledger(Protocol):
    """Where polls become spans."""

    def record(self, polls: Sequence[Poll]) -> Sequence[Accrued]:
        """Write what `polls` change, all or nothing; acknowledged when it returns."""

    def suspects(self, poll: Poll) -> Sequence[ResourceKey]:
        """What `poll` lacks and should be looked up one by one before its absence is believed."""

    def scopes_of(self, provider: str) -> Sequence[ScopeKey]:
        """Every scope of `provider` that was ever polled."""

    def record_samples(self, samples: Sequence[Sample]) -> frozenset[ResourceKey]:
        """Keep `samples`; the resources that the ledger does not know, whose samples it left out."""


class Books(Protocol):
    """What the ledger answers."""

    def spending(self, period: Period, as_of: datetime) -> list[Spending]:
        """Sums of `period` as known at `as_of`."""

    def live(self, as_of: datetime) -> list[Live]:
        """Every resource that is not known to have ended."""

    def scopes(self) -> list[ScopeNow]:
        """How well each scope is seen."""

    def stretches(self, period: Period) -> list[Stretch]:
        """The polls of `period`, in a row with one outcome, of each scope; those that reach over its edges whole."""
