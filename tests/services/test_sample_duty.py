"""The watchdog keeps samples that no policy looks back to by the hour, so that its ledger does not grow with every poll."""

from __future__ import annotations

from datetime import UTC, timedelta
from functools import partial
from pathlib import Path

import pytest

from costguard.data import ShippedFacts
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.reports.reader import ReportReader
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.observations import HistoryReader
from costguard.ledger.spans.sample_retention import SAMPLE_RETENTION
from costguard.ledger.spans.writer import LedgerWriter
from costguard.reporting.statement.period import ReportPeriod
from costguard.reporting.statement.waste import Waste
from costguard.services.guarding.watchdog_context import open_watchdog_context
from costguard.services.report.report import ReportQuestion, measure_waste
from costguard.services.watch_loop import watch
from costguard.settings import check_settings
from costguard.testing import FakeClock
from costguard.values.calendar import Period
from costguard.values.instant import HOUR_US, to_micros
from costguard.values.sample import GPU_UTIL, Sample
from tests.ledger.conftest import *  # noqa: F403 - the fixture `url`, for both databases
from tests.ledger.fleet import CEILINGS, HOUR, MINUTE, RULES, START, key, machine, poll

WHOLE = Period(start=START, end=START + 99 * HOUR)


@pytest.mark.parametrize("leads", [True, False])
def test_old_samples_are_kept_by_the_hour_by_the_watchdog_that_leads(
    tmp_path: Path,
    leads: bool,  # noqa: FBT001 - a case of the table
) -> None:
    url, rules = f"sqlite:///{tmp_path}/ledger.db", ShippedFacts().get_billing_rules()
    with LedgerWriter(url, rules=rules, ceilings=CEILINGS) as ledger:
        ledger.record_polls([poll(0, machine("i-1"))])
        ledger.record_samples([Sample(key=key("i-1"), signal="gpu_util", at=START + n * MINUTE, value=n) for n in range(150)])
    settings = check_settings(f'[ledger]\nurl = "{url}"\n', "costguard.toml")
    with open_watchdog_context(settings) as made:
        made.clock = FakeClock(START + 2 * HOUR + SAMPLE_RETENTION)  # type: ignore[assignment]  # a clock
        if not leads:
            made.guard.dry_run = True
        duties = {duty.name: duty for duty in watch._build_duties(made, partial(print), timedelta(minutes=1)).others}
        duties["samples"].run()
    with SpendingReader(url, rules=rules) as books:
        kept = len(books.samples(key("i-1"), "gpu_util", WHOLE))
        counts = [hour.count for hour in books.hours(key("i-1"), "gpu_util", WHOLE)]
    assert kept == (30 if leads else 150)
    assert counts == [60, 60, 30]


DAY = Period(start=START, end=START + 24 * HOUR)


def test_reports_of_waste_and_replays_of_policies_say_the_same_of_hours_to_the_hour(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("costguard.ledger.spans.sample_retention.YIELD_S", 0)
    with LedgerWriter(url, rules=RULES, ceilings=CEILINGS) as ledger:
        ledger.record_polls([poll(minute, machine("i-1")) for minute in range(0, 24 * 60 + 1, 4)])
        busy = [not (8 * 60 + 17 <= minute < 15 * 60 + 40 or minute >= 18 * 60) for minute in range(24 * 60)]
        duty = [
            Sample(key=key("i-1"), signal=GPU_UTIL, at=START + n * MINUTE, value=90.0 * work) for n, work in enumerate(busy)
        ]
        ledger.record_samples(duty)
        waste, replayed = _measure_waste(url), _replay_work(url)
        assert ledger.keep_samples_bounded(DAY.end + SAMPLE_RETENTION).samples == len(duty)
    assert waste.idle_us == (7 * 60 + 22 + 6 * 60) * 60_000_000  # from the first quiet sample to the last, 8:17 to 15:39
    after = _measure_waste(url)
    assert after.idle_us == (6 + 6) * 3600 * 10**6  # the whole hours of it, 9:00 to 15:00 and 18:00 to 24:00
    assert (after.judged, after.currency) == (waste.judged, waste.currency)
    assert _replay_work(url) == replayed == {hour for hour in range(24) if any(busy[hour * 60 : hour * 60 + 60])}


def _measure_waste(url: str) -> Waste:
    question = ReportQuestion(
        asked=ReportPeriod(period=DAY, label="a day"), by=(), zone=UTC, as_of=DAY.end, pause=timedelta(minutes=5)
    )
    with ReportReader(url, rules=RULES, ceilings=lambda: CEILINGS) as accounts:
        (waste,) = measure_waste(accounts, accounts.load_costs(DAY, DAY.end), {}, question)[0]
    return waste


def _replay_work(url: str) -> set[int]:
    """Return the hours in which a replay sees work."""
    with LedgerReader(url) as reader, reader.snapshot() as ask:
        history = HistoryReader(ask).load_history(key("i-1"), DAY, MINUTE)
    ats, values = history.samples[GPU_UTIL]
    return {(at - to_micros(START)) // HOUR_US for at, value in zip(ats, values, strict=True) if value > 5}
