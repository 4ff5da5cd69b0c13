"""run: an attempt of a job is recorded, money is set aside, its machine is kept; and all of it is settled when it has ended.

    attempt written down -> hold taken -> lease taken -> [the command runs] -> hold committed, lease lifted -> attempt closed

Each step is written before the next one, so whoever comes after a crash finds what is open and settles it by looking: `closed`
says what an open attempt is now, `settle` brings hold and lease to that. Both may be done twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from costguard.budgets.budget import Budget
from costguard.budgets.budget_status import Admission
from costguard.budgets.hold import Hold
from costguard.errors import InputError
from costguard.guard.overrides import LEASE, Override
from costguard.guard.owning import decide_lease
from costguard.guard.policy import Policy
from costguard.metering.observation import identify_incarnation
from costguard.metering.spending import LiveResource
from costguard.runs.record import ENDED, LOST, NEVER, OPEN, PLANNED, JobAttempt
from costguard.services.ports import HoldBook, RunWishes
from costguard.services.run.holding import take_hold


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLedger:
    """Where money is set aside and machines are kept. `who`: for whom."""

    holds: HoldBook
    wishes: RunWishes
    budgets: Sequence[Budget]
    who: str


def set_money_aside(wanted: Hold, desk: RunLedger, now: datetime) -> Admission:
    """Take the hold, or say who refuses; a refusal is recorded for the next guard run to tell of."""
    return take_hold(wanted, desk.holds, desk.wishes, desk.budgets, now)


def lease_machine(
    live: LiveResource, length: timedelta, policies: Iterable[Policy], desk: RunLedger, now: datetime, *, wish_id: str, why: str
) -> Override | str:
    """Keep the machine that the job runs on; or why its policies do not allow that."""
    life = identify_incarnation(live.observation)
    allowed = decide_lease(life, desk.wishes.load_overrides_since(live.first_seen_at), tuple(policies), length, now)
    if not allowed.allowed:
        return allowed.why
    until = (now + length).replace(microsecond=0)
    wish = Override(id=wish_id, what=LEASE, who=desk.who, why=why, at=now, until=until, key=live.observation.key, life=life)
    desk.wishes.add_override(wish)
    return wish


def close_unwatched(attempt: JobAttempt, alive: Callable[[str], Sequence[int]], *, here: bool) -> JobAttempt | Sequence[int]:
    """What an attempt is that nobody watches any more; or its processes, where some still run.

    `here`: whether it ran in this boot of this machine: only then can its processes be looked for, and may any be left.
    """
    running = alive(attempt.id) if here else ()
    if running or attempt.state not in (PLANNED, OPEN):
        return running or attempt
    if attempt.state == PLANNED:
        return replace(attempt, state=NEVER, why="costguard was ended before the command began, or as it did")
    if attempt.status is not None:
        return replace(attempt, state=ENDED)
    where = "" if here else f", on {attempt.host}"
    return replace(attempt, state=LOST, why=f"costguard was ended while it ran{where}: it may have gone on a little")


def settle_attempt(attempt: JobAttempt, desk: RunLedger, now: datetime) -> tuple[str, ...]:
    """Bring hold and lease to what became of `attempt`, and say what could not be brought there."""
    notes = []
    if attempt.hold:
        try:
            if attempt.state == NEVER:
                desk.holds.release(attempt.hold, now)
            else:
                desk.holds.commit(attempt.hold, attempt.spent, now)
        except InputError as wrong:
            notes += [] if attempt.state == NEVER else [f"the hold was not settled: {wrong.field}: {wrong.what}"]
    if attempt.lease:
        try:
            desk.wishes.lift_override(attempt.lease, who=desk.who, now=now)
        except InputError as wrong:
            notes += [] if attempt.state == NEVER else [f"the lease was not lifted: {wrong.field}: {wrong.what}"]
    return tuple(notes)
