"""One guard run, from facts to a plan, and from the plan to acts, each on one machine. Each run derives everything anew.

    read what is known -> confirm earlier acts -> evaluate -> commit results and notifications together -> perform due acts

An act is committed before it is done. If the ledger cannot be written, nothing is done, and an alert goes to a channel that
needs no disk. Settings that run for the first time may need an approval (GUARD 6, H25): a plan with more acts than the limits
allow waits for it until the plan can be judged, or until the longest wait of a policy plus an hour has passed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from secrets import token_hex
from typing import TYPE_CHECKING, NamedTuple

from costguard.budgets.hold import Hold
from costguard.errors import LedgerError
from costguard.guard.action_intents import Intent
from costguard.guard.alerts.alert import Alert, AlertRoute
from costguard.guard.alerts.dispatch import dispatch_alerts
from costguard.guard.alerts.rules import list_alerts
from costguard.guard.alerts.watchdog import list_restart_alerts
from costguard.guard.cap_acceptance import describe_cap, list_cap_acceptances
from costguard.guard.cap_forecast import build_cap_policies
from costguard.guard.context import GuardConfig, GuardSnapshot
from costguard.guard.escalation import mark_step_done
from costguard.guard.evaluation import GuardEvaluation, evaluate_snapshot
from costguard.guard.limits import compute_plan_fingerprint, explain_clock_doubt, explain_config_excess, is_config_undecided
from costguard.guard.overrides import ACCEPT, ARM, ARMED_FOR, SNOOZE, Override, is_override_open
from costguard.guard.policy import ASK, DENY, NOTIFY, RECORD, Policy
from costguard.guard.run_facts import GuardRun
from costguard.metering.spending import ScopeCoverage
from costguard.services.guarding.act.executor import ActionExecutor
from costguard.services.guarding.act.hooks import HookRunner, record_hook_ends
from costguard.services.guarding.act.send_action import read_boot_time_s
from costguard.services.guarding.anomaly_watch import AnomalyWatch
from costguard.services.guarding.guard_inputs import PollResults
from costguard.services.guarding.guard_snapshot import (
    BREAKS_MAX,
    BREAKS_TOLD,
    READY_FACT,
    PreviousRuns,
    SampleWindow,
    build_guard_snapshot,
    decode_costs,
    decode_instant,
    encode_breaker,
    encode_ready_acts,
    load_recent_intents,
    load_recent_overrides,
    read_previous_runs,
    reload_intents,
)
from costguard.services.guarding.run_view import VIEW_FACT, encode_run_view
from costguard.system.clock import Clock
from costguard.system.process import pause_gc
from costguard.system.tracing import trace_span
from costguard.values.resource import Incarnation

if TYPE_CHECKING:  # types and no more
    from costguard.ledger.guard.audit_log import RollbackMarker
    from costguard.ledger.guard.store import GuardStore
    from costguard.ledger.spans.books import SpendingReader

LEADER_LEASE_MIN, ACTION_TIME_MAX = timedelta(seconds=60), timedelta(seconds=60)
SETTINGS_USER = "settings file"
"""Who armed what the file arms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRunResult:
    """Result of a run. `committed`: it is in the ledger, or another watchdog leads. `broken`: why nothing was done.

    `intents`: their present state. `unaccepted`: why the plan must be accepted first; `plan_hash`: fingerprint of the plan.
    """

    at: datetime
    committed: bool
    acting: bool
    survey: GuardEvaluation | None = None
    sight: GuardSnapshot | None = None
    intents: tuple[Intent, ...] = ()
    notices: tuple[Alert, ...] = ()
    scopes: tuple[ScopeCoverage, ...] = ()
    plan_hash: str = ""
    unaccepted: str = ""
    broken: str = ""
    notes: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class GuardRunner:
    """The guard of one ledger. `holder`: name of this process. `latest`: called for the last listings in each run.

    `dry_run`: nothing is done, recorded or sent. `supposed`: overrides that the plan assumes. `resident`: the process runs
    repeatedly, so its own first run only observes; otherwise only a gap in the ledger's runs counts. `mark`: rollback marker;
    nothing is done on an older ledger than was seen; None: there is no marker. `unreached`: failed scopes of accounts that
    could never be asked for theirs, which the ledger does not know; people are alerted about them as about the others.
    `asks`: the `digest_providers` of what is polled. `shares`: while another watchdog has the lead, this one evaluates nothing.
    `more_alerts`: returns those about the watchdog's own processes at an instant. `clock_doubt`: explains why this machine's
    clock cannot be trusted, so that nothing is evaluated; "" if it can. `anomalies`: finds what is unusual; None: nothing does.
    """

    book: GuardStore
    books: Callable[[], AbstractContextManager[SpendingReader]]
    rules: GuardConfig
    latest: Callable[[], PollResults]
    clock: Clock
    holder: str
    holds: Callable[[datetime], Sequence[Hold]]
    routes: tuple[AlertRoute, ...] = ()
    dry_run: bool = False
    supposed: tuple[Override, ...] = ()
    resident: bool = False
    hooks: HookRunner = field(default_factory=HookRunner)
    mark: RollbackMarker | None = None
    unreached: Callable[[], Sequence[ScopeCoverage]] = tuple
    asks: str = ""
    shares: bool = False
    more_alerts: Callable[[datetime], Sequence[Alert]] = lambda _: ()
    clock_doubt: Callable[[], str] = str
    anomalies: AnomalyWatch | None = None
    seconds: Callable[[], float] = read_boot_time_s
    _began_s: float = 0.0
    _clocks: tuple[datetime, float] | None = None
    _lookback: SampleWindow = field(default_factory=SampleWindow)
    _ended: datetime | None = None

    def run(self) -> GuardRunResult:
        """Run once. A LedgerError is returned as `broken`, and nothing is done then."""
        now, self._began_s = self.clock.now(), self.seconds()
        try:
            with trace_span("guard.run") as span:
                result = self._run_steps(now)
                span.set(committed=result.committed, acting=result.acting)
                return result
        except LedgerError as error:
            return GuardRunResult(at=now, committed=False, acting=False, broken=str(error))

    def _run_steps(self, now: datetime) -> GuardRunResult:
        if doubt := self.clock_doubt():  # a turn that it took would be timed by that clock
            return GuardRunResult(at=now, committed=False, acting=False, broken=doubt)
        epoch = (
            None
            if self.dry_run
            else self.book.acquire_leader_lease(self.holder, now, max(3 * self.rules.interval, LEADER_LEASE_MIN))
        )
        if epoch is None and self.shares:
            return GuardRunResult(at=now, committed=True, acting=False)
        latest, holds = self.latest(), self.holds(now)
        overrides = (*load_recent_overrides(self.book, now), *self.supposed)
        armings = list_budget_armings(self.rules, overrides, now)
        overrides = (*overrides, *armings)
        if epoch is not None:
            self._record_overrides(armings)
            record_hook_ends(self.book, self.hooks, now)
        previous = self._read_previous_runs(epoch, now)
        with self.books() as books:
            snapshot = build_guard_snapshot(
                now=now,
                rules=self.rules,
                books=books,
                records=self.book,
                latest=latest,
                holds=holds,
                overrides=overrides,
                previous=previous,
                standing_holds=tuple(self._list_blockers(now, epoch, previous.gap)),
                lookback=self._lookback,
            )
            unreached = tuple(self.unreached())
            scopes = (*books.list_scopes(), *unreached)
        facts = dict(previous.facts)
        scope_of = {one.observation.key: one.scope for one in snapshot.live}
        deeds = ActionExecutor(
            book=self.book,
            rules=self.rules,
            source_of=lambda key: latest.find_source(key, scope_of.get(key)),
            clock=self.clock,
            seconds=self.seconds,
            epoch=epoch or 0,
            sight=snapshot,
            hooks=self.hooks,
            observes=bool(snapshot.held),
            measures=latest.measures,
        )
        if epoch is not None and deeds.confirm_all(snapshot.intents, snapshot.live):
            snapshot = reload_intents(snapshot, self.book, self.rules)
        plan = evaluate_plan(self.rules, snapshot, facts)
        if epoch is not None:
            self._record_overrides(plan.acceptances)
        snapshot, unaccepted, told_hash = plan.snapshot, plan.unaccepted, plan.evaluation.plan_hash
        evaluation = replace(_mark_alert_steps_done(plan.evaluation, now), plan_hash=told_hash)
        notices = [
            *list_alerts(evaluation, self.rules, snapshot, scopes, decode_costs(snapshot.intents)),
            *self.more_alerts(now),
        ]
        if epoch is not None and self.anomalies is not None:
            notices = self.anomalies.add_alerts(notices, snapshot, holds)
        notices += list_restart_alerts(previous.breaks if previous.apart is None else (), BREAKS_MAX, now)
        committed = self.dry_run
        if epoch is not None:
            facts[READY_FACT] = encode_ready_acts(evaluation.proposals, snapshot.ready_since, now)
            facts[VIEW_FACT] = encode_run_view(latest, snapshot, evaluation.foresights, unreached, asks=self.asks)
            committed = self._commit_run(epoch, evaluation, snapshot, notices, facts, unaccepted=unaccepted, now=now)
            if committed:
                self.book.set_accepted_caps(evaluation.accepted_caps)
                deeds.execute_plan(evaluation, snapshot)
                if self.mark and not any(reason == "older_ledger" for reason, _ in snapshot.held):
                    self.mark.advance()
            self._ended = self.clock.now()
        return GuardRunResult(
            at=now,
            committed=committed or (epoch is None and not self.dry_run),
            acting=epoch is not None and committed,
            survey=evaluation,
            sight=snapshot,
            intents=load_recent_intents(self.book, now),
            notices=tuple(notices),
            scopes=scopes,
            plan_hash=told_hash,
            unaccepted=unaccepted,
            broken=deeds.broken,
            notes=tuple(deeds.notes),
        )

    def _read_previous_runs(self, epoch: int | None, now: datetime) -> PreviousRuns:
        last, first = self.book.load_last_run(), self.resident and self._clocks is None
        unfinished = max(0, epoch - last.epoch - 1) if epoch and last else 0  # each process that takes the lead has an epoch
        starts = unfinished + first if self.resident else None
        previous = read_previous_runs(last, self.rules, now, guarded_until=self._guarded_until(last), starts=starts)
        return replace(previous, apart=None) if first else previous  # how often a process runs is seen from its own runs

    def _guarded_until(self, last: GuardRun | None) -> datetime | None:
        """Return until when the fleet was guarded; None: never. Time spent on our own acts is no gap."""
        if last is None or self._ended is None:
            return last.at if last else None
        return max(last.at, min(self._ended, last.at + ACTION_TIME_MAX))

    def _list_blockers(self, now: datetime, epoch: int | None, gap: str) -> Iterable[tuple[str, str]]:
        """Yield what holds every act of this run, as (reason, sentence)."""
        if epoch is None and not self.dry_run:  # a dry run never acts; as a hold it would hide what else holds an act
            yield "not_acting", "another watchdog acts on this ledger"
        if self.mark and (doubt := self.mark.describe_doubt()):
            yield "older_ledger", f"{doubt}; if this is intended: costguard audit adopt"
        clocks, self._clocks = self._clocks, (now, self._began_s)
        if gap:
            yield "gap", gap
        elif clocks is None and self.resident:
            yield "gap", "the first run after a start only observes"
        if clocks is not None:
            doubt = explain_clock_doubt(now - clocks[0], timedelta(seconds=self._clocks[1] - clocks[1]), self.rules.rails)
            if doubt:
                yield "clock", doubt

    def _record_overrides(self, overrides: Iterable[Override]) -> None:
        for one in overrides:
            self.book.add_override(one)

    def _commit_run(
        self,
        epoch: int,
        evaluation: GuardEvaluation,
        snapshot: GuardSnapshot,
        notices: Sequence[Alert],
        facts: dict[str, str],
        *,
        unaccepted: str,
        now: datetime,
    ) -> bool:
        """Write the results of the run and its notifications in one transaction."""
        facts = facts | {"breaker": encode_breaker(evaluation.breaker)}
        snoozes = [w for w in snapshot.wishes if w.what == SNOOZE and is_override_open(w, now)]
        after_gap = snapshot.apart is None and any(
            reason == "gap" for reason, _ in snapshot.held
        )  # else the run before was one too
        messages, alert_states = dispatch_alerts(
            notices,
            self.book.load_alert_states(),
            now=now,
            routes=self.routes,
            snoozes=snoozes,
            after_gap=after_gap and len(facts["breaks"].split()) <= BREAKS_TOLD,
            zone=self.rules.zone,
        )
        run = GuardRun(
            id=token_hex(8),
            at=now,
            epoch=epoch,
            interval=self.rules.interval,
            outcome="held" if snapshot.held or unaccepted else "acting",
            notes=tuple(f"{reason}: {says}" for reason, says in snapshot.held),
            facts=tuple(sorted(facts.items())),
        )
        return self.book.record_run(
            run,
            climbs=evaluation.climbs,
            alert_states=alert_states,
            messages=messages,
            protections=evaluation.sighted,
            present=notices,
        )


class EvaluatedPlan(NamedTuple):
    """A plan: `snapshot` with what holds all of it, its evaluation, why it must be accepted first ("": it need not), and the

    acceptances of hard caps that follow from an accepted plan and are to be recorded.
    """

    snapshot: GuardSnapshot
    evaluation: GuardEvaluation
    unaccepted: str
    acceptances: Sequence[Override]


def evaluate_plan(rules: GuardConfig, snapshot: GuardSnapshot, facts: dict[str, str]) -> EvaluatedPlan:
    """Evaluate `snapshot`, again if a hard cap of its plan is accepted, and again if the plan waits for approval.

    The guard, `costguard plan` and the pages show and do what this returns. `facts`: of the run; updated with what was decided.
    """
    overrides, now = snapshot.wishes, snapshot.now
    evaluation = _evaluate(rules, snapshot)
    caps = [describe_cap(budget) for budget in rules.budgets if budget.hard]
    plan_hash = compute_plan_fingerprint(evaluation.proposals, _hash_sha256, caps)
    accepts = [one for one in overrides if is_plan_accepted(one, plan_hash, now)]
    acceptances = list_cap_acceptances(rules.budgets, overrides, accepts[-1], lambda: token_hex(8)) if accepts else []
    if acceptances:
        snapshot = replace(snapshot, wishes=(*overrides, *acceptances))
        evaluation = _evaluate(rules, snapshot)
    unaccepted = explain_unaccepted(evaluation, rules, overrides, facts, digest=_hash_sha256, plan_hash=plan_hash)
    if unaccepted:
        snapshot = replace(snapshot, held=(*snapshot.held, ("not_accepted", unaccepted)))
        evaluation = _evaluate(rules, snapshot)
    return EvaluatedPlan(snapshot, replace(evaluation, plan_hash=plan_hash), unaccepted, acceptances)


def list_budget_armings(rules: GuardConfig, overrides: Iterable[Override], now: datetime) -> list[Override]:
    """Return armings of the hard budgets of which none is in force: a person who lowered one is obeyed as long as that lasts.

    People arm policies (decision 0041). A run records them; a plan assumes what the next run records.
    """
    armed = {w.subject for w in overrides if w.what == ARM and is_override_open(w, now)}
    why, until = "armed by the settings", now + ARMED_FOR
    return [
        Override(
            id=token_hex(8), what=ARM, who=SETTINGS_USER, why=why, at=now, until=until, subject=policy.name, value=policy.arm
        )
        for policy in build_cap_policies(rules.budgets)
        if policy.name not in armed
    ]


@pause_gc()
def _evaluate(rules: GuardConfig, snapshot: GuardSnapshot) -> GuardEvaluation:
    return evaluate_snapshot(rules, snapshot)


def _mark_alert_steps_done(evaluation: GuardEvaluation, now: datetime) -> GuardEvaluation:
    """Return `evaluation` with alert-only steps marked as done: their alert is committed with this run.

    Acts and hooks are marked when they end.
    """
    due: dict[tuple[str, Incarnation], list[int]] = {}
    for one in evaluation.proposals:
        if one.step.do in (NOTIFY, ASK, RECORD, DENY) and one.is_ready(now):
            due.setdefault((one.verdict.policy.name, one.verdict.life), []).append(one.number)
    cases = []
    for case in evaluation.cases:
        climb = case.climb
        for number in due.get((case.verdict.policy.name, case.verdict.life), ()):
            climb = mark_step_done(climb, case.verdict.policy, number, now) if climb is not None else None
        cases.append(case if climb is case.climb else replace(case, climb=climb))
    return replace(evaluation, cases=tuple(cases), climbs=tuple(case.climb for case in cases if case.climb is not None))


def _hash_sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


FIRST_RUN_EXTRA = timedelta(hours=1)
"""How long first runs go on beyond the longest wait of a policy."""
ACCEPTED_SETTINGS_FACT, FIRST_SETTINGS_FACT = "settings", "settings_first"
"""What the ledger remembers: the settings that may act, and since when others ask to."""


def explain_unaccepted(
    evaluation: GuardEvaluation,
    rules: GuardConfig,
    overrides: Iterable[Override],
    facts: dict[str, str],
    *,
    digest: Callable[[bytes], str],
    plan_hash: str,
) -> str:
    """Explain why these settings need approval; "" if they ran before, cause few acts, or their plan was accepted.

    `facts`: of the run, updated when that is decided. `digest`: sha256 in hex.
    """
    now, acting = evaluation.at, (*rules.policies, *build_cap_policies(rules.budgets))
    mark = digest("\n".join(map(_describe_policy, acting)).encode())[:16]
    if facts.get(ACCEPTED_SETTINGS_FACT) == mark:
        return ""
    first_mark, _, since = facts.get(FIRST_SETTINGS_FACT, "").partition(" ")
    first_at = (decode_instant(since) if first_mark == mark else None) or now
    facts[FIRST_SETTINGS_FACT] = f"{mark} {first_at.isoformat()}"
    accepted = any(is_plan_accepted(override, plan_hash, now) for override in overrides)
    why = "" if accepted else explain_config_excess(evaluation.proposals, evaluation.fleet, rules.rails, now)
    lasts = max((policy.hold for policy in acting), default=timedelta()) + FIRST_RUN_EXTRA
    waits = (
        not accepted
        and now - first_at < lasts
        and is_config_undecided(evaluation.proposals, evaluation.fleet, rules.rails, now)
    )
    if not why and not waits:
        facts[ACCEPTED_SETTINGS_FACT] = mark
        del facts[FIRST_SETTINGS_FACT]
    return why


def is_plan_accepted(override: Override, plan_hash: str, now: datetime) -> bool:
    """Return whether `override` accepts the plan of this hash at `now`."""
    return (
        override.what == ACCEPT
        and bool(override.subject)
        and plan_hash.startswith(override.subject)
        and is_override_open(override, now)
    )


def _describe_policy(policy: Policy) -> str:
    """Return everything in `policy` that affects acts, as a text."""
    parts = (policy.name, policy.arm, policy.when.text, policy.target, policy.hold, policy.then, policy.needs, policy.rule)
    values = (*parts, policy.allow_irreversible, policy.schedule, *((policy.start,) if policy.start else ()))
    return "\x1f".join(map(repr, values))
