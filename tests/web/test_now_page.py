"""The page Now: the month adds up, the table sorts, is narrowed and comes as a file, and questions can be answered."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from costguard.reporting.statement.history import CostByDay
from costguard.reporting.statement.savings import Savings
from costguard.services.guarding.overrides import get_now
from costguard.services.serving.fleet_page import FleetPage, build_fleet_page
from costguard.services.serving.month_chart import build_month_chart
from costguard.settings import check_settings
from tests.fakes.server import serving
from tests.providers.transport.wires import Told
from tests.web.stations import station
from tests.web.test_ask_links import ASKS
from tests.web.test_pages import House

CAPS = """
[[budget]]
name = "lab"
cap = "{near} USD"
[[budget]]
name = "far"
cap = "1000000 USD"
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("now")
    with station(folder, machines=3) as made:
        made.room.run_guard()
        yield House(made, folder / "pages.toml")


def list_names(page: str) -> list[str]:
    return re.findall(r'<th scope="row"><a href="/machine[^>]*><bdi>(train-\d)', page)


def test_the_table_sorts_both_ways_and_keeps_what_it_is_narrowed_to(house: House) -> None:
    client = house.open("viewer").client
    assert list_names(client.get("/?sort=machine").text) == ["train-0", "train-1", "train-2"]
    backwards = client.get("/?sort=-machine&only=dear&q=train").text
    assert list_names(backwards) == ["train-2", "train-1", "train-0"]
    assert 'aria-sort="descending"><a href="/?q=train&amp;only=dear&amp;sort=machine#fleet">Machine' in backwards
    assert '<a class="chip" href="/?q=train&amp;sort=-machine#fleet" aria-current="true">over $1/h' in backwards
    assert list_names(client.get("/?only=idle").text) == []
    assert list_names(client.get("/?only=unowned&q=train-1").text) == ["train-1"]
    assert len(list_names(client.get("/?sort=nothing&only=nothing&page=x").text)) == 3


def test_the_table_comes_as_a_file_with_the_same_machines(house: House) -> None:
    client = house.open("viewer").client
    answer = client.get("/machines.csv?sort=-machine&q=train")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["name"] for row in rows] == ["train-2", "train-1", "train-0"]
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert rows[0]["rate"] == "60.0000"
    assert client.get("/machines.csv?only=idle").text.count("\n") == 1


def load_page(folder: Path, near: int) -> FleetPage:
    with station(folder, more=CAPS.format(near=near)) as made:
        made.room.run_guard()
        text = f'[ledger]\nurl = "{made.url}"\n{CAPS.format(near=near)}'
        return build_fleet_page(check_settings(text, "costguard.toml"), get_now())


def test_the_days_of_the_month_add_up_to_it_and_a_cap_is_drawn_where_it_can_be_read(tmp_path: Path) -> None:
    page = load_page(tmp_path, 60)
    month, status = page.head.month, page.found
    days = sum(Decimal(amount.removeprefix("$").replace(",", "")) for _, amount in month.days)
    assert abs(days - status.usd.to_date.expected.to_decimal()) < Decimal("0.02")
    assert [one.name for one in month.areas] == ["not stated"]
    assert [one.text for one in month.caps] == ["cap of lab: $60.00"]
    assert all(0 <= one.top <= 100 for one in (*month.ticks, *month.caps))


def test_running_totals_stand_on_each_other_and_a_far_cap_is_left_out(tmp_path: Path) -> None:
    status = load_page(tmp_path, 60).found
    first = datetime(2026, 11, 1, tzinfo=UTC).date()
    parts = {"ada": (10 * 10**9, 0, 30 * 10**9), "bob": (0, 20 * 10**9, 0)}
    days = CostByDay(by="owner", days=tuple(first + timedelta(days=n) for n in range(3)), parts=parts)
    month = build_month_chart(days, status, Savings())
    assert [(one.name, one.amount) for one in month.areas] == [("ada", "$40.00"), ("bob", "$20.00")]
    ada, bob = (one.path for one in month.areas)
    tops = [[float(top) for top in re.findall(r"V([\d.]+)", path)] for path in (ada, bob)]
    assert tops[0][3:] == [100.0, 100.0, 100.0], "the first stands on the ground"
    assert tops[1][3:] == tops[0][2::-1], "the next on the first"
    assert tops[1][:3] == sorted(tops[1][:3], reverse=True)
    assert month.saved == ""
    assert not any(one.text.startswith("cap of far") for one in month.caps)


def test_a_question_waits_on_the_page_with_its_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chat = Told()
    with serving(chat) as hook:
        monkeypatch.setenv("CHAT", f"{hook}/hook")
        monkeypatch.setenv("MAIL", f"{hook}/mail")
        with station(tmp_path, more=ASKS) as made:
            for _ in range(2):
                made.room.run_guard()
                made.room.postman.deliver()
            house = House(made, tmp_path / "pages.toml")
            (tmp_path / "pages.toml").write_text(f'[ledger]\nurl = "{made.url}"\n{ASKS}')
            viewer, operator = (house.open(role).client.get("/").text for role in ("viewer", "operator"))
    for page in (viewer, operator):
        assert "Waits for your answer" in page
        assert "no answer yet: terminate it?" in page
    assert "Approve terminate" not in viewer
    assert "Approve terminate" in operator
    assert "Deny: keep 4h" in operator
