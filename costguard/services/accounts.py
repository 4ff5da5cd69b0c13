"""What a report asks of the ledger beside its sums."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # types and no more: a quote that needs none of them does not pay for importing them
    from costguard.bills.drift import Bill, Held, Stated
    from costguard.budgets.hold import Hold
    from costguard.metering.billing import BillingRule
    from costguard.metering.charge_item import ChargeItem
    from costguard.metering.inventory import Poll
    from costguard.metering.scope_state import Accrued
    from costguard.metering.span import Reach, Span
    from costguard.metering.spending import Bearer, Live, ScopeNow, Spending, Stretch
    from costguard.quoting.offer import Offer, Selection
    from costguard.quoting.storage import StorageRate
    from costguard.quoting.subscription import Subscription
    from costguard.reporting.statement.history import DaySum, HourRates
    from costguard.reporting.statement.savings import Act
    from costguard.reporting.statement.sections import Outlay
    from costguard.reporting.statement.waste import HourRow
    from costguard.sizing.architecture import Architecture
    from costguard.sizing.exact_memory import Exact
    from costguard.sizing.job import Job, Table
    from costguard.sizing.speed.duration import Efficiency
    from costguard.sizing.speed.interruption import Interruptions
    from costguard.values.gpu import Gpu
    from costguard.values.period import Period
    from costguard.values.resource import ResourceKey, ScopeKey
    from costguard.values.sample import Sample


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


class HeldBills(Protocol):
    """Bills as they were taken in."""

    def statements(self, provider: str, period: Period) -> tuple[dict[str, Bill], list[Bill]]:
        """By account the statement that counts in `period`, and those that are set aside."""

    def stated(self, provider: str, one: Bill, period: Period, fine_us: int) -> list[Stated]:
        """The lines of a statement that lie whole in `period`, by resource, kind of charge and cell.

        Cells are numbers of hours since 1970: of each hour from `fine_us` on, before that of the first hour of each day.
        """

    def straddling(self, provider: str, one: Bill, period: Period) -> int:
        """How many lines reach over an edge of `period`."""

    def known_resources(self, provider: str) -> dict[tuple[str, str], int]:
        """(account, id) of all that costguard ever saw there, and in which hour since 1970 it did so first.

        -1 where its provider states since when it is there.
        """

    def accounts_of(self, provider: str) -> list[str]:
        """The accounts that were ever polled."""


class Charges(Protocol):
    """Charges, item by item."""

    def items(self, period: Period, as_of: datetime) -> Iterable[ChargeItem]:
        """What was charged in `period`, as known at `as_of`."""


class Accounts(Books, Protocol):
    """The books, resource by resource. A resource goes by a number that means nothing elsewhere."""

    def at_one_instant(self) -> AbstractContextManager[object]:
        """Within it every answer is of one state of the ledger."""

    def outlays(self, period: Period, as_of: datetime) -> list[Outlay]:
        """What each line of each resource came to in `period`."""

    def burning(self, as_of: datetime) -> list[tuple[tuple[Span, ...], tuple[Span, ...], bool]]:
        """What bills at `as_of`, resource by resource: open spans, what may bill beside them, and whether listings lack it."""

    def bearers(self, numbers: Collection[int], *, labels: Collection[str] = ()) -> dict[int, Bearer]:
        """Those resources, as they were last seen; with all their labels where they carry any of `labels`."""

    def lines(
        self, numbers: Collection[int], period: Period, as_of: datetime
    ) -> Iterator[tuple[int, list[tuple[Span, Reach | None]]]]:
        """What each of them billed in `period`, an open span with how far it is known to reach."""

    def measured(self, numbers: Collection[int], period: Period) -> dict[int, dict[str, list[HourRow]]]:
        """Of each of them the hours that begin in `period` and hold samples, by signal; who has none is left out."""

    def days(self, period: Period, as_of: datetime, by: str) -> Iterable[DaySum]:
        """What `period` was expected to cost in dollars, by day and the key `by`; the days add up to it."""

    def rates(self, period: Period, as_of: datetime) -> dict[int, HourRates]:
        """What began and ended to burn in each hour of `period`."""

    def acts(self, since: datetime, until: datetime) -> list[Act]:
        """The acts that were confirmed within [since, until), with what each machine billed around them."""

    def held(self, period: Period) -> list[Held]:
        """How bills were held against the charges of `period` last."""

    def committed(self, period: Period) -> list[Hold]:
        """The runs admitted with money set aside that ended in `period`."""
