"""The demo: a quote on real prices, and a simulated fortnight of five clouds held against their own bill.

The clouds are those of `costguard_sim`, which also computes what they bill, in exact fractions and sharing nothing with
costguard. Everything between is the product: its adapters' port, its metering, a real ledger.

The demo's weekend: five machines on simulated clouds, watched by the product itself from Friday evening to Monday morning.

What happens is a story (`costguard.testing.story_parser`), and so is what must come of it: a machine that is forgotten, a slow
download, a hang, a hard cap, a cloud that has no stop. Polls, ledger, judge, acts and messages are the product's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from costguard.bills.simulated_bill import CloudBillCheck, ResourceBillCheck, SimulatedBillCheck
from costguard.budgets.hold import Hold
from costguard.errors import CostguardError, InputError
from costguard.guard.action_intents import DONE
from costguard.guard.alerts.alert import REPEAT_DUE, Notification
from costguard.guard.alerts.dispatch import format_body, format_title
from costguard.guard.signals import ACTIVE
from costguard.ledger.db.address import parse_ledger_address
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.holds import load_counting_holds
from costguard.ledger.reports.reader import ReportReader
from costguard.ledger.spans.books import SpendingReader
from costguard.metering.accrual import POLL_GAP, accrue_poll, find_suspect_absences
from costguard.metering.billing import BillingRule, get_billing_rule
from costguard.metering.inventory import Failed, Poll
from costguard.metering.scope_state import ScopeState
from costguard.metering.spending import LifetimeCost
from costguard.reporting.statement.period import ReportPeriod
from costguard.services import CommandAnswer
from costguard.services.poll import poll_sources, verify_absences
from costguard.services.report import ReportQuestion, build_full_statement
from costguard.settings import expand_path, read_settings
from costguard.system.progress import report_progress
from costguard.testing.guard_player import GuardPlayer
from costguard.testing.machine import SimulatedMachine
from costguard.testing.story import Story, StoryEvent
from costguard.testing.story_parser import parse_story
from costguard.testing.story_player import StoryOutcome, play_story
from costguard.values.calendar import Period
from costguard.values.money import NANO, Money, MoneyInterval
from costguard.values.resource import ScopeKey
from costguard.views.demo import (
    BY_WORLD,
    TOLD_TO_PEOPLE,
    Weekend,
    WeekendEvent,
    WeekendMachine,
    WeekendSaving,
    build_weekend_document,
)
from costguard.views.demo import DONE_BY_COSTGUARD as BY_US

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
        kept = None if ledger is None else _build_ledger_url(ledger)
        url = kept or f"sqlite:///{stack.enter_context(TemporaryDirectory(prefix='costguard-demo-'))}/ledger.db"
        played = play_world(url, seed=seed, end=_find_midnight())
    refusal = CostguardError(f"{len(played.wrong)} resources are wrong: this is a bug in costguard") if played.wrong else None
    return CommandAnswer(document=build_simulated_bill_document(played, kept=kept), refusal=refusal)


def prepare_demo_ledger(ledger: str) -> None:
    """Make an empty ledger in the file `ledger` before a demo begins; an error where that cannot be, or it holds something."""
    from costguard.ledger.spans.writer import LedgerWriter

    url = _build_ledger_url(ledger)
    with LedgerWriter(url, rules={}, ceilings={}) as found:
        _check_unused(found, url)


def _build_ledger_url(ledger: str) -> str:
    return f"sqlite:///{expand_path(ledger).absolute()}"


def _check_unused(ledger: LedgerWriter, url: str) -> None:
    """InputError unless `ledger` holds nothing yet."""
    if ledger.has_polls():
        hint = "name a new file: a demo is never mixed with real spending"
        raise InputError("holds a ledger already", field=parse_ledger_address(url).shown, hint=hint)


def play_world(url: str, *, seed: int, end: datetime, days: int = DEMO_DAYS, size: int = DEMO_SIZE) -> SimulatedBillCheck:
    """Watch a world of `days` days that end at `end` into the ledger at `url`, and compare."""
    from costguard_sim.plan import make_plan
    from costguard_sim.view import describe_as_listed, keep_knowable
    from costguard_sim.world import CEILING_NANO, make_world

    from costguard.data import ShippedFacts
    from costguard.ledger.spans.books import SpendingReader
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
    """Every listing of the plan, with what it lacks looked up, as `services/poll.py` does.

    The ledger is told a day at a time, for speed; so what is known between two listings is worked out here as well.
    """
    from costguard_sim import SimClouds
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
    words = {"timeout": "timed out", "page": "lost a page", "empty": "lied that there is nothing"}
    found = Counter(words.get(entry.fault, f"answered {entry.fault}") for entry in plan.entries if entry.fault)
    found["were slow"] = sum(entry.at_us - entry.asked_us > 0 for entry in plan.entries)
    found["held old or doubled items"] = sum(bool(entry.late or entry.twice) for entry in plan.entries)
    return Counter({name: count for name, count in found.items() if count})


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


def _compare_clouds(spent: list[LifetimeCost], told: World) -> tuple[CloudBillCheck, ...]:
    from costguard_sim.bill import charge_resource
    from costguard_sim.view import make_key

    ours = {one.key: one for one in spent}
    nothing = Money(nano=0)
    clouds: dict[str, list[ResourceBillCheck]] = {}
    for resource in told.resources:
        one = ours.get(make_key(resource))
        clouds.setdefault(resource.cloud, []).append(
            ResourceBillCheck(
                key=make_key(resource),
                money=one.money if one else MoneyInterval(low=nothing, expected=nothing, high=nothing),
                billed=sum((line.amount for line in charge_resource(resource, 0, told.end_us)), Fraction(0)),
                spans=one.spans if one else 0,
                pending=Fraction(resource.traffic_nano, NANO),
            )
        )
    return tuple(CloudBillCheck(provider=cloud, resources=tuple(found)) for cloud, found in sorted(clouds.items()))


def _find_midnight() -> datetime:
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


MEMORY_DISK = Path("/dev/shm")  # noqa: S108 - a folder made there is this process's own
"""A disk in memory, where there is one: nobody needs this ledger afterwards, and a real disk's promises take their time."""
FRIDAY, WEEKEND_LENGTH = 4, timedelta(days=3)
WEEKEND_STORY = """
title: A weekend
hazard: every machine is another way to lose money
zone: {zone}
start: {friday} 16:00
end: Mon 09:00
poll: 20m
machines
  train     aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, age 1m, owner ada, stops-in 2m, measures duty cpu io
  fetch     runpod H100-SXM $2.99, age 1m, owner bob, measures duty cpu io
  finetune  gcp 8xH100-80GB-SXM $88.49, age 1m, owner cyd, measures duty power cpu io progress
  sweep     vast 8xA100-80GB-SXM $9.60, age 1m, owner dee, labels team=sweeps, measures duty cpu io
  notebook  lambda 8xH100-SXM $23.92, age 1m, owner eve, measures duty cpu io
policies
  idle-gpu  arm stop, gpu, when idle, for 45m, notify, +15m stop
  hung-job  arm notify, gpu, when hung, for 20m, notify page
budgets
  sweeps  $120 day, hard, match labels team=sweeps
config
  [defaults]
  timezone = "{zone}"
  [rails]
  acts = {{ fleet_percent_day = 100 }}      # of five machines, 20 % would be one act a day
clouds
  lambda  no stop
events
  Fri 16:00  train busy
  Fri 16:00  fetch io 6.1 MB/s
  Fri 16:00  finetune busy
  Fri 16:00  sweep busy
  Fri 16:00  notebook busy
  Fri 18:00  train quiet
  Sat 02:00  fetch busy
  Sat 10:00  finetune hang 80 W
  Sat 11:00  finetune busy
  Sat 12:00  fetch ends
  Sat 14:00  finetune ends
  Sat 15:00  notebook quiet
  Sat 17:20  approve terminate notebook by eve why "it is saved"
expect
  Fri 18:45-19:20      notice idle-gpu train
  Fri 19:00-19:40      stop train
  once stop train
  Fri 16:00            fetch is active
  Sat 01:40            fetch is active
  never stop fetch
  never terminate fetch
  never message fetch
  Sat 10:20-11:00      page hung-job finetune
  Sat 11:00-12:00      resolved hung-job finetune
  never stop finetune
  Sat 11:20-12:40      stop sweep
  Sat 15:45-16:40      message notebook saying "asked because"
  Sat 15:00-17:20      never terminate notebook
  never stop notebook
  Sat 17:20-20:00      terminate notebook
  sweep spent at most $120.00 from Sat 00:00 to Sun 00:00
"""
EVENT_TEXTS: Mapping[str, str] = {
    "busy": "trains",
    "quiet": "its work is over, and it runs on",
    "io": "downloads at 6.1 MB/s, its GPU at 0 %",
    "hang": "its GPUs spin at 80 W, and no step is made",
    "ends": "is done, and ended by its own job",
    "approve": "costguard approve {machine} terminate",
}


STATES_SHOWN_OF = ("fetch",)
"""Whose state of work is worth a line."""
ACTION_TEXTS: Mapping[str, str] = {"stop": "stopped", "terminate": "terminated"}


class DemoGuardPlay(GuardPlayer):
    """Clouds that tell what their machines measure with the listing, and are not asked for it apart."""

    def poll(self) -> None:
        """One round."""
        self.polled = poll_sources(self.stage.clouds.values(), self.ledger, self.stage.clock)
        for one in self.polled.seen:
            self._sources[one.poll.scope] = one.source
            if not isinstance(one.poll.inventory, Failed):
                self._handling[one.poll.scope] = {item.key: item.handling for item in one.poll.inventory.items}

    def _open_holds(self, now: datetime) -> list[Hold]:
        with LedgerReader(self.stage.ledger_url) as reader, reader.snapshot() as ask:
            return load_counting_holds(ask, now)


def play_weekend(*, config: str | None = None, now: datetime | None = None) -> CommandAnswer:
    """Play the last weekend that is over at `now` (the present), in the zone of the settings."""
    story = make_weekend_story(config=config, now=now)
    with TemporaryDirectory(prefix="costguard-weekend-", dir=MEMORY_DISK if MEMORY_DISK.is_dir() else None) as folder:
        found = build_weekend(play_story(story, DemoGuardPlay, Path(folder)))
    wrong = CostguardError(f"the weekend went wrong in {len(found.faults)} ways: this is a bug in costguard")
    return CommandAnswer(document=build_weekend_document(found), refusal=wrong if found.faults else None)


def make_weekend_story(*, config: str | None = None, now: datetime | None = None) -> Story:
    """Return the story of the last weekend that is over at `now` (the present), in the zone of the settings."""
    zone = read_settings(config).defaults.zone
    today = (now or datetime.now(UTC)).astimezone(zone).date()
    friday = today - timedelta(days=(today.weekday() - FRIDAY) % 7)
    friday -= timedelta(days=0 if today - friday > WEEKEND_LENGTH else 7)
    return parse_story(WEEKEND_STORY.format(zone=zone, friday=friday.isoformat()), source="the demo's weekend")


def keep_weekend(folder: Path, *, config: str | None = None) -> tuple[str, datetime]:
    """Play the weekend with its ledger in `folder`; return the settings file for it, written there, and when it ends."""
    story = make_weekend_story(config=config)
    outcome = play_story(story, DemoGuardPlay, folder)
    file = folder / "costguard.toml"
    file.write_text(f'{outcome.stage.config}\n[ledger]\nurl = "{outcome.stage.ledger_url}"\n', encoding="utf-8")
    return str(file), outcome.end


def build_weekend(outcome: StoryOutcome) -> Weekend:
    """What came of the play, its ledger read once more."""
    stage = outcome.stage
    period = Period(start=stage.story.start, end=outcome.end)
    asked = ReportPeriod(period=period, label="the weekend")
    with ReportReader(stage.ledger_url, rules=stage.rules) as books:
        spent = {one.key: one.money for one in books.spent(period.end)}
        savings = tuple(_list_savings(outcome, books, period.end))
        pause = max(POLL_GAP, stage.story.poll)
        question = ReportQuestion(
            asked=asked, by=("name", "owner", "provider"), zone=stage.story.zone, as_of=period.end, pause=pause
        )
        statement = build_full_statement(accounts=books, question=question, rules=stage.rules)
    letter = next((one.message for one in outcome.told if "train" in _name_subject(one.message)), None)
    return Weekend(
        period=period,
        zone=stage.story.zone,
        every_s=int(stage.story.poll.total_seconds()),
        polls=outcome.polls,
        moments=tuple(sorted(_list_moments(outcome), key=lambda one: one.at)),
        letter=(format_title(letter), format_body(letter)) if letter else ("", ""),
        repeats=sum(one.message.why_now == REPEAT_DUE for one in outcome.told),
        savings=savings,
        machines=tuple(
            WeekendMachine(
                who=one.name,
                money=spent[one.key],
                truth=_to_money(one.spent(one.created_at, period.end)),
                right=spent[one.key].low.nano - 1 <= one.spent(one.created_at, period.end) <= spent[one.key].high.nano + 1,
            )
            for one in _list_machines(outcome)
        ),
        statement=statement,
        faults=tuple(outcome.faults),
    )


def _list_moments(outcome: StoryOutcome) -> Iterator[WeekendEvent]:
    for event in outcome.stage.story.events:
        what = EVENT_TEXTS[event.what].format(machine=event.name)
        yield WeekendEvent(at=event.at, kind=BY_WORLD, who=event.name, what=what, why=_name_approver(event))
    for told in outcome.told:
        if told.message.why_now != REPEAT_DUE:
            facts = dict(told.message.notices[0].facts)
            yield WeekendEvent(
                at=told.at,
                kind=TOLD_TO_PEOPLE,
                who=_name_subject(told.message),
                what=format_title(told.message).removeprefix("costguard: "),
                why=facts.get("why", ""),
                cost=facts.get("so far", ""),
            )
    for at, name, work in outcome.works:
        if name in STATES_SHOWN_OF and work.state == ACTIVE:
            yield WeekendEvent(at=at, kind=BY_US, who=name, what="active: left alone", why="; ".join(work.reasons))
    for act in outcome.acts:
        yield WeekendEvent(at=act.at, kind=BY_US, who=act.name, what=f"{act.act} sent: {act.said}")
    for at, name, intent in outcome.intents:
        if intent.state == DONE:
            yield WeekendEvent(at=at, kind=BY_US, who=name, what=f"proven {ACTION_TEXTS[intent.act]}", why=intent.outcome)


def _name_approver(event: StoryEvent) -> str:
    return f"{event.who} says yes" if event.what == "approve" else ""


def _name_subject(message: Notification) -> str:
    """Whom it is about: the machine of its first notice, or its budget."""
    subject = message.notices[0].subject
    return subject.rpartition("/")[2].removeprefix("i-").removeprefix("budget ")


def _list_savings(outcome: StoryOutcome, books: SpendingReader, end: datetime) -> Iterator[WeekendSaving]:
    """Each machine that costguard ended, from the proof on. Every machine has a provider of its own."""
    machines = {one.name: one for one in _list_machines(outcome)}
    for at, name, intent in outcome.intents:
        rate = machines[name].rate
        if intent.state == DONE and rate is not None:
            found = books.load_spending(Period(start=at, end=end), end)
            disks = sum((s.money.expected for s in found if s.attribution.provider == intent.life.key.provider), Money(nano=0))
            avoided = rate.multiply_seconds(int((end - at).total_seconds()))
            yield WeekendSaving(who=name, act=ACTION_TEXTS[intent.act], at=at, avoided=avoided, disks=disks)


def _list_machines(outcome: StoryOutcome) -> list[SimulatedMachine]:
    return [one for cloud in outcome.stage.clouds.values() for one in cloud.machines.values()]


def _to_money(nano: Fraction) -> Money:
    return Money(nano=round(nano))
