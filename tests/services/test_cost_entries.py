"""Costs entered by hand: in reports, budgets and exports, corrected by new entries, and refused whole with line and field."""

from __future__ import annotations

import csv
from fractions import Fraction
from io import StringIO
from pathlib import Path

import pytest

from costguard.budgets.budget import Budget
from costguard.data import ShippedFacts
from costguard.ledger.spans.writer import LedgerWriter
from costguard.services.report import cost_entries, ledger_answers
from costguard.values.resource import ENTERED
from tests.books import attribution, money
from tests.books import spent as spending
from tests.budgets.test_budget import stands
from tests.conftest import Command
from tests.golden.test_golden import NOON, polls

MONTH = ("report", "--month", "2026-10")
HEADER = "what,amount,month,owner,team"


@pytest.fixture
def add(costguard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The ledger of the samples, and a budget of ada."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    with LedgerWriter(url, rules=ShippedFacts().get_billing_rules(), ceilings={"RTX-4090": 2 * 10**9}) as books:
        books.record_polls(polls())
    for module in (ledger_answers, cost_entries):
        monkeypatch.setattr(module, "get_now", lambda: NOON)
    monkeypatch.setattr(cost_entries, "describe_user", lambda: "lea@desk")
    budget = '[[budget]]\nname = "ada"\ncap = "9000 USD"\nmatch = { owners = ["ada"] }\n'
    (tmp_path / "costguard.toml").write_text(f"{budget}[ledger]\nurl = '{url}'\n")
    return costguard


def total(add: Command, *more: str) -> Fraction:
    return Fraction(add(*MONTH, *more, "--json").data["totals"]["expected"])


def test_an_entry_stands_in_report_budget_and_export(add: Command) -> None:
    before = total(add)
    ran = add("add", "S3 checkpoints", "41.20", "--month", "2026-10", "--owner", "ada", "--team", "vision", "--json")
    assert ran.code == 0, ran.err
    [entry] = ran.data["entries"]
    assert (entry["id"], entry["amount"], entry["who"], entry["month"]) == ("E1", "41.20", "lea@desk", "2026-10")
    assert total(add) - before == Fraction("41.20")
    data = add(*MONTH, "--only", "kind=entered", "--by", "resource,name,owner,team", "--json").data
    [group] = data["groups"]
    assert group["by"] == {"resource": "by-hand/by-hand//E1", "name": "S3 checkpoints", "owner": "ada", "team": "vision"}
    [budget] = add(*MONTH, "--json").data["budgets"]
    assert Fraction(budget["spent"]["expected"]) == total(add, "--only", "owner=ada")
    [row] = [row for row in focus(add) if row["x_ChargeKind"] == ENTERED]
    assert (row["BilledCost"], row["ChargeDescription"], row["ServiceCategory"]) == ("41.2", "S3 checkpoints", "Other")
    assert row["x_PriceSource"] == "entered by lea@desk on 2026-11-01 12:00 UTC"
    assert sum(Fraction(row["BilledCost"] or 0) for row in focus(add)) == total(add)
    assert "Not reconciled with a bill: aws, vast." in add(*MONTH).out
    assert total(add, "--zone", "Pacific/Kiritimati") - before_in(add, "Pacific/Kiritimati") == Fraction("41.20")


def before_in(add: Command, zone: str) -> Fraction:
    data = add(*MONTH, "--zone", zone, "--by", "kind", "--json").data
    return Fraction(data["totals"]["expected"]) - sum(
        Fraction(group["usd"]["expected"]) for group in data["groups"] if group["by"]["kind"] == ENTERED
    )


def focus(add: Command) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(add(*MONTH, "--format", "focus").out)))


def test_a_correction_is_a_new_entry_that_refers_to_the_former(add: Command) -> None:
    before = total(add)
    add("add", "S3", "41.20", "--month", "2026-10", "--owner", "ada")
    ran = add("add", "--corrects", "E1", "39.10", "--json")
    assert [(one["id"], one["corrects"], one["amount"]) for one in ran.data["entries"]] == [("E2", "E1", "-2.10")]
    assert total(add) - before == Fraction("39.10")
    assert [row["BilledCost"] for row in focus(add) if row["x_ChargeKind"] == ENTERED] == ["41.2", "-2.1"]
    assert [row["ChargeClass"] for row in focus(add) if row["x_ChargeKind"] == ENTERED] == ["", "Correction"]
    assert add("add", "--corrects", "1", "0", "--json").data["entries"][0]["amount"] == "-39.10"
    assert total(add) == before


def test_a_file_is_entered_whole_or_not_at_all(add: Command, tmp_path: Path) -> None:
    before, file = total(add), tmp_path / "costs.csv"
    file.write_text(f"{HEADER}\nColab,49.99,2026-10,ada,\nPower,1200,2026-10,,vision\nEgress,-3,2026-13,ben,\n")
    ran = add("add", "--from", str(file))
    assert ran.code == 2
    assert f"{file}, line 4, amount: is not more than zero: '-3'" in ran.err
    assert total(add) == before
    file.write_text(f"{HEADER}\nColab,49.99,2026-10,ada,\nPower,1200,2026-10,,vision\n")
    assert add("add", "--from", str(file)).code == 0
    assert total(add) - before == Fraction("1249.99")
    again = add("add", "--from", str(file))
    assert (again.code, total(add) - before) == (2, Fraction("1249.99"))
    assert f"{file}, line 2, what: is in the books already: E1, entered by lea@desk on 2026-11-01" in again.err


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "lacks the column what or amount"),
        (f"{HEADER}\n", "has no entry"),
        (f"{HEADER},price\n", "line 1: unknown column 'price'"),
        (f"{HEADER}\nColab,49.99,2026-10,ada,\nPower,12", "line 3: has 2 of 5 values"),
        (f"{HEADER}\nColab,49.99,2026-13,ada,\n", "line 2, month: there is no month 13"),
        (f"{HEADER}\nColab,49.99,2026-12,ada,\n", "line 2, month: has not begun: '2026-12'"),
        (f"{HEADER}\nColab,49.99,,ada,\n", "line 2, month: is missing"),
        (f"{HEADER}\nColab,forty,2026-10,ada,\n", "line 2, amount: is not an amount of money"),
        (f"{HEADER}\nColab,99999999,2026-10,ada,\n", "line 2, amount: is more than 10,000,000"),
        ("what,amount,corrects\n,3,E7\n", "line 2, what: there is no entry E7 to correct"),
        ("what,amount,corrects,owner\n,3,E7,ada\n", "line 2, owner: is that of the entry that is corrected"),
        ('what,amount,month\n"Colab,1,2026-10\n', "is not CSV in UTF-8"),
    ],
)
def test_bad_files_are_refused_with_line_and_field(add: Command, tmp_path: Path, text: str, what: str) -> None:
    file = tmp_path / "costs.csv"
    file.write_text(text)
    ran = add("add", "--from", str(file))
    assert ran.code == 2
    assert what in ran.err
    assert add(*MONTH, "--only", "kind=entered", "--json").data["groups"] == []


def test_a_hard_cap_is_certain_of_nothing_that_was_entered_by_hand() -> None:
    parts = (spending(money("100")), spending(money("900"), attribution(kind=ENTERED)))
    for is_hard, low in ((True, "100.00"), (False, "1000.00")):
        standing = stands(Budget(name="all", cap=money("1000").low, hard=is_hard), parts)
        assert (standing.spent.low.format(), standing.spent.high.format()) == (low, "1000.00")
