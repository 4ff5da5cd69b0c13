"""One random world watched through its plan: are the books never wrong about it?

`run(seed)` draws a small world and a plan, feeds every listing to `accrue` in plain memory, and after each holds the interval
of every resource in that scope against the world's own bill. What no listing ever told is not asked for:

- What happened after the last sight of a resource is left out, except its end: a start or a price that nobody has been told
  of cannot be in the books yet. Once it is told, all of it counts, back to when it was.
- Where a cloud states no start, what was there at the scope's first complete listing counts as if it had begun then.
- `knowable` takes out of the world the runs that no listing could tell of.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import cache

from costguard_sim.bill import NANO, charge_resource
from costguard_sim.plan import PlannedListing, WatchPlan, make_plan
from costguard_sim.view import (
    clip_before,
    find_last_run,
    find_state,
    is_on_at,
    keep_knowable,
    make_key,
    make_poll,
    observe_resource,
    truncate_after,
)
from costguard_sim.world import CEILING_NANO, CLOUDS, SECOND_US, SHAPES, Resource, World, make_world

from costguard.data import ShippedFacts
from costguard.metering.accrual import POLL_GAP, accrue_poll
from costguard.metering.billing import BillingRule, get_billing_rule
from costguard.metering.inventory import Complete, Poll
from costguard.metering.scope_state import ScopeState
from costguard.values.instant import from_micros
from costguard.values.resource import ENDED, STOPPED, ResourceKey, ScopeKey
from tests.providers.sim.books import Books, Sum

PACES = ((45.0, 75.0), (20.0, 100.0), (60.0, 3600.0), (1800.0, 6 * 3600.0), (3600.0, 5 * 86_400.0), (60.0, 40 * 86_400.0))
LONGEST_DAYS = 45
CEILINGS = {gpu: CEILING_NANO for shapes in SHAPES.values() for _, gpu, _, _ in shapes if gpu}
TELLS_BOTH = ("sim-aws", "sim-gcp")
WRITTEN_MB = 1000
"""Less new traffic than this need not be in the books yet."""
LAYERS = 3
"""What a span may cost at most is rounded in so many parts (`span.amounts`), each by half a nano at most."""


@dataclass(slots=True)
class Result:
    """What came of a seed. `failures`: sentences; `points`: how often an interval had to be a point."""

    seed: int
    steps: int = 0
    checks: int = 0
    points: int = 0
    failures: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Told:
    """What listings have told of one resource so far.

    `view_us`: as of when. `from_us`: since when it counts where no start is stated, None: since it came. `stops`: ends of runs
    that were stated. `fresh`: the last listing of its scope was complete and shows it on, as of its own instant. `off`: it was
    off when last seen; `hidden`: so long ago at some listing that it may have run once in between.
    """

    view_us: int
    from_us: int | None = None
    stops: set[int] = field(default_factory=set)
    fresh: bool = False
    off: bool = False
    hidden: bool = False


@dataclass(slots=True)
class Watch:
    """A world, its plan, the books on it, and what has been found."""

    world: World
    plan: WatchPlan
    result: Result
    gap: timedelta = POLL_GAP
    books: Books = field(default_factory=Books)
    told: dict[str, Told] = field(default_factory=dict)
    complete: set[tuple[str, str, str]] = field(default_factory=set)


def run(seed: int, *, check_each_step: bool = True, gap: timedelta = POLL_GAP) -> Result:
    """Watch the world of `seed`. `check_each_step` False: only the last listing of each scope is compared with the bill."""
    world, plan = draw(seed)
    return watch(world, plan, seed=seed, check_each_step=check_each_step, gap=gap)


def watch(world: World, plan: WatchPlan, *, seed: int = 0, check_each_step: bool = True, gap: timedelta = POLL_GAP) -> Result:
    """The same, of a world and a plan; the world must be `knowable`."""
    one = Watch(world=world, plan=plan, result=Result(seed=seed), gap=gap)
    last = {entry.scope: i for i, entry in enumerate(plan.entries)}
    here = {e.scope: [r for r in world.resources if (r.cloud, r.account, r.scope) == e.scope] for e in plan.entries}
    for i, entry in enumerate(plan.entries):
        _listen(one, i, entry, here[entry.scope])
        if check_each_step or last[entry.scope] == i:
            for resource in here[entry.scope]:
                if resource.id in one.told:
                    _check(one, i, entry, resource)
        one.result.failures += [f"poll {i}: {fault}" for fault in one.books.faults]
        one.books.faults.clear()
    return one.result


def draw(seed: int) -> tuple[World, WatchPlan]:
    """The world and the plan of a seed; both within the declared limits."""
    rng = random.Random(f"run {seed}")  # noqa: S311 - a world is drawn, not secret
    pace, polls = rng.choice(PACES), rng.randint(1, 40)
    mean_s = (pace[0] * pace[1]) ** 0.5
    days = min(LONGEST_DAYS, polls * mean_s / 86_400)
    month = datetime(rng.randint(2026, 2028), rng.randint(1, 12), 1, tzinfo=UTC)
    start = month - timedelta(days=days * rng.random() ** 2)
    if rng.random() < 0.3:
        start += timedelta(days=rng.randrange(28))
    longest_s = 2 * pace[1]
    clouds = tuple(sorted(rng.sample(CLOUDS, rng.choice((1, 1, 2, 5)))))
    world = make_world(
        rng.randrange(2**32),
        start=start,
        days=days,
        size=rng.randint(2, 6),
        clouds=clouds,
        apart_s=int(2 * longest_s + pace[1]),
    )
    plan = make_plan(rng.randrange(2**32), world, polls=polls, pace_s=pace, longest_s=longest_s)
    until = world.start_us + LONGEST_DAYS * 86_400 * SECOND_US
    plan = replace(plan, entries=tuple(e for e in plan.entries if e.at_us <= until))
    return keep_knowable(world, plan), plan


def _listen(one: Watch, i: int, entry: PlannedListing, here: list[Resource]) -> None:
    """One listing, written into the books; and once more, which must change nothing."""
    scope = ScopeKey(*entry.scope)
    rule, state = rules()[scope.provider], one.books.states.get(scope) or ScopeState(scope=scope)
    poll = make_poll(one.world, entry, one.plan.hidden)
    poll = replace(poll, gone=_gone(here, entry, poll, state))
    one.books.write(accrue_poll(state, poll, rule, CEILINGS, one.gap))
    again = accrue_poll(one.books.states[scope], poll, rule, CEILINGS, one.gap)
    if again.fresh or again.opened or again.closed or again.corrected:
        one.result.failures.append(f"poll {i}: a second time it changes something")
    _tell(one.told, here, entry, first=entry.scope not in one.complete, gap=one.gap)
    if isinstance(poll.inventory, Complete):
        one.complete.add(entry.scope)
    one.result.steps += 1


def _gone(here: list[Resource], entry: PlannedListing, poll: Poll, state: ScopeState) -> frozenset[ResourceKey]:
    """Keys that are known, not listed, looked up, and not there."""
    if not entry.looked or not isinstance(poll.inventory, Complete):
        return frozenset()
    listed = {item.key for item in poll.inventory.items}
    away = [make_key(r) for r in here if observe_resource(r, entry.at_us) is None]
    return frozenset(key for key in away if key in state.resources and key not in listed)


def _tell(told: dict[str, Told], here: list[Resource], entry: PlannedListing, *, first: bool, gap: timedelta) -> None:
    """What a listing adds to what is known of the resources in its scope."""
    for resource in here:
        us = entry.find_view_us(resource.id)
        state = None if us is None else find_state(resource, us)
        known = told.get(resource.id)
        if known:
            known.fresh = False
            known.hidden |= known.off and (entry.at_us - known.view_us + 60 * SECOND_US) * timedelta(microseconds=1) > gap
        if us is None or state is None:
            continue
        known = known or told.setdefault(resource.id, Told(view_us=us, from_us=entry.at_us if first else None))
        known.view_us = max(known.view_us, us)
        run = find_last_run(resource, us)
        known.off = run is None or not is_on_at(run, us)
        known.fresh = entry.clean and us == entry.asked_us == entry.at_us and run is not None and is_on_at(run, us)
        if run and run.stop_us is not None and state in {STOPPED, ENDED}:
            known.stops.add(run.stop_us)


def owed(resource: Resource, told: Told, at_us: int) -> dict[str, Fraction]:
    """Charge -> nano-USD truly owed up to `at_us`, as far as anybody could know."""
    sums: dict[str, Fraction] = {}
    for line in charge_resource(clip_before(truncate_after(resource, told.view_us), told.from_us), 0, at_us):
        sums[line.charge] = sums.get(line.charge, Fraction(0)) + line.amount * NANO
    return sums


def _check(one: Watch, i: int, entry: PlannedListing, resource: Resource) -> None:
    """Hold the books on one resource against its bill, as of the answer to a listing."""
    told, result = one.told[resource.id], one.result
    rule = get_billing_rule(rules(), resource.cloud)
    sums = one.books.sums(make_key(resource), ScopeKey(*entry.scope), rule, from_micros(entry.at_us))
    true = owed(resource, told, entry.at_us)
    for what in sorted({*sums, *true}):
        low, expected, high, spans = sums.get(what, Sum())
        amount, half = true.get(what, Fraction(0)), Fraction(spans, 2)
        unwritten = Fraction(WRITTEN_MB * resource.traffic_nano, 1000) if what == "traffic" else 0
        result.checks += 1
        wrong: list[str] = []
        if not low <= expected <= high:
            wrong.append(f"out of order {low} {expected} {high}")
        if low - half > amount:
            wrong.append(f"low {low} > truth {float(amount):.1f} by {float(low - amount):.1f}")
        if amount > high + LAYERS * half + unwritten:
            wrong.append(f"truth {float(amount):.1f} > high {high} by {float(amount - high):.1f}")
        if what == "compute" and _stated(resource, told, one):
            result.points += 1
            if high != low or abs(low - amount) > half:
                wrong.append(f"no point: {low} to {high}, truth {float(amount):.1f}")
        result.failures += [f"poll {i} {resource.cloud} {resource.id} ({resource.life}) {what}: {each}" for each in wrong]


def _stated(resource: Resource, told: Told, one: Watch) -> bool:
    """Whether everything about its computing was stated: each start, each stop, and each price with its day.

    A machine that came long before its first told start may have run in between: that is no point. One that is on is a point
    where it was seen this instant and its cloud's listing does not lag.
    """
    runs = truncate_after(resource, told.view_us).runs
    if resource.cloud not in TELLS_BOTH or resource.id in one.plan.hidden or not runs or told.hidden:
        return False
    if (runs[0].start_us - resource.created_us) * timedelta(microseconds=1) > one.gap:
        return False
    dated = resource.tier == "spot" or sum(rate.at_us <= told.view_us for rate in resource.rates) <= 1
    on = told.fresh and not rules()[resource.cloud].lag_s
    return dated and all(run.stop_us in told.stops for run in (runs[:-1] if on else runs))


@cache
def rules() -> dict[str, BillingRule]:
    """The rules as shipped."""
    return dict(ShippedFacts().get_billing_rules())
