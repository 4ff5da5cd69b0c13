"""A silent agent in a run of the guard: people are told once that it is blind, and status, plan and doctor say so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import update
from sqlmodel import col

from costguard.ledger.agents.store import AgentStore
from costguard.ledger.tables.agents import AgentRow
from costguard.values.instant import to_micros
from tests.conftest import Command
from tests.web.desks import beat, record
from tests.web.stations import Station, station

MIN = timedelta(minutes=1)


def aged(watchdog: Station, agent: str, minutes: int) -> None:
    """Its last beat was so long ago."""
    at = datetime.now(UTC) - minutes * MIN
    with AgentStore(watchdog.url) as book, book._begin_write() as (_, tell):
        tell(update(AgentRow).where(col(AgentRow.id) == agent).values(beat_us=to_micros(at)))


def test_silence_is_told_as_blind_and_a_beat_ends_it(tmp_path: Path, costguard: Command) -> None:
    with station(tmp_path) as watchdog:
        agent = watchdog.joined()
        assert watchdog.beat(agent, 1, beat()).status == 200
        assert [one.topic for one in watchdog.room.run_guard().notices if "agent" in str(one.facts)] == []
        aged(watchdog, agent, 4)
        (notice,) = [one for one in watchdog.room.run_guard().notices if one.topic == "blind"]
        assert notice.subject == "cloud/lab/here/i-0"
        assert "its agent has not reported since" in dict(notice.facts)["why"]
        (tmp_path / "costguard.toml").write_text(f'[ledger]\nurl = "{watchdog.url}"\n')
        (one, other) = sorted(costguard("status", "--json").data["resources"], key=lambda found: found["id"])
        assert (one["agent"]["state"], other["agent"]) == ("silent", None)
        assert "its agent has not reported since" in costguard("status").out
        (check,) = [one for one in costguard("doctor", "--json").data["ledger"]["checks"] if one["check"] == "agents"]
        assert check["outcome"] != "good"
        assert "1 machines have one: train-0; blind: train-0: its agent has not reported since" in check["told"]
        plan = costguard("plan", "--json").data
        assert any("its agent has not reported since" in note for note in plan["notes"])
        at = datetime.now(UTC)
        assert watchdog.beat(agent, 2, beat(record(at))).status == 200
        assert [one.topic for one in watchdog.room.run_guard().notices if one.topic == "blind"] == []
        assert costguard("status", "--json").data["resources"][0]["agent"]["state"] == "reports"
