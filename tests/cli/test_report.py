"""`costguard report` as it is typed: which period, by what, in which currency people see it."""

from __future__ import annotations

import pytest

from costguard.data import ShippedFacts
from costguard.ledger.spans.writer import LedgerWriter
from costguard.services.report import ledger_answers
from tests.conftest import Command
from tests.golden.test_golden import NOON, polls


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two days of two scopes that end at noon on the first of November 2026."""
    url = f"sqlite:///{tmp_path_factory.mktemp('ledger')}/ledger.db"
    with LedgerWriter(url, rules=ShippedFacts().get_billing_rules(), ceilings={"RTX-4090": 2 * 10**9}) as books:
        books.record_polls(polls())
    return url


@pytest.fixture
def report(costguard: Command, recorded: str, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("COSTGUARD_LEDGER__URL", recorded)
    monkeypatch.setattr(ledger_answers, "get_now", lambda: NOON)
    return costguard


@pytest.mark.parametrize(
    ("flags", "label", "before"),
    [
        ((), "2026-11", "2026-10"),
        (("--day", "2026-10-31"), "2026-10-31", "2026-10-30"),
        (("--week", "2026-W44"), "2026-W44", "2026-W43"),
        (
            ("--from", "2026-10-31T12:00", "--to", "2026-11-01"),
            "2026-10-31 12:00 to 2026-11-01",
            "2026-10-31 to 2026-10-31 12:00",
        ),
        (("--from", "2026-10-31"), "2026-10-31 to 2026-11-01 12:00", "2026-10-29 12:00 to 2026-10-31"),
    ],
)
def test_a_report_is_of_the_period_that_was_asked_for(report: Command, flags: tuple[str, ...], label: str, before: str) -> None:
    ran = report("report", *flags, "--json")
    assert ran.code == 0, ran.err
    assert (ran.data["period"]["label"], ran.data["before"]["period"]["label"]) == (label, before)
    assert float(ran.data["totals"]["expected"]) > 0
    running = ran.data["period"]["end"] > "2026-11-01T12:00:00Z"
    assert (ran.data["forecast"] is not None) == running


def test_days_add_up_to_their_month_in_any_zone(report: Command) -> None:
    for zone in ("UTC", "Asia/Kathmandu"):
        month = report("report", "--month", "2026-10", "--zone", zone, "--json").data["totals"]["expected"]
        days = [report("report", "--day", f"2026-10-{n}", "--zone", zone, "--json").data["totals"] for n in (30, 31)]
        assert sum(float(day["expected"]) for day in days) == pytest.approx(float(month), abs=1e-6)


def test_labels_and_resources_make_groups_of_what_carries_them(report: Command) -> None:
    groups = report("report", "--month", "2026-10", "--by", "label:Team,label:run,resource", "--json").data["groups"]
    assert groups[0]["by"] == {"team": "vision", "label:run": None, "resource": "aws/123456789012/us-east-1/i-0a1b"}


def test_people_see_euros_beside_dollars_and_scripts_do_not(report: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = report("report", "--month", "2026-10", "--json").out
    monkeypatch.setenv("COSTGUARD_DISPLAY__CURRENCY", "EUR")
    monkeypatch.setenv("COSTGUARD_DISPLAY__RATES", "1 USD = 0.92 EUR on 2026-10-30 (ECB), 1 USD = 0.9 EUR on 2026-12-01")
    text = report("report", "--month", "2026-10").out
    assert "at 0.92 EUR to the dollar on 2026-10-30 (ECB)." in text
    assert report("report", "--month", "2026-10", "--json").out == plain
    assert "In EUR: " in report("--offline", "status").out
