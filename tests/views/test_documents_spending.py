"""The status and the report as people and scripts read them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from costguard.budgets.budget import Budget
from costguard.errors import IncompleteError
from costguard.metering.meter import GB_MONTH_730, STORAGE
from costguard.renderers import csv_text, json_text, markdown, table
from costguard.reporting.statement.statement import Statement
from costguard.services.guarding.status import build_status
from costguard.values.money import Money
from costguard.values.resource import ScopeKey
from costguard.values.text_format import format_exact, format_length
from costguard.views.report import build_incomplete_report_error, build_report_document, list_report_warnings
from costguard.views.status import build_status_document, list_status_warnings
from tests.books import (
    NOW,
    VAST,
    FakeBooks,
    at,
    attribution,
    live,
    meter,
    money,
    scope_now,
    spent,
    state_month,
    stretch,
    unpriced,
)

HOSTILE = "x\x1b[2J\u202egpj.exe\n=cmd|'/c calc'!A1"
THIRD = money("0.333333333")


def shown(books: FakeBooks, *budgets: Budget) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(
        json_text.render(build_status_document(build_status(books=books, budgets=budgets, now=NOW, zone=UTC)))
    )
    return answer


def people(books: FakeBooks, *budgets: Budget) -> str:
    return table.render(build_status_document(build_status(books=books, budgets=budgets, now=NOW, zone=UTC)))


def stated(
    books: FakeBooks, *, as_of: datetime = NOW, of: tuple[int, int] = (2026, 11), by: tuple[str, ...] = ("provider", "owner")
) -> Statement:
    return state_month(books, of, by, as_of, {})


def said(statement: Statement) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(json_text.render(build_report_document(statement)))
    return answer


def test_the_rates_of_resources_add_up_to_the_burn() -> None:
    disk = meter(80_000_000, charge=STORAGE, unit=GB_MONTH_730, quantity=333)
    data = shown(FakeBooks(resources=tuple(live(f"i-{n}", meter(1_234_567_891), disk) for n in range(7))))
    assert sum(Decimal(r["usd_per_hour"]) for r in data["resources"]) == Decimal(data["burn_usd_per_hour"])


def test_a_scope_dated_ahead_of_the_clock_is_warned_of_by_status_and_report() -> None:
    books = FakeBooks(known=(scope_now(polled_at=at(5, month=12)), scope_now(VAST)), polled=(stretch(at(1), NOW),))
    said = (
        "aws/123/us-east-1: its last poll is dated 2026-12-05, ahead of this clock: later polls are ignored until then; "
        "check the clock"
    )
    data = shown(books)
    assert (data["warnings"], data["scopes"][0]["state"]) == ([said], "ahead")
    assert "1 of 2 accounts read." in people(books)
    statement = stated(books, as_of=NOW)
    assert list_report_warnings(statement)[0] == said
    assert said in json.loads(json_text.render(build_report_document(statement)))["not_counted"]
    assert list_report_warnings(stated(books, as_of=at(5, month=12)))[0] != said


def test_an_unknown_price_is_null_and_bounded_and_said() -> None:
    books = FakeBooks(resources=(live("i-1", unpriced(16 * 10**9)), live("i-2", meter(10**9))), known=(scope_now(),))
    data = shown(books)
    unknown = next(r for r in data["resources"] if r["id"] == "i-1")
    assert unknown["usd_per_hour"] is None
    assert unknown["usd_per_hour_bounds"] == {"low": "0.0000", "high": "16.0000"}
    assert data["burn_usd_per_hour"] == "1.0000"
    assert data["warnings"] == ["1 unpriced, at most $16.0000 an hour: no price known, so the expected cost excludes them"]
    assert data["unpriced"] == {"resources": 1, "usd_per_hour_at_most": "16.0000"}
    assert "$1.0000 an hour; 1 unpriced, at most $16.0000 an hour;" in people(books)
    assert "unknown (0 to 16.0000)" in people(books)


def test_what_nobody_can_price_is_null_unbounded_and_named() -> None:
    why = "disk 'disk' while stopped: its size is not known"
    books = FakeBooks(resources=(replace(live("i-1"), not_counted=(why,)), live("i-2", meter(10**9))), known=(scope_now(),))
    data = shown(books)
    one = next(r for r in data["resources"] if r["id"] == "i-1")
    assert (one["usd_per_hour"], one["usd_per_hour_bounds"]) == (None, {"low": "0.0000", "high": None})
    assert data["warnings"] == [f"aws i-1 is not fully counted: {why}"]
    assert " unknown " in people(books)


def test_an_absent_resource_is_marked_and_has_no_rate() -> None:
    books = FakeBooks(resources=(live("i-1", meter(2 * 10**9), absent_at=at(21, 11)),))
    (found,) = shown(books)["resources"]
    assert (found["state"], found["absent_since"], found["usd_per_hour"]) == ("absent", "2026-11-21T11:00:00Z", None)
    assert "absent since 2026-11-21 11:00 UTC" in people(books)
    assert "0 to 2.0000" in people(books)


def test_scopes_that_are_not_seen_come_before_everything_else() -> None:
    known = (
        scope_now(outcome="failed", complete_at=at(21, 9), why="timeout"),
        scope_now(VAST, complete_at=at(21, 10), polled_at=at(21, 10)),
        scope_now(ScopeKey("gcp", "p", "all"), "failed", complete_at=None, why="refused (403)"),
        scope_now(ScopeKey("gcp", "q", "all")),
    )
    text = people(FakeBooks(known=known))
    head, first, *warnings = text.splitlines()[:5]
    assert head == "LOOK  $0.00/h  $0.00 this month  nothing due"
    assert first == "1 of 4 accounts read (timeout); figures are 3 h old."
    assert warnings == [
        "WARNING: aws/123/us-east-1 not read completely for 3 h: timeout",
        "WARNING: gcp/p/all was never read completely: refused (403)",
        "WARNING: vast/me/all not read completely for 2 h: not queried for 2 h",
    ]
    assert "1 of 4 accounts read." in text


def test_other_currencies_stand_apart() -> None:
    euros = live("o-1", meter(10**9, currency="EUR"), amount=money("4", currency="EUR"))
    data = shown(FakeBooks(resources=(euros,), spent=(spent(money("4", currency="EUR")),)))
    assert (data["burn_usd_per_hour"], data["month_to_date"]["high"]) == ("0.0000", "0.00")
    assert data["other_currencies"][0]["burn_per_hour"] == "1.0000"
    (found,) = data["resources"]
    assert (found["usd_per_hour"], found["spent"]) == (None, None)
    assert found["other_currency"]["spent"]["EUR"]["expected"] == "4.00"


def test_names_from_clouds_cannot_act_on_a_terminal_a_spreadsheet_or_a_page() -> None:
    nasty = ScopeKey("aws", HOSTILE, "r")
    books = FakeBooks(
        resources=(live("i-1", meter(10**9), scope=nasty, name=HOSTILE, owner=HOSTILE),),
        known=(scope_now(nasty, "failed", complete_at=None, why=HOSTILE),),
        spent=(spent(money("1"), attribution(owner=HOSTILE), known=False),),
    )
    now = build_status_document(
        build_status(books=books, budgets=[Budget(name=HOSTILE, cap=Money.parse(1))], now=NOW, zone=UTC)
    )
    for document in (now, build_report_document(stated(books))):
        for render in (table.render, markdown.render, json_text.render, csv_text.render):
            text = render(document)
            assert all(c == "\n" or c.isprintable() for c in text)
            assert "\n=cmd" not in text
            assert "gpj.exe" in text


def test_an_empty_ledger_says_that_nothing_was_polled() -> None:
    assert people(FakeBooks()).splitlines()[1].startswith("Nothing has been polled yet")
    assert list(list_status_warnings(build_status(books=FakeBooks(), now=NOW, zone=UTC))) == []


def test_the_groups_in_json_add_up_to_the_totals_to_the_nano_dollar() -> None:
    parts = tuple(spent(THIRD, attribution(owner=str(n))) for n in range(7))
    data = said(stated(FakeBooks(spent=parts)))
    assert sum(Decimal(group["usd"]["expected"]) for group in data["groups"]) == Decimal(data["totals"]["expected"])
    assert data["totals"]["expected"] == "2.333333331"


def test_people_see_cents_and_a_total() -> None:
    text = table.render(
        build_report_document(stated(FakeBooks(spent=(spent(THIRD), spent(money("10"), attribution(owner=""))))))
    )
    assert text.splitlines()[1] == "Unallocated: $10.00 has no owner (96 % of all)."
    assert text.splitlines()[3:7] == [
        "provider  owner  hours  GPU-hours      $    low   high",
        "aws       -        1.0        8.0  10.00  10.00  10.00",
        "aws       ada      1.0        8.0   0.33   0.33   0.33",
        "total              2.0       16.0  10.33  10.33  10.33",
    ]


def test_a_price_of_which_only_a_bound_is_known_is_not_shown_as_a_cost() -> None:
    books = FakeBooks(
        spent=(
            spent(money("0", "0", "16"), attribution("vast", owner=""), known=False),
            spent(money("3")),
            spent(money("1", "1", "2"), known=False),
        )
    )
    text = table.render(build_report_document(stated(books), in_full=True))
    assert "vast      -        1.0        8.0  unknown  0.00  16.00" in text
    assert "4.00*  4.00   5.00" in text
    assert "provider vast: price unknown; counted as $0.00, between 0.00 and 16.00." in text


def test_a_machine_that_ran_between_two_listings_at_an_estimated_price_shows_the_estimate_and_its_interval() -> None:
    half = spent(money("0", "0.05", "0.12"), attribution("vast", owner=""), known=False)  # an EDGE: it may not have run at all
    statement = stated(FakeBooks(spent=(half, spent(money("3")))))
    text = table.render(build_report_document(statement, in_full=True))
    assert "vast      -        1.0        8.0  0.05*  0.00  0.12" in text
    assert "provider vast: price estimated; counted as $0.05, between 0.00 and 0.12." in text


def test_what_is_not_counted_names_the_holes_and_their_length() -> None:
    books = FakeBooks(
        known=(scope_now(), scope_now(VAST)),
        polled=(
            stretch(at(1), at(3, 12)),
            stretch(at(3, 12, 1), at(3, 15, 9), "failed", why="timeout"),
            stretch(at(3, 15, 10), NOW),
            stretch(at(5, 14), NOW, scope=VAST),
        ),
    )
    assert said(stated(books))["not_counted"][:3] == [
        "aws/123/us-east-1 was not read completely for 3 h 10 min from 2026-11-03 12:00 UTC: timeout",
        "vast/me/all was not polled before 2026-11-05 14:00 UTC, 4 d 14 h into the period",
        "machines that started and ended between two polls of their account",
    ]


def test_the_time_before_the_first_look_is_told_apart_from_later_holes() -> None:
    books = FakeBooks(known=(scope_now(),), polled=(stretch(at(5, 14), at(7)), stretch(at(7, 2), NOW)))
    (line,) = list_report_warnings(stated(books))
    assert line == (
        "aws/123/us-east-1 was not polled before 2026-11-05 14:00 UTC, 4 d 14 h into the period, "
        "and was not read completely for 2 h from 2026-11-07 00:00 UTC: not polled"
    )


def test_strict_refuses_what_was_not_seen_with_exit_code_4() -> None:
    whole = FakeBooks(known=(scope_now(),), polled=(stretch(at(1), NOW),))
    assert build_incomplete_report_error(stated(whole)) is None
    assert build_incomplete_report_error(stated(whole, of=(2027, 1))) is None
    holey = FakeBooks(known=(scope_now(), scope_now(VAST)), polled=(stretch(at(1), NOW), stretch(at(2), NOW, scope=VAST)))
    refused = build_incomplete_report_error(stated(holey))
    assert isinstance(refused, IncompleteError)
    assert (refused.exit_code, refused.what) == (4, "1 of 2 scopes were not read completely for all of 2026-11")
    assert "vast/me/all" in str(refused)
    nothing = build_incomplete_report_error(stated(FakeBooks()))
    assert nothing is not None
    assert ": the ledger has no account" in str(nothing)


def test_where_no_act_was_confirmed_nothing_is_saved_and_the_report_says_so() -> None:
    document = build_report_document(replace(stated(FakeBooks(spent=(spent(money("3")),))), beside=True))
    saved = json.loads(json_text.render(document))["saved"]
    assert saved["usd"] == {"low": "0.00", "expected": "0.00", "high": "0.00"}
    assert (saved["acts"], saved["suspected_false_stops"], saved["by_act"]) == (0, 0, [])
    assert any(note.startswith("Saved: $0.00 (no confirmed stops)") for note in document.notes)


def test_a_report_in_two_currencies_has_two_tables_and_adds_nothing() -> None:
    found = stated(FakeBooks(spent=(spent(money("3")), spent(money("4", currency="EUR")))))
    document = build_report_document(found)
    assert [view.columns[4] for view in document.tables] == ["$>", "EUR>"]
    assert document.data["totals"] == {"low": "3.00", "expected": "3.00", "high": "3.00"}
    assert [(row["currency"], row["expected"]) for row in document.records] == [("USD", "3.00"), ("EUR", "4.00")]
    assert said(found)["other_currencies"][0]["totals"]["expected"] == "4.00"


@pytest.mark.parametrize(
    ("nano", "text"),
    [(0, "0.00"), (10**9, "1.00"), (1_230_000_000, "1.23"), (1_230_000_001, "1.230000001"), (-5 * 10**8, "-0.50")],
)
def test_an_exact_sum_has_two_decimals_or_as_many_as_it_needs(nano: int, text: str) -> None:
    assert format_exact(Money(nano=nano)) == text


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (timedelta(), "0 s"), (timedelta(seconds=40), "40 s"), (timedelta(minutes=3, seconds=5), "3 min 5 s"),
        (timedelta(hours=3), "3 h"), (timedelta(hours=3, seconds=5), "3 h"),
        (timedelta(days=2, hours=4, minutes=9), "2 d 4 h"), (timedelta(seconds=-5), "0 s"),
    ],
)  # fmt: skip
def test_a_length_of_time_is_said_in_its_two_largest_units(length: timedelta, text: str) -> None:
    assert format_length(length) == text
