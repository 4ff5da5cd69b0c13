"""Judge the machines of one account, and say which judgements of others stand at a later instant.

A judgement stands for a machine if everything that its activity depends on, besides the samples and the time, is the same as it
was: when it started, how many GPUs it has, from when on its evidence counts, declared phases, and the questions of its policies
and its group. So a hold, a restart, a gap or another policy makes the one that plans judge that machine itself. Samples that
came later are looked at: one that shows work does the same.

What spans accounts is not judged here: groups are put together by the one that plans, of activities of their members.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from costguard.guard.action_intents import Intent
from costguard.guard.activity import probe_activity
from costguard.guard.context import GuardConfig, GuardSnapshot, ResourceContext, build_activity_query, build_contexts
from costguard.guard.judged_machine import ActivityQuery, JudgedMachine, mark_agents
from costguard.guard.overrides import Override
from costguard.guard.policy_evaluation import NO_COST_FACTS
from costguard.guard.signals import ACTIVE, COUNTER, SIGNAL_KINDS, SampleColumns
from costguard.metering.spending import LiveResource
from costguard.values.agent import Agent
from costguard.values.instant import from_micros, to_micros
from costguard.values.resource import INSTANCE, RUNNING, ResourceKey
from costguard.values.sample import Sample

LATER_LOOK = timedelta(hours=1)
"""How far back samples are looked for that came after a judgement: longer than any sample is late (decision 0024)."""
POLL_LEAST = timedelta(seconds=1)


def build_account_snapshot(
    *,
    now: datetime,
    live: Sequence[LiveResource],
    samples: Mapping[ResourceKey, SampleColumns],
    wishes: tuple[Override, ...],
    started: tuple[Intent, ...],
    lags: Mapping[str, timedelta],
    agents: tuple[Agent, ...],
    gap_ended_at: datetime | None,
) -> GuardSnapshot:
    """Build the part of a snapshot that the activities of some machines depend on; the rest is empty."""
    return GuardSnapshot(
        now=now,
        live=tuple(live),
        standings=(),
        samples=samples,
        judged={},
        known={},
        protections={},
        wishes=wishes,
        climbs=(),
        intents=(),
        sent=(),
        hooks=(),
        reactions=(),
        lags=lags,
        balances=(),
        members=(),
        agents=agents,
        asked=NO_COST_FACTS,
        gap_ended_at=gap_ended_at,
        apart=None,
        gap_began_at=None,
        breaker=None,
        held=(),
        deliveries={},
        start_histories={},
        started=started,
        raised=frozenset(),
        last_run_at=None,
        ready_since={},
    )


def judge_machines(rules: GuardConfig, sight: GuardSnapshot) -> dict[ResourceKey, JudgedMachine]:
    """Judge the running machines of `sight`, each by every query that its policies and its group's ask by."""
    seats, found = build_contexts(rules, sight), dict[ResourceKey, JudgedMachine]()
    asked, marks = _list_queries(seats), mark_agents(sight.agents)
    for seat in filter(_is_measured, seats):
        found[seat.key] = JudgedMachine(
            at=sight.now,
            terms=seat.describe_evidence(sight),
            seen_at=seat.live.seen_at,
            interval=seat.get_sample_interval(rules, sight),
            bounds=seat.find_sample_bounds(sight),
            agent=marks.get(seat.key, ""),
            works={query: seat.classify_by(query, rules, sight) for query in sorted(asked[seat.key])},
        )
        seat.evidence = None
    for seat in seats:
        seat.leave_group()
    return found


def select_standing(
    judged: Mapping[ResourceKey, JudgedMachine], rules: GuardConfig, sight: GuardSnapshot
) -> dict[ResourceKey, JudgedMachine]:
    """Return those of `judged` whose terms are those of `sight`, and that answer all of its queries."""
    seats = build_contexts(rules, replace(sight, judged={}))
    asked, found = _list_queries(seats), dict[ResourceKey, JudgedMachine]()
    for seat in filter(_is_measured, seats):
        known = judged.get(seat.key)
        if known is None or known.at > sight.now or not asked[seat.key] <= known.works.keys():
            continue
        if known.terms == seat.describe_evidence(sight):
            found[seat.key] = known
    for seat in seats:
        seat.leave_group()
    return found


def list_unjudged(sight: GuardSnapshot, standing: Mapping[ResourceKey, JudgedMachine]) -> list[ResourceKey]:
    """Return the running machines of `sight` without a judgement in `standing`."""
    return [
        one.observation.key
        for one in sight.live
        if one.observation.kind == INSTANCE and one.observation.state == RUNNING and one.observation.key not in standing
    ]


def list_later_measured(standing: Mapping[ResourceKey, JudgedMachine], sight: GuardSnapshot) -> dict[ResourceKey, datetime]:
    """Return the machines of which samples may have come since they were judged, and from when on to look at them.

    Their account was listed again, or their agent has reported. Left out are those that were active by every query.
    """
    marks, found = mark_agents(sight.agents), dict[ResourceKey, datetime]()
    for live in sight.live:
        known = standing.get(live.observation.key)
        if known is None or all(work.state == ACTIVE for work in known.works.values()):
            continue
        if live.seen_at != known.seen_at or marks.get(live.observation.key, "") != known.agent:
            found[live.observation.key] = _find_later_start(known) or known.at - LATER_LOOK
    return found


def has_worked_since(known: JudgedMachine, live: LiveResource, columns: SampleColumns, now: datetime) -> bool:
    """Return whether a sample in `columns` that was taken after those of `known` may show work. One is enough.

    `columns`: of the time from `list_later_measured` on, or longer. Where that does not reach back to the samples before, which
    tell whether a counter has moved, any later sample counts: of all signals, or of a counter that comes seldom beside others.
    """
    last, start = (to_micros(known.bounds[1]) if known.bounds else 0), _find_later_start(known)
    if not any(ats and ats[-1] > last for ats, _ in columns.values()):
        return False
    if start is None or known.bounds is None:
        return True
    first = to_micros(start)
    if any(ats and first <= ats[-1] and last < ats[bisect_left(ats, first)] for ats in _list_counters(columns)):
        return True
    samples = [
        Sample(key=live.observation.key, signal=signal, at=from_micros(at), value=value)
        for signal, (ats, values) in columns.items()
        for at, value in zip(ats, values, strict=True)
        if at >= first
    ]
    poll = max((now - known.bounds[1]) / 2, POLL_LEAST)
    return bool(probe_activity(samples, now, poll, live.observation))


def _list_counters(columns: SampleColumns) -> list[Sequence[int]]:
    """Return the times of each signal that shows work only by having moved."""
    return [ats for signal, (ats, _) in columns.items() if signal in SIGNAL_KINDS and SIGNAL_KINDS[signal].reading == COUNTER]


def _find_later_start(known: JudgedMachine) -> datetime | None:
    """Return two sample intervals before the last sample of `known`; None if that is more than LATER_LOOK before `known.at`."""
    start = known.bounds[1] - 2 * known.interval if known.bounds is not None else None
    return start if start is not None and start >= known.at - LATER_LOOK else None


def _is_measured(seat: ResourceContext) -> bool:
    """Return whether its activity follows from samples."""
    return seat.live.observation.kind == INSTANCE and seat.live.observation.state == RUNNING


def _list_queries(seats: Iterable[ResourceContext]) -> dict[ResourceKey, frozenset[ActivityQuery]]:
    """Return the queries by which each of `seats` may be asked: by its policies, and by those of all members of its group."""
    own, groups = dict[ResourceKey, frozenset[ActivityQuery]](), dict[int, frozenset[ActivityQuery]]()
    seats, known = list(seats), dict[tuple[int, ...], frozenset[ActivityQuery]]()
    for seat in seats:
        alike = tuple(map(id, seat.policies))
        if alike not in known:
            known[alike] = frozenset(map(build_activity_query, (*seat.policies, seat.find_longest_policy())))
        own[seat.key] = known[alike]
        if seat.group is not None:
            groups[id(seat.group)] = groups.get(id(seat.group), frozenset()) | own[seat.key]
    return {seat.key: own[seat.key] if seat.group is None else groups[id(seat.group)] for seat in seats}
