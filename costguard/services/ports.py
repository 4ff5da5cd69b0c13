"""What services ask of the ledger, of notifiers and of signatures, where tests or several rooms implement it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # types and no more: a quote that needs none of them does not pay for importing them
    from costguard.guard.action_intents import Intent
    from costguard.guard.alerts.alert import DeliveryResult, NoticeDelivery, Notification
    from costguard.guard.context import ConfirmedAct, FirstSighting, GuardRun, ProtectionSighting
    from costguard.guard.escalation import HookRun
    from costguard.guard.overrides import Override
    from costguard.guard.policy import EscalationState
    from costguard.guard.signals import SampleColumns
    from costguard.metering.inventory import Poll
    from costguard.metering.scope_state import AccrualResult
    from costguard.metering.spending import LiveResource, PollStretch, ScopeCoverage, Spending
    from costguard.quoting.offer import Offer, OfferSelection
    from costguard.sizing.exact_memory import ExactMemory
    from costguard.sizing.job import Job, Table
    from costguard.values.calendar import Period
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

    def load_deliveries(self, since: datetime) -> Mapping[tuple[str, str], tuple[NoticeDelivery, ...]]:
        """The notices about policies that were delivered at or after `since`, by topic and subject."""

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


class Notifier(Protocol):
    """One channel. Retrying, grouping and repeats are the outbox's business."""

    def __call__(self, message: Notification) -> DeliveryResult:
        """Send `message` once. It raises nothing: what came of it is in the Delivery."""


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
