"""The demo's weekend: five machines on simulated clouds, guarded by the product itself from Friday evening to Monday morning.

A machine that is forgotten, a slow download, a hang, a hard cap, a cloud that has no stop. Polls, ledger, guard, acts and
messages are the product's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from costguard.errors import CostguardError
from costguard.guard.action_intents import DONE, Intent
from costguard.guard.alerts.alert import REPEAT_DUE, Notification
from costguard.guard.signals import ACTIVE, Activity
from costguard.ledger.reports.reader import ReportReader
from costguard.metering.accrual import POLL_GAP
from costguard.metering.observation import Handling
from costguard.notifiers import format_body, format_title
from costguard.reporting.statement.period import ReportPeriod
from costguard.services import CommandAnswer
from costguard.services.report.report import ReportQuestion, build_full_statement
from costguard.settings import check_settings, read_settings
from costguard.testing.cloud import ReceivedAction, SimulatedCloud, TerminateOnlyCloud
from costguard.testing.doubles import FakeClock, RecordingNotifier
from costguard.testing.guarding import GuardedClouds
from costguard.testing.machine import (
    SampleRule,
    SimulatedDisk,
    SimulatedMachine,
    make_busy_rule,
    make_hang_rule,
    make_quiet_rule,
    make_transfer_rule,
)
from costguard.values.calendar import Period
from costguard.values.money import Money
from costguard.values.resource import ENDED
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

MEMORY_DISK = Path("/dev/shm")  # noqa: S108 - a folder made there is this process's own
"""A disk in memory, where there is one: nobody needs this ledger afterwards, and a real disk's promises take their time."""
FRIDAY, WEEKEND_LENGTH = 4, timedelta(days=3)
POLLED_EVERY = timedelta(minutes=20)
WEEKEND_SETTINGS = """
[[policy]]
name = "idle-gpu"
arm = "stop"
when = "state == 'idle' && confidence >= 0.9"
for = "45m"
match = {{ gpu = true }}
then = [{{ do = "notify" }}, {{ after = "15m", do = "stop" }}]

[[policy]]
name = "hung-job"
arm = "notify"
when = "state == 'hung'"
for = "20m"
match = {{ gpu = true }}
then = [{{ do = "notify", severity = "page" }}]

[[budget]]
name = "sweeps"
cap = "120 USD"
period = "day"
hard = true
match = {{ labels = {{ team = "sweeps" }} }}

[defaults]
timezone = "{zone}"
[rails]
acts = {{ fleet_percent_day = 100 }}      # of five machines, 20 % would be one act a day
"""


class WeekendBox(NamedTuple):
    """A machine as the weekend begins. Each has a provider of its own. `ends`: the acts that must come of it."""

    provider: str
    name: str
    gpu: str
    gpus: int
    rate: str
    owner: str
    families: frozenset[str] = frozenset(("duty", "cpu", "io"))
    disks: tuple[SimulatedDisk, ...] = ()
    labels: Mapping[str, str] = {}
    stops_in: timedelta = timedelta(minutes=1)
    ends: tuple[str, ...] = ()


BOXES = (
    WeekendBox(
        *("aws", "train", "A100-80GB-SXM", 8, "32.77", "ada"),
        disks=(SimulatedDisk(gb=500, running=80_000_000),),
        stops_in=timedelta(minutes=2),
        ends=("stop",),
    ),
    WeekendBox("runpod", "fetch", "H100-SXM", 1, "2.99", "bob"),
    WeekendBox(
        *("gcp", "finetune", "H100-80GB-SXM", 8, "88.49", "cyd"),
        families=frozenset(("duty", "power", "cpu", "io", "progress")),
    ),
    WeekendBox("vast", "sweep", "A100-80GB-SXM", 8, "9.60", "dee", labels={"team": "sweeps"}, ends=("stop",)),
    WeekendBox("lambda", "notebook", "H100-SXM", 8, "23.92", "eve", ends=("terminate",)),
)
"""Lambda has no stop."""


class Turn(NamedTuple):
    """What happens to a machine, so many `days` after Friday at `at`, local time. `what`: of RULES and EVENT_TEXTS."""

    days: int
    at: str
    name: str
    what: str


TURNS = (
    *(Turn(0, "16:00", box.name, "io" if box.name == "fetch" else "busy") for box in BOXES),
    Turn(0, "18:00", "train", "quiet"),
    Turn(1, "02:00", "fetch", "busy"),
    Turn(1, "10:00", "finetune", "hang"),
    Turn(1, "11:00", "finetune", "busy"),
    Turn(1, "12:00", "fetch", "ends"),
    Turn(1, "14:00", "finetune", "ends"),
    Turn(1, "15:00", "notebook", "quiet"),
    Turn(1, "17:20", "notebook", "approve"),
)
EVENT_TEXTS: Mapping[str, str] = {
    "busy": "trains",
    "quiet": "job finished, machine still running",
    "io": "downloading at 6.1 MB/s, GPU at 0 %",
    "hang": "GPUs busy at 80 W without progress",
    "ends": "job finished and ended its machine",
    "approve": "costguard approve {machine} terminate",
}
APPROVER = "eve"
STATES_SHOWN_OF = ("fetch",)
"""Whose state of work is worth a line; nobody is to be told of it."""
ACTION_TEXTS: Mapping[str, str] = {"stop": "stopped", "terminate": "terminated"}


@dataclass(slots=True, kw_only=True)
class WeekendPlay:
    """The weekend as it was played. `works`, `intents`: what changed, when, by the name of the machine."""

    settings: str
    ledger_url: str
    zone: tzinfo
    period: Period
    watch: GuardedClouds
    told: RecordingNotifier
    events: list[tuple[datetime, Turn]]
    works: list[tuple[datetime, str, Activity]] = field(default_factory=list)
    intents: list[tuple[datetime, str, Intent]] = field(default_factory=list)
    polls: int = 0

    @property
    def machines(self) -> list[SimulatedMachine]:
        """Return every machine."""
        return [one for cloud in self.watch.clouds.values() for one in cloud.machines.values()]

    @property
    def acts(self) -> list[ReceivedAction]:
        """Return every act that any cloud received, in order of time."""
        return sorted((act for cloud in self.watch.clouds.values() for act in cloud.acts), key=lambda act: act.at)


def play_weekend(*, config: str | None = None, now: datetime | None = None) -> CommandAnswer:
    """Play the last weekend that is over at `now` (the present), in the zone of the settings."""
    with TemporaryDirectory(prefix="costguard-weekend-", dir=MEMORY_DISK if MEMORY_DISK.is_dir() else None) as folder:
        weekend = build_weekend(run_weekend(Path(folder), config=config, now=now))
    wrong = CostguardError(f"the weekend has {len(weekend.faults)} faults: this is a bug in costguard")
    return CommandAnswer(document=build_weekend_document(weekend), refusal=wrong if weekend.faults else None)


def keep_weekend(folder: Path, *, config: str | None = None) -> tuple[str, datetime]:
    """Play the weekend until Saturday noon with its ledger in `folder`; return the settings file there, and when it ends.

    At noon machines work, one is stopped and one has just ended: on Monday nothing is left to see.
    """
    play = run_weekend(folder, config=config, until=(1, "12:00"))
    file = folder / "costguard.toml"
    file.write_text(f'{play.settings}\n[ledger]\nurl = "{play.ledger_url}"\n', encoding="utf-8")
    return str(file), play.period.end


def run_weekend(
    folder: Path, *, config: str | None = None, now: datetime | None = None, until: tuple[int, str] = (3, "09:00")
) -> WeekendPlay:
    """Play the weekend with its ledger in `folder`. `until`: days after Friday, and the local time."""
    zone = read_settings(config).defaults.timezone
    friday = _find_friday((now or datetime.now(UTC)).astimezone(zone).date())
    start, stop = _find_instant(friday, 0, "16:00", zone), _find_instant(friday, *until, zone)
    clock = FakeClock(start)
    clouds, notifier = _build_clouds(clock), RecordingNotifier(clock)
    settings, url = WEEKEND_SETTINGS.format(zone=zone), f"sqlite:///{folder}/weekend.db"
    watch = GuardedClouds(
        clouds,
        check_settings(settings, "the demo's weekend"),
        clock=clock,
        notifier=notifier,
        ledger_url=url,
        interval=POLLED_EVERY,
    )
    events = [(_find_instant(friday, turn.days, turn.at, zone), turn) for turn in TURNS]
    end = start + (stop - start) // POLLED_EVERY * POLLED_EVERY
    play = WeekendPlay(
        settings=settings,
        ledger_url=url,
        zone=zone,
        period=Period(start=start, end=end),
        watch=watch,
        told=notifier,
        events=events,
    )
    try:
        left = list(events)
        while clock.now() <= end:
            while left and left[0][0] <= clock.now():
                _apply_turn(watch, *left.pop(0))
            watch.poll()
            watch.guard()
            play.polls += 1
            _record_changes(play, clock.now())
            clock.advance(POLLED_EVERY)
    finally:
        watch.close()
    return play


def _find_friday(today: date) -> date:
    """Return the Friday of the last weekend that is over `today`."""
    friday = today - timedelta(days=(today.weekday() - FRIDAY) % 7)
    return friday - timedelta(days=0 if today - friday > WEEKEND_LENGTH else 7)


def _find_instant(friday: date, days: int, at: str, zone: tzinfo) -> datetime:
    return datetime.combine(friday + timedelta(days=days), time.fromisoformat(at), zone).astimezone(UTC)


def _build_clouds(clock: FakeClock) -> Mapping[str, TerminateOnlyCloud]:
    clouds = dict[str, TerminateOnlyCloud]()
    for box in BOXES:
        can_stop = box.provider != "lambda"
        cloud = clouds[box.provider] = (SimulatedCloud if can_stop else TerminateOnlyCloud)(box.provider, clock)
        machine = cloud.add(
            box.name,
            rate=box.rate,
            gpu=box.gpu,
            gpus=box.gpus,
            stores=box.disks,
            at=clock.now() - timedelta(minutes=1),
            handling=Handling(stops=can_stop, terminates=True),
            labels=box.labels,
            owner=box.owner,
            region="east",
            tier="on-demand",
        )
        machine.families, machine.stops_in = box.families, box.stops_in
    return clouds


def _apply_turn(watch: GuardedClouds, at: datetime, turn: Turn) -> None:
    cloud = next(one for one in watch.clouds.values() if turn.name in one.machines)
    machine = cloud.machines[turn.name]
    rules: Mapping[str, SampleRule] = {
        "busy": make_busy_rule(gpus=machine.gpus),
        "quiet": make_quiet_rule(gpus=machine.gpus),
        "io": make_transfer_rule(6.1e6, gpus=machine.gpus),
        "hang": make_hang_rule(80.0, gpus=machine.gpus),
    }
    if turn.what in rules:
        cloud.measures(turn.name, rules[turn.what], at=at)
    elif turn.what == "approve":
        watch.approve(turn.name, "terminate", who=APPROVER)
    else:
        machine.turn(at, ENDED)


def _record_changes(play: WeekendPlay, at: datetime) -> None:
    """Write down what changed since the last guard run."""
    if play.watch.run is None:
        return
    names = {one.key: one.name for one in play.machines}
    states = {name: work.state for _, name, work in play.works}
    intents = {one.id: one.state for _, _, one in play.intents}
    works = play.watch.run.survey.works if play.watch.run.survey else {}
    play.works += [(at, names[key], work) for key, work in works.items() if states.get(names[key]) != work.state]
    play.intents += [(at, names[one.life.key], one) for one in play.watch.run.intents if intents.get(one.id) != one.state]


def build_weekend(play: WeekendPlay) -> Weekend:
    """Return what came of the play, its ledger read once more."""
    report_period = ReportPeriod(period=play.period, label="the weekend")
    with ReportReader(play.ledger_url, rules=play.watch.rules) as books:
        spent = {one.key: one.money for one in books.spent(play.period.end)}
        savings = tuple(_list_savings(play, books, play.period.end))
        pause = max(POLL_GAP, POLLED_EVERY)
        question = ReportQuestion(
            asked=report_period, by=("name", "owner", "provider"), zone=play.zone, as_of=play.period.end, pause=pause
        )
        statement = build_full_statement(accounts=books, question=question, rules=play.watch.rules)
    notifications = [one.message for one in play.told.told]
    letter = next((one for one in notifications if "train" in _name_subject(one)), None)
    return Weekend(
        period=play.period,
        zone=play.zone,
        every_s=int(POLLED_EVERY.total_seconds()),
        polls=play.polls,
        moments=tuple(sorted(_list_moments(play), key=lambda one: one.at)),
        letter=(format_title(letter), format_body(letter)) if letter else ("", ""),
        repeats=sum(one.why_now == REPEAT_DUE for one in notifications),
        savings=savings,
        machines=tuple(
            WeekendMachine(
                who=one.name,
                money=spent[one.key],
                truth=Money(nano=round(one.spent(one.created_at, play.period.end))),
                right=spent[one.key].low.nano - 1 <= one.spent(one.created_at, play.period.end) <= spent[one.key].high.nano + 1,
            )
            for one in play.machines
        ),
        statement=statement,
        faults=tuple(_list_faults(play)),
    )


def _list_faults(play: WeekendPlay) -> Iterator[str]:
    """Yield a sentence for each machine that was not guarded as it should be."""
    for box in BOXES:
        acts = tuple(act.act for act in play.acts if act.name == box.name and act.done)
        if acts != box.ends:
            yield f"{box.name}: {', '.join(acts) or 'nothing'} was done, not {', '.join(box.ends) or 'nothing'}"
    for one in play.told.messages:
        if _name_subject(one) in STATES_SHOWN_OF:
            yield f"people were told of {_name_subject(one)}, which works: {one.title}"


def _list_moments(play: WeekendPlay) -> Iterator[WeekendEvent]:
    for at, turn in play.events:
        why = f"approved by {APPROVER}" if turn.what == "approve" else ""
        yield WeekendEvent(at=at, kind=BY_WORLD, who=turn.name, what=EVENT_TEXTS[turn.what].format(machine=turn.name), why=why)
    for notification in play.told.told:
        if notification.message.why_now != REPEAT_DUE:
            facts = dict(notification.message.notices[0].facts)
            yield WeekendEvent(
                at=notification.at,
                kind=TOLD_TO_PEOPLE,
                who=_name_subject(notification.message),
                what=format_title(notification.message).removeprefix("costguard: "),
                why=facts.get("why", ""),
                cost=facts.get("so far", ""),
            )
    for at, name, work in play.works:
        if name in STATES_SHOWN_OF and work.state == ACTIVE:
            yield WeekendEvent(at=at, kind=BY_US, who=name, what="active, so no act", why="; ".join(work.reasons))
    for act in play.acts:
        yield WeekendEvent(at=act.at, kind=BY_US, who=act.name, what=f"{act.act} sent: {act.said}")
    for at, name, intent in play.intents:
        if intent.state == DONE:
            yield WeekendEvent(at=at, kind=BY_US, who=name, what=f"proven {ACTION_TEXTS[intent.act]}", why=intent.outcome)


def _name_subject(message: Notification) -> str:
    """Return whom it is about: the machine of its first notice, or its budget."""
    subject = message.notices[0].subject
    return subject.rpartition("/")[2].removeprefix("i-").removeprefix("budget ")


def _list_savings(play: WeekendPlay, books: ReportReader, end: datetime) -> Iterator[WeekendSaving]:
    """Yield each machine that costguard ended, from the proof on. Every machine has a provider of its own."""
    rates = {one.name: one.rate for one in play.machines}
    for at, name, intent in play.intents:
        rate = rates[name]
        if intent.state == DONE and rate is not None:
            costs = books.load_spending(Period(start=at, end=end), end)
            disks = sum((s.money.expected for s in costs if s.attribution.provider == intent.life.key.provider), Money(nano=0))
            avoided = rate.multiply_seconds(int((end - at).total_seconds()))
            yield WeekendSaving(who=name, act=ACTION_TEXTS[intent.act], at=at, avoided=avoided, disks=disks)
