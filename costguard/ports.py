"""The shapes of the outside: what the flows ask for, and whoever can keep the promise may answer.

A port is small on purpose: a provider implements those it can keep and leaves out the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from costguard.core.architecture import Architecture
from costguard.core.document import Document
from costguard.core.gpu import Gpu
from costguard.core.job import Job, Table
from costguard.core.offer import Offer, Selection
from costguard.core.speed.duration import Efficiency
from costguard.core.speed.interruption import Interruptions
from costguard.core.storage import StorageRate
from costguard.core.subscription import Subscription

if TYPE_CHECKING:  # a type and no more: a quote that needs none of it does not pay for importing it
    from costguard.core.exact import Exact
    from costguard.core.metering.accrued import Accrued
    from costguard.core.metering.billing import BillingRule
    from costguard.core.metering.inventory import Poll
    from costguard.core.metering.observation import Observation
    from costguard.core.metering.resource import ResourceKey, ScopeKey
    from costguard.core.period import Period
    from costguard.core.spending import Live, ScopeNow, Spending, Stretch


class Renderer(Protocol):
    """Turns any answer into text of one format."""

    def __call__(self, document: Document) -> str:
        """The text, ending in a newline. Pure: the same document gives the same text for the same terminal."""


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


class InstanceSource(Protocol):
    """A provider's resources: whoever can list what bills. What it raises is recorded as a failure and stops no other."""

    @property
    def providers(self) -> Sequence[str]:
        """The providers it speaks for, mostly one: where it cannot list its scopes, those known of them count as not seen."""

    def scopes(self) -> Sequence[ScopeKey]:
        """Every scope its credentials can see; CostguardError where it cannot say."""

    def poll(self, scope: ScopeKey) -> Poll:
        """One listing of `scope`, read to its end. It fails by answering Failed rather than by raising what the network did."""


@runtime_checkable
class Inspector(Protocol):
    """A provider that can look up one resource by itself."""

    def look(self, key: ResourceKey) -> Observation | None:
        """The resource, or None where the provider says that there is none. CostguardError where it cannot be asked."""


class Ledger(Protocol):
    """Where polls become spans."""

    def record(self, polls: Sequence[Poll]) -> Sequence[Accrued]:
        """Write what `polls` change, all or nothing; acknowledged when it returns."""

    def suspects(self, poll: Poll) -> Sequence[ResourceKey]:
        """What `poll` lacks and should be looked up one by one before its absence is believed."""

    def scopes_of(self, provider: str) -> Sequence[ScopeKey]:
        """Every scope of `provider` that was ever polled."""


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
