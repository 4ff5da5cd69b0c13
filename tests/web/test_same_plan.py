"""The page Now shows the plan that `costguard plan` shows, of any fleet: same steps, same holds, same machines not measured."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_hex

import pytest

from costguard.guard.overrides import FREEZE, LEASE, PROTECT, Override
from costguard.guard.policy import Rails
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.holds import load_counting_holds
from costguard.metering.observation import Handling
from costguard.services.guarding.guard import GuardRunner
from costguard.services.guarding.guard_inputs import build_guard_config, read_measurement_lags
from costguard.services.guarding.plan_view import build_plan_view
from costguard.services.report.ledger_answers import open_books
from costguard.services.serving.fleet_page import build_fleet_page
from costguard.settings import Settings, read_settings
from costguard.testing.cloud import SimulatedCloud, TerminateOnlyCloud
from costguard.testing.doubles import FakeClock, RecordingNotifier
from costguard.testing.guarding import GuardedClouds
from costguard.testing.machine import SILENT, make_busy_rule, make_hang_rule, make_quiet_rule
from costguard.values.resource import STOPPED
from costguard.views.plan import PlanView, build_plan_row_data, group_plan_rows
from tests.web.stations import station
from tests.web.test_pages import House

FLEETS = 50
NOON = datetime(2026, 11, 6, 12, tzinfo=UTC)
MINUTE, EVERY = timedelta(minutes=1), timedelta(minutes=5)
POLICIES = (
    """[[policy]]
name = "idle-gpu"
arm = "{arm}"
when = "state == 'idle' && confidence >= 0.9"
for = "{wait}m"
allow_irreversible = true
then = [{{ do = "notify" }}, {{ after = "15m", do = "{do}" }}]""",
    """[[policy]]
name = "hung-job"
arm = "notify"
when = "state == 'hung'"
for = "20m"
then = [{{ do = "notify", severity = "page" }}]""",
    """[[policy]]
name = "dear"
arm = "{arm}"
when = "power == 'running' && rate > usd_per_hour(20)"
then = [{{ do = "notify" }}, {{ after = "{wait}m", do = "stop" }}]""",
    """[[budget]]
name = "lab"
cap = "{cap} USD"
period = "day"
hard = true""",
)
HANDLINGS = (
    Handling(stops=True, terminates=True),
    Handling(stops=True, terminates=True, stop_loses=("1900 GB of local disk",)),
    Handling(stops=True, terminates=True, protected=("stop", "terminate")),
    Handling(stops=True, terminates=True, controller="auto-scaling group train"),
    Handling(stops=True, terminates=True, committed="a reservation pays for it"),
    Handling(),
)


@contextmanager
def play(folder: Path, dice: random.Random) -> Iterator[tuple[Settings, GuardedClouds, FakeClock, GuardStore]]:
    """A few hours of a drawn fleet under drawn policies, guarded by the product."""
    values = {"arm": dice.choice(("observe", "notify", "stop")), "wait": dice.choice((5, 45)), "cap": dice.choice((1, 9000))}
    values["do"] = dice.choice(("stop", "stop", "terminate"))
    policies = "\n".join(dice.sample(POLICIES, dice.randint(1, len(POLICIES)))).format(**values)
    claims = dice.choice(("", 'claims = ["aws"]\n'))
    config = folder / "costguard.toml"
    config.write_text(
        f'[ledger]\nurl = "sqlite:///{folder}/ledger.db"\n[notify]\nconsole_is_delivery = true\n'
        f'[watch]\ninterval = "5m"\n{claims}{policies}\n'
    )
    settings, clock = read_settings(str(config)), FakeClock(NOON)
    clouds = {"aws": SimulatedCloud("aws", clock), "lambda": TerminateOnlyCloud("lambda", clock)}
    for number in range(dice.randint(1, 8)):
        cloud, name = dice.choice(list(clouds.values())), f"box-{number}"
        handling = dice.choice(HANDLINGS)
        machine = cloud.add(
            name,
            rate=dice.choice(("2.99", "32.77", None)),
            gpu=dice.choice(("A100-80GB-SXM", "")),
            gpus=8,
            at=NOON - MINUTE,
            handling=replace(handling, stops=handling.stops and cloud.can_stop),
            owner=dice.choice(("ada", "")),
            region=dice.choice(("east", "west")),
        )
        machine.families = frozenset(("duty", "power", "cpu", "io", "progress"))
        rules = (SILENT, make_quiet_rule(gpus=8), make_busy_rule(gpus=8), make_hang_rule(80.0, gpus=8))
        cloud.measures(name, dice.choice(rules), at=NOON - MINUTE)
        if not dice.randrange(6):
            machine.turn(NOON + 20 * MINUTE, STOPPED)
    url = str(settings.ledger.url)
    notifier = RecordingNotifier()
    watch = GuardedClouds(clouds, settings, clock=clock, notifier=notifier, ledger_url=url, interval=EVERY)
    try:
        with GuardStore(url, rails=settings.rails or Rails()) as book:
            yield settings, watch, clock, book
    finally:
        watch.close()


def read_plan(settings: Settings, watch: GuardedClouds, clock: FakeClock, book: GuardStore) -> PlanView:
    """The plan as `answer_plan` builds it after a poll."""

    def load_holds(now: datetime) -> list[object]:
        with LedgerReader(str(settings.ledger.url)) as reader, reader.snapshot() as ask:
            return list(load_counting_holds(ask, now))

    rules = build_guard_config(settings)
    guard = GuardRunner(
        book=book,
        books=lambda: open_books(settings),
        rules=rules,
        latest=lambda: replace(watch._collect_results(), lags=read_measurement_lags()),
        clock=clock,
        holder="plan",
        holds=load_holds,  # type: ignore[arg-type]
        dry_run=True,
    )
    return build_plan_view(guard.run(), rules, ())


def draw_override(dice: random.Random, watch: GuardedClouds, now: datetime) -> Override:
    """What a person may have said of a machine, or of all."""
    what = dice.choice((FREEZE, LEASE, PROTECT))
    key = dice.choice([machine.key for cloud in watch.clouds.values() for machine in cloud.machines.values()])
    until = None if what == PROTECT else now + timedelta(hours=4)
    return Override(
        id=token_hex(8), what=what, who="ada", why="a run", at=now, until=until, key=None if what == FREEZE else key
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(FLEETS))
def test_the_page_shows_what_plan_shows(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - fleets are drawn, not secret
    with play(tmp_path, dice) as (settings, watch, clock, book):
        for number in range(dice.choice((2, 15))):
            clock.advance(EVERY if number else MINUTE)
            watch.poll()
            if number:
                watch.guard()
            if not dice.randrange(9):
                book.add_override(draw_override(dice, watch, clock.now()))
        clock.advance(dice.choice((1, 2, 20)) * MINUTE)
        page = build_fleet_page(settings, clock.now())
        plan = read_plan(settings, watch, clock, book)
    groups = group_plan_rows(plan)
    planned = tuple([build_plan_row_data(row, plan.at) for row in of] for of in (groups.going, groups.blocked, groups.unknown))
    assert (page.head.plan.hash, page.head.plan.unaccepted) == (plan.hash, plan.unaccepted)
    shown = ([*page.head.going], [*page.head.blocked], [*page.head.unknown])
    assert shown == planned


IDLE = """[[policy]]
name = "idle-gpu"
arm = "stop"
when = "state == 'idle'"
for = "45m"
then = [{ do = "notify" }, { after = "15m", do = "stop" }]
"""


def test_a_machine_that_nothing_measures_has_no_step_on_the_page(tmp_path: Path) -> None:
    with station(tmp_path, more=IDLE) as made:
        made.room.run_guard()
        house = House(made, tmp_path / "pages.toml")
        (tmp_path / "pages.toml").write_text(f'[ledger]\nurl = "{made.url}"\n{IDLE}')
        page = house.open("viewer").client.get("/").text
    assert "Not measured yet, so nothing is due: 2" in page
    assert "No steps: no policy has anything to do." in page
    assert "due 20" not in page
