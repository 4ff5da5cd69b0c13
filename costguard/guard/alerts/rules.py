"""What a guard run has to tell: every notice that holds now, derived anew. Who is told, and whether again, is `telling`'s."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo

from costguard.guard.action_intents import DONE, UNCONFIRMED
from costguard.guard.action_plan import RESTING, Case, effective
from costguard.guard.alerts import wording
from costguard.guard.alerts.alert import Notice
from costguard.guard.alerts.fleet import alarms_of, cap_reasons
from costguard.guard.alerts.hook_notices import of_hooks
from costguard.guard.alerts.silence import silences
from costguard.guard.cap_forecast import Foresight
from costguard.guard.context import Rules, Sight
from costguard.guard.evaluation import Survey
from costguard.guard.facts import OF_WORK, computing_of, rate_of, waste_of
from costguard.guard.owning import owner_of
from costguard.guard.policy import ASK, DESTRUCTIVE, IDLE_RULE, NOTIFY, STOP, TERMINATE, reaches
from costguard.guard.verdict import CANNOT_SAY, Proposal
from costguard.guard.work import ACTIVE, HUNG, IDLE, WARMING
from costguard.metering.inventory import COMPLETE
from costguard.metering.spending import LiveResource, ScopeCoverage
from costguard.values.encoding import shell_word
from costguard.values.money import Money, Rate
from costguard.values.resource import RUNNING

PASSING = frozenset(("grace", "rate", "hook", "in_doubt"))
"""What holds an act back and passes by itself."""
TOLD_DONE = timedelta(hours=1)
"""How long it is told that an act was proven."""
BLIND_AFTER = timedelta(minutes=45)
"""How long a machine may be unknown before somebody is told."""
WASTE_LEAST, WASTE_AFTER = 0.5, timedelta(hours=1)
"""Of a machine that works: the share of its GPUs that does nothing, and for how long, before somebody is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What an act was for: what idling had `idled` away, and what it `saves` an hour. None: not known.

    `name`, `owner`: of what it was done to, which may be there no more.
    """

    idled: Money | None = None
    saves: Rate | None = None
    name: str = ""
    owner: str = ""


NO_COST = Cost()


def notices_of(
    survey: Survey, rules: Rules, sight: Sight, scopes: Iterable[ScopeCoverage], costs: Mapping[str, Cost]
) -> list[Notice]:
    """Everything to tell at `survey.at`. `costs`: what each act was for, by the id of its intent."""
    scopes = tuple(scopes)
    found = [*_of_cases(survey, rules, sight, scopes), *_of_works(survey, sight, rules), *_of_intents(sight, rules, costs)]
    return [*found, *of_hooks(survey, sight, rules), *alarms_of(survey, rules, sight, scopes)]


def _of_cases(survey: Survey, rules: Rules, sight: Sight, scopes: Iterable[ScopeCoverage]) -> Iterator[Notice]:
    dark = {scope.scope for scope in scopes if scope.outcome != COMPLETE}  # that their provider cannot be asked is told once
    caps = {f"budget:{one.standing.budget.name}": one for one in survey.foresights}
    ahead: dict[tuple[str, object], list[Proposal]] = defaultdict(list)
    for proposal in survey.proposals:
        if proposal.step.do in DESTRUCTIVE:
            ahead[proposal.verdict.policy.name, proposal.verdict.life].append(proposal)
    blind, silent = set[object](), silences(sight.agents, sight.live, sight.now)
    for case in survey.cases:
        policy, climb = case.verdict.policy, case.climb
        if not reaches(case.level, NOTIFY):
            continue
        told = _tells(case, climb.done if climb else ())
        if told:
            acts = ahead[policy.name, case.verdict.life]
            act = min(acts, key=lambda p: p.due_at) if acts else None
            matter = replace(
                matter_of(case.live, case.owner, sight.now, rules.zone),
                topic=f"policy:{policy.name}",
                because=_because(case, caps.get(policy.name), sight.now, rules.zone),
                to=tuple(dict.fromkeys(policy.then[number].to for number in told)),
            )
            yield _of_climb(case, matter, told[-1], act, sight.now)
        elif case.live.scope not in dark and _is_blind(case, sight.now) and case.verdict.life.key not in blind:
            blind.add(case.verdict.life.key)
            matter = replace(matter_of(case.live, case.owner, sight.now, rules.zone), topic="blind")
            says = silent.pop(case.verdict.life.key, "")
            why = (*([says] if says else []), *case.verdict.reasons)
            yield wording.blind(matter, at=sight.now, since=None, why=why, so_far=None)
    for live in (one for one in sight.live if one.observation.key in silent and one.scope not in dark):
        matter = matter_of(live, owner_of(live.observation, rules.owner_from), sight.now, rules.zone)
        why = (silent[live.observation.key],)
        yield wording.blind(replace(matter, topic="blind"), at=sight.now, since=None, why=why, so_far=None)


def _tells(case: Case, done: Iterable[int]) -> list[int]:
    """The steps of `done` that there is still something to tell of: once it is stopped, those after its stop."""
    steps, then = case.verdict.policy.then, [n for n in done if n < len(case.verdict.policy.then)]
    stops = [n for n in then if steps[n].do == STOP and effective(steps[n], case).do == STOP]
    if stops and case.live.observation.state in RESTING:
        then = [n for n in then if n > stops[-1]]
    return [n for n in then if effective(steps[n], case).do in (NOTIFY, ASK) or steps[n].do == ASK]


def _held_back(proposal: Proposal | None) -> str:
    """What holds an act back that does not pass by itself, in words; "" where it comes when it is due."""
    return next((says for reason, says in (proposal.held_by if proposal else ()) if reason not in PASSING), "")


def _is_blind(case: Case, now: datetime) -> bool:
    seen, work = case.live.observation, case.verdict.work
    asks = case.verdict.policy.rule == IDLE_RULE and case.verdict.finding == CANNOT_SAY
    return asks and seen.state == RUNNING and work.state != WARMING and now - case.live.first_seen_at >= BLIND_AFTER


def _because(case: Case, cap: Foresight | None, now: datetime, zone: tzinfo) -> tuple[str, ...]:
    """Why a policy holds that does not ask about work: the money and the time of a hard cap, else what its verdict says."""
    verdict = case.verdict
    if cap is not None:
        return cap_reasons(cap, now, zone)
    return () if verdict.policy.when.names & OF_WORK else (verdict.reasons[:3] or (verdict.policy.when.text,))


def _of_climb(case: Case, matter: wording.Matter, number: int, act: Proposal | None, now: datetime) -> Notice:
    policy, climb, work = case.verdict.policy, case.climb, case.verdict.work
    assert climb is not None  # noqa: S101 - for the type checker; asked by the caller
    step = effective(policy.then[number], case)
    since, handling = min(climb.since, now), case.live.observation.handling
    so_far = waste_of(case.live, work, now) if work.state in {IDLE, HUNG} else cost_since(case.live, since, now)
    if step.do == ASK:
        loses = handling.terminate_loses if step.act == TERMINATE else handling.stop_loses
        because = f"{policy.name} asks"
        if policy.then[number].do == STOP:
            because = "nobody allowed what it would lose" if step.act == STOP else "its provider has no stop for it"
        yes = f"costguard approve {shell_word(case.live.observation.key.id)} {step.act}"
        notice = wording.asked(
            matter, work, act=step.act, at=now, since=since, so_far=so_far, loses=loses, because=because, yes=yes, stage=number
        )
    elif act is not None and not _held_back(act):
        loses = handling.terminate_loses if act.step.do == TERMINATE else handling.stop_loses
        answered = policy.then[act.number].do != act.step.do  # a question that somebody said yes to is told as what it is now
        stage = number + 1 if answered else number
        notice = wording.planned(
            matter, work, act=act.step.do, due=act.due_at, at=now, since=since, so_far=so_far, stage=stage, loses=loses
        )
    elif work.state == HUNG:
        notice = wording.hung(matter, work, at=now, since=since, so_far=so_far)
    elif work.state == IDLE and policy.when.names & {"state", "time_in_state"}:
        notice = wording.idle(matter, work, at=now, since=since, so_far=so_far)
    else:
        notice = _of_rule(case, matter, since, so_far, now)
    if act is not None and (held := _held_back(act)) and step.do != ASK:
        said = ("next", f"no {act.step.do} while this holds it back: {held}")
        notice = replace(notice, facts=tuple(said if fact[0] == "next" else fact for fact in notice.facts))
    severity = step.severity if step.do == NOTIFY else notice.severity
    return replace(notice, severity=severity, stage=max(notice.stage, number))


def _of_rule(case: Case, matter: wording.Matter, since: datetime, so_far: Money | None, now: datetime) -> Notice:
    policy = case.verdict.policy
    facts = (
        ("since", matter.moment(since)),
        ("why", "; ".join(matter.because or case.verdict.reasons[:3]) or policy.when.text),
        ("so far", wording.sum_text(so_far)),
        ("per hour", wording.rate_text(matter.rate)),
        ("next", "nothing but this notice"),
    )
    return Notice(
        topic=matter.topic,
        subject=matter.subject,
        owner=matter.owner,
        severity="warning",
        what=f"{policy.name}: {matter.called}",
        at=now,
        facts=facts,
        keep=wording.keep_command(matter.key.id),
        to=matter.to,
    )


def _of_works(survey: Survey, sight: Sight, rules: Rules) -> Iterator[Notice]:
    """Machines that work with a part of their GPUs, and those whose group works without any of theirs."""
    if not rules.policies:
        return
    for live in sight.live:
        work, gpus = survey.works[live.observation.key], round(live.observation.gpu_count)
        long = work.since is not None and survey.at - work.since >= WASTE_AFTER
        if work.state == ACTIVE and long and work.wasted_share >= WASTE_LEAST and gpus and work.since is not None:
            matter = replace(
                matter_of(live, owner_of(live.observation, rules.owner_from), survey.at, rules.zone), topic="waste"
            )
            idle = round(work.wasted_share * gpus)
            yield wording.waste(matter, work, idle_gpus=idle, gpus=gpus, at=survey.at, since=work.since)


def _of_intents(sight: Sight, rules: Rules, costs: Mapping[str, Cost]) -> Iterator[Notice]:
    """What may have been done, and what was: also to a machine that is there no more."""
    by_key = {live.observation.key: live for live in sight.live}
    for intent in sight.intents:
        live, cost, key = by_key.get(intent.life.key), costs.get(intent.id, NO_COST), intent.life.key
        if intent.sent_at is None:
            continue
        gone = wording.Matter(topic="", key=key, owner=cost.owner, name=cost.name, zone=rules.zone)
        there = live and matter_of(live, owner_of(live.observation, rules.owner_from), sight.now, rules.zone)
        matter = replace(there or gone, topic=f"act:{intent.act}")
        if intent.state == UNCONFIRMED and live is not None:
            spent = cost_since(live, intent.sent_at, sight.now)
            yield wording.not_confirmed(
                matter, act=intent.act, at=sight.now, asked_at=intent.sent_at, sends=intent.sends, so_far=spent
            )
        elif intent.state == DONE and sight.now - intent.moved_at < TOLD_DONE:
            yield wording.done(
                matter,
                act=intent.act,
                at=intent.moved_at,
                asked_at=intent.sent_at,
                idle_cost=cost.idled,
                saves=cost.saves,
                afterwards=rate_of(live, sight.now) if live else None,
            )


def matter_of(live: LiveResource, owner: str, now: datetime, zone: tzinfo = UTC) -> wording.Matter:
    """What a notice says of a machine."""
    seen = live.observation
    gpus = f"{seen.gpu_count:g}x{seen.gpu}" if seen.gpu else seen.kind
    told = f"{gpus} {seen.instance_type}".strip()
    return wording.Matter(topic="", key=seen.key, owner=owner, name=seen.name, told=told, rate=rate_of(live, now), zone=zone)


def cost_since(live: LiveResource, since: datetime, now: datetime) -> Money | None:
    """What its computing cost from `since` on, at its present rate."""
    return wording.cost_of(computing_of(live, now), max(now - since, timedelta()))
