"""What a guard run has to tell: every notice that holds now, derived anew. Who is told, and whether again, is `telling`'s."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from costguard.core.guard import alarms, wording
from costguard.core.guard.encoding import shell_word
from costguard.core.guard.facts import computing_of, rate_of, waste_of
from costguard.core.guard.intent import DONE, UNCONFIRMED
from costguard.core.guard.notice import Notice
from costguard.core.guard.owning import owner_of
from costguard.core.guard.planning import RESTING, Case, effective
from costguard.core.guard.policy import ASK, DESTRUCTIVE, IDLE_RULE, NOTIFY, STOP, TERMINATE, reaches
from costguard.core.guard.railing import HOUR, churning
from costguard.core.guard.runway import runway_of
from costguard.core.guard.sight import Rules, Sight
from costguard.core.guard.surveying import Survey
from costguard.core.guard.verdict import CANNOT_SAY, Proposal
from costguard.core.guard.work import ACTIVE, HUNG, IDLE, WARMING
from costguard.core.metering.resource import ENDED, RUNNING
from costguard.core.money import Money, Rate
from costguard.core.spending import Live, ScopeNow
from costguard.core.standing import concerns

PASSING = frozenset(("grace", "rate"))
"""What holds an act back and passes by itself."""
TOLD_DONE = timedelta(hours=1)
"""How long it is told that an act was proven."""
BLIND_AFTER = timedelta(minutes=45)
"""How long a machine may be unknown before somebody is told."""
WASTE_LEAST, WASTE_AFTER = 0.5, timedelta(hours=1)
"""Of a machine that works: the share of its GPUs that does nothing, and for how long, before somebody is told."""
DOWN_AFTER = timedelta(minutes=15)


def notices_of(
    survey: Survey, rules: Rules, sight: Sight, scopes: Iterable[ScopeNow], costs: Mapping[str, Money]
) -> list[Notice]:
    """Everything to tell at `survey.at`. `costs`: what idling had cost, by the id of the intent that ended it."""
    found = [*_of_cases(survey, sight), *_of_works(survey, sight, rules), *_of_intents(sight, rules, costs)]
    found += [*_of_budgets(survey, sight), *_of_rails(survey, rules, sight)]
    return [*found, *_of_scopes(scopes, sight), *_of_balances(sight), *_of_members(sight)]


def _of_cases(survey: Survey, sight: Sight) -> Iterator[Notice]:
    ahead: dict[tuple[str, object], list[Proposal]] = defaultdict(list)
    for proposal in survey.proposals:
        if proposal.step.do in DESTRUCTIVE:
            ahead[proposal.verdict.policy.name, proposal.verdict.life].append(proposal)
    blind = set[object]()
    for case in survey.cases:
        policy, climb = case.verdict.policy, case.climb
        if not reaches(case.level, NOTIFY):
            continue
        told = _tells(case, climb.done if climb else ())
        if told:
            acts = ahead[policy.name, case.verdict.life]
            yield _of_climb(case, told[-1], min(acts, key=lambda p: p.due_at) if acts else None, sight.now)
        elif _is_blind(case, sight.now) and case.verdict.life.key not in blind:
            blind.add(case.verdict.life.key)
            matter = replace(matter_of(case.live, case.owner, sight.now), topic="blind")
            yield wording.blind(matter, at=sight.now, since=None, why=case.verdict.reasons, so_far=None)


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


def _of_climb(case: Case, number: int, act: Proposal | None, now: datetime) -> Notice:
    policy, climb, work = case.verdict.policy, case.climb, case.verdict.work
    assert climb is not None  # noqa: S101 - for the type checker; asked by the caller
    step = effective(policy.then[number], case)
    matter = replace(matter_of(case.live, case.owner, now), topic=f"policy:{policy.name}")
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
        notice = wording.planned(
            matter, work, act=act.step.do, due=act.due_at, at=now, since=since, so_far=so_far, stage=number, loses=loses
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
        ("since", f"{since:%Y-%m-%d %H:%M} UTC"),
        ("why", "; ".join(case.verdict.reasons[:3]) or policy.when.text),
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
    )


def _of_works(survey: Survey, sight: Sight, rules: Rules) -> Iterator[Notice]:
    """Machines that work with a part of their GPUs."""
    if not rules.policies:
        return
    for live in sight.live:
        work, gpus = survey.works[live.observation.key], round(live.observation.gpu_count)
        long = work.since is not None and survey.at - work.since >= WASTE_AFTER
        if work.state == ACTIVE and long and work.wasted_share >= WASTE_LEAST and gpus > 1 and work.since is not None:
            matter = replace(matter_of(live, live.observation.owner, survey.at), topic="waste")
            idle = round(work.wasted_share * gpus)
            yield wording.waste(matter, work, idle_gpus=idle, gpus=gpus, at=survey.at, since=work.since)


def _of_intents(sight: Sight, rules: Rules, costs: Mapping[str, Money]) -> Iterator[Notice]:
    by_key = {live.observation.key: live for live in sight.live}
    for intent in sight.intents:
        live = by_key.get(intent.life.key)
        if live is None or intent.sent_at is None:
            continue
        matter = replace(matter_of(live, owner_of(live.observation, rules.owner_from), sight.now), topic=f"act:{intent.act}")
        if intent.state == UNCONFIRMED:
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
                idle_cost=costs.get(intent.id),
                afterwards=rate_of(live, sight.now),
            )


def _of_budgets(survey: Survey, sight: Sight) -> Iterator[Notice]:
    acting = {f.standing.budget.name for f in survey.foresights if f.acts}
    for foresight in survey.foresights:
        standing = foresight.standing
        burn = standing.burn.expected
        if foresight.acts and burn.nano:
            yield alarms.hard_cap(
                standing.budget.name,
                owner="",
                spent=standing.spent.low,
                cap=standing.budget.cap,
                rate=Rate(nano_per_hour=burn.nano, currency=burn.currency),
                reaction=foresight.reaction,
                stops=[v.live.observation.name or v.live.observation.key.id for v in foresight.victims],
                at=survey.at,
            )
    for standing in sight.standings:
        says = [concern.says for concern in concerns(standing)]
        if says and standing.budget.name not in acting:
            burn = standing.burn.expected
            yield alarms.budget_warning(
                standing.budget.name,
                owner="",
                says=says,
                spent=standing.spent.high,
                cap=standing.budget.cap,
                rate=Rate(nano_per_hour=burn.nano, currency=burn.currency) if burn.nano else None,
                at=survey.at,
            )


def _of_rails(survey: Survey, rules: Rules, sight: Sight) -> Iterator[Notice]:
    mass, rails = survey.breaker, rules.rails
    if mass is not None:
        yield alarms.breaker(
            turned=len(mass.keys),
            fleet=survey.fleet,
            within=rails.breaker_window,
            share=mass.shared,
            until=(mass.recovering_since or survey.at) + rails.breaker_recovery,
            at=survey.at,
        )
    for scope in survey.quarantine:
        mine = [live for live in sight.live if live.scope == scope]
        gone = sum(live.absent_at is not None for live in mine)
        yield alarms.inventory_drop(scope, gone=gone, of=len(mine), at=survey.at)


def _of_scopes(scopes: Iterable[ScopeNow], sight: Sight) -> Iterator[Notice]:
    """One notice a provider that was not seen completely for too long."""
    down: dict[str, list[ScopeNow]] = defaultdict(list)
    for scope in scopes:
        seen_at = scope.last_complete_at or scope.since
        if scope.outcome != "complete" and sight.now - seen_at >= DOWN_AFTER:
            down[scope.scope.provider].append(scope)
    for provider, missing in sorted(down.items()):
        names = {scope.scope for scope in missing}
        nano = sum(rate.nano_per_hour for live in sight.live if live.scope in names and (rate := rate_of(live, sight.now)))
        yield alarms.provider_down(
            provider,
            scopes=sorted(names),
            why=missing[0].why,
            since=min(scope.last_complete_at or scope.since for scope in missing),
            rate=Rate(nano_per_hour=nano, currency="USD") if nano else None,
            at=sight.now,
        )


def _of_balances(sight: Sight) -> Iterator[Notice]:
    """A notice an account whose balance ends soon, with what is lost then."""
    for balance in sight.balances:
        found = runway_of(balance, sight.live, sight.now)
        if found.short and balance.amount is not None and found.hourly is not None and found.hourly.nano:
            yield alarms.runway(
                f"{balance.provider}/{balance.account}",
                owner="",
                balance=balance.amount,
                rate=Rate(nano_per_hour=found.hourly.nano, currency=found.hourly.currency),
                losing=[f"{name or key.id} ({'; '.join(lost)})" for key, name, lost in found.loses],
                at=sight.now,
            )


def _of_members(sight: Sight) -> Iterator[Notice]:
    """A notice a controller that brings back what ends, again and again."""
    born = [(one.handling.controller, one.created_at) for one in sight.members]
    ended = [(one.handling.controller, one.stopped_at) for one in sight.members if one.state == ENDED]
    found = churning(
        ((name, at) for name, at in born if at is not None), ((name, at) for name, at in ended if at is not None), sight.now
    )
    for controller, times in found.items():
        last = max((live for live in sight.live if live.observation.handling.controller == controller), key=_born, default=None)
        if last is not None:
            owner = last.observation.owner
            matter = replace(matter_of(last, owner, sight.now), topic="churn")
            told = wording.churn(matter, controller=controller, times=times, within=HOUR, at=sight.now)
            yield replace(told, subject=controller)


def _born(live: Live) -> datetime:
    return live.observation.created_at or live.first_seen_at


def matter_of(live: Live, owner: str, now: datetime) -> wording.Matter:
    """What a notice says of a machine."""
    seen = live.observation
    gpus = f"{seen.gpu_count:g}x{seen.gpu}" if seen.gpu else seen.kind
    told = f"{gpus} {seen.instance_type}".strip()
    return wording.Matter(topic="", key=seen.key, owner=owner, name=seen.name, told=told, rate=rate_of(live, now))


def cost_since(live: Live, since: datetime, now: datetime) -> Money | None:
    """What its computing cost from `since` on, at its present rate."""
    return wording.cost_of(computing_of(live, now), max(now - since, timedelta()))
