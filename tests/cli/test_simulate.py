"""`costguard simulate`: over a recorded ledger, as people run it, and what it says where there is nothing to replay."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from costguard.services.guarding import simulate
from tests.cli.recorded import END, POLICY, RAILS, record
from tests.conftest import Command

PERIOD = ("--from", "2026-11-02T06:00Z", "--to", "2026-11-02T10:00Z")


@pytest.fixture
def recorded(costguard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    url = f"sqlite:///{tmp_path}/ledger.db"
    record(url)
    (tmp_path / "costguard.toml").write_text(POLICY + RAILS + f'[ledger]\nurl = "{url}"\n')
    monkeypatch.setattr(simulate, "_get_now", lambda: END)
    return costguard


def test_who_would_have_been_stopped_and_who_worked_again(recorded: Command) -> None:
    data = recorded("simulate", "--since", "4h", "--json").data
    stops = {stop["name"]: stop for stop in data["stops"]}
    assert data["schema"] == "costguard.simulate/1"
    assert {name: stop["wanted_at"][11:16] for name, stop in stops.items()} == {"idles": "08:00", "returns": "08:00"}
    assert {name: stop["false_stop"] for name, stop in stops.items()} == {"idles": "no", "returns": "yes"}
    assert stops["returns"]["worked_at"][11:16] == "08:20"
    (policy,) = data["policies"]
    assert (policy["stops"], policy["suspected_false_stops"], policy["suspected_false_share"]) == (2, 1, 0.5)
    assert policy["armed_today"] == "observe"
    assert policy["blind_hours"] > 3


def test_what_the_rails_never_let_go_is_held_back_and_saves_nothing(recorded: Command, tmp_path: Path) -> None:
    limits = "[rails]\nacts = { fleet_percent_day = 20 }\n"
    (tmp_path / "costguard.toml").write_text(POLICY + limits + f'[ledger]\nurl = "sqlite:///{tmp_path}/ledger.db"\n')
    data = recorded("simulate", "--since", "4h", "--json").data
    assert [stop["name"] for stop in data["stops"]] == ["idles"]
    (held,) = data["held"]
    assert (held["name"], held["by_rails"], held["until"][11:16]) == ("returns", True, "08:20")
    assert [one["reason"] for one in held["held_by"]] == ["rate"]


@pytest.mark.usefixtures("recorded")
def test_a_process_of_its_own_needs_no_key_and_writes_nothing(tmp_path: Path) -> None:
    before = (tmp_path / "ledger.db").read_bytes()
    command = [sys.executable, "-m", "costguard", "simulate", *PERIOD, "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["totals"]["stops"] == 2
    assert "suspected false stops" in ran.stderr
    assert (tmp_path / "ledger.db").read_bytes() == before


def test_what_cannot_be_replayed_is_refused_with_a_cure(recorded: Command) -> None:
    recorded("simulate", "--policy", "idel-gpu").says("--policy", "unknown policy", "did you mean idle-gpu?")
    recorded("simulate", "--from", "2027-01-01").says("--from", "future")
    recorded("simulate", "--from", "2026-01-01", "--to", "2026-02-01").says("holds nothing of this period", "2026-11-02")
    recorded("simulate", "--from", "2026-11-02", "--to", "2026-11-01").says("--to", "is before the start")
    recorded("simulate", "--from", "yesterday").says("--from", "is not a day or a time:")
    recorded("simulate", "--since", "30").says("--since", "unit")
    recorded("simulate", "--since", "4h", "--from", "2026-11-01").says("--since", "--from")


def test_a_schedule_that_starts_again_ends_the_rest_at_its_start(recorded: Command, tmp_path: Path) -> None:
    policy = """
[[policy]]
name = "nights"
schedule = { timezone = "UTC", off = ["09:00-09:30"], start = START }
then = [{ do = "notify" }, { after = "5m", do = "stop" }]
"""
    found = {}
    for start in ("false", "true"):
        text = policy.replace("START", start) + RAILS + f'[ledger]\nurl = "sqlite:///{tmp_path}/ledger.db"\n'
        (tmp_path / "costguard.toml").write_text(text)
        ran = recorded("simulate", "--since", "4h", "--json")
        found[start] = {stop["name"]: (stop["because"], stop["until"][11:16]) for stop in ran.data["stops"]}
    assert found["false"]["idles"][0] != "started"
    assert found["true"]["idles"] == ("started", "09:30")
    assert "of them started again by their schedule" in recorded("simulate", "--since", "4h").out
