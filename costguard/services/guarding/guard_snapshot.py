"""The guard's snapshot of one moment, built in this one place for `watch`, `plan` and `status`.

    earlier runs -> live resources -> budgets -> facts that conditions ask for -> samples, overrides, intents

Example: AWS publishes its measurements ten minutes late. A command without these lags would miss the two newest samples of each
machine and call it unknown, while the others call it idle. `simulate` has no ledger of the replayed moment:
`guard.replay.history` fills each field from the records.

Samples of the last 48 hours are kept in memory as columns, so that a resident process reads only new ones (decision 0024); the
last stretch is read again, for samples that came late (`MEASURE_LOOKBACK`). A guard run stores two facts as text: the breaker,
and the idle cost at an act.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from costguard.budgets.hold import Hold
from costguard.guard.action_intents import EXECUTING, STARTABLE_STATES, UNCONFIRMED, VERIFYING, Intent
from costguard.guard.alerts.held import name_act
from costguard.guard.alerts.rules import ActCost
from costguard.guard.alerts.starts import StartCost
from costguard.guard.context import GuardConfig, GuardSnapshot, apply_handling
from costguard.guard.limits import Breaker, explain_gap_doubt
from costguard.guard.overrides import Override
from costguard.guard.policy import DESTRUCTIVE, START, STOP, Proposal
from costguard.guard.policy_evaluation import (
    LOOKED_UP_FACTS,
    NO_COST_FACTS,
    RUNWAY,
    STOPPED_FOR,
    CostFacts,
    compute_runways,
    find_spending_starts,
)
from costguard.guard.run_facts import UNDONE_COUNTS_FOR, GuardRun, StartHistory, StopFacts
from costguard.guard.signals import HUNG, SAMPLE_LOOKBACK, SampleColumns
from costguard.metering.spending import LiveResource
from costguard.services.guarding.guard_inputs import PollResults
from costguard.services.guarding.status import list_planned_stops, load_budget_statuses
from costguard.services.poll.ports import GuardRecords
from costguard.values.instant import to_micros
from costguard.values.money import Money, PrepaidBalance, Rate
from costguard.values.provider import ACCEPTED, ALREADY, MISSING, REFUSED, UNCLEAR
from costguard.values.resource import ResourceKey

if TYPE_CHECKING:  # types and no more
    from costguard.ledger.spans.books import SpendingReader

DAY = timedelta(days=1)
HOOK_RUNS_BACK, REACTIONS_BACK = 2 * DAY, 30 * DAY
"""How long a hook that ended is looked at, and for how long a measured time of a stop says how long the next one takes."""

BREAKS_BACK, BREAKS_MAX, BREAKS_TOLD = timedelta(hours=4), 4, 2
"""How long starts and gaps are remembered, how many of them, and after how many people are told of no other one by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousRuns:
    """What earlier guard runs imply for one at this moment.

    `facts`: to be recorded with this run. `gap`: why a run now may only observe; "" if it may act. `gap_ended_at`: samples
    before it no longer count; None: all count. `apart`: see GuardSnapshot. `breaker`: as the last run left it; None: closed.
    `breaks`: when a process started or a gap ended, the last BREAKS_MAX within BREAKS_BACK, this run's included.
    `last_run_at`: of the newest run.
    """

    facts: Mapping[str, str]
    gap: str
    gap_ended_at: datetime | None
    apart: timedelta | None
    gap_began_at: datetime | None
    breaker: Breaker | None
    breaks: tuple[datetime, ...]
    last_run_at: datetime | None


def read_previous_runs(
    last: GuardRun | None, rules: GuardConfig, now: datetime, *, guarded_until: datetime | None, starts: int | None = None
) -> PreviousRuns:
    """Derive this from the newest run. `guarded_until`: until when the fleet was guarded; None: never.

    `starts`: processes that began since then; 0: the last one goes on; None: each run is started by itself, as by a timer.
    """
    facts = dict(last.facts) if last else {}
    gap = explain_gap_doubt(guarded_until, rules.interval, rules.rails, now)
    gap_ended_at = now if gap and last else decode_instant(facts.get("gap_ended_at"))
    if gap_ended_at:
        facts["gap_ended_at"] = gap_ended_at.isoformat()
    old_breaks = (datetime.fromisoformat(at) for at in facts.get("breaks", "").split())
    fresh = [now] * max(starts, bool(gap)) if starts is not None else []
    breaks = [*(at for at in old_breaks if now - BREAKS_BACK < at <= now), *fresh][-BREAKS_MAX:]
    facts["breaks"] = " ".join(at.isoformat() for at in breaks)
    again = last if gap and last and last.at < now and any(note.startswith("gap: ") for note in last.notes) else None
    return PreviousRuns(
        facts=facts,
        gap=gap,
        gap_ended_at=gap_ended_at,
        apart=now - again.at if again else None,
        gap_began_at=guarded_until
        if gap and last and guarded_until is not None and guarded_until < now and not again and len(breaks) <= BREAKS_TOLD
        else None,
        breaker=decode_breaker(facts.get("breaker")),
        breaks=tuple(breaks),
        last_run_at=last.at if last else None,
    )


def build_guard_snapshot(
    *,
    now: datetime,
    rules: GuardConfig,
    books: SpendingReader,
    records: GuardRecords,
    latest: PollResults,
    holds: Sequence[Hold],
    overrides: tuple[Override, ...],
    previous: PreviousRuns,
    standing_holds: tuple[tuple[str, str], ...],
    lookback: SampleWindow,
) -> GuardSnapshot:
    """Build the snapshot at `now`, the same for every command.

    `books`: resources and costs. `records`: guard runs and overrides. `latest`: what the ledger does not store. `overrides`:
    as `load_recent_overrides` reads them, with those that a plan assumes. `previous`: from `read_previous_runs`.
    `standing_holds`: what holds every act of this run, by reason. `lookback`: reads the samples.
    """
    live = tuple(apply_handling(one, latest.handling) for one in books.load_live(now))
    climbs = tuple(records.load_escalations())
    sent = records.load_sends_since(now - DAY)
    return GuardSnapshot(
        now=now,
        live=live,
        standings=load_budget_statuses(
            books=books,
            budgets=rules.budgets,
            holds=holds,
            live=live,
            now=now,
            ends=list_planned_stops(live, overrides, now),
        ),
        samples=lookback.read(records, now),
        known=records.load_first_polls([one.observation.key for one in live]),
        protections=records.load_protections(),
        wishes=overrides,
        climbs=climbs,
        intents=load_recent_intents(records, now),
        sent=tuple(one for one in sent if one.act != START),
        hooks=tuple(records.load_hook_runs(now - HOOK_RUNS_BACK)),
        reactions=tuple(records.load_reactions(now - REACTIONS_BACK)),
        lags=latest.lags,
        balances=latest.balances,
        members=latest.members,
        agents=latest.agents,
        asked=load_cost_facts(rules, books, live, latest.balances, now),
        gap_ended_at=previous.gap_ended_at,
        apart=previous.apart,
        gap_began_at=previous.gap_began_at,
        breaker=previous.breaker,
        held=standing_holds,
        deliveries=records.load_deliveries(min((one.started_at for one in climbs), default=now)),
        start_histories=load_start_histories(records, rules, live, now),
        started=tuple(one for one in sent if one.act == START),
        restarts=tuple(records.load_restarts(now - UNDONE_COUNTS_FOR)),
        last_run_at=previous.last_run_at,
        ready_since=decode_ready_acts(previous.facts.get(READY_FACT)),
        raised=books.list_raised_prices(live) if any(one.hard for one in rules.budgets) else frozenset(),
    )


def reload_intents(snapshot: GuardSnapshot, records: GuardRecords, rules: GuardConfig) -> GuardSnapshot:
    """Return `snapshot` with the intents that the ledger has now, and the start histories that are made of them."""
    intents = load_recent_intents(records, snapshot.now)
    return replace(snapshot, intents=intents, start_histories=load_start_histories(records, rules, snapshot.live, snapshot.now))


START_HISTORY_BACK = timedelta(days=12)
"""Longer than the off period of a schedule whose end is known (`DAYS_AROUND`)."""


def load_start_histories(
    records: GuardRecords, rules: GuardConfig, live: Iterable[LiveResource], now: datetime
) -> dict[ResourceKey, StartHistory]:
    """Load what is known of the stopped machines of `live`; nothing where no policy starts any."""
    if not any(policy.start for policy in rules.policies):
        return {}
    keys = [one.observation.key for one in live if one.observation.state in STARTABLE_STATES and one.absent_at is None]
    return {key: load_start_history(records, key, now) for key in keys}


def load_start_history(records: GuardRecords, key: ResourceKey, now: datetime) -> StartHistory:
    """Load what is known of one stopped machine."""
    intents, awake_at, moves = records.load_start_history(key, now - START_HISTORY_BACK)
    facts = {one.id: decode_stop_facts(one, moves.get(one.id, ())) for one in intents if one.act == STOP}
    return StartHistory(intents=tuple(intents), facts=facts, awake_at=awake_at)


def decode_stop_facts(intent: Intent, moves: Sequence[tuple[datetime, str, str]] = ()) -> StopFacts:
    """Return what the evidence of a stop says of its machine; empty texts where an older version wrote it.

    `moves`: when it went to which state and why, in order.
    """
    evidence = json.loads(intent.evidence or "{}")
    saves = evidence.get("saves")
    return StopFacts(
        meaning=evidence.get("meaning", ""),
        instance_type=evidence.get("type", ""),
        price=Rate(nano_per_hour=saves["nano"], currency=saves["currency"]) if saves else None,
        asked_at=next((at for at, state, _ in moves if state == EXECUTING), None),
        unproven=_explain_unproven_stop(moves),
    )


def _explain_unproven_stop(moves: Sequence[tuple[datetime, str, str]]) -> str:
    """Explain why a stop may not be what stopped the machine; "" if its provider accepted it, and it was confirmed in time."""
    answers = [why.split(":")[0] for _, state, why in moves if state == VERIFYING]
    other = next((word for word in answers if word in (ALREADY, UNCLEAR, REFUSED, MISSING)), "")
    if other or ACCEPTED not in answers:
        return f"its provider answered {other or 'without a clear result'}"
    if any(state == UNCONFIRMED for _, state, _ in moves):
        return "it was not confirmed in time"
    return ""


OVERRIDES_BACK = timedelta(days=100)
"""Longer than an arming lasts."""


def load_cost_facts(
    rules: GuardConfig, books: SpendingReader, live: Sequence[LiveResource], balances: Iterable[PrepaidBalance], now: datetime
) -> CostFacts:
    """Load the ledger facts that conditions of `rules` use, for `live`."""
    names = frozenset[str]().union(*(policy.when.names for policy in rules.policies)) & LOOKED_UP_FACTS
    if not names:
        return NO_COST_FACTS
    starts = find_spending_starts(names, rules.zone, now)
    return CostFacts(
        paid=books.load_paid_since(starts, now) if starts else {},
        stopped_since=books.load_stopped_since() if STOPPED_FOR in names else {},
        runways=compute_runways(balances, live, now) if RUNWAY in names else {},
    )


def load_recent_overrides(book: GuardRecords, now: datetime) -> tuple[Override, ...]:
    """Load overrides in force, and recently ended ones, because the end of a lease restarts the windows."""
    overrides = {one.id: one for one in (*book.load_open_overrides(now), *book.load_overrides_since(now - OVERRIDES_BACK))}
    return tuple(sorted(overrides.values(), key=lambda one: (one.at, one.id)))


def load_recent_intents(book: GuardRecords, now: datetime) -> tuple[Intent, ...]:
    """Load open intents, and those that ended within a day."""
    intents = {one.id: one for one in (*book.load_open_intents(), *book.load_intents_since(now - DAY))}
    return tuple(sorted(intents.values(), key=lambda one: (one.created_at, one.id)))


REREAD_SPAN = timedelta(hours=1)
"""Read anew in each run: longer than any sample is late."""
FULL_READ_EVERY = timedelta(hours=6)
"""How often all is read anew, whatever came late or was taken out."""


class SampleBook(Protocol):
    """Reads samples."""

    def load_columns_since(self, at: datetime) -> Mapping[ResourceKey, SampleColumns]:
        """Return the samples at or after `at`, in columns."""


@dataclass(slots=True)
class SampleWindow:
    """The samples that this process has read. `_read_at`: time of the last read; `_whole_at`: of the last full read."""

    _kept: dict[ResourceKey, SampleColumns] = field(default_factory=dict)
    _read_at: datetime | None = None
    _whole_at: datetime | None = None

    def read(self, book: SampleBook, now: datetime) -> Mapping[ResourceKey, SampleColumns]:
        """Return the samples of the last SAMPLE_LOOKBACK, as `book.load_columns_since` would."""
        since = self._find_read_start(now)
        if since is None:
            self._kept = dict(book.load_columns_since(now - SAMPLE_LOOKBACK))
            self._whole_at = now
        else:
            start = to_micros(now - SAMPLE_LOOKBACK)
            self._kept = _join_columns(self._kept, book.load_columns_since(since), start, to_micros(since))
        self._read_at = now
        return self._kept

    def _find_read_start(self, now: datetime) -> datetime | None:
        """Return from when on to read; None: read all (first read, too long ago, or the clock went back)."""
        if self._read_at is None or self._whole_at is None:
            return None
        steady = self._read_at <= now < self._whole_at + FULL_READ_EVERY and now - self._read_at < REREAD_SPAN / 2
        return self._read_at - REREAD_SPAN if steady else None


def _join_columns(
    old_samples: Mapping[ResourceKey, SampleColumns], fresh: Mapping[ResourceKey, SampleColumns], start: int, since: int
) -> dict[ResourceKey, SampleColumns]:
    """Join the kept samples between `start` and `since` with the `fresh` ones."""
    samples = dict[ResourceKey, SampleColumns]()
    for key in {**old_samples, **fresh}:
        old, new = old_samples.get(key, {}), fresh.get(key, {})
        lines = {signal: _join_signal(old.get(signal), new.get(signal), start, since) for signal in sorted({*old, *new})}
        if columns := {signal: line for signal, line in lines.items() if line[0]}:
            samples[key] = columns
    return samples


def _join_signal(
    old: tuple[Sequence[int], Sequence[float]] | None, new: tuple[Sequence[int], Sequence[float]] | None, start: int, since: int
) -> tuple[Sequence[int], Sequence[float]]:
    """Join one signal's samples from `start` on: the old ones before `since`, then the new ones."""
    if old is None:
        return new or ((), ())
    ats, values = old
    first, last = bisect_left(ats, start), bisect_left(ats, since)
    ats, values = ats[first:last], values[first:last]
    if new is None:
        return ats, values
    return array("q", ats) + array("q", new[0]), array("d", values) + array("d", new[1])


READY_FACT = "ready"
"""What a guard run remembers: since when acts have been due and held by nothing."""


def encode_ready_acts(proposals: Iterable[Proposal], ready_since: Mapping[str, datetime], now: datetime) -> str:
    """Encode since when the acts that are ready at `now` have been ready; "" for none. `ready_since`: of the last run."""
    names = sorted({name_act(one) for one in proposals if one.step.do in DESTRUCTIVE and one.is_ready(now)})
    return json.dumps({name: ready_since.get(name, now).isoformat() for name in names}) if names else ""


def decode_ready_acts(text: str | None) -> dict[str, datetime]:
    """Decode what `encode_ready_acts` wrote."""
    return {name: datetime.fromisoformat(at) for name, at in json.loads(text or "{}").items()}


def decode_instant(text: str | None) -> datetime | None:
    """Parse what `isoformat` wrote; None for nothing."""
    return datetime.fromisoformat(text) if text else None


def encode_breaker(breaker: Breaker | None) -> str:
    """Encode the breaker as text; "" if it is closed."""
    if breaker is None:
        return ""
    since, closed = (at.isoformat() if at else "" for at in (breaker.recovering_since, breaker.closed_at))
    return json.dumps([breaker.opened_at.isoformat(), breaker.keys, breaker.shared, since, closed])


def decode_breaker(text: str | None) -> Breaker | None:
    """Decode what `encode_breaker` wrote; None for nothing."""
    if not text:
        return None
    opened, keys, shared, since, *closed = json.loads(text)
    return Breaker(
        opened_at=datetime.fromisoformat(opened),
        keys=tuple(ResourceKey(*key) for key in keys),
        shared=shared,
        recovering_since=decode_instant(since),
        closed_at=decode_instant(closed[0]) if closed else None,  # older versions wrote none
    )


def encode_evidence(facts: Mapping[str, object], waste: Money | None, saves: Rate | None = None) -> str:
    """Encode the evidence of an act as JSON: its facts, the idle cost, and the saving per hour."""
    cost = {"nano": waste.nano, "currency": waste.currency} if waste else None
    rate = {"nano": saves.nano_per_hour, "currency": saves.currency} if saves else None
    return json.dumps({"waste": cost, "saves": rate, **{name: str(value) for name, value in facts.items()}})


def decode_owner(intent: Intent) -> str | None:
    """Return whose machine it was when the act was planned; None: the evidence does not say."""
    owner = json.loads(intent.evidence or "{}").get("owner")
    return owner if isinstance(owner, str) else None


def is_of_hang(deed: Intent) -> bool:
    """Return whether the act was planned because the machine hung."""
    return bool(json.loads(deed.evidence or "{}").get("state") == HUNG)


def encode_price(rate: Rate | None) -> dict[str, object]:
    """Encode what computing costs an hour, as facts of an act's evidence; empty if it is not known."""
    return {"price": f"{rate.nano_per_hour} {rate.currency}"} if rate else {}


def decode_price(intent: Intent) -> Rate | None:
    """Return what `encode_price` wrote into the evidence of `intent`; None: nothing."""
    nano, _, currency = json.loads(intent.evidence or "{}").get("price", "").partition(" ")
    return Rate(nano_per_hour=int(nano), currency=currency) if currency else None


def decode_costs(intents: Iterable[Intent]) -> dict[str, ActCost]:
    """Return intent id -> cost and saving of its act, as far as its evidence has them."""
    costs = {}
    for intent in intents:
        evidence = json.loads(intent.evidence or "{}")
        waste, saves = evidence.get("waste"), evidence.get("saves")
        costs[intent.id] = ActCost(
            idled=Money(nano=waste["nano"], currency=waste["currency"]) if waste else None,
            saves=Rate(nano_per_hour=saves["nano"], currency=saves["currency"]) if saves else None,
            name=evidence.get("name", ""),
            owner=evidence.get("owner", ""),
            start=StartCost(price=decode_price(intent), gpus=float(evidence.get("gpus", 0))),
        )
    return costs
