"""`costguard audit`, end to end."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costguard.guard.audit import UNCOVERED, UNPROVEN
from costguard.ledger.agents.store import AgentStore
from costguard.ledger.guard.audit_log import AUDITED_TABLES
from costguard.ledger.tables import load_metadata
from costguard.values.agent import WebToken
from tests.conftest import Command


@pytest.fixture
def ledger(costguard: Command, tmp_path: Path) -> Path:
    """One with a wish that was taken back."""
    costguard("freeze", "--why", "a migration")
    costguard("freeze", "--lift")
    return tmp_path / "data" / "costguard" / "ledger.db"


def test_verify_says_that_it_is_whole_and_what_it_cannot_see(costguard: Command, ledger: Path) -> None:
    answer = costguard("audit", "verify")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith(f"The audit of {ledger} verifies: 3 rows")
    assert "Without --anchor it cannot be detected" in answer.out
    assert "Not covered: charges, listings and samples; bills; holds; costs entered by hand; enrolment codes" in answer.out
    data = costguard("audit", "verify", "--json").data
    assert data["not_covered"] == [*UNCOVERED, UNPROVEN]
    assert (data["schema"], data["whole"], data["rows"], data["findings"]) == ("costguard.audit/1", True, 3, [])
    assert re.fullmatch(r"3:[0-9a-f]{16}", data["head"])


def test_every_table_is_described_by_the_log_or_named_as_not_covered() -> None:
    named = [table for tables in UNCOVERED.values() for table in tables]
    assert sorted([*named, *AUDITED_TABLES, "audit", "intent_event"]) == sorted(load_metadata().tables)


def test_the_head_that_status_shows_is_one_that_verify_takes(costguard: Command, ledger: Path) -> None:  # noqa: ARG001 - it is there
    head = costguard("status", "--json").data["audit"]
    assert head == costguard("audit", "verify", "--json").data["head"]
    answer = costguard("audit", "verify", "--anchor", f"audit {head}")
    assert answer.code == 0
    assert f"It contains {head}." in answer.out
    assert "Without --anchor" not in answer.out


def test_a_break_is_a_no_that_names_the_row(costguard: Command, ledger: Path) -> None:
    head = costguard("status", "--json").data["audit"]
    with closing(sqlite3.connect(ledger, isolation_level=None)) as tool:
        tool.execute("DROP TRIGGER costguard_audit_is_written_once")
        tool.execute("UPDATE audit SET body = replace(body, 'freeze', 'arm') WHERE seq = 2")
    answer = costguard("audit", "verify", "--json", "--anchor", head)
    assert answer.code == 3
    assert answer.data["whole"] is False
    assert answer.data["findings"][0]["seq"] == 2
    assert answer.data["findings"][0]["finding"].startswith("row 2 was changed: its hash is ")
    assert "the audit log does not verify: row 2 was changed" in answer.err
    shown = costguard("audit", "verify")
    assert shown.code == 3
    assert "- row 2 was changed" in shown.out
    assert costguard("audit", "verify", "--csv").out.splitlines()[0] == "seq,finding"
    assert costguard("db", "check").code == 1


def test_a_head_of_another_ledger_is_a_no(costguard: Command, ledger: Path) -> None:  # noqa: ARG001 - it is there
    assert costguard("audit", "verify", "--anchor", "2:" + "a" * 16).code == 3
    assert "it ends at row 3" in costguard("audit", "verify", "--anchor", "4:" + "a" * 64).out


def test_show_tells_what_happened_in_words(costguard: Command, ledger: Path) -> None:
    out = costguard("audit", "show").out
    assert "froze all acts" in out
    assert "lifted an override:" in out
    data = costguard("audit", "show", "--json").data
    assert [row["kind"] for row in data["rows"]] == ["began", "wished", "lifted"]
    assert data["rows"][1]["body"]["what"] == "freeze"
    assert "a migration" not in json.dumps(data)
    assert len(costguard("audit", "show", "--since", "1h", "--json").data["rows"]) == 3
    with AgentStore(f"sqlite:///{ledger}") as agents:
        now = datetime(2026, 11, 21, tzinfo=UTC)
        agents.add_token(
            WebToken(hash="h", name="grafana", role="viewer", who="ada", at=now, expires_at=now + timedelta(days=1))
        )
    assert [row["kind"] for row in costguard("audit", "show", "--json").data["rows"]][3:] == ["token"]
    assert costguard("audit", "show", "--rows").out == costguard("audit", "show").out
    assert costguard("audit", "verify", "--rows").code == 2
    assert costguard("audit", "show", "--since", "2100-01-01").out.startswith(f"No row in the audit of {ledger}")


def test_what_an_edited_row_says_steers_no_terminal(costguard: Command, ledger: Path) -> None:
    with closing(sqlite3.connect(ledger, isolation_level=None)) as tool:
        tool.execute("DROP TRIGGER costguard_audit_is_written_once")
        body = json.dumps({"who": "eve\n\x1b[2J", "what": "freeze", "until_us": 2**61})
        tool.execute("UPDATE audit SET body = ?, at_us = ?, kind = 'wished' WHERE seq = 2", (body, 2**62))
        tool.execute("UPDATE audit SET body = '[[[' WHERE seq = 3")
    for flags in ((), ("--json",), ("--csv",), ("--markdown",)):
        answer = costguard("audit", "show", *flags)
        assert answer.code == 0
        assert "\x1b" not in answer.out
