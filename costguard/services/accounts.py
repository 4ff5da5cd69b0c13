"""What a report asks of the ledger beside its sums."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # types and no more: a quote that needs none of them does not pay for importing them
    from costguard.bills.drift import BilledLines, ProviderBill, ReconciliationRecord
    from costguard.budgets.hold import Hold
    from costguard.metering.billing import BillingRule
    from costguard.metering.charge_item import ChargeItem
    from costguard.metering.inventory import Poll
    from costguard.metering.scope_state import AccrualResult
    from costguard.metering.span import KnownUntil, Span
    from costguard.metering.spending import BilledResource, LiveResource, PollStretch, ScopeCoverage, Spending
    from costguard.quoting.offer import Offer, OfferSelection
    from costguard.quoting.storage import StorageRate
    from costguard.quoting.subscription import Subscription
    from costguard.reporting.statement.history import DailyCost, HourlyRateChanges
    from costguard.reporting.statement.savings import ConfirmedAction
    from costguard.reporting.statement.sections import ResourceCost
    from costguard.reporting.statement.waste import SampledHour
    from costguard.sizing.architecture import Architecture
    from costguard.sizing.exact_memory import ExactMemory
    from costguard.sizing.job import Job, Table
    from costguard.sizing.speed.duration import Efficiency
    from costguard.sizing.speed.interruption import InterruptionRate
    from costguard.values.gpu import Gpu
    from costguard.values.period import Period
    from costguard.values.resource import ResourceKey, ScopeKey
    from costguard.values.sample import Sample


class OfferSource(Protocol):
    """Something that can say what could be rented, at what price and how old that price is."""

    def list_classes(self, selection: OfferSelection) -> list[tuple[str, int]]:
        """(canonical GPU, GPUs an instance) of every selected offer, each once."""

    def find_best(self, gpu: str, gpu_count: int, selection: OfferSelection) -> list[Offer]:
        """The cheapest offer with a known price of each provider and tier in one class."""

    def list_offers(self, selection: OfferSelection, *, sort: str, limit: int | None) -> Iterator[Offer]:
        """Selected offers; those of unknown price last."""


class FactSource(Protocol):
    """Shipped, dated facts."""

    def get_architecture(self, name: str) -> Architecture:
        """The shape of a shipped model; UnknownNameError with the nearest names."""

    def get_gpus(self) -> Mapping[str, Gpu]:
        """Every known GPU by its canonical name."""

    def get_efficiency(self) -> Efficiency:
        """Fitted constants that turn peak FLOPs into tokens a second."""

    def get_storage_rates(self) -> Mapping[str, StorageRate]:
        """What a disk costs, by provider; a provider that is absent is unknown."""

    def get_billing_rules(self) -> Mapping[str, BillingRule]:
        """What bills when, by provider; one that is absent gets a careful rule."""

    def get_interruptions(self) -> Mapping[str, InterruptionRate]:
        """How often spot machines are taken back, by provider; `*` for the rest."""

    def get_subscriptions(self) -> tuple[Subscription, ...]:
        """Plans that sell access rather than machines (Colab)."""


class ExactSizer(Protocol):
    """Something that can run a training step without a GPU and say what it held."""

    def measure_step(self, config: Table, job: Job) -> ExactMemory:
        """The memory of `job` on the model of `config` (a parsed config.json); InputError where it cannot be run."""


class Ledger(Protocol):
    """Where polls become spans."""

    def record_polls(self, polls: Sequence[Poll]) -> Sequence[AccrualResult]:
        """Write what `polls` change, all or nothing; acknowledged when it returns."""

    def find_suspects(self, poll: Poll) -> Sequence[ResourceKey]:
        """What `poll` lacks and should be looked up one by one before its absence is believed."""

    def list_scopes_of(self, provider: str) -> Sequence[ScopeKey]:
        """Every scope of `provider` that was ever polled."""

    def record_samples(self, samples: Sequence[Sample]) -> frozenset[ResourceKey]:
        """Keep `samples`; the resources that the ledger does not know, whose samples it left out."""


class Books(Protocol):
    """What the ledger answers."""

    def load_spending(self, period: Period, as_of: datetime) -> list[Spending]:
        """Sums of `period` as known at `as_of`."""

    def load_live(self, as_of: datetime) -> list[LiveResource]:
        """Every resource that is not known to have ended."""

    def list_scopes(self) -> list[ScopeCoverage]:
        """How well each scope is seen."""

    def load_stretches(self, period: Period) -> list[PollStretch]:
        """The polls of `period`, in a row with one outcome, of each scope; those that reach over its edges whole."""


class BillBook(Protocol):
    """Bills as they were taken in."""

    def load_statements(self, provider: str, period: Period) -> tuple[dict[str, ProviderBill], list[ProviderBill]]:
        """By account the statement that counts in `period`, and those that are set aside."""

    def load_billed_lines(self, provider: str, one: ProviderBill, period: Period, fine_us: int) -> list[BilledLines]:
        """The lines of a statement that lie whole in `period`, by resource, kind of charge and cell.

        Cells are numbers of hours since 1970: of each hour from `fine_us` on, before that of the first hour of each day.
        """

    def count_straddling(self, provider: str, one: ProviderBill, period: Period) -> int:
        """How many lines reach over an edge of `period`."""

    def load_known_resources(self, provider: str) -> dict[tuple[str, str], int]:
        """(account, id) of all that costguard ever saw there, and in which hour since 1970 it did so first.

        -1 where its provider states since when it is there.
        """

    def list_accounts_of(self, provider: str) -> list[str]:
        """The accounts that were ever polled."""


class ChargeBook(Protocol):
    """Charges, item by item."""

    def items(self, period: Period, as_of: datetime) -> Iterable[ChargeItem]:
        """What was charged in `period`, as known at `as_of`."""


class Accounts(Books, Protocol):
    """The books, resource by resource. A resource goes by a number that means nothing elsewhere."""

    def read_one_snapshot(self) -> AbstractContextManager[object]:
        """Within it every answer is of one state of the ledger."""

    def load_costs(self, period: Period, as_of: datetime) -> list[ResourceCost]:
        """What each line of each resource came to in `period`."""

    def load_burning(self, as_of: datetime) -> list[tuple[tuple[Span, ...], tuple[Span, ...], bool]]:
        """What bills at `as_of`, resource by resource: open spans, what may bill beside them, and whether listings lack it."""

    def load_billed_resources(self, numbers: Collection[int], *, labels: Collection[str] = ()) -> dict[int, BilledResource]:
        """Those resources, as they were last seen; with all their labels where they carry any of `labels`."""

    def load_lines(
        self, numbers: Collection[int], period: Period, as_of: datetime
    ) -> Iterator[tuple[int, list[tuple[Span, KnownUntil | None]]]]:
        """What each of them billed in `period`, an open span with how far it is known to reach."""

    def load_sampled_hours(self, numbers: Collection[int], period: Period) -> dict[int, dict[str, list[SampledHour]]]:
        """Of each of them the hours that begin in `period` and hold samples, by signal; who has none is left out."""

    def load_daily_costs(self, period: Period, as_of: datetime, by: str) -> Iterable[DailyCost]:
        """What `period` was expected to cost in dollars, by day and the key `by`; the days add up to it."""

    def load_rate_changes(self, period: Period, as_of: datetime) -> dict[int, HourlyRateChanges]:
        """What began and ended to burn in each hour of `period`."""

    def load_actions(self, since: datetime, until: datetime) -> list[ConfirmedAction]:
        """The acts that were confirmed within [since, until), with what each machine billed around them."""

    def load_reconciliations(self, period: Period) -> list[ReconciliationRecord]:
        """How bills were held against the charges of `period` last."""

    def load_committed_holds(self, period: Period) -> list[Hold]:
        """The runs admitted with money set aside that ended in `period`."""
