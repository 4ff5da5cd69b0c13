"""What is unusual, over a real ledger of six weeks: who is told what, once, and what a report says of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from costguard.budgets.hold import Hold
from costguard.errors import InputError
from costguard.guard.alerts.alert import Alert, AlertRoute
from costguard.guard.context import GuardConfig
from costguard.guard.policy import Rails
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.holds import HoldStore
from costguard.ledger.reports.reader import ReportReader
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Complete, Poll
from costguard.metering.observation import Disk, Observation, Price
from costguard.services.guarding.anomaly_watch import AnomalyWatch, open_anomaly_watch
from costguard.services.guarding.guard import GuardRunner
from costguard.settings import read_settings
from costguard.testing import FakeClock
from costguard.values.calendar import Period
from costguard.values.money import NANO, Money, Rate
from costguard.values.resource import RUNNING, ResourceKey, ScopeKey
from costguard.views.report import build_report_document
from tests.blank import blank_latest
from tests.reporting.test_figures import SPENT

BEGUN = datetime(2026, 6, 1, tzinfo=UTC)  # a Monday
DAY, HOUR, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)
TUESDAY = BEGUN + 36 * DAY
H100, L40S = ("H100-80GB-SXM", 3.0), ("L40S", 1.0)


@dataclass
class Shop:
    """An account of which `runs` was listed; each listing has all of it."""

    url: str
    book: GuardStore
    writer: LedgerWriter
    clock: FakeClock = field(default_factory=lambda: FakeClock(BEGUN))
    runs: dict[str, Observation] = field(default_factory=dict)
    watch: AnomalyWatch | None = None

    def add(
        self,
        name: str,
        gpu: tuple[str, float],
        owner: str,
        *,
        region: str = "us-east-1",
        price: float = 1,
        account: str = "main",
    ) -> None:
        key, now = ResourceKey("sim", account, region, name), self.clock.now()
        rate = Rate(nano_per_hour=round(gpu[1] * price * NANO))
        began = self.runs[name].started_at if name in self.runs else now
        self.runs[name] = Observation(
            key=key, name=name, state=RUNNING, gpu=gpu[0], gpu_count=1, owner=owner, instance_type=gpu[0].lower(),
            started_at=began, created_at=began, prices=(Price(rate),),
        )  # fmt: skip

    def poll(self, at: datetime) -> None:
        """List everything at `at`."""
        self.clock.advance(at - self.clock.now())
        for account in ("main", "other"):
            seen = tuple(one for one in self.runs.values() if one.key.account == account)
            if account == "main" or seen:
                poll = Poll(scope=ScopeKey("sim", account, "all"), at=at, inventory=Complete(seen))
                self.writer.record_polls([poll])

    def live_through(self, days: int) -> None:
        """A service day and night; bob's machine from 9 to 17 on working days."""
        self.add("service", L40S, "serving")
        self.poll(BEGUN)
        for day in range(days):
            if day % 7 < 5:
                self.clock.advance(BEGUN + day * DAY + 9 * HOUR - self.clock.now())
                self.add(f"bob-{day}", H100, "bob")
                self.poll(self.clock.now())
                self.poll(BEGUN + day * DAY + 17 * HOUR - MINUTE)
                del self.runs[f"bob-{day}"]
                self.poll(BEGUN + day * DAY + 17 * HOUR)

    def guard(self, *, told: bool = False) -> list[Alert]:
        """What is unusual by a guard run now."""
        self.watch = self.watch or AnomalyWatch(url=self.url, zone=UTC, floor=20)
        runner = GuardRunner(
            book=self.book,
            books=partial(SpendingReader, self.url, rules={}),
            rules=GuardConfig(admin_route=True, interval=MINUTE),
            latest=blank_latest,
            clock=self.clock,
            holder="one",
            holds=lambda _: (),
            routes=(AlertRoute(name="all", channels=("console",)),),
            anomalies=self.watch,
        )
        result = runner.run()
        assert result.committed, result.broken
        return [one for one in result.notices if told or one.topic.startswith("unusual:")]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    with LedgerWriter(url, rules={}, ceilings={}) as writer, GuardStore(url, rails=Rails()) as book:
        yield Shop(url=url, book=book, writer=writer)


def says(alerts: Sequence[Alert]) -> list[tuple[str, str]]:
    return sorted((one.topic, one.subject) for one in alerts)


def test_a_tuesday_of_many_machines_is_told_once_with_who_how_much_and_which(shop: Shop) -> None:
    shop.live_through(36)
    shop.clock.advance(TUESDAY + 10 * HOUR - shop.clock.now())
    shop.add("bob-usual", H100, "bob")
    shop.poll(TUESDAY + 10 * HOUR)
    assert shop.guard() == []
    for number in range(8):
        shop.add(f"sweep-{number}", H100, "bob")
    shop.poll(TUESDAY + 10 * HOUR + MINUTE)
    (alert,) = shop.guard()
    assert (alert.topic, alert.subject, alert.owner) == ("unusual:spend", "owner bob", "bob")
    assert alert.what == "spending of bob is unusual: $27.00 an hour instead of $2.99 an hour"
    facts = dict(alert.facts)
    assert facts["more than usual"] == "$24.01 an hour"
    assert facts["machines"].startswith("8, the newest first: sweep-")
    assert facts["since"].startswith("10:00") or facts["since"].startswith("10:01")


def test_what_is_over_is_not_told_again_within_a_day_and_a_report_shows_it(shop: Shop) -> None:
    shop.live_through(36)
    shop.clock.advance(TUESDAY + 10 * HOUR - shop.clock.now())
    for name in range(9):
        shop.add(f"sweep-{name}", H100, "bob")
    shop.poll(TUESDAY + 10 * HOUR)
    shop.guard()
    for name in range(9):
        del shop.runs[f"sweep-{name}"]
    shop.poll(TUESDAY + 12 * HOUR)
    shop.poll(TUESDAY + 12 * HOUR + 10 * MINUTE)
    assert says(shop.guard()) == [("unusual:spend", "owner bob")]
    for name in range(9):
        shop.add(f"again-{name}", H100, "bob")
    shop.poll(TUESDAY + 14 * HOUR)
    shop.guard()
    with ReportReader(shop.url, rules={}) as reader:
        told = reader.load_unusual_alerts(Period(start=TUESDAY, end=TUESDAY + DAY))
        before = reader.load_unusual_alerts(Period(start=TUESDAY - DAY, end=TUESDAY))
    assert says(told) == [("unusual:spend", "owner bob")]
    assert before == []
    document = build_report_document(replace(SPENT, unusual=tuple(told)))
    rows = document.data["unusual"]
    assert isinstance(rows, list)
    (row,) = rows
    assert (row["at"], row["kind"], row["subject"]) == ("2026-07-07T10:00:00Z", "spend", "owner bob")
    (table,) = (one for one in document.tables if one.title == "Unusual")
    assert table.rows[0][1] == told[0].what


def test_a_new_region_is_told_and_takes_the_place_of_the_alert_about_the_machine(shop: Shop) -> None:
    shop.live_through(36)
    shop.clock.advance(TUESDAY + 3 * HOUR - shop.clock.now())
    shop.add("stranger", H100, "", region="eu-north-1")
    for minute in range(3):
        shop.poll(TUESDAY + 3 * HOUR + minute * MINUTE)
    alerts = shop.guard(told=True)
    assert [one.topic for one in alerts if one.topic in {"new", "unusual:new"}] == ["unusual:new"]
    (alert,) = shop.guard()
    assert alert.what == "region sim/eu-north-1 costs money for the first time: $3.00 an hour"


def test_a_new_gpu_that_an_admitted_run_announced_is_silent(shop: Shop) -> None:
    shop.live_through(36)
    at = TUESDAY + 3 * HOUR
    shop.clock.advance(at - shop.clock.now())
    hold = Hold(
        id="job", money=Money.parse("50"), who="ada", why="a try", taken_at=at, expires_at=at + DAY, gpu="B200-180GB-SXM"
    )
    with HoldStore(shop.url, rules={}) as holds:
        holds.take(hold, (), at)
        holds.release("job", at + MINUTE)
    shop.add("announced", ("B200-180GB-SXM", 3.0), "ada", region="us-east-1")
    shop.poll(at + 2 * MINUTE)
    assert shop.guard() == []
    shop.add("other", ("H200-141GB-SXM", 3.0), "ada")
    shop.poll(at + 3 * MINUTE)
    assert says(shop.guard()) == [("unusual:new", "type sim H200-141GB-SXM")]


def test_a_price_that_rose_is_told_with_the_machines_that_pay_it(shop: Shop) -> None:
    shop.live_through(36)
    at = TUESDAY + 3 * HOUR
    shop.add("service", L40S, "serving", price=2.0)
    shop.poll(at)
    (alert,) = shop.guard()
    assert (alert.topic, dict(alert.facts)["more than usual"]) == ("unusual:price", "$1.00 an hour")


def test_a_disk_that_grew_is_told(shop: Shop) -> None:
    shop.live_through(15)
    at = BEGUN + 15 * DAY
    for hours, gigabytes in ((0, 1000), (30, 1000), (31, 12_000)):
        disk = Disk(gb=gigabytes, type="ssd", nano_per_gb_month=NANO // 10)
        shop.runs["service"] = replace(shop.runs["service"], disks=(disk,))
        shop.poll(at + hours * HOUR)
    (alert,) = shop.guard()
    assert alert.what.startswith("the disk of service grew: $1.6")


def test_a_ledger_of_three_days_says_nothing(shop: Shop) -> None:
    shop.live_through(2)
    at = BEGUN + 2 * DAY
    shop.clock.advance(at - shop.clock.now())
    for number in range(9):
        shop.add(f"many-{number}", H100, "bob", region="eu-north-1")
    shop.poll(at)
    assert shop.guard() == []


def test_the_settings_turn_it_off_and_change_the_floor_also_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "costguard.toml"
    file.write_text("[anomalies]\nfloor_usd_per_day = 50\n", encoding="utf-8")
    watch = open_anomaly_watch(read_settings(str(file)))
    assert watch is not None
    assert watch.floor == 50
    monkeypatch.setenv("COSTGUARD_ANOMALIES__FLOOR_USD_PER_DAY", "70")
    watch = open_anomaly_watch(read_settings(str(file)))
    assert watch is not None
    assert watch.floor == 70
    monkeypatch.setenv("COSTGUARD_ANOMALIES__ENABLED", "false")
    assert open_anomaly_watch(read_settings(str(file))) is None
    monkeypatch.setenv("COSTGUARD_ANOMALIES__ENABLED", "maybe")
    with pytest.raises(InputError, match="must be true or false"):
        read_settings(str(file))


def test_an_error_in_it_does_not_stop_the_guard(shop: Shop) -> None:
    shop.live_through(2)
    shop.watch = AnomalyWatch(url="sqlite:////nowhere/ledger.db", zone=UTC, floor=20)
    assert shop.guard() == []
    shop.watch = AnomalyWatch(url=shop.url, zone=UTC, floor=None)  # type: ignore[arg-type]  # any fault of ours
    assert shop.guard() == []


def test_machines_that_ran_before_the_first_poll_make_no_history(shop: Shop) -> None:
    shop.add("old", L40S, "serving")
    began = BEGUN - 30 * DAY
    shop.runs["old"] = replace(shop.runs["old"], started_at=began, created_at=began)
    shop.poll(BEGUN)
    shop.poll(BEGUN + 2 * HOUR)
    for number in range(9):
        shop.add(f"many-{number}", H100, "serving", region="eu-north-1")
    shop.poll(BEGUN + 2 * HOUR + MINUTE)
    assert shop.guard() == []
