"""Policies: a rule, whom it concerns, how long it must hold, and what is done then, step by step.

Example: `idle-gpu` waits for 45 min of idleness, notifies the owner, and stops 15 min after that notice. `after` counts from
the first step, so that a notice that went out late gives its whole grace.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from fractions import Fraction

from costguard.budgets.budget import MATCH_ALL, ResourceFilter
from costguard.guard.condition import Condition
from costguard.guard.schedule import Schedule
from costguard.values.checks import require, require_one_of

OBSERVE, NOTIFY, STOP, TERMINATE = "observe", "notify", "stop", "terminate"
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
}
"""What a step may do, and how far its policy must be armed for it."""
DESTRUCTIVE = (SCALE, STOP, TERMINATE)

GRACE_MIN, CAP_GRACE_MIN = timedelta(minutes=5), timedelta(seconds=60)
"""The least between the first notice and a stop, whatever a policy says; of a hard cap."""

IDLE_RULE, CAP_RULE, SCHEDULE_RULE = "idle", "cap", "schedule"
"""How a rule treats doubt: an idle rule lets it run; a cap rule counts the money and stops; a schedule is a desired state."""


def reaches_level(level: str, wanted: str) -> bool:
    """Whether `level` goes as far as `wanted`."""
    return LEVELS.index(level) >= LEVELS.index(wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyStep:
    """`do` it `after` the first step. `to`: whom a notice goes to (owner, admin). `severity`: info, warning or page.

    `run`: the name of the hook (see Hook) that a `hook` step runs. `act`: what an `ask` asks for, stop or terminate.
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
        require((self.do == HOOK) == bool(self.run), "then.run", "belongs to a hook, and a hook needs it", 'run = "checkpoint"')


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTarget:
    """Whom a policy concerns: all that is stated must fit. `gpu`, `ids`, `names` None: any. An empty tuple selects nothing.

    `names` are shell patterns (`train-*`).
    """

    match: ResourceFilter = MATCH_ALL
    gpu: bool | None = None
    ids: tuple[str, ...] | None = None
    names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A rule. `hold`: how long `when` must hold (`for` in the file). `arm`: how far it may go.

    `needs`: families of signals that must be measured, () for whatever its provider can deliver. `rule`: see IDLE_RULE.
    `lease_max`, `renewals_max`: of the leases that hold it back. `window`: of samples, for the state of work.
    `warmup_max`: how long a machine may be warming. `alone`: a member of a group is judged by itself.
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

    def __post_init__(self) -> None:
        require(bool(self.name.strip()), "policy.name", "is empty", 'write a name such as "idle-gpu"')
        require(bool(self.then), f"policy {self.name}.then", "has no step", 'write { do = "notify" }')
        require_one_of(self.arm, LEVELS, f"policy {self.name}.arm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rails:
    """What holds whatever every policy says. Shares are of the machines that run in all scopes; each allows at least one.

    Defaults: GUARD section 6.
    """

    acts_per_run: int = 1
    acts_per_10m: int = 3
    fleet_share_10m: Fraction = Fraction(10, 100)
    fleet_share_day: Fraction = Fraction(20, 100)
    irreversible_per_h: int = 1
    breaker_share: Fraction = Fraction(25, 100)
    breaker_least: int = 5
    breaker_window: timedelta = timedelta(minutes=10)
    breaker_recovery: timedelta = timedelta(minutes=30)
    first_seen: timedelta = timedelta(minutes=15)
    first_polls: int = 3
    clock_limit: timedelta = timedelta(seconds=2)
    gap_polls: int = 3
