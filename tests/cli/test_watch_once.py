"""`costguard watch --once`, as a timer runs it: each time a process of its own, and each time its turn to act."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costguard.guard.policy import Rails
from costguard.ledger.guard.store import GuardStore
from tests.conftest import Command

MINUTE = timedelta(minutes=1)
ANOTHER = "another-host:1"


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GuardStore]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    url = f"sqlite:///{tmp_path}/ledger.db"
    (tmp_path / "costguard.toml").write_text(f'[ledger]\nurl = "{url}"\n')
    with GuardStore(url, rails=Rails()) as made:
        yield made


def test_a_run_gives_its_turn_back_so_that_the_next_one_acts_however_soon_it_comes(
    costguard: Command, book: GuardStore
) -> None:
    for number, outcome in enumerate(("held", "acting", "acting"), start=1):
        ran = costguard("--offline", "watch", "--once")
        assert ran.code == 0, ran.err
        assert ("acting" in ran.out) == (outcome == "acting")
        assert book.load_last_runs(1)[0].outcome == outcome
        assert len(book.load_last_runs(9)) == number
        epoch = book.acquire_leader_lease(ANOTHER, datetime.now(UTC), MINUTE)  # as the next process would, by a name of its own
        assert epoch is not None
        book.release_leader_lease(epoch)


def test_that_no_provider_is_configured_is_said_and_no_silence_over_a_fleet(costguard: Command, book: GuardStore) -> None:
    ran = costguard("watch", "--once")
    assert "event=nothing_watched" in ran.err, ran.err
    assert "costguard init" in ran.err
    assert "nothing_watched" not in costguard("--offline", "watch", "--once").err
    assert len(book.load_last_runs(9)) == 2


def test_it_takes_nobody_elses_turn_and_leaves_it_where_it_is(costguard: Command, book: GuardStore) -> None:
    book.acquire_leader_lease(ANOTHER, datetime.now(UTC), 10 * MINUTE)
    ran = costguard("--offline", "watch", "--once")
    assert ran.code == 0, ran.err
    assert "observing" in ran.out
    turn = book.load_leader_lease()
    assert turn is not None
    assert turn.holder == ANOTHER
    assert book.load_last_run() is None
