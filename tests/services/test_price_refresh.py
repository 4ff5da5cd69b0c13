"""The daily refresh of `watch`: once a day, whatever restarts, failures and clocks do, and never in anybody's way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from costguard.errors import CostguardError, NoAnswerError
from costguard.ledger.market import write_market
from costguard.ledger.price_history import PriceHistoryReader
from costguard.quoting.offer import OfferSelection
from costguard.services.guarding.watchdog_context import open_watchdog_context
from costguard.services.quote.offers import get_refreshed_market_file
from costguard.services.quote.price_history import get_history_file
from costguard.services.quote.price_refresh import (
    PAUSE_AFTER_SUCCESS,
    DailyPriceRefresh,
    is_refresh_due,
    read_refresh_time,
    refresh_market_prices,
)
from costguard.services.watch_loop import watch
from costguard.settings import Settings, check_settings, read_settings
from costguard.values.text_format import format_instant
from tests import shop
from tests.cli.acme import Account, Acme, unreachable
from tests.cli.test_status_polls import Setup, setup
from tests.conftest import Command

__all__ = ["setup"]

MONDAY = datetime(2026, 11, 23, 9, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
DAILY = '[prices]\nrefresh = "daily"\n'


class Log:
    """What was logged."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def info(self, event: str, /, **_fields: object) -> None:
        self.events.append(event)

    warning = error = info


@dataclass
class World:
    """Clocks that a test sets, and a refresh that counts. `wrong`: what it raises."""

    now: datetime = MONDAY
    steady: float = 1000.0
    refreshes: list[datetime] = field(default_factory=list)
    wrong: BaseException | None = None
    text: str = DAILY
    log: Log = field(default_factory=Log)

    def refresh(self, _settings: Settings) -> tuple[str, ...]:
        self.refreshes.append(self.now)
        if self.wrong is not None:
            raise self.wrong
        facts = {"refreshed_at": format_instant(self.now), "live": "aws"}
        write_market(get_refreshed_market_file(), shop.SHOP, facts)
        return ()

    def watch(self, start: Callable[[Callable[[], None]], object] = lambda run: run()) -> DailyPriceRefresh:
        """A watchdog's duty, just started."""
        return DailyPriceRefresh(
            lambda: check_settings(self.text, "costguard.toml"),
            log=self.log,
            refresh=self.refresh,
            wall=lambda: self.now,
            steady=lambda: self.steady,
            start=start,
        )

    def wait(self, for_: timedelta) -> None:
        self.now += for_
        self.steady += for_.total_seconds()

    def run(self, duty: DailyPriceRefresh, length: timedelta, every: timedelta = timedelta(minutes=1)) -> int:
        """Let the duty run for some time; return its failures."""
        failures, end = 0, self.now + length
        while self.now < end:
            try:
                duty.run()
            except CostguardError:
                failures += 1
            self.wait(every)
        return failures


@pytest.fixture
def world(costguard: Command) -> World:  # noqa: ARG001 - it empties the folders
    return World()


def test_a_week_has_seven_or_eight_refreshes_never_two_a_day(world: World) -> None:
    assert world.run(world.watch(), 7 * DAY, timedelta(minutes=7)) == 0
    days = [at.date() for at in world.refreshes]
    assert len(days) == len(set(days))
    assert len(days) in (7, 8)
    assert world.log.events == ["prices_refreshed"] * len(days)


def test_failures_are_raised_once_each_and_tried_more_and_more_rarely(world: World) -> None:
    world.wrong = NoAnswerError("no source returned a price: nothing was changed")
    assert world.run(world.watch(), 2 * DAY) == len(world.refreshes)
    gaps = [round((b - a) / HOUR) for a, b in zip(world.refreshes, world.refreshes[1:], strict=False)]
    assert gaps == [1, 2, 4, 8, 12, 12]


def test_a_watchdog_that_is_restarted_each_minute_tries_no_more_often(world: World) -> None:
    world.wrong = NoAnswerError("no source returned a price")
    failures = sum(world.run(world.watch(), timedelta(minutes=1)) for _ in range(8 * 60))
    assert failures == len(world.refreshes) == 4


def test_what_a_source_raises_that_is_no_error_of_ours_is_raised_too(world: World) -> None:
    world.wrong = SystemExit(3)
    duty = world.watch()
    with pytest.raises(SystemExit):
        duty.run()
    world.wait(HOUR)
    world.wrong = None
    duty.run()
    assert len(world.refreshes) == 2


def test_a_clock_that_jumps_forth_and_back_causes_no_storm(world: World) -> None:
    duty = world.watch()
    for number in range(240):  # four hours in which the wall clock is off by days every other minute
        world.now += (3 if number % 2 == 0 else -3) * DAY
        world.run(duty, timedelta(minutes=1))
    assert len(world.refreshes) <= 1 + 4 * HOUR / PAUSE_AFTER_SUCCESS


def test_a_slow_refresh_holds_nothing_back_and_is_not_started_twice(world: World) -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def start(run: Callable[[], None]) -> None:
        def play() -> None:
            begun.set()
            go_on.wait(10)
            run()
            ended.set()

        threading.Thread(target=play, daemon=True).start()

    world.wrong = NoAnswerError("no source returned a price")
    duty = world.watch(start)
    duty.run()
    assert begun.wait(10)
    for _ in range(5):
        world.wait(DAY)
        duty.run()
    assert world.refreshes == []
    go_on.set()
    assert ended.wait(10)
    with pytest.raises(NoAnswerError):
        duty.run()
    assert len(world.refreshes) == 1


@pytest.mark.parametrize(
    ("last", "now", "due"),
    [
        (None, MONDAY, True),
        (MONDAY, MONDAY + HOUR, False),
        (MONDAY, MONDAY + 19 * HOUR, False),  # Tuesday, but too soon
        (MONDAY, MONDAY + 20 * HOUR, True),
        (MONDAY - 9 * HOUR, MONDAY + 14 * HOUR, False),  # 23 hours, and the same day
        (MONDAY + HOUR, MONDAY, False),
        (MONDAY + 2 * DAY, MONDAY, True),
    ],
)
def test_when_a_refresh_is_due(last: datetime | None, now: datetime, due: bool) -> None:  # noqa: FBT001 - a case of the table
    assert is_refresh_due(last, now) == due


def test_a_market_that_cannot_be_read_counts_as_never_refreshed(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b"no market")
    write_market(tmp_path / "plain", shop.SHOP)
    assert [read_refresh_time(tmp_path / name) for name in ("none", "m", "plain")] == [None, None, None]


def test_a_refresh_asks_the_accounts_and_fills_the_history(costguard: Command, setup: Setup) -> None:  # noqa: ARG001
    today = datetime.now(UTC).date()
    setup(Acme("runpod", [Account("runpod", offers=[shop.offer("runpod", "T4", "0.2", region="moon", seen=today)])]))
    closed_off = Path("costguard.toml")
    closed_off.write_text(closed_off.read_text() + "[prices]\nonly = []\n")
    refresh_market_prices(read_settings(None))
    assert read_refresh_time(get_refreshed_market_file()) is not None
    with PriceHistoryReader(get_history_file()) as history:
        (one,) = history.list_series(OfferSelection(regions=("moon",)))
    assert one.runs[-1].rate.format(1) == "0.2"


def test_a_refresh_from_which_nothing_came_is_an_error(costguard: Command, setup: Setup) -> None:  # noqa: ARG001
    setup(Acme("runpod", [Account("runpod", offers=unreachable("runpod"))]))
    Path("costguard.toml").write_text(Path("costguard.toml").read_text() + "[prices]\nonly = []\n")
    with pytest.raises(CostguardError, match="nothing was changed"):
        refresh_market_prices(read_settings(None))


@pytest.mark.parametrize(("text", "there"), [(DAILY, True), ('[prices]\nrefresh = "never"\n', False), ("", False)])
def test_the_watchdog_has_the_duty_where_the_settings_ask_for_it(
    costguard: Command,  # noqa: ARG001 - it empties the folders
    text: str,
    there: bool,  # noqa: FBT001 - a case of the table
    tmp_path: Path,
) -> None:
    settings = check_settings(f'[ledger]\nurl = "sqlite:///{tmp_path}/ledger.db"\n{text}', "costguard.toml")
    for offline in (False, True):
        with open_watchdog_context(settings, offline=offline) as made:
            duties = watch._build_duties(made, partial(print), timedelta(minutes=1))
        assert ("prices" in [duty.name for duty in duties.others]) == (there and not offline)
