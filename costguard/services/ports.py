"""What services ask of the ledger, of notifiers and of signatures, where tests or several rooms implement it."""

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
    from costguard.sizing.speed.duration import Efficiency, InterruptionRate
    from costguard.values.calendar import Period
    from costguard.values.gpu import Gpu
    from costguard.values.resource import ResourceKey, ScopeKey
    from costguard.values.sample import Sample
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # types and no more
    from costguard.budgets.budget import Budget
    from costguard.budgets.budget_status import Admission
    from costguard.budgets.hold import Hold
    from costguard.guard.action_intents import Intent
    from costguard.guard.alerts.alert import AlertState, DeliveryResult, Notification
    from costguard.guard.context import ConfirmedAct, DepartureEvidence, FirstSighting, GuardRun, ProtectionSighting
    from costguard.guard.escalation import HookEnd, HookRun
    from costguard.guard.overrides import Override
    from costguard.guard.policy import EscalationState
    from costguard.guard.signals import SampleColumns
    from costguard.values.money import Money
    from costguard.values.resource import ResourceKey
    from costguard.values.sample import Sample
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # types and no more
    from costguard.guard.overrides import Override
    from costguard.guard.replay.history import ResourceHistory
    from costguard.metering.spending import PollStretch
    from costguard.values.calendar import Period
    from costguard.values.resource import ResourceKey, ScopeKey
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # types and no more
    from costguard.guard.overrides import Override
    from costguard.values.agent import Agent, WebToken
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
        """How bills were compared with the charges of `period` last."""

    def load_committed_holds(self, period: Period) -> list[Hold]:
        """The runs admitted with money set aside that ended in `period`."""


class Wishes(Protocol):
    """What people told the guard, as recorded."""

    def load_open_overrides(self, now: datetime) -> list[Override]:
        """Those that count at `now`, the oldest first."""

    def add_override(self, wish: Override) -> None:
        """Record a wish; one with this id that already exists stays as it is."""

    def lift_override(self, wish_id: str, *, who: str, now: datetime) -> Override:
        """Take a wish back, and say what it is now; InputError where there is none. One that was lifted stays as it is."""


class Intents(Protocol):
    """Intents as recorded: each state committed before what it allows is done."""

    def plan_intent(self, intent: Intent) -> bool:
        """Record a new one; False where an open one for the same life and act already exists, or `epoch` acts no more."""

    def move_intent(
        self,
        intent: Intent,
        state: str,
        now: datetime,
        *,
        run: str = "",
        fleet: int | None = None,
        **changes: Any,  # noqa: ANN401 - fields of an Intent
    ) -> Intent | None:
        """Move `intent` from the state it carries to `state`, with `changes` of its other fields, and commit.

        None where it is not in that state any more (another process moved it), or where EXECUTING is asked for and `epoch`
        acts no more or the rails, read in the same transaction, have no room: nothing is changed then. InputError for a move
        that MOVES does not know; LedgerError where it cannot be written, and then nothing may be sent.
        """

    def load_open_intents(self) -> list[Intent]:
        """All that are open, the oldest first."""

    def load_sends_since(self, at: datetime) -> list[Intent]:
        """All for which a request may have gone out at or after `at`, by `sent_at`, the oldest first."""


class Holds(Protocol):
    """Where money is set aside."""

    def take(self, hold: Hold, budgets: Iterable[Budget], now: datetime) -> Admission:
        """Set `hold` aside if each of `budgets` that it counts in has that much left; a refused one writes nothing."""


class HoldBook(Holds, Protocol):
    """Where money is set aside, and what became of it is said."""

    def release(self, hold_id: str, now: datetime) -> Hold:
        """End a hold whose run will not be; InputError where there is none, or it was committed."""

    def commit(self, hold_id: str, spent: Money | None, now: datetime) -> Hold:
        """End a hold whose run is over. `spent`: what it came to, if known. InputError where there is none."""


class RunWishes(Wishes, Protocol):
    """Wishes, and those that were made before."""

    def load_overrides_since(self, at: datetime) -> list[Override]:
        """Every wish made at or after `at`, whatever became of it."""


class Payments(Protocol):
    """What conditions ask of the ledger about each resource, for the whole fleet at once."""

    def load_paid_since(
        self, since: Mapping[str, datetime | None], as_of: datetime
    ) -> Mapping[ResourceKey, Mapping[str, Money]]:
        """What each that lives surely cost from each instant of `since` on (None: its run's start), by the names of `since`.

        Missing where nothing of it billed at a stated price, where it billed in several currencies, or nobody knows its start.
        """

    def load_stopped_since(self) -> Mapping[ResourceKey, datetime]:
        """Since when each that is stopped has been seen so."""


class GuardBooks(Books, Payments, Protocol):
    """What the ledger answers a guard run."""


class HookRuns(Protocol):
    """Runs of hooks as recorded: each committed before it begins."""

    def begin_hook(self, run: HookRun, now: datetime) -> bool:
        """Record that `run` is about to begin; False, and it must not, where it may not.

        Its epoch acts no more, somebody wishes otherwise, or a run of its life and step has not ended.
        """

    def end_hook(self, run_id: str, end: HookEnd, now: datetime) -> bool:
        """Record how a run ended; False where its end is known already."""

    def load_hook_runs(self, since: datetime) -> list[HookRun]:
        """Those that have not ended, and all that were begun at or after `since`, the oldest first."""


class GuardRecords(Protocol):
    """What the guard knows beside what polls wrote, to be read: what people wished, and what its runs left."""

    def load_open_overrides(self, now: datetime) -> list[Override]:
        """Those that count at `now`, the oldest first."""

    def load_overrides_since(self, at: datetime) -> list[Override]:
        """Every wish made at or after `at`, whatever became of it."""

    def load_open_intents(self) -> list[Intent]:
        """All that are open, the oldest first."""

    def load_intents_since(self, at: datetime) -> list[Intent]:
        """All that were made or moved at or after `at`."""

    def load_sends_since(self, at: datetime) -> list[Intent]:
        """All for which a request may have gone out at or after `at`, by `sent_at`, the oldest first."""

    def load_hook_runs(self, since: datetime) -> list[HookRun]:
        """Those that have not ended, and all that were begun at or after `since`, the oldest first."""

    def load_last_run(self) -> GuardRun | None:
        """The newest run; None before the first one."""

    def load_escalations(self) -> list[EscalationState]:
        """Every climb."""

    def load_protections(self) -> Mapping[ResourceKey, ProtectionSighting]:
        """When each resource was last seen protected."""

    def load_reactions(self, since: datetime) -> list[ConfirmedAct]:
        """The acts that were confirmed at or after `since`."""

    def load_columns_since(
        self, at: datetime, keys: Collection[ResourceKey] | None = None
    ) -> Mapping[ResourceKey, SampleColumns]:
        """The samples at or after `at` of `keys` (None: of all), in columns, which is how the guard takes those of a fleet."""

    def load_first_polls(self, keys: Collection[ResourceKey] | None = None) -> Mapping[ResourceKey, FirstSighting]:
        """Since when, and through how many complete listings of its scope, each of `keys` (None: all) is known."""


class GuardBook(GuardRecords, Wishes, Intents, HookRuns, Protocol):
    """All that the guard reads and writes beside what polls wrote."""

    def acquire_leader_lease(self, holder: str, now: datetime, lasts: timedelta) -> int | None:
        """The epoch of the turn that `holder` has until `now + lasts`; None while another one has it."""

    def record_run(
        self,
        run: GuardRun,
        *,
        climbs: Iterable[EscalationState] | None = None,
        told: Iterable[AlertState] | None = None,
        messages: Iterable[Notification] = (),
        protections: Iterable[ProtectionSighting] = (),
    ) -> bool:
        """Write a run with all that it leaves, in one transaction; False, and nothing written, where it lost its turn."""

    def load_alert_states(self) -> list[AlertState]:
        """What was told, as the last run handed it over."""

    def load_samples_since(
        self, at: datetime, keys: Collection[ResourceKey] | None = None
    ) -> Mapping[ResourceKey, Sequence[Sample]]:
        """The samples at or after `at` of `keys` (None: of all), by signal and time."""

    def load_departure(self, key: ResourceKey, since: datetime) -> DepartureEvidence:
        """What is known of the end of `key`: as it was listed, or how many complete listings, from `since` on, lack it."""


class LedgerMark(Protocol):
    """What was last seen of the ledger, kept outside of it."""

    def describe_doubt(self) -> str:
        """Why the ledger is not the one used last, or an older copy of it; "" where it is."""

    def advance(self) -> None:
        """Take down how far it is committed now."""


class Notifier(Protocol):
    """One channel. Retrying, grouping and repeats are the outbox's business."""

    def __call__(self, message: Notification) -> DeliveryResult:
        """Send `message` once. It raises nothing: what came of it is in the Delivery."""


class Records(Protocol):
    """The ledger as it was at one instant. Nothing is written."""

    def load_stretches(self) -> Mapping[ScopeKey, Sequence[PollStretch]]:
        """How each scope was seen, in order of time."""

    def load_overrides(self) -> list[Override]:
        """All that were ever recorded, whatever became of them."""

    def load_resources(self, period: Period) -> list[ResourceKey]:
        """Those that anything is known of in `period`, in order."""

    def load_history(self, key: ResourceKey, period: Period, interval: timedelta, *, measured: bool = True) -> ResourceHistory:
        """One of them: all that was said of it, what it billed, and (`measured`) its samples as far back as a run looks."""


class Seal(Protocol):
    """Signs answers with the watchdog's key, and knows the signatures of others. Keys and signatures are base64."""

    @property
    def public_key(self) -> str:
        """What agents know our answers by."""

    def sign(self, message: bytes) -> str:
        """Our signature of `message`."""

    def is_key(self, public_key: str) -> bool:
        """Whether it is the public half of a key."""

    def verify(self, public_key: str, message: bytes, signature: str) -> bool:
        """Whether `signature` of `message` was made with the secret half of `public_key`."""


class AgentPage(Protocol):
    """A write transaction under way: all of it is on the disk when it ends, or none."""

    def accept_message(  # noqa: PLR0917 - the parts of a message, in their order
        self, agent: str, seq: int, at: datetime, record_ms: int, version: str, troubles: tuple[str, ...]
    ) -> bool:
        """Count a message; False, and nothing changed, where its number does not rise or its agent may not speak any more."""

    def load_agent(self, agent_id: str) -> Agent | None:
        """As it stands in this transaction."""

    def record_samples(self, samples: Sequence[Sample]) -> None:
        """Keep samples of resources that the ledger knows."""

    def load_overrides_since(self, at: datetime) -> list[Override]:
        """Every wish made at or after `at`, whatever became of it."""

    def add_override(self, wish: Override) -> None:
        """Record a wish; one with this id that already exists stays as it is."""

    def log_refusals(self, agent: Agent, count: int, at: datetime) -> None:
        """Note in the audit that so many messages in the name of `agent` had an invalid signature."""


class AgentBook(Protocol):
    """Who may speak. What cannot be read or written raises LedgerError."""

    def begin_transaction(self) -> AbstractContextManager[AgentPage]:
        """One transaction, of one thread at a time."""

    def load_agents(self, *, every: bool = False) -> list[Agent]:
        """Those that may speak; `every`: and those that may not any more."""

    def load_agent(self, agent_id: str) -> Agent | None:
        """The agent of this id, revoked or not; None where there is none."""

    def join(self, code_hash: str, made: Agent) -> Agent | str:
        """Let `made` join by the code of this hash: the agent as it is then, or what refuses it, of `REFUSALS`."""

    def load_token(self, token_hash: str) -> WebToken | None:
        """The token of this hash; None where there is none."""
