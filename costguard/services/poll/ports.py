"""Ports of the services to the ledger, notifiers and signatures, where tests or several packages implement them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # types and no more: a quote that needs none of them does not pay for importing them
    from costguard.budgets.spend_forecast import Part, PastHours
    from costguard.guard.action_intents import Intent
    from costguard.guard.alerts.alert import DeliveryResult, NoticeDelivery, Notification
    from costguard.guard.escalation import HookRun
    from costguard.guard.overrides import Override
    from costguard.guard.policy import EscalationState
    from costguard.guard.run_facts import ConfirmedAct, FirstSighting, GuardRun, ProtectionSighting, Restart
    from costguard.guard.signals import SampleColumns
    from costguard.metering.inventory import Poll
    from costguard.metering.scope_state import AccrualResult
    from costguard.metering.spending import LiveResource, PollStretch, ScopeCoverage, Spending
    from costguard.quoting.offer import Offer, OfferSelection
    from costguard.quoting.price_drift import Judgement, Vintage
    from costguard.sizing.exact_memory import ExactMemory
    from costguard.sizing.job import Job, Table
    from costguard.values.calendar import Period
    from costguard.values.resource import ResourceKey, ScopeKey
    from costguard.values.sample import Sample


class OfferSource(Protocol):
    """A source of offers with prices and their age."""

    def list_classes(self, selection: OfferSelection) -> list[tuple[str, int]]:
        """Return (canonical GPU, GPUs an instance) of every selected offer, without duplicates."""

    def find_best(
        self, gpu: str, gpu_count: int, selection: OfferSelection, judge: Callable[[Vintage], Judgement]
    ) -> list[Offer]:
        """Return the offers of one class that are likely to be the cheapest today, of each provider and tier.

        `judge` says what the prices of a vintage are worth today. Of each provider and tier there is the cheapest fresh offer,
        the cheapest that is old, and the cheapest that must not be ranked.
        """

    def list_offers(self, selection: OfferSelection, *, sort: str, limit: int | None) -> Iterator[Offer]:
        """Yield selected offers; those of unknown price come last."""


class ExactSizer(Protocol):
    """Runs a training step without a GPU and measures its memory."""

    def measure_step(self, config: Table, job: Job) -> ExactMemory:
        """Return the memory of `job` on the model of `config` (a parsed config.json); raise InputError if it cannot run."""


class Ledger(Protocol):
    """Records polls as spans."""

    def record_polls(self, polls: Sequence[Poll]) -> Sequence[AccrualResult]:
        """Write the changes of `polls` in one transaction; they are durable when it returns."""

    def find_suspects(self, poll: Poll) -> Sequence[ResourceKey]:
        """Return the resources that `poll` lacks and that must be looked up one by one before they count as absent."""

    def list_scopes_of(self, provider: str) -> Sequence[ScopeKey]:
        """Return every scope of `provider` that was ever polled."""

    def record_samples(self, samples: Sequence[Sample]) -> frozenset[ResourceKey]:
        """Store `samples`; return the resources unknown to the ledger, whose samples are dropped."""


class Books(Protocol):
    """Reads costs and resources from the ledger."""

    def load_spending(self, period: Period, as_of: datetime) -> list[Spending]:
        """Return the sums of `period` as known at `as_of`."""

    def load_past_hours(self, at: datetime, parts: Collection[Part]) -> dict[Part, PastHours]:
        """Return what closed spans cost in the whole hours before `at`, for each filter and currency of `parts`."""

    def load_live(self, as_of: datetime) -> list[LiveResource]:
        """Return every resource that is not known to have ended."""

    def list_scopes(self) -> list[ScopeCoverage]:
        """Return the coverage of each scope."""

    def load_stretches(self, period: Period) -> list[PollStretch]:
        """Return the poll stretches (consecutive polls with one outcome) of each scope in `period`, unclipped at its edges."""


class Intents(Protocol):
    """Recorded intents: each state is committed before the step that it allows."""

    def plan_intent(self, intent: Intent) -> bool:
        """Record a new intent; return False if an open one for the same incarnation and act exists, or `epoch` has ended."""

    def move_intent(
        self,
        intent: Intent,
        state: str,
        now: datetime,
        *,
        run: str = "",
        fleet: int | None = None,
        unsent: Intent | None = None,
        **changes: Any,  # noqa: ANN401 - fields of an Intent
    ) -> Intent | None:
        """Move `intent` from its present state to `state`, with `changes` of its other fields, and commit.

        `unsent`: the intent before it became EXECUTING, where nothing was sent since: that send is taken back.

        Returns None, and changes nothing, if it is no longer in that state (another process moved it), or if EXECUTING is
        requested and `epoch` no longer acts or the limits, read in the same transaction, are reached. Raises InputError for a
        move that TRANSITIONS does not allow, and LedgerError if it cannot be written; then nothing may be sent.
        """

    def load_open_intents(self) -> list[Intent]:
        """Return all open ones, the oldest first."""

    def load_sends_since(self, at: datetime) -> list[Intent]:
        """Return all for which a request may have been sent at or after `at`, by `sent_at`, the oldest first."""


class GuardRecords(Protocol):
    """Reads the overrides of people and the records of guard runs."""

    def load_open_overrides(self, now: datetime) -> list[Override]:
        """Return those in force at `now`, the oldest first."""

    def load_overrides_since(self, at: datetime) -> list[Override]:
        """Return every override made at or after `at`, lifted and expired ones included."""

    def load_open_intents(self) -> list[Intent]:
        """Return all open ones, the oldest first."""

    def load_intents_since(self, at: datetime) -> list[Intent]:
        """Return all that were created or moved at or after `at`."""

    def load_sends_since(self, at: datetime) -> list[Intent]:
        """Return all for which a request may have been sent at or after `at`, by `sent_at`, the oldest first."""

    def load_hook_runs(self, since: datetime) -> list[HookRun]:
        """Return those that have not ended, and all begun at or after `since`, the oldest first."""

    def load_last_run(self) -> GuardRun | None:
        """Return the newest run; None before the first one."""

    def load_escalations(self) -> list[EscalationState]:
        """Return every escalation state."""

    def load_deliveries(self, since: datetime) -> Mapping[tuple[str, str], tuple[NoticeDelivery, ...]]:
        """Return the policy alerts delivered at or after `since`, by topic and subject."""

    def load_protections(self) -> Mapping[ResourceKey, ProtectionSighting]:
        """Return when each resource was last seen protected."""

    def load_start_history(
        self, key: ResourceKey, since: datetime
    ) -> tuple[list[Intent], datetime | None, Mapping[str, Sequence[tuple[datetime, str, str]]]]:
        """Return the intents on `key` since `since`, the oldest first, when it was last listed as at work (None: never), and

        when each of its confirmed stops went to which state, and why.
        """

    def load_reactions(self, since: datetime) -> list[ConfirmedAct]:
        """Return the acts confirmed at or after `since`."""

    def load_restarts(self, since: datetime) -> list[Restart]:
        """Return the machines that ran again within the hour after an idle stop sent at or after `since`."""

    def load_columns_since(
        self, at: datetime, keys: Collection[ResourceKey] | None = None
    ) -> Mapping[ResourceKey, SampleColumns]:
        """Return the samples at or after `at` of `keys` (None: of all), in columns, as the guard uses them for a fleet."""

    def load_first_polls(self, keys: Collection[ResourceKey] | None = None) -> Mapping[ResourceKey, FirstSighting]:
        """Return since when, and for how many complete listings of its scope, each of `keys` (None: all) is known."""


class Notifier(Protocol):
    """One channel. Retries, grouping and repeats are done by the outbox."""

    def __call__(self, message: Notification) -> DeliveryResult:
        """Send `message` once. Raises nothing: the outcome is in the DeliveryResult."""


class Seal(Protocol):
    """Signs answers with the watchdog's key, and verifies signatures of others. Keys and signatures are base64."""

    @property
    def public_key(self) -> str:
        """Return the public key with which agents verify our answers."""

    def sign(self, message: bytes) -> str:
        """Return our signature of `message`."""

    def is_key(self, public_key: str) -> bool:
        """Return whether it is a valid public key."""

    def verify(self, public_key: str, message: bytes, signature: str) -> bool:
        """Return whether `signature` of `message` was made with the private key of `public_key`."""
