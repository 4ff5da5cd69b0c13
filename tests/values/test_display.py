"""Dollars shown in another currency, by a rate of a day that is said with it; the data stays as it is."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, timedelta

import pytest

from costguard.budgets.budget import Budget
from costguard.errors import InputError
from costguard.renderers import json_text, table
from costguard.services.guarding.status import build_status
from costguard.settings import check_settings
from costguard.values.money import ExchangeRate, Money, PrepaidBalance, find_exchange_rate, parse_exchange_rate
from costguard.views.report import build_report_document
from costguard.views.status import build_status_document
from costguard.views.status_line import build_status_line
from tests.books import NOW, VAST, FakeBooks, at, attribution, live, meter, money, spent
from tests.views.test_documents_spending import stated

ECB = ExchangeRate(currency="EUR", nano=920_000_000, on=date(2026, 11, 1), source="ECB")


def test_a_rate_is_read_as_a_sentence() -> None:
    assert parse_exchange_rate("1 USD = 0.92 EUR on 2026-11-01 (ECB)", "rates") == ECB
    assert parse_exchange_rate(" 1 USD = 155 JPY on 2026-11-02 ", "rates").label == "at 155 JPY to the dollar on 2026-11-02"
    assert ECB.label == "at 0.92 EUR to the dollar on 2026-11-01 (ECB)"


@pytest.mark.parametrize(
    "text",
    [
        "0.92",
        "1 USD = 0.92 EUR",
        "1 EUR = 1.08 USD on 2026-11-01",
        "1 USD = 0.92 EUR on 2026-11-31",
        "1 USD = 0 EUR on 2026-11-01",
        "1 USD = 1 USD on 2026-11-01",
        "1 USD = 0.92 eur on 2026-11-01",
        "1 USD = \u0660.92 EUR on 2026-11-01",
    ],
)
def test_what_states_no_rate_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="rates: ") as refused:
        parse_exchange_rate(text, "rates")
    assert refused.value.hint


def test_dollars_are_rounded_once_to_the_nano_unit() -> None:
    assert ECB.convert(Money.parse("1679.64")).format(4) == "1545.2688"
    assert ExchangeRate(currency="EUR", nano=500_000_000, on=date(2026, 1, 1)).convert(Money(nano=3)).nano == 2, "half to even"
    with pytest.raises(InputError, match="cannot mix"):
        ECB.convert(Money(nano=1, currency="CHF"))


def test_the_rate_of_the_day_counts() -> None:
    rates = [ExchangeRate(currency="EUR", nano=n, on=date(2026, n, 1)) for n in (3, 9, 6)]
    assert [getattr(find_exchange_rate(rates, "EUR", at(15, month=m)), "nano", None) for m in (1, 3, 7, 12)] == [3, 3, 6, 9]
    assert find_exchange_rate(rates, "CHF", NOW) is None


def test_people_see_both_and_scripts_see_dollars() -> None:
    books = FakeBooks(spent=(spent(money("100", "110", "120")), spent(money("10"), attribution(owner="bob"))))
    text = table.render(build_report_document(stated(books), ECB))
    assert "In EUR: 110.40 (101.20 to 119.60), at 0.92 EUR to the dollar on 2026-11-01 (ECB)." in text
    total = next(line for line in text.splitlines() if line.startswith("total"))
    assert total.split()[-1] == "110.40"
    assert json_text.render(build_report_document(stated(books), ECB)) == json_text.render(build_report_document(stated(books)))


def test_the_status_shows_both_too() -> None:
    books = FakeBooks(resources=(live("i-1", meter(2 * 10**9)),), spent=(spent(money("100")),))
    now = build_status(books=books, now=NOW, zone=UTC)
    assert any(
        line.startswith("In EUR: 1.8400 an hour, 92.00 so far, ") for line in build_status_document(now, exchange=ECB).notes
    )
    assert build_status_document(now, exchange=ECB).data == build_status_document(now).data


def test_the_line_for_a_prompt_is_in_the_currency_and_names_the_rate_once() -> None:
    budget = Budget(name="vision", cap=Money.parse("2000"), cap_stated=Money.parse("1840", "EUR"), rate=ECB)
    books = FakeBooks(resources=(live("i-1", meter(2 * 10**9)),), spent=(spent(money("100")),))
    now = build_status(books=books, now=NOW, zone=UTC, budgets=(budget,))
    label = "at 0.92 EUR to the dollar on 2026-11-01 (ECB)"
    assert build_status_line(now, ECB) == f"EUR 1.84/h  EUR 92.00 this month  vision EUR 92.00 of EUR 1,840.00 (5 %)  {label}"
    assert build_status_line(now) == "$2.00/h  $100.00 this month  vision $100.00 of $2,000.00 (5 %)"


def test_a_total_in_the_currency_adds_what_is_charged_in_it() -> None:
    charged = (spent(money("100")), spent(money("8", currency="EUR"), attribution(owner="bob")))
    text = table.render(build_report_document(stated(FakeBooks(spent=charged)), ECB))
    assert "In EUR, with what is charged in it: 100.00, at 0.92 EUR to the dollar on 2026-11-01 (ECB)." in text
    other = replace(ECB, currency="CHF")
    assert "In CHF: 92.00, at" in table.render(build_report_document(stated(FakeBooks(spent=charged)), other))


def test_the_settings_say_it_and_a_currency_without_a_rate_is_refused() -> None:
    text = '[display]\ncurrency = "EUR"\nrates = ["1 USD = 0.92 EUR on 2026-11-01 (ECB)"]\n'
    assert check_settings(text, "f").display.find_exchange(NOW) == ECB
    assert check_settings("", "f").display.find_exchange(NOW) is None
    with pytest.raises(InputError, match=r"f: display.rates: has no exchange rate for CHF"):
        check_settings('[display]\ncurrency = "CHF"\n', "f")
    with pytest.raises(InputError, match=r"f: display.rates: is not a rate of a day"):
        check_settings('[display]\nrates = ["0.92"]\n', "f")


def test_a_prepaid_balance_says_how_long_it_lasts() -> None:
    pods = live("p-1", meter(4 * 10**9), scope=VAST)
    books = FakeBooks(resources=(pods,))
    left = PrepaidBalance(provider="vast", account="me", at=NOW, amount=Money.parse(10))
    unknown = PrepaidBalance(provider="runpod", account="lab", at=NOW, amount=None, why="refused (403)")
    document = build_status_document(build_status(books=books, now=NOW, zone=UTC, balances=[left, unknown]))
    first, second = json.loads(json_text.render(document))["runways"]
    assert (first["balance"], first["burn_per_hour"], first["hours_left"]) == ("10.00", "4.0000", 2.5)
    assert first["empty_at"] == (NOW + timedelta(hours=2.5)).isoformat().replace("+00:00", "Z")
    assert (second["balance"], second["hours_left"], second["why"]) == (None, None, "refused (403)")
    assert "vast/me: $10.00 left, 2 h 30 min at this burn, until 2026-11-21 14:30 UTC." in document.notes
    assert "runpod/lab is prepaid, but its balance is unknown: refused (403)." in document.notes
