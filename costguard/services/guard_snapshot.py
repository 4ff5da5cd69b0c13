"""The guard's snapshot: what is known at one moment, built in this one place for `watch`, `plan`, `status` and `top`.

    runs before -> what lives -> budgets -> what conditions ask -> samples, wishes, what earlier runs left

Example: AWS publishes its measures ten minutes late. Were the lags left out for one of the commands, that one would miss the
two newest samples of each machine and call it unknown, where the others know it to be idle.

`simulate` has no ledger of the moment that it replays: `core.guard.backdrop.Scene` states each field from what is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from costguard.budgets.hold import Hold
from costguard.guard.context import GuardConfig, GuardSnapshot
from costguard.guard.limits import Breaker, explain_gap_doubt
from costguard.guard.overrides import Override
from costguard.guard.run import GuardRun
from costguard.guard.seat import apply_handling
from costguard.services.carried import decode_breaker, decode_instant
from costguard.services.flows_asked import load_cost_facts, load_recent_intents
from costguard.services.latest import PollResults
from costguard.services.lookback import SampleWindow
from costguard.services.ports import GuardBooks, GuardRecords
from costguard.services.status import load_budget_statuses

DAY = timedelta(days=1)
HOOK_RUNS_BACK, REACTIONS_BACK = 2 * DAY, 30 * DAY
"""How long a hook that ended is looked at, and for how long a measured time of a stop says how long the next one takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousRuns:
    """What earlier guard runs mean for one at this moment.

    `facts`: to be recorded with this run. `gap`: why a run now could only observe, "" where it may act. `gap_ended_at`: what
    was measured before it counts no more, None: all counts. `apart`: see `Sight`. `breaker`: as the last run left it, None:
    closed.
    """

    facts: Mapping[str, str]
    gap: str
    gap_ended_at: datetime | None
    apart: timedelta | None
    breaker: Breaker | None


def read_previous_runs(
    last: GuardRun | None, rules: GuardConfig, now: datetime, *, guarded_until: datetime | None
) -> PreviousRuns:
    """What the newest run says. `guarded_until`: until when somebody guarded, None: nobody ever did."""
    facts = dict(last.facts) if last else {}
    gap = explain_gap_doubt(guarded_until, rules.interval, rules.rails, now)
    gap_ended_at = now if gap and last else decode_instant(facts.get("gap_ended_at"))
    if gap_ended_at:
        facts["gap_ended_at"] = gap_ended_at.isoformat()
    again = last if gap and last and last.at < now and any(note.startswith("gap: ") for note in last.notes) else None
    return PreviousRuns(
        facts=facts,
        gap=gap,
        gap_ended_at=gap_ended_at,
        apart=now - again.at if again else None,
        breaker=decode_breaker(facts.get("breaker")),
    )


def build_guard_snapshot(
    *,
    now: datetime,
    rules: GuardConfig,
    books: GuardBooks,
    records: GuardRecords,
    latest: PollResults,
    holds: Sequence[Hold],
    wishes: tuple[Override, ...],
    before: PreviousRuns,
    held: tuple[tuple[str, str], ...],
    lookback: SampleWindow,
) -> GuardSnapshot:
    """Everything that is known at `now`, the same for whoever asks.

    `books`, `records`: what the ledger says of resources and money, and of the guard. `latest`: what it does not keep.
    `wishes`: as `asked.wishes_lately` reads them, with those that a plan takes for made. `before`: as `read_runs_before` has
    it. `held`: what holds every act of this run, by reason. `lookback`: reads the samples.
    """
    live = tuple(apply_handling(one, latest.handling) for one in books.load_live(now))
    return GuardSnapshot(
        now=now,
        live=live,
        standings=load_budget_statuses(books=books, budgets=rules.budgets, holds=holds, live=live, now=now),
        samples=lookback.read(records, now),
        known=records.load_first_polls([one.observation.key for one in live]),
        protections=records.load_protections(),
        wishes=wishes,
        climbs=tuple(records.load_escalations()),
        intents=load_recent_intents(records, now),
        sent=tuple(records.load_sends_since(now - DAY)),
        hooks=tuple(records.load_hook_runs(now - HOOK_RUNS_BACK)),
        reactions=tuple(records.load_reactions(now - REACTIONS_BACK)),
        lags=latest.lags,
        balances=latest.balances,
        members=latest.members,
        agents=latest.agents,
        asked=load_cost_facts(rules, books, live, latest.balances, now),
        gap_ended_at=before.gap_ended_at,
        apart=before.apart,
        breaker=before.breaker,
        held=held,
    )
