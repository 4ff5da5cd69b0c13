"""What the guard asks of its book, and what sends messages: the ports of the room that acts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from costguard.services.accounts import Books

if TYPE_CHECKING:  # types and no more
    from costguard.budgets.budget import Budget
    from costguard.budgets.budget_status import Admission
    from costguard.budgets.hold import Hold
    from costguard.guard.action_intents import Intent
    from costguard.guard.alerts.alert import AlertState, DeliveryResult, Notification
    from costguard.guard.evidence import SampleColumns
    from costguard.guard.hook import HookEnd, HookRun
    from costguard.guard.overrides import Override
    from costguard.guard.run import ConfirmedAct, DepartureEvidence, FirstSighting, GuardRun, ProtectionSighting
    from costguard.guard.verdict import EscalationState
    from costguard.values.money import Money
    from costguard.values.resource import ResourceKey
    from costguard.values.sample import Sample


class Wishes(Protocol):
    """What people told the guard, as recorded."""

    def load_open_overrides(self, now: datetime) -> list[Override]:
        """Those that count at `now`, the oldest first."""

    def add_override(self, wish: Override) -> None:
        """Record a wish; one with this id that is there already stays as it is."""

    def lift_override(self, wish_id: str, *, who: str, now: datetime) -> Override:
        """Take a wish back, and say what it is now; InputError where there is none. One that was lifted stays as it is."""


class Intents(Protocol):
    """Intents as recorded: each state committed before what it allows is done."""

    def plan_intent(self, intent: Intent) -> bool:
        """Record a new one; False where an open one for the same life and act is there already, or `epoch` acts no more."""

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
        """Why the ledger is not the one that was seen last, or an older copy of it; "" where it is."""

    def advance(self) -> None:
        """Take down how far it is committed now."""


class Notifier(Protocol):
    """One channel. Retrying, grouping and repeats are the outbox's business."""

    def __call__(self, message: Notification) -> DeliveryResult:
        """Send `message` once. It raises nothing: what came of it is in the Delivery."""
