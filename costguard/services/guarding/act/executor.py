"""Execute the plan of one guard run: confirm earlier acts, update intents, and perform due acts, each on one machine.

Everything is checked again right before a request, with a new look at the machine, the overrides of that moment and new
samples: since the plan was made, somebody may have run `costguard keep` or started a job. Under an idle rule the activity of
the machine and of its group is measured again, twice; if a measurement is missing, the machine counts as active.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING

from costguard.guard.action_intents import (
    CANCELLED,
    DOUBTFUL_STATES,
    GRACE,
    OPEN_STATES,
    PLANNED,
    READY,
    Intent,
    find_open_intent,
)
from costguard.guard.action_plan import ANNOUNCED_HOLDS, RESTING_STATES, PolicyCase, is_irreversible, list_standing_holds
from costguard.guard.cap_forecast import build_cap_policies
from costguard.guard.context import GuardConfig, GuardSnapshot, ResourceContext
from costguard.guard.escalation import END_MARGIN, Hook, HookRun
from costguard.guard.evaluation import GuardEvaluation, build_constraints, build_current_case, explain_unproven
from costguard.guard.overrides import find_owner
from costguard.guard.policy import (
    CAP_RULE,
    DESTRUCTIVE,
    HOOK,
    IDLE_RULE,
    PERSON_RULE,
    START,
    STOP,
    TERMINATE,
    Policy,
    PolicyStep,
    Proposal,
)
from costguard.guard.policy_evaluation import compute_savings_rate, compute_waste, matches_target
from costguard.guard.scheduled_starts import START_STEP, ScheduledStart
from costguard.guard.timed_stops import TIMED_STOP, list_due_policies, list_ended_stops
from costguard.guard.until import list_ended_dates
from costguard.metering.observation import Observation, identify_incarnation
from costguard.metering.spending import LiveResource
from costguard.providers.ports import InstanceSource, UtilizationSource
from costguard.services.guarding.act.hooks import HookCall, HookRunner
from costguard.services.guarding.act.lanes import DueAct, perform_in_lanes
from costguard.services.guarding.act.recheck import find_group_members, recheck_activity
from costguard.services.guarding.act.scheduled_start import StartDesk, list_promises, start_machine
from costguard.services.guarding.act.send_action import (
    ActionPorts,
    ActionResult,
    FindObjection,
    confirm_action,
    find_action_ports,
    look_at_resource,
    send_action,
    settle_action,
)
from costguard.services.guarding.guard_snapshot import decode_owner, encode_evidence, is_of_hang
from costguard.system.clock import Clock
from costguard.system.tracing import trace_span
from costguard.values.resource import Incarnation, ResourceKey

if TYPE_CHECKING:  # types and no more
    from costguard.ledger.guard.store import GuardStore

WAITABLE_REASONS = ANNOUNCED_HOLDS - {"in_doubt"}
"""What an intent may wait for; anything else cancels it."""
RATE_REASONS = frozenset(("rate",))
"""What may be over once another one was refused."""
PERSON_SENDS_WITHIN = timedelta(minutes=2)
"""How long an intent of a person may wait for the command that wrote it; after that the command has died."""
ACTING_MIN_S, ACTING_MAX_S, LAST_ACT_S = 40.0, 110.0, 11.0
"""How long after its first act a run begins another one: until LAST_ACT_S before the next run, in which the last act ends; for
40 s at least, as the lease of the leader lasts for 60 s; and no longer than 110 s without a new judgement.
"""
CONFIRMING_MAX_S = 20.0
"""How long a run begins to look at machines whose acts are in doubt: it evaluates and acts after that."""


@dataclass(slots=True, kw_only=True)
class ActionExecutor:
    """Executes the intents of one run.

    `source_of`: returns the account to query about a resource. `measures`: sources of samples besides the providers. `sight`:
    the snapshot of the run. `hooks`: those of this process. `broken`: why nothing more may be done; "" if there is no such
    reason. `observes`: every act of this run is held (first run, gap, clock), so nothing is sent again either.
    """

    book: GuardStore
    rules: GuardConfig
    source_of: Callable[[ResourceKey], InstanceSource | None]
    clock: Clock
    seconds: Callable[[], float]
    epoch: int
    sight: GuardSnapshot
    observes: bool = False
    notes: list[str] = field(default_factory=list)
    broken: str = ""
    hooks: HookRunner = field(default_factory=HookRunner)
    measures: Sequence[UtilizationSource] = ()

    @property
    def _listed(self) -> dict[ResourceKey, LiveResource]:
        return {one.observation.key: one for one in self.sight.live}

    def confirm_all(self, intents: Iterable[Intent], live: Sequence[LiveResource]) -> bool:
        """Update intents that may have been sent, by the present listing; repeat requests that the listing contradicts."""
        ended_dates = list_ended_dates(self.sight.wishes, live, self.sight.now)
        for ended in (*list_ended_stops(self.sight.wishes, live, self.sight.now), *ended_dates):  # so that none is done again
            self.book.lift_override(ended.id, who="watchdog", now=self.sight.now)
        by_key, has_moved, questions = {one.observation.key: one for one in live}, False, list[DueAct]()
        for intent in intents:
            if intent.state in DOUBTFUL_STATES and not self.broken:
                acted = self._confirm_intent(intent, by_key.get(intent.life.key))
                if acted is None or (acted.again and not acted.broken and not self.observes):
                    questions.append(self._build_question(intent) if acted is None else self._build_repeat(acted.intent))
                else:
                    self._note_result(acted)
                has_moved = has_moved or (acted is not None and acted.intent != intent)
        old_intents = {act.intent.id: act.intent for act in questions}
        results = self._perform(questions, len(questions), CONFIRMING_MAX_S)
        return has_moved or any(acted.intent != old_intents[acted.intent.id] for acted in results)

    def _confirm_intent(self, intent: Intent, live: LiveResource | None) -> ActionResult | None:
        """Update `intent` by the listing; return None if the machine was not listed since the send, and has to be looked up."""
        now, still = self.clock.now(), self._build_objection_check(intent)
        if live is None or live.absent_at is not None:
            over = self.book.load_departure(intent.life.key, intent.sent_at or intent.moved_at)
            return confirm_action(intent, over.listed, self.book, still, absences=over.absences, asked_at=now, now=now)
        if intent.sent_at is not None and live.seen_at <= intent.sent_at:
            return None
        return confirm_action(intent, live.observation, self.book, still, absences=0, asked_at=live.seen_at, now=now)

    def _build_question(self, intent: Intent) -> DueAct:
        hands, still = self._find_ports(intent.life.key), self._build_objection_check(intent)
        return _build_due_act(intent, hands, lambda: settle_action(intent, hands, self.book, self.clock, still))

    def _build_repeat(self, intent: Intent) -> DueAct:
        hands, still = self._find_ports(intent.life.key), self._build_repeat_check(intent)
        return _build_due_act(
            intent,
            hands,
            lambda: send_action(intent, hands, self.book, self.clock, still, epoch=self.epoch, seconds=self.seconds),
        )

    def _perform(self, acts: Sequence[DueAct], room: int, begin_within_s: float) -> Sequence[ActionResult]:
        """Perform `acts`, those of different accounts at the same time, and note what became of each in their order."""
        if not acts or room <= 0 or self.broken:
            return ()
        began_s = self.seconds()
        performed_acts = perform_in_lanes(
            acts, room=room, may_begin=lambda: self.seconds() - began_s <= begin_within_s, begin_within_s=begin_within_s
        )
        for acted in performed_acts.results:
            self._note_result(acted)
        self.notes.extend(performed_acts.notes)
        return performed_acts.results

    def execute_plan(self, evaluation: GuardEvaluation, snapshot: GuardSnapshot) -> None:
        """Create intents for coming acts, cancel those whose reason is gone, and perform those that are due.

        An act that is refused at its last check uses no headroom, so the next one gets it; the refused one is then tried after
        the others, so that none waits forever. Hard caps go first, then the highest priority, then what saves most an hour.
        None begins so late that the next run would wait, and none on an account where several failed in a row (`lanes`).
        """
        self.sight = replace(snapshot, breaker=evaluation.breaker)
        cases = {(case.verdict.policy.name, case.verdict.life): case for case in evaluation.cases}
        proposals = [p for p in evaluation.proposals if p.step.do in (STOP, TERMINATE)]
        self._cancel_unwanted(snapshot.intents, proposals)
        due = list[tuple[Proposal, Intent]]()
        for proposal in _select_leading([p for p in proposals if _may_have_intent(p, cases)], evaluation.at):
            case = cases[proposal.verdict.policy.name, proposal.verdict.life]
            if self.broken:
                continue
            intent = find_open_intent(self.book.load_open_intents(), proposal.verdict.life, proposal.step.do)
            intent = self._hand_over(intent, proposal) if intent is not None else None
            intent = intent or self._plan_intent(proposal, case)
            if intent is not None and proposal.due_at <= self.clock.now() and _get_reasons(proposal) <= RATE_REASONS:
                due.append((proposal, intent))
        refused = {
            (i.life, i.act): i.moved_at for i in snapshot.intents if i.state == CANCELLED or (i.state == READY and i.outcome)
        }
        due.sort(key=lambda one: _rank_by_urgency(one[0], refused.get((one[1].life, one[1].act)), cases))
        self._execute_due([intent for _, intent in due], sum(proposal.is_ready(evaluation.at) for proposal, _ in due))
        self._begin_hooks(evaluation, cases)
        self._start_due(evaluation.starts)

    def _hand_over(self, intent: Intent, proposal: Proposal) -> Intent | None:
        """Return the open `intent` if it is of the policy of `proposal`, or in doubt; else cancel it and return None."""
        name = proposal.verdict.policy.name
        if intent.policy == name or intent.state in DOUBTFUL_STATES or intent.rule == PERSON_RULE:
            return intent
        self.book.move_intent(intent, CANCELLED, self.clock.now(), outcome=f"{name} acts on it first")
        return None

    def _start_due(self, starts: Iterable[ScheduledStart]) -> None:
        """Start the machines that are due and that nothing holds, each at a price that is asked right before."""
        desk = self._build_start_desk()
        for start in starts:
            if start.is_ready(self.clock.now()) and not self.broken:
                sent = start_machine(start, desk)
                if sent is not None:
                    self._note_result(sent)

    def _build_start_desk(self) -> StartDesk:
        return StartDesk(
            book=self.book,
            clock=self.clock,
            seconds=self.seconds,
            epoch=self.epoch,
            find_ports=self._find_ports,
            standings=self.sight.standings,
            find_objection=lambda intent, observation, now: self._find_objection(intent, START_STEP, observation, now),
            promised=list_promises(self.sight.started, self._listed, self.clock.now()),
        )

    def _execute_due(self, due: Sequence[Intent], room: int) -> None:
        """Perform `due`, the first ones first, until `room` of them have used headroom."""
        acts = []
        for intent in due:
            hands = self._find_ports(intent.life.key)
            acts.append(_build_due_act(intent, hands, partial(self._execute_intent, intent, hands)))
        left_s = (self.rules.interval - (self.clock.now() - self.sight.now)).total_seconds() - LAST_ACT_S
        self._perform(acts, room, min(max(left_s, ACTING_MIN_S), ACTING_MAX_S))

    def _execute_intent(self, intent: Intent, hands: ActionPorts) -> ActionResult | None:
        """Perform one intent, in a thread of its own; return None if another process moved it."""
        now = self.clock.now()
        ready: Intent | None = intent
        if intent.state in (PLANNED, GRACE):
            ready = self.book.move_intent(intent, READY, now)
        if ready is None or ready.state != READY:
            return None
        still, key = self._build_objection_check(ready), ready.life.key
        with trace_span(
            "act", act=ready.act, policy=ready.policy, provider=key.provider, account=key.account, resource=key.id
        ) as span:
            acted = send_action(ready, hands, self.book, self.clock, still, epoch=self.epoch, seconds=self.seconds)
            span.set(sent=acted.sent, state=acted.intent.state)
        return acted

    def _begin_hooks(self, evaluation: GuardEvaluation, cases: Mapping[tuple[str, Incarnation], PolicyCase]) -> None:
        for proposal in evaluation.proposals:
            if proposal.step.do == HOOK and proposal.is_ready(self.clock.now()) and not self.broken and self.hooks.has_room:
                acts = [
                    other.due_at
                    for other in evaluation.proposals
                    if other.verdict is proposal.verdict and other.step.do in DESTRUCTIVE and other.number > proposal.number
                ]
                self._begin_hook(proposal, cases[proposal.verdict.policy.name, proposal.verdict.life], min(acts, default=None))

    def _begin_hook(self, proposal: Proposal, case: PolicyCase, deadline: datetime | None) -> None:
        """Check the machine, record that its hook begins, then start the hook; without the record it is not started."""
        now, policy, step, life = self.clock.now(), proposal.verdict.policy, proposal.step, proposal.verdict.life
        hook = next((one for one in self.rules.hooks if one.name == step.run), Hook(name=step.run, command=(step.run,)))
        run = HookRun(
            id=token_hex(8),
            life=life,
            policy=policy.name,
            rule=policy.rule,
            number=proposal.number,
            hook=hook.name,
            began_at=now,
            until=now + step.timeout + END_MARGIN,
            epoch=self.epoch,
        )
        observation = case.live.observation
        hands = self._find_ports(life.key)
        if hands.inspector is not None:
            look = look_at_resource(hands.inspector, life.key, self.clock, self.seconds)
            if look.seen is None:
                self.notes.append(f"{life.key.id}: its hook {hook.name} did not start: {look.why}")
                return
            observation = look.seen
        against = "the machine was restarted or replaced" if identify_incarnation(observation) != life else ""
        against = against or self._find_objection(run, step, observation, now) or self._find_activity(run, observation, now)
        if against or not self.book.begin_hook(run, now):
            self.notes.append(f"{life.key.id}: its hook {hook.name} did not start: {against or 'the ledger does not let it'}")
            return
        self.hooks.begin(
            HookCall(
                id=run.id,
                hook=hook,
                within_s=step.timeout.total_seconds(),
                at=now,
                provider=life.key.provider,
                account=life.key.account,
                region=life.key.region,
                resource=life.key.id,
                name=observation.name,
                owner=case.owner,
                policy=policy.name,
                reason="; ".join(proposal.verdict.reasons[:3]) or policy.when.text,
                deadline=deadline,
            )
        )

    def _plan_intent(self, proposal: Proposal, case: PolicyCase) -> Intent | None:
        """Record a new intent for `proposal`; return None if an open one exists, or the leader lease is lost."""
        now, policy, handling = self.clock.now(), proposal.verdict.policy, case.live.observation.handling
        loses = handling.stop_loses if proposal.step.do == STOP else handling.terminate_loses
        work = proposal.verdict.work
        facts = {"state": work.state, "confidence": work.confidence, "since": proposal.verdict.since, "seen": case.live.seen_at}
        facts |= {"name": case.live.observation.name, "owner": case.owner}
        facts |= {"meaning": policy.digest, "type": case.live.observation.instance_type}
        intent = Intent(
            id=token_hex(8),
            life=proposal.verdict.life,
            act=proposal.step.do,
            policy=policy.name,
            rule=policy.rule,
            why="; ".join(proposal.verdict.reasons[:3]) or policy.when.text,
            evidence=encode_evidence(facts, compute_waste(case.live, work, now), compute_savings_rate(case.live, now)),
            state=GRACE if proposal.due_at > now else READY,
            created_at=now,
            moved_at=now,
            epoch=self.epoch,
            lose=loses if policy.allow_irreversible or proposal.step.do in case.approved else (),
            irreversible=is_irreversible(proposal, case),
        )
        return intent if self.book.plan_intent(intent) else None

    def _cancel_unwanted(self, intents: Iterable[Intent], proposals: Sequence[Proposal]) -> None:
        """Cancel waiting intents that their policy does not want any more, or holds; another policy's reasons do not count."""
        for intent in intents:
            if intent.state not in OPEN_STATES or intent.state in DOUBTFUL_STATES:
                continue
            if intent.rule == PERSON_RULE and self.clock.now() - intent.moved_at < PERSON_SENDS_WITHIN:
                continue
            own = [
                p
                for p in proposals
                if p.verdict.life == intent.life and p.step.do == intent.act and p.verdict.policy.name == intent.policy
            ]
            holds = [says for p in own for reason, says in p.held_by if reason not in WAITABLE_REASONS]
            if not own or holds:
                why = holds[0] if holds else "its condition no longer holds"
                why = "it was not sent in the run that planned it" if intent.act == START else why
                self.book.move_intent(intent, CANCELLED, self.clock.now(), outcome=why)

    def _note_result(self, acted: ActionResult) -> None:
        self.broken = self.broken or acted.broken
        if acted.held:
            self.notes.append(f"{acted.intent.life.key.id}: {acted.held}")

    def _find_ports(self, key: ResourceKey) -> ActionPorts:
        source = self.source_of(key)
        return find_action_ports(source) if source is not None else ActionPorts()

    def _build_objection_check(self, intent: Intent) -> FindObjection:
        def still(observation: Observation) -> str:
            now = self.clock.now()
            return self._find_objection(intent, PolicyStep(do=intent.act), observation, now) or self._find_activity(
                intent, observation, now
            )

        return still

    def _build_repeat_check(self, intent: Intent) -> FindObjection:
        """Return the check of a repeated request:

        also whether the activity condition of the plan still holds, minutes later.
        """
        policy = next((one for one in self.rules.policies if one.name == intent.policy), None)
        idle = policy is not None and intent.rule == IDLE_RULE
        over = explain_unproven(intent.life.key, policy, self.rules, self.sight) if policy is not None and idle else ""
        return (lambda _: f"its condition no longer holds: {over}") if over else self._build_objection_check(intent)

    def _find_objection(self, deed: Intent | HookRun, step: PolicyStep, observation: Observation, now: datetime) -> str:
        """Return what forbids the act at this moment, with `observation` observed just now; "" for nothing.

        All holds of the plan are derived anew by the plan's own rules, from the new observation and the present ledger:
        freezes, leases (also that of a machine started by hand), phases, protection by people, labels and its provider, arming
        and approvals, owner and claims, its controller, whether its provider has the act, what would be lost, how long it is
        known, other unsettled acts. The breaker and quarantine are those of this run: they follow from all machines together,
        and nothing was listed since. Not checked again: the grace period, which only grows; what holds a whole run
        (`observes`); the limits, which the ledger checks when it lets an act run; its activity, which `_find_activity` measures
        now.
        """
        overrides = tuple(self.book.load_open_overrides(now))
        planned = list_due_policies(observation, overrides, now)
        policies = {p.name: p for p in (*self.rules.policies, *build_cap_policies(self.rules.budgets), *planned)}
        policy, listed = policies.get(deed.policy), self._listed.get(observation.key)
        if policy is None:
            return "its planned stop was cancelled" if deed.policy == TIMED_STOP.name else "its policy no longer exists"
        if listed is None:
            return "it is no longer listed"
        owner = find_owner(observation, self.rules.owner_from)
        if isinstance(deed, Intent) and decode_owner(deed) not in (None, owner):
            return "its owner changed: the new owner is notified first"
        live = replace(listed, observation=observation, seen_at=now)
        snapshot = replace(
            self.sight,
            now=now,
            wishes=overrides,
            protections=self.book.load_protections(),
            intents=tuple(intent for intent in self.book.load_open_intents() if intent.id != deed.id),
        )
        holds = list_standing_holds(
            step, build_current_case(live, policy, self.rules, snapshot), build_constraints(self.rules, snapshot)
        )
        return next((says for _, says in holds), "") or self._explain_out_of_target(policy, live, snapshot)

    def _explain_out_of_target(self, policy: Policy, live: LiveResource, snapshot: GuardSnapshot) -> str:
        observation, end = live.observation, ResourceContext.of(live, self.rules, snapshot).read_end_date(policy)
        if policy.until is not None and end is not None and end.state != policy.until.label:
            return f"{policy.name} no longer applies: {end.why}"
        is_target = policy.rule == CAP_RULE or matches_target(
            policy.target, observation, find_owner(observation, self.rules.owner_from)
        )
        return "" if is_target else f"{policy.name} no longer matches it"

    def _find_activity(self, deed: Intent | HookRun, observation: Observation, now: datetime) -> str:
        """Return why the machine or its group is active now, by new samples; "" if it is not.

        A stopped machine needs no sample.
        """
        if deed.rule != IDLE_RULE or observation.state in RESTING_STATES:
            return ""
        policy = next((one for one in self.rules.policies if one.name == deed.policy), None)
        together = policy is None or not policy.alone
        group, others = find_group_members(observation, self.sight.live, self.rules.group_from) if together else (None, [])
        return recheck_activity(
            observation,
            group,
            others,
            book=self.book,
            source_of=self.source_of,
            interval=self.rules.interval,
            lags=self.sight.lags,
            now=now,
            also=self.measures,
            hung=isinstance(deed, Intent) and is_of_hang(deed),
        )


def _may_have_intent(proposal: Proposal, cases: Mapping[tuple[str, Incarnation], PolicyCase]) -> bool:
    """Return whether the act was announced, and waits only for what ends by itself."""
    climb = cases[proposal.verdict.policy.name, proposal.verdict.life].climb
    announced = climb is not None and bool(climb.done) and climb.announced_from != proposal.verdict.at  # anew in this run
    return announced and _get_reasons(proposal) <= WAITABLE_REASONS


def _get_reasons(proposal: Proposal) -> frozenset[str]:
    return frozenset(reason for reason, _ in proposal.held_by)


def _select_leading(proposals: Iterable[Proposal], now: datetime) -> list[Proposal]:
    """Return one proposal for each act on a machine: one that may be done now, hard caps first, else the earliest."""
    leading = dict[tuple[Incarnation, str], Proposal]()
    for one in sorted(proposals, key=lambda p: (not p.is_ready(now), p.verdict.policy.rule != CAP_RULE, p.due_at)):
        leading.setdefault((one.verdict.life, one.step.do), one)
    return list(leading.values())


def _rank_by_urgency(
    proposal: Proposal, refused_at: datetime | None, cases: Mapping[tuple[str, Incarnation], PolicyCase]
) -> tuple[bool, bool, float, tuple[bool, int, int, float, str, tuple[str, ...]]]:
    """Return the sort key: hard caps, then intents not refused recently, then refused ones, the oldest refusal first.

    Among equals what saves most an hour goes first, whatever its currency; an unknown price comes last.
    """
    verdict, policy = proposal.verdict, proposal.verdict.policy
    rate = compute_savings_rate(cases[policy.name, verdict.life].live, verdict.at)
    saves, key = rate.nano_per_hour if rate is not None else 0, tuple(verdict.life.key)
    urgent = (not proposal.is_ready(verdict.at), -policy.priority, -saves, proposal.due_at.timestamp(), policy.name, key)
    return policy.rule != CAP_RULE, refused_at is not None, refused_at.timestamp() if refused_at else 0.0, urgent


def _build_due_act(intent: Intent, hands: ActionPorts, perform: Callable[[], ActionResult | None]) -> DueAct:
    account = (intent.life.key.provider, intent.life.key.account)
    return DueAct(intent=intent, account=account, at_once=hands.at_once, perform=perform)
