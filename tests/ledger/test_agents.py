"""Agents, codes and tokens in the ledger, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text, update
from sqlmodel import col

from costguard.errors import InputError
from costguard.ledger.agents.store import AgentStore
from costguard.ledger.db import maintenance
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.audit_check import check_audit
from costguard.ledger.guard.audit_log import iterate_entries
from costguard.ledger.tables.agents import AgentRow
from costguard.values.agent import Agent, EnrollmentCode, WebToken, is_silent, is_token_valid
from costguard.values.resource import Incarnation, ResourceKey

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
MIN = timedelta(minutes=1)
KEY = ResourceKey("aws", "123", "us-east-1", "i-1")
LIFE = Incarnation(KEY, NOON - 60 * MIN)
NOWHERE = ResourceKey("", "", "", "")


@pytest.fixture
def book(url: str) -> Iterator[AgentStore]:
    with AgentStore(url) as made:
        yield made


def code(name: str = "h1", life: Incarnation | None = LIFE) -> EnrollmentCode:
    return EnrollmentCode(hash=name, key=KEY, who="ada@lab", at=NOON, expires_at=NOON + 10 * MIN, life=life)


def comes(name: str = "a1", public: str = "key-1", at: datetime = NOON) -> Agent:
    return Agent(id=name, key=NOWHERE, public_key=public, joined_at=at, version="0.1.0")


def test_an_agent_has_the_machine_and_the_life_of_its_code(book: AgentStore) -> None:
    book.add_code(code())
    joined = book.join("h1", comes())
    assert isinstance(joined, Agent)
    assert (joined.key, joined.life, joined.public_key, joined.seq) == (KEY, LIFE, "key-1", 0)
    assert book.load_agents() == [joined] == [book.load_agent("a1")]
    assert book.join("h1", comes("a2")) == joined, "the same key again: its answer was lost"
    assert book.join("h1", comes("a3", "key-2")) == "used_code"
    assert book.join("h9", comes("a4")) == "bad_code"
    book.add_code(code("h2", None))
    assert book.join("h2", comes("a5", "key-2", NOON + 10 * MIN)) == "expired_code"
    through = book.join("h2", comes("a6", "key-2"))
    assert isinstance(through, Agent)
    assert through.life is None
    assert [one.id for one in book.load_agents()] == ["a6"]
    assert [(one.id, one.revoked_by) for one in book.load_agents(every=True)] == [("a1", "another agent"), ("a6", "")]


def test_a_message_is_taken_where_its_number_rises_and_its_agent_may_speak(book: AgentStore) -> None:
    book.add_code(code())
    book.join("h1", comes())
    with book.begin_transaction() as page:
        assert page.accept_message("a1", 5, NOON + MIN, 100, "0.2.0", ("no GPU",))
        assert not page.accept_message("a1", 5, NOON + MIN, 200, "", ())
        assert not page.accept_message("a1", 4, NOON + MIN, 200, "", ())
        assert not page.accept_message("a9", 6, NOON + MIN, 200, "", ())
        assert page.accept_message("a1", 6, NOON + 2 * MIN, 50, "0.2.0", ("no GPU",))
    stored = book.load_agent("a1")
    assert stored is not None
    assert (stored.seq, stored.record_ms, stored.beat_at, stored.troubles) == (6, 100, NOON + 2 * MIN, ("no GPU",))
    assert not is_silent(stored, NOON + 5 * MIN)
    assert is_silent(stored, NOON + 6 * MIN)
    assert book.revoke("a1", who="ada", now=NOON).revoked_at == NOON
    assert book.revoke("a1", who="ben", now=NOON + MIN).revoked_by == "ada", "revoked once"
    with book.begin_transaction() as page:
        assert not page.accept_message("a1", 7, NOON + MIN, 300, "", ())
    with pytest.raises(InputError, match="is not an agent"):
        book.revoke("a9", who="ada", now=NOON)


def test_a_transaction_that_breaks_leaves_nothing(book: AgentStore) -> None:
    book.add_code(code())
    book.join("h1", comes())
    with pytest.raises(RuntimeError):
        break_after_taking(book)
    stored = book.load_agent("a1")
    assert stored is not None
    assert stored.seq == 0


def test_a_name_has_one_token_and_it_may_be_made_anew_once_it_ran_out(book: AgentStore) -> None:
    made = WebToken(hash="t1", name="grafana", role="viewer", who="ada", at=NOON, expires_at=NOON + MIN)
    book.add_token(made)
    assert book.load_token("t1") == made
    assert is_token_valid(made, NOON)
    assert not is_token_valid(made, NOON + MIN)
    again = WebToken(hash="t2", name="grafana", role="operator", who="ada", at=NOON, expires_at=NOON + 9 * MIN)
    with pytest.raises(InputError, match="already has a token"):
        book.add_token(again)
    later = WebToken(hash="t3", name="grafana", role="viewer", who="ada", at=NOON + 2 * MIN, expires_at=NOON + 9 * MIN)
    book.add_token(later)
    assert book.revoke_token("grafana", who="ben", now=NOON + 3 * MIN).hash == "t3"
    with pytest.raises(InputError, match="has no token"):
        book.revoke_token("grafana", who="ben", now=NOON + 3 * MIN)
    assert [one.revoked_at for one in book.load_tokens()] == [NOON + 2 * MIN, NOON + 3 * MIN]
    assert book.load_token("t9") is None


def test_all_of_it_is_audited_and_a_key_that_was_exchanged_is_found(url: str, book: AgentStore) -> None:
    book.add_code(code())
    joined = book.join("h1", comes())
    assert isinstance(joined, Agent)
    with book.begin_transaction() as page:
        page.log_refusals(joined, 3, NOON)
    book.revoke("a1", who="ada", now=NOON)
    book.add_token(WebToken(hash="t1", name="g", role="viewer", who="ada", at=NOON, expires_at=NOON + MIN))
    with LedgerReader(url) as reader, reader.snapshot() as ask:
        kinds = [one.kind for one in iterate_entries(ask)]
        assert kinds == ["began", "enrolled", "joined", "refused", "revoked", "token"]
        assert check_audit(ask)[1] == []
    with book._begin_write() as (_, tell):
        tell(text("DROP TRIGGER costguard_agent_is_written_once" + ("" if url.startswith("sqlite") else " ON agent")))
        tell(text("DROP TRIGGER costguard_agent_stays_revoked" + ("" if url.startswith("sqlite") else " ON agent")))
        tell(update(AgentRow).where(col(AgentRow.id) == "a1").values(public_key="theirs"))
    with LedgerReader(url) as reader, reader.snapshot() as ask:
        (found,) = check_audit(ask)[1]
        assert found.what.startswith("agent a1 differs from row")
    assert any("guard" in fault or "trigger" in fault or "agent" in fault for fault in maintenance.check_ledger(url))


def break_after_taking(book: AgentStore) -> None:
    """A message is taken, and something breaks before the end."""
    with book.begin_transaction() as page:
        assert page.accept_message("a1", 5, NOON, 100, "", ())
        raise RuntimeError
