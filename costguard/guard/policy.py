"""Policies as values: target, condition, steps, schedule; limits (`Rails`); facts for conditions; verdicts.

Example: `idle-gpu` waits for 45 min of idleness, notifies the owner, and stops 15 min after that notification. `after` counts
from the first step, so that a late notification still gives the whole grace period.

A condition is true, false, or unknown because a fact is missing. Example: `state == "idle" && confidence >= 0.9` is unknown if
the state is idle and the confidence is missing, and false if the state is not idle. An idle rule never acts on an unknown
condition.

A schedule is a desired state by the clock of a time zone. Example: off 20:00-08:00 Berlin. At 20:41 the machine should be off
since 20:00, whether or not a guard run took place at 20:00. It is off for 13 hours in the night when clocks go back, and for 11
hours when they go forward. A skipped wall time resolves to the instant of the clock change, a repeated one to its first
occurrence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple, Protocol

from costguard.budgets.budget import MATCH_ALL, ResourceFilter
from costguard.guard.signals import Activity
from costguard.values.calendar import resolve_wall_time
from costguard.values.checks import require, require_one_of
from costguard.values.resource import Incarnation

OBSERVE, NOTIFY, STOP, TERMINATE = "observe", "notify", "stop", "terminate"
START = "start"
"""The act of a schedule in the morning, and of a person: no step of a policy."""
LEVELS = (OBSERVE, NOTIFY, STOP, TERMINATE)
"""How far a policy may go, each with all before it."""

RECORD, ASK, HOOK, DENY, SCALE = "record", "ask", "hook", "deny", "scale-controller"
STEP_LEVELS = {
    RECORD: OBSERVE,
    NOTIFY: NOTIFY,
    ASK: NOTIFY,
    HOOK: NOTIFY,
    DENY: NOTIFY,
    SCALE: STOP,
    STOP: STOP,
    TERMINATE: TERMINATE,
    START: STOP,
}
"""What a step may do, and how far its policy must be armed for it."""
DESTRUCTIVE = (SCALE, STOP, TERMINATE)

GRACE_MIN, CAP_GRACE_MIN = timedelta(minutes=5), timedelta(seconds=60)
"""The least between the first notice and a stop, whatever a policy says; of a hard cap."""

PERSON_RULE = "person"
"""Of an act that a person asked for by hand: no policy, no leader and no limit stands behind it."""
IDLE_RULE, CAP_RULE, SCHEDULE_RULE, LIMIT_RULE, TIMED_RULE = "idle", "cap", "schedule", "limit", "timed"
"""How a rule treats doubt.

An idle rule lets it run; a cap rule counts the money and stops; a schedule is a desired state; a limit (past its lease, too
old) needs no evidence of idleness and stops; so does a stop that a person planned for a time.
"""


def reaches_level(level: str, minimum: str) -> bool:
    """Return whether `level` is at least as far as `minimum` in the order of LEVELS."""
    return LEVELS.index(level) >= LEVELS.index(minimum)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyStep:
    """One step of a policy: `do` happens `after` the first step.

    `to`: who receives a notification (owner, admin). `severity`: info, warning or page. `run`: the name of the hook (see Hook)
    of a `hook` step. `act`: the act that an `ask` step asks for, stop or terminate.
    """

    do: str
    after: timedelta = timedelta()
    to: str = "owner"
    severity: str = "warning"
    run: str = ""
    timeout: timedelta = timedelta(minutes=5)
    act: str = ""

    def __post_init__(self) -> None:
        require_one_of(self.do, tuple(STEP_LEVELS), "then.do")
        require_one_of(self.severity, ("info", "warning", "page"), "then.severity")
        require(self.after >= timedelta(), "then.after", "must not be negative", 'write "15m"')
        if self.do == ASK:
            require_one_of(self.act, (STOP, TERMINATE), "then.act")
        require((self.do == HOOK) == bool(self.run), "then.run", 'belongs to do = "hook", which needs it', 'run = "checkpoint"')


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTarget:
    """Selects the resources that a policy applies to; all stated criteria must match.

    `gpu`, `ids`, `names`: None matches any. An empty tuple selects nothing. `names` are shell patterns (`train-*`).
    """

    match: ResourceFilter = MATCH_ALL
    gpu: bool | None = None
    ids: tuple[str, ...] | None = None
    names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A rule: the condition `when`, the steps `then`, and how far it may go (`arm`).

    `hold`: how long `when` must hold (`for` in the file). `needs`: families of signals that must be measured; () for whatever
    the provider can deliver. `rule`: see IDLE_RULE. `lease_max`, `renewals_max`: limits of the leases that suspend it.
    `warmup_max`: how long a machine may be warming. `alone`: a member of a group is judged by itself. `digest`: hash of the
    policy's meaning (match, when, for, then), to which an arming is bound; "" for a policy that is not from a settings file.
    """

    name: str
    when: Condition
    then: tuple[PolicyStep, ...]
    arm: str = OBSERVE
    target: PolicyTarget = field(default_factory=PolicyTarget)
    hold: timedelta = timedelta()
    needs: tuple[str, ...] = ()
    allow_irreversible: bool = False
    rule: str = IDLE_RULE
    priority: int = 0
    schedule: Schedule | None = None
    lease_max: timedelta = timedelta(hours=24)
    renewals_max: int = 3
    warmup_max: timedelta = timedelta(minutes=45)
    alone: bool = False
    digest: str = ""
    start: ScheduledStartRule | None = None
    until: UntilRule | None = None

    def __post_init__(self) -> None:
        require(bool(self.name.strip()), "policy.name", "is empty", 'write a name such as "idle-gpu"')
        require(bool(self.then), f"policy {self.name}.then", "has no step", 'write { do = "notify" }')
        require_one_of(self.arm, LEVELS, f"policy {self.name}.arm")

    @property
    def is_planned(self) -> bool:
        """Return whether it acts from a time that is known ahead: an off period, or the date of an until label."""
        return self.rule == SCHEDULE_RULE or (self.until is not None and self.until.label == PASSED)


PASSED, UNTIL_MISSING = "passed", "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class UntilRule:
    """Selects machines by their date (`guard.until`): `label` passed or missing. A date further ahead counts as missing."""

    label: str
    ahead_max: timedelta = timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledStartRule:
    """A schedule starts what it stopped: `within` that time after the off period, and dearer by `price_rise` at most."""

    within: timedelta = timedelta(hours=2)
    price_rise: Fraction = Fraction(1, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rails:
    """Limits that hold whatever any policy says.

    Shares are of the machines that run in all scopes; each share allows at least one act. `acts_least_day`: the acts that the
    daily share allows at least, so that a small fleet can be stopped as a whole. `breaker_asks`: how long after it opened the
    breaker asks about each machine that it holds; `breaker_lasts`: when it closes by itself. `starts_per_run`, `starts_per_h`:
    machines that schedules may start; they use up none of the acts. `caps`: limits whose counts hold for the acts of hard caps
    that a person accepted, in place of those above; None: as many acts as a cap needs. Defaults: decision 0110
    for acts, 0042 for the breaker, 0080 for starts, 0023 for caps.
    """

    acts_per_run: int = 5
    acts_per_10m: int = 15
    fleet_share_10m: Fraction = Fraction(1)
    fleet_share_day: Fraction = Fraction(2)
    acts_least_day: int = 20
    irreversible_per_h: int = 1
    starts_per_run: int = 2
    starts_per_h: int = 20
    breaker_share: Fraction = Fraction(25, 100)
    breaker_least: int = 5
    breaker_window: timedelta = timedelta(minutes=10)
    breaker_recovery: timedelta = timedelta(minutes=30)
    breaker_asks: timedelta = timedelta(hours=1)
    breaker_lasts: timedelta = timedelta(hours=24)
    first_seen: timedelta = timedelta(minutes=15)
    first_polls: int = 3
    clock_limit: timedelta = timedelta(seconds=2)
    gap_polls: int = 3
    caps: Rails | None = None

    def limit_caps(self) -> Rails:
        """Return the limits of a hard cap that a person accepted: the counts of `caps`, and everything else as here."""
        counts = self.caps or Rails.unlimited()
        return replace(self, caps=None, **{name: getattr(counts, name) for name in ACT_COUNTS})

    def limit_unaccepted(self) -> Rails:
        """Return the limits of what no person accepted: a new hard cap, new settings, an agent over MCP.

        They are UNACCEPTED_COUNTS where the settings leave the defaults, else what the settings state.
        """
        counts = {
            name: count for name, count in UNACCEPTED_COUNTS.items() if getattr(self, name) == getattr(DEFAULT_RAILS, name)
        }
        return replace(self, **counts)  # type: ignore[arg-type]  # each value as its field wants it

    @classmethod
    def unlimited(cls) -> Rails:
        """Return limits that hold back no act by count or by the age of a machine; a replay uses them.

        Clock jumps, gaps between runs and the breaker's window stay: a replay has no clock of its own and records no gap. Add a
        new field of Rails either to this call or to the list of fields that stay (`tests/guard/test_rails_unlimited.py`).
        """
        return cls(
            acts_per_run=10**9,
            acts_per_10m=10**9,
            fleet_share_10m=Fraction(10**9),
            fleet_share_day=Fraction(10**9),
            acts_least_day=10**9,
            irreversible_per_h=10**9,
            starts_per_run=10**9,
            starts_per_h=10**9,
            breaker_least=10**9,
            first_seen=timedelta(),
            first_polls=0,
        )


ACT_COUNTS = (
    "acts_per_run",
    "acts_per_10m",
    "fleet_share_10m",
    "fleet_share_day",
    "acts_least_day",
    "irreversible_per_h",
)
"""The fields of Rails that count acts."""
UNACCEPTED_COUNTS = {"acts_per_run": 1, "acts_per_10m": 3, "fleet_share_day": Fraction(1, 2)}
"""What counts in place of the default of each, where no person accepted it and no machine's evidence asks for it."""
DEFAULT_RAILS = Rails()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionResult:
    """The result of a condition; `value` None: unknown, because the facts `missing` are missing, or because of `why`."""

    value: bool | None
    missing: tuple[str, ...] = ()
    why: str = ""


class Condition(Protocol):
    """A condition that was checked and compiled when the settings were read."""

    @property
    def text(self) -> str:
        """Return the condition as it was written."""

    @property
    def names(self) -> frozenset[str]:
        """Return the names of the facts that it uses."""

    def evaluate(self, facts: Mapping[str, object]) -> ConditionResult:
        """Evaluate the condition on `facts`, by name; a missing fact is left out. Raises nothing."""


HOLDS, NOT_YET, DOES_NOT, CANNOT_SAY = "holds", "not_yet", "does_not", "cannot_say"
FINDINGS = {
    HOLDS: "the condition holds, and has held for long enough",
    NOT_YET: "the condition holds, but not long enough yet",
    DOES_NOT: "the condition does not hold",
    CANNOT_SAY: "a fact is missing, so the condition is unknown",
}

HOLD_REASONS = {
    "protected": "it is protected",
    "leased": "it has a lease",
    "frozen": "all acts are frozen",
    "not_armed": "its policy is not armed for this act",
    "grace": "its grace period has not ended",
    "untold": "notice not delivered: no channel has confirmed it",
    "hook": "its hook is still running or failed",
    "working": "it is active although the condition holds",
    "not_confident": "the evidence is stale or incomplete",
    "unknown": "its activity is not known",
    "controller": "a controller would start it again",
    "no_act": "its provider has no such act for it",
    "irreversible": "data would be lost, and that was not allowed",
    "saves_nothing": "it is paid for whether it runs or not",
    "first_seen": "it was not observed long enough",
    "workers_first": "it leads a group, whose workers are stopped first",
    "not_ours": "it has no owner, and [watch] claims does not name its account",
    "rate": "the limits in [rails] allow no more acts now",
    "breaker": "too many became idle or unknown at once",
    "quarantine": "too many resources of its account disappeared at once",
    "clock": "the clocks disagree",
    "gap": "the first run after a start or a gap only observes",
    "ledger": "the ledger cannot be written",
    "older_ledger": "the ledger is not the one used last",
    "in_doubt": "an earlier act on it is not confirmed yet",
    "refused": "its provider refused this act a short time ago",
    "stale": "it was not seen recently",
    "not_acting": "another watchdog acts on this ledger",
    "not_accepted": "the first run of these settings would exceed the limits in [rails]",
    "asked": "approval was requested and not given yet",
    "phase": "a declared phase of work is active",
    "provider_protection": "its provider protects it",
    "touched": "somebody else acted on it since its stop",
    "not_own": "something else may have stopped it",
    "off": "another schedule requires it to be off",
    "edited": "its policy was edited since its stop",
    "missed": "the time of its start has passed",
    "budget": "a budget is spent, or would be by the next off period",
    "price": "its price increased or is not known",
    "retry": "its last start failed and will be tried again",
    "tries": "its start failed too often",
}
"""What may hold an act back, by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What `policy` finds for one incarnation of a resource at `at`.

    `since`: when the condition began to hold; None: it does not hold. `short`: the evidence is enough for a notification or a
    question but not for an act, because the confidence is lower than the condition demands, or neither GPU duty nor an agent is
    measured.
    """

    policy: Policy
    life: Incarnation
    at: datetime
    finding: str
    truth: ConditionResult
    work: Activity
    since: datetime | None = None
    reasons: tuple[str, ...] = ()
    short: bool = False


NEVER = datetime(9999, 1, 1, tzinfo=UTC)
"""Stands for a time that has not come yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EscalationState:
    """How far one incarnation of a resource has come in the steps of a policy.

    It is recorded, so that a restart of the guard does not shorten the grace period. `since`: since when the condition has
    held. `started_at`: when the first step was done; `after` counts from it. `done`: the numbers of the steps that were done,
    from 0. `left_polls`: guard runs in a row in which the condition did not hold (two of them end the escalation).
    `delivered_at`: when a channel first confirmed a notification of this escalation to its present owner; None: not yet.
    `meaning`: the digest of the policy that the notification was about. `promised`: act -> the earliest time for it that a
    delivered notification allows; a later change of settings never moves it forward. `announced_from`: notifications from
    before it announce nothing, because something held the act for good; NEVER while it does, None: nothing did. `in_doubt`:
    the steps whose act was sent and is not proven: neither done nor due. It and `delivered_at` are derived in each run, and
    not stored.
    """

    policy: str
    life: Incarnation
    since: datetime
    started_at: datetime
    done: tuple[int, ...] = ()
    left_polls: int = 0
    delivered_at: datetime | None = None
    meaning: str = ""
    promised: tuple[tuple[str, datetime], ...] = ()
    announced_from: datetime | None = None
    in_doubt: tuple[int, ...] = ()

    @property
    def episode(self) -> str:
        """Return what its alerts are known by.

        It changes when the escalation or its announcement begins anew, or its policy changes.
        """
        again = "" if self.announced_from in {None, NEVER} else f" {self.announced_from}"
        return f"{self.meaning} {self.started_at.isoformat()}{again}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One step on one resource that is due, or will be due at `due_at`.

    `held_by`: names of HOLD_REASONS with a sentence each. `number`: position of the step in its policy. An act is done when it
    is due and nothing holds it. `expected_at`: when the limits will let it run, as forecast now; None: when it is due. `limit`:
    the limit that it waits for, in words; "" for none.
    """

    verdict: Verdict
    number: int
    step: PolicyStep
    due_at: datetime
    held_by: tuple[tuple[str, str], ...] = ()
    expected_at: datetime | None = None
    limit: str = ""

    def is_ready(self, now: datetime) -> bool:
        """Return whether the step may be done at `now`."""
        return self.due_at <= now and not self.held_by


DAY = timedelta(days=1)
DAYS_AROUND = 9
"""Days before and after now that are looked at: a week, and the windows at its edges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffWindow:
    """A daily window in which a machine should be off, from `start` to `end` by the zone's clock.

    `days`: the weekdays on which it starts (0: Monday). `end` <= `start`: it ends on the next day.
    """

    start: time
    end: time
    days: frozenset[int] = frozenset(range(7))


@dataclass(frozen=True, slots=True, kw_only=True)
class Exemption:
    """The schedule has no effect from `start` until just before `end`. An exemption in the past has no effect."""

    start: datetime
    end: datetime
    why: str = ""

    def __post_init__(self) -> None:
        require(self.start < self.end, "exemption.end", "must be after its start", "exchange them")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When a machine should be off, in `zone`. `holidays`: days on which it should be off all day."""

    zone: tzinfo
    off: tuple[OffWindow, ...]
    holidays: frozenset[date] = frozenset()
    exemptions: tuple[Exemption, ...] = ()


class ScheduleState(NamedTuple):
    """Whether a machine should be off in [`since`, `until`). None: beyond DAYS_AROUND days, or unlimited."""

    off: bool
    since: datetime | None
    until: datetime | None


@lru_cache(maxsize=1000)
def evaluate_schedule(schedule: Schedule, now: datetime) -> ScheduleState:
    """Return whether `schedule` wants the machine off at `now` (UTC), since when without a break, and until when."""
    today = now.astimezone(schedule.zone).date()
    first = resolve_wall_time(today - DAYS_AROUND * DAY, time(), schedule.zone)
    last = resolve_wall_time(today + DAYS_AROUND * DAY, time(), schedule.zone)
    blocks = [(start, end) for start, end in _list_off_periods(schedule, today) if end > first and start < last]
    for start, end in blocks:
        if start <= now < end:
            return ScheduleState(True, start if start > first else None, end if end < last else None)  # noqa: FBT003 - as named above
    previous_ends = [end for _, end in blocks if end <= now]
    next_starts = [start for start, _ in blocks if now < start]
    return ScheduleState(False, max(previous_ends, default=None), min(next_starts, default=None))  # noqa: FBT003 - as named above


def _list_off_periods(schedule: Schedule, today: date) -> list[tuple[datetime, datetime]]:
    """Return the periods around `today` in which the machine should be off: ordered, disjoint, less the exemptions."""
    days = [today + number * DAY for number in range(-DAYS_AROUND - 1, DAYS_AROUND + 2)]
    windows = [
        _resolve_off_window(off, day, schedule.zone) for off in schedule.off for day in days if day.weekday() in off.days
    ]
    windows += [_resolve_off_window(ALL_DAY, day, schedule.zone) for day in days if day in schedule.holidays]
    joined = list[tuple[datetime, datetime]]()
    for start, end in sorted(window for window in windows if window[0] < window[1]):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    for exempt in schedule.exemptions:
        pieces = ((start, min(end, exempt.start)) for start, end in joined)
        rest = ((max(start, exempt.end), end) for start, end in joined)
        joined = sorted({piece for piece in (*pieces, *rest) if piece[0] < piece[1]})
    return joined


def _resolve_off_window(off: OffWindow, day: date, zone: tzinfo) -> tuple[datetime, datetime]:
    last = day if off.start < off.end else day + DAY
    return resolve_wall_time(day, off.start, zone), resolve_wall_time(last, off.end, zone)


ALL_DAY = OffWindow(start=time(), end=time())
