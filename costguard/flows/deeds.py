"""Deeds of one guard run: intents are confirmed by what was listed, made for what is coming, cancelled, and done one at a time.

What is asked right before a request is derived anew from a fresh look, from what people wish at that moment, and from measures
taken then: somebody may have pressed keep, or started a job, since the plan was made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from secrets import token_hex

from costguard.core.guard.facts import waste_of
from costguard.core.guard.incarnation import incarnation_of
from costguard.core.guard.intent import CANCELLED, GRACE, IN_DOUBT, OPEN, PLANNED, READY, Intent
from costguard.core.guard.judging import probe
from costguard.core.guard.owning import approved, armed, frozen, lease_of, owner_of, phase_of, protection_of
from costguard.core.guard.planning import Case, is_irreversible
from costguard.core.guard.policy import CAP_RULE, IDLE_RULE, STOP, TERMINATE, Policy, reaches
from costguard.core.guard.seat import spacing
from costguard.core.guard.sight import Rules, Sight
from costguard.core.guard.surveying import Survey, cap_policies, open_for
from costguard.core.guard.verdict import Proposal
from costguard.core.guard.verdicts import concerns
from costguard.core.guard.wishes import Wish
from costguard.core.metering.observation import Observation
from costguard.core.metering.resource import ResourceKey
from costguard.core.period import Period
from costguard.core.sample import Sample
from costguard.core.spending import Live
from costguard.flows.acting import Acted, Hands, Still, act, confirm, hands_of, settle
from costguard.flows.carried import evidence_text
from costguard.ports import Clock, InstanceSource, UtilizationSource
from costguard.ports.guarding import GuardBook

WAITS = frozenset(("grace", "rate"))
"""What an intent may wait for; anything else cancels it."""
PROBED = timedelta(minutes=15)


@dataclass(slots=True, kw_only=True)
class Deeds:
    """The deeds of one run. `sources`: who can be asked about a resource. `broken`: why nothing may be done any more.

    `observes`: something holds every act of this run (its start, a gap, a clock), so that nothing is sent again either.
    """

    book: GuardBook
    rules: Rules
    source_of: Callable[[ResourceKey], InstanceSource | None]
    clock: Clock
    seconds: Callable[[], float]
    epoch: int
    observes: bool = False
    notes: list[str] = field(default_factory=list)
    broken: str = ""

    def confirm_all(self, intents: Iterable[Intent], live: Sequence[Live]) -> bool:
        """Move what may have been sent by what is seen of it now, and send again what a listing contradicts."""
        by_key, moved = {one.observation.key: one for one in live}, False
        for intent in intents:
            if intent.state in IN_DOUBT and not self.broken:
                acted = self._confirmed(intent, by_key.get(intent.life.key))
                moved = moved or acted.intent != intent
                self._took(acted)
        return moved

    def _confirmed(self, intent: Intent, live: Live | None) -> Acted:
        now, hands = self.clock.now(), self._hands(intent.life.key)
        still = self._still(intent)
        if live is None or live.absent_at is not None:
            absences = 1 + (now - live.absent_at) // self.rules.interval if live and live.absent_at else 3
            return confirm(intent, None, self.book, still, absences=absences, asked_at=now, now=now)
        if intent.sent_at is not None and live.seen_at <= intent.sent_at:
            return settle(intent, hands, self.book, self.clock, still)
        acted = confirm(intent, live.observation, self.book, still, absences=0, asked_at=live.seen_at, now=now)
        if acted.again and not acted.broken and not self.observes:
            return act(acted.intent, hands, self.book, self.clock, still, epoch=self.epoch, seconds=self.seconds)
        return acted

    def go(self, found: Survey, sight: Sight) -> None:
        """Make intents for acts that are coming, cancel those whose reason is gone, and do what goes."""
        cases = {(case.verdict.policy.name, case.verdict.life): case for case in found.cases}
        wanted = [p for p in found.proposals if p.step.do in (STOP, TERMINATE)]
        self._cancel(sight.intents, wanted)
        for proposal in wanted:
            case = cases[proposal.verdict.policy.name, proposal.verdict.life]
            held = {reason for reason, _ in proposal.held_by}
            told = bool(case.climb and case.climb.done)
            if self.broken or not told or not held <= WAITS:
                continue
            intent = open_for(self.book.open_intents(), proposal.verdict.life, proposal.step.do)
            intent = intent or self._planned(proposal, case)
            if intent is not None and proposal.goes(self.clock.now()):
                self._do(intent)

    def _do(self, intent: Intent) -> None:
        now = self.clock.now()
        ready: Intent | None = intent
        if intent.state in (PLANNED, GRACE):
            ready = self.book.move_intent(intent, READY, now)
        if ready is None or ready.state != READY:
            return
        still = self._still(ready)
        self._took(
            act(ready, self._hands(ready.life.key), self.book, self.clock, still, epoch=self.epoch, seconds=self.seconds)
        )

    def _planned(self, proposal: Proposal, case: Case) -> Intent | None:
        """A new intent for `proposal`, as recorded; None where there is one already, or the turn is lost."""
        now, policy, handling = self.clock.now(), proposal.verdict.policy, case.live.observation.handling
        loses = handling.stop_loses if proposal.step.do == STOP else handling.terminate_loses
        work = proposal.verdict.work
        facts = {"state": work.state, "confidence": work.confidence, "since": proposal.verdict.since, "seen": case.live.seen_at}
        intent = Intent(
            id=token_hex(8),
            life=proposal.verdict.life,
            act=proposal.step.do,
            policy=policy.name,
            rule=policy.rule,
            why="; ".join(proposal.verdict.reasons[:3]) or policy.when.text,
            evidence=evidence_text(facts, waste_of(case.live, work, now)),
            state=GRACE if proposal.due_at > now else READY,
            created_at=now,
            moved_at=now,
            epoch=self.epoch,
            lose=loses if policy.allow_irreversible or proposal.step.do in case.approved else (),
            irreversible=is_irreversible(proposal, case),
        )
        return intent if self.book.plan_intent(intent) else None

    def _cancel(self, intents: Iterable[Intent], wanted: Sequence[Proposal]) -> None:
        """What waits, and is wanted no more or is held by something that does not pass by itself."""
        for intent in intents:
            if intent.state not in OPEN or intent.state in IN_DOUBT:
                continue
            mine = [p for p in wanted if p.verdict.life == intent.life and p.step.do == intent.act]
            held = [says for p in mine for reason, says in p.held_by if reason not in WAITS]
            if not mine or held:
                why = held[0] if held else "its condition holds no more"
                self.book.move_intent(intent, CANCELLED, self.clock.now(), outcome=why)

    def _took(self, acted: Acted) -> None:
        self.broken = self.broken or acted.broken
        if acted.held:
            self.notes.append(f"{acted.intent.life.key.id}: {acted.held}")

    def _hands(self, key: ResourceKey) -> Hands:
        source = self.source_of(key)
        return hands_of(source) if source is not None else Hands()

    def _still(self, intent: Intent) -> Still:
        def still(seen: Observation) -> str:
            now = self.clock.now()
            wishes = self.book.open_wishes(now)
            return self._against(intent, seen, wishes, now) or self._works(intent, seen, now)

        return still

    def _against(self, intent: Intent, seen: Observation, wishes: Sequence[Wish], now: datetime) -> str:
        """What people and labels say against it at this moment; "" for nothing."""
        policies = {p.name: p for p in (*self.rules.policies, *cap_policies(self.rules.budgets))}
        policy, life = policies.get(intent.policy), incarnation_of(seen)
        if policy is None:
            return "its policy is no more"
        freeze, lease, phase = frozen(wishes, seen.key, now), lease_of(life, wishes, now), phase_of(life, wishes, now)
        sighted = self.book.protections().get(seen.key)
        protection = protection_of(seen, wishes, self.rules.protect, sighted.at if sighted else None, now)
        wanted = policy.rule != CAP_RULE
        unarmed = not reaches(armed(policy, wishes, now), intent.act) and intent.act not in approved(life, wishes, now)
        against = (
            f"{freeze.who} froze all acts" if freeze else "",
            protection.why if protection.protected else "",
            f"{lease.who} keeps it" if lease and wanted else "",
            f"{phase.who} declared {phase.subject or 'work'}" if phase and wanted else "",
            f"{policy.name} is not armed for it any more" if unarmed else "",
            self._not_meant(policy, seen),
        )
        return next((why for why in against if why), "")

    def _not_meant(self, policy: Policy, seen: Observation) -> str:
        meant = policy.rule == CAP_RULE or concerns(policy.target, seen, owner_of(seen, self.rules.owner_from))
        return "" if meant else f"{policy.name} does not concern it any more"

    def _works(self, intent: Intent, seen: Observation, now: datetime) -> str:
        """Why there is work on it right now, by samples taken now where its provider can be asked; "" where there is none."""
        if intent.rule != IDLE_RULE:
            return ""
        samples = list(self.book.samples_since(now - PROBED, [seen.key]).get(seen.key, ()))
        source, fresh = self.source_of(seen.key), tuple[Sample, ...]()
        if isinstance(source, UtilizationSource):
            fresh = source.utilization([seen], Period(start=now - PROBED, end=now)).samples
        samples = sorted({*samples, *fresh}, key=lambda sample: (sample.signal, sample.at))
        if not samples:
            return "nothing measures it at this moment"
        working = probe(samples, now, spacing(samples, self.rules.interval), seen)
        return f"it works: {working}" if working else ""
