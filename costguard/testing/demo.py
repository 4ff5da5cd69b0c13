"""The demo's fortnight: five simulated clouds for two weeks, held against their own bill. `weekend` is its other part.

The clouds are those of `costguard_sim`, which also computes what they bill, in exact fractions and sharing nothing with
costguard. Everything between is the product: its adapters' port, its metering, a real ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import groupby
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from costguard.bills.simulated_bill import CloudBillCheck, ResourceBillCheck, SimulatedBillCheck
from costguard.errors import CostguardError, InputError
from costguard.ledger.db.address import parse_ledger_address
from costguard.ledger.spans.books import SpendingReader
from costguard.metering.accrual import accrue_poll, find_suspect_absences
from costguard.metering.billing import BillingRule, get_billing_rule
from costguard.metering.inventory import Poll
from costguard.metering.scope_state import ScopeState
from costguard.metering.spending import LifetimeCost
from costguard.services import CommandAnswer
from costguard.services.poll.poll import verify_absences
from costguard.settings import expand_path
from costguard.system.atomic_file import make_folder
from costguard.system.progress import report_progress
from costguard.values.calendar import Period
from costguard.values.money import NANO, Money, MoneyInterval
from costguard.values.resource import ScopeKey

if TYPE_CHECKING:  # imported when a demo is played: nothing else needs the simulated clouds, or writes
    from costguard_sim.plan import WatchPlan
    from costguard_sim.world import World

    from costguard.ledger.spans.writer import LedgerWriter

DEMO_SEED, DEMO_DAYS, DEMO_SIZE = 41, 14, 32
PACE_S = (260.0, 295.0)
"""Seconds between two listings of a scope: less than the five minutes that no restart may hide in."""
UNSEEN_S_MAX = 6 * 3600.0
"""Seconds for which a scope may go unseen."""


def play_fortnight(*, seed: int = DEMO_SEED, ledger: str | None = None) -> CommandAnswer:
    """Play a fortnight that ended last midnight in UTC. `ledger`: the file to keep it in, which must hold nothing yet."""
    from costguard.views.demo import build_simulated_bill_document

    with ExitStack() as stack:
        ledger_url = None if ledger is None else _build_ledger_url(ledger)
        url = ledger_url or f"sqlite:///{stack.enter_context(TemporaryDirectory(prefix='costguard-demo-'))}/ledger.db"
        played = play_world(url, seed=seed, end=_find_midnight())
    refusal = CostguardError(f"{len(played.wrong)} resources are wrong: this is a bug in costguard") if played.wrong else None
    return CommandAnswer(document=build_simulated_bill_document(played, folder=ledger_url), refusal=refusal)


KEPT_SEED, KEPT_LENGTH, KEPT_PACE = 41, timedelta(days=30), timedelta(minutes=20)
KEPT_SETTINGS = """\
# A sample of costguard: five simulated clouds, watched since {start:%Y-%m-%d}. No account, no network, no cost.
[ledger]
url = "sqlite:///ledger.db"

[[budget]]
name = "everything"
cap = "5000 USD"
period = "month"

[[budget]]
name = "ana"
cap = "500 USD"
period = "month"
match = {{ owners = ["ana"] }}
{policies}
[notify]
console_is_delivery = true
[[notify.route]]
to = ["console"]

[providers.sim]
seed = {seed}
"""


def keep_demo(folder: str) -> CommandAnswer:
    """Write settings and a ledger of the last month of `[providers.sim]` into a new folder; polls continue it."""
    from costguard_sim import draw_quarter
    from costguard_sim.plan import PlannedListing, WatchPlan
    from costguard_sim.world import CEILING_NANO, to_us

    from costguard.data import ShippedFacts
    from costguard.ledger.spans.writer import LedgerWriter
    from costguard.settings.first_file import FirstChoices, render_policy
    from costguard.views.document import Document

    place = expand_path(folder)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise InputError("already contains something", field=str(place), hint="name a new folder: demo --keep sample")
    now = datetime.now(UTC).replace(microsecond=0)
    sim = draw_quarter(KEPT_SEED, DemoClock(at=now))
    world, rules = sim.world, ShippedFacts().get_billing_rules()
    start = max(now - KEPT_LENGTH, datetime.fromtimestamp(world.start_us / 1e6, UTC))
    times = [to_us(now - KEPT_PACE * number) for number in reversed(range((now - start) // KEPT_PACE + 1))]
    scopes = [(one.provider, one.account, one.name) for one in sim.list_scopes()]
    listings = (PlannedListing(scope=scope, at_us=at, asked_us=at, view_us=at) for at in times for scope in scopes)
    plan = WatchPlan(seed=KEPT_SEED, entries=tuple(listings))
    ceilings = {shape.gpu: CEILING_NANO for resource in world.resources for shape in resource.shapes if shape.gpu}
    make_folder(place)
    with LedgerWriter(f"sqlite:///{place.absolute()}/ledger.db", rules=rules, ceilings=ceilings) as ledger:
        by_day = groupby(_list_polls(world, plan, rules, ceilings), key=lambda poll: poll.at.date())
        for number, (_, day) in enumerate(by_day):
            report_progress("recording a month of five clouds", number, 31)
            ledger.record_polls(list(day))
    policies = "".join(render_policy(name, FirstChoices()) for name in ("idle-gpu", "hung-job"))
    text = KEPT_SETTINGS.format(start=start, seed=KEPT_SEED, policies=policies)
    (place / "costguard.toml").write_text(text, encoding="utf-8")
    steps = ("status", "report --by owner,gpu", "reconcile", "plan", "policy lint", "simulate --since 7d", "watch")
    notes = (f"next: cd {place}", *(f"next: costguard {step}" for step in steps))
    data = {"schema": "costguard.demo_kept/1", "folder": str(place), "listings": len(plan.entries), "next": list(steps)}
    lead = (f"Wrote {place}: costguard.toml, and ledger.db with {len(plan.entries)} listings since {start:%Y-%m-%d}.",)
    return CommandAnswer(document=Document(data=data, records=(data,), lead=lead, notes=notes))


def prepare_demo_ledger(ledger: str) -> None:
    """Make an empty ledger in the file `ledger` before a demo begins; an error where that cannot be, or it holds something."""
    from costguard.ledger.spans.writer import LedgerWriter

    url = _build_ledger_url(ledger)
    with LedgerWriter(url, rules={}, ceilings={}) as writer:
        _check_unused(writer, url)


def _build_ledger_url(ledger: str) -> str:
    return f"sqlite:///{expand_path(ledger).absolute()}"


def _check_unused(ledger: LedgerWriter, url: str) -> None:
    """InputError unless `ledger` holds nothing yet."""
    if ledger.has_polls():
        hint = "name a new file: a demo must not be mixed with real costs"
        raise InputError("already contains a ledger", field=parse_ledger_address(url).shown, hint=hint)


def play_world(url: str, *, seed: int, end: datetime, days: int = DEMO_DAYS, size: int = DEMO_SIZE) -> SimulatedBillCheck:
    """Watch a world of `days` days that end at `end` into the ledger at `url`, and compare."""
    from costguard_sim.plan import make_plan
    from costguard_sim.view import describe_as_listed, keep_knowable
    from costguard_sim.world import CEILING_NANO, make_world

    from costguard.data import ShippedFacts
    from costguard.ledger.spans.writer import LedgerWriter

    start = end - timedelta(days=days)
    drawn = make_world(seed, start=start, days=days, size=size)
    polls = int(days * 86_400 / PACE_S[0]) + 1
    plan = _extend_to_end(make_plan(seed, drawn, polls=polls, pace_s=PACE_S, longest_s=UNSEEN_S_MAX), drawn)
    world, rules = keep_knowable(drawn, plan), ShippedFacts().get_billing_rules()
    ceilings = {shape.gpu: CEILING_NANO for resource in world.resources for shape in resource.shapes if shape.gpu}
    with LedgerWriter(url, rules=rules, ceilings=ceilings) as ledger:
        _check_unused(ledger, url)
        by_day = groupby(_list_polls(world, plan, rules, ceilings), key=lambda poll: poll.at.date())
        for number, (_, day) in enumerate(by_day):
            report_progress("simulating two weeks of five clouds", number, days)
            ledger.record_polls(list(day))
    with SpendingReader(url, rules=rules, ceilings=lambda: ceilings) as books:
        spent = books.spent(end)
    return SimulatedBillCheck(
        seed=seed,
        period=Period(start=start, end=end),
        scopes=len({entry.scope for entry in plan.entries}),
        listings=len(plan.entries),
        faults=_count_faults(plan),
        met=_count_events(world),
        clouds=_compare_clouds(spent, describe_as_listed(world, plan)),
    )


@dataclass(slots=True)
class DemoClock:
    """A clock that somebody sets."""

    at: datetime

    def now(self) -> datetime:
        """The time it was set to."""
        return self.at


def _extend_to_end(plan: WatchPlan, world: World) -> WatchPlan:
    """`plan` up to the world's end, with one last clean listing of every scope there."""
    from costguard_sim.plan import PlannedListing

    within = [entry for entry in plan.entries if entry.at_us < world.end_us]
    end = world.end_us
    last = [PlannedListing(scope=s, at_us=end, asked_us=end, view_us=end) for s in sorted({entry.scope for entry in within})]
    return replace(plan, entries=(*within, *last))


def _list_polls(world: World, plan: WatchPlan, rules: Mapping[str, BillingRule], ceilings: Mapping[str, int]) -> Iterator[Poll]:
    """Every listing of the plan, with what it lacks looked up, as `services/poll/poll.py` does.

    The ledger is told a day at a time, for speed; so what is known between two listings is worked out here as well.
    """
    from costguard_sim.clouds import SimClouds
    from costguard_sim.world import from_us

    clock = DemoClock(at=from_us(world.start_us))
    sim = SimClouds(clock=clock, world=world, plan=plan)
    states: dict[ScopeKey, ScopeState] = {}
    for entry in plan.entries:
        clock.at = from_us(entry.at_us)
        scope = ScopeKey(*entry.scope)
        state, poll = states.get(scope) or ScopeState(scope=scope), sim.poll(scope)
        poll = verify_absences(poll, find_suspect_absences(state, poll.inventory), sim)
        states[scope] = accrue_poll(state, poll, get_billing_rule(rules, scope.provider), ceilings).state
        yield poll


def _count_faults(plan: WatchPlan) -> Counter[str]:
    """What went wrong with how many listings, in words."""
    words = {"timeout": "timed out", "page": "lost a page", "empty": "returned an empty list"}
    counts = Counter(words.get(entry.fault, f"answered {entry.fault}") for entry in plan.entries if entry.fault)
    counts["were slow"] = sum(entry.at_us - entry.asked_us > 0 for entry in plan.entries)
    counts["contained old or duplicate items"] = sum(bool(entry.late or entry.twice) for entry in plan.entries)
    return Counter({name: count for name, count in counts.items() if count})


def _count_events(world: World) -> dict[str, int]:
    """What happened how often, from the world's own truth."""
    within = [r for r in world.resources if r.ended_us is None or r.ended_us > world.start_us]
    starts = [run.start_us for r in within for run in r.runs]
    changes = [rate.at_us for r in within for rate in r.rates[1:]]
    return {
        "resources": len(within),
        "starts": sum(world.start_us < at <= world.end_us for at in starts),
        "price changes": sum(world.start_us < at <= world.end_us for at in changes),
        "ends": sum(r.ended_us is not None and r.ended_us <= world.end_us for r in within),
    }


def _compare_clouds(spent: list[LifetimeCost], world: World) -> tuple[CloudBillCheck, ...]:
    from costguard_sim.bill import charge_resource
    from costguard_sim.view import make_key

    costs = {one.key: one for one in spent}
    nothing = Money(nano=0)
    clouds: dict[str, list[ResourceBillCheck]] = {}
    for resource in world.resources:
        one = costs.get(make_key(resource))
        clouds.setdefault(resource.cloud, []).append(
            ResourceBillCheck(
                key=make_key(resource),
                money=one.money if one else MoneyInterval(low=nothing, expected=nothing, high=nothing),
                billed=sum((line.amount for line in charge_resource(resource, 0, world.end_us)), Fraction(0)),
                spans=one.spans if one else 0,
                pending=Fraction(resource.traffic_nano, NANO),
            )
        )
    return tuple(CloudBillCheck(provider=cloud, resources=tuple(checks)) for cloud, checks in sorted(clouds.items()))


def _find_midnight() -> datetime:
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
