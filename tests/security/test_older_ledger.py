"""An old backup that is put back is noticed (H33): what was wished since it was made is not in it, so nothing is done by it."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from costguard.ledger.db.address import parse_ledger_address
from costguard.ledger.db.backup import copy_ledger
from costguard.ledger.guard.audit_log import RollbackMarker
from costguard.ledger.guard.store import GuardStore
from tests.ledger.acts import HOUR, NOON, WIDE, wish
from tests.security.house import House, a_house
from tests.stories import StoryOutcome, StoryStage, parse_story, play_story
from tests.stories.guard_player import GuardPlayer

STORY = """
title: A backup of an hour ago is put back
hazard: H33
start: 2026-11-02 08:00
end: 09:00
machines
  box  aws 8xA100-80GB-SXM $32.77, disk 500 GB $0.08, owner ada
policies
  idle-gpu  arm stop, gpu, when idle, for 15m, notify, +5m stop
events
  08:00  box busy
  08:04  protect box why "an evaluation" by ada
  08:10  box quiet
  08:12:20  watchdog crashes
expect
  08:00-08:12  never act
"""
BACKED_UP, ADOPTED = "08:02", "08:50"


class Rewound(GuardPlayer):
    """A guard whose ledger is put back, while it is down, to what it was at BACKED_UP. `marked`: it keeps its mark."""

    marked = True
    adopts = False

    def _open(self) -> None:
        super()._open()
        if self.marked:
            self._guard.mark = self._mark()

    def _mark(self) -> RollbackMarker:
        file = Path(self.stage.ledger_url.removeprefix("sqlite:///"))
        return RollbackMarker(self.stage.ledger_url, file.with_name("story.db.seen"))

    def guard(self) -> None:
        now, file = self.stage.clock.now(), Path(self.stage.ledger_url.removeprefix("sqlite:///"))
        if f"{now:%H:%M}" == BACKED_UP:
            copy_ledger(parse_ledger_address(self.stage.ledger_url), file.with_name("backup.db"))
        if self.adopts and f"{now:%H:%M}" == ADOPTED:
            self._mark().advance()
        super().guard()

    def crash(self) -> None:
        self.close()
        file = Path(self.stage.ledger_url.removeprefix("sqlite:///"))
        for suffix in ("-wal", "-shm"):
            file.with_name(f"story.db{suffix}").unlink(missing_ok=True)
        shutil.copy(file.with_name("backup.db"), file)
        self._open()


class Unmarked(Rewound):
    marked = False


class Adopting(Rewound):
    adopts = True


class NeverRewound(Rewound):
    def crash(self) -> None:
        self.close()
        self._open()


def played(kind: type[Rewound], folder: Path) -> StoryOutcome:
    def opened(stage: StoryStage) -> Rewound:
        return kind(stage)

    outcome = play_story(parse_story(STORY), opened, folder)
    assert not outcome.faults, outcome.report()
    return outcome


@pytest.mark.proof
def test_without_a_mark_a_backup_put_back_forgets_a_protection_and_the_machine_is_stopped(tmp_path: Path) -> None:
    """Control: this is what must not be."""
    assert [act.act for act in played(Unmarked, tmp_path).acts] == ["stop"]


def test_a_ledger_older_than_what_was_seen_only_observes_and_pages(tmp_path: Path) -> None:
    outcome = played(Rewound, tmp_path)
    assert outcome.acts == []
    told = [one.message for one in outcome.told if "not the one used last" in one.message.title]
    assert told
    assert told[0].severity == "page"


@pytest.mark.proof
def test_once_somebody_says_that_it_is_meant_it_acts_again(tmp_path: Path) -> None:
    (act,) = played(Adopting, tmp_path).acts
    assert f"{act.at:%H:%M}" >= ADOPTED


@pytest.mark.proof
def test_the_same_ledger_after_a_crash_is_not_doubted(tmp_path: Path) -> None:
    outcome = played(NeverRewound, tmp_path)
    assert outcome.acts == []  # protected, by a wish that is still there
    assert not [one for one in outcome.told if "seen last" in one.message.title]


# The mark itself


@pytest.fixture
def book(tmp_path: Path) -> Iterator[GuardStore]:
    with GuardStore(f"sqlite:///{tmp_path}/ledger.db", rails=WIDE) as opened:
        assert opened.acquire_leader_lease("a", NOON, HOUR) == 1
        yield opened


@pytest.fixture
def mark(tmp_path: Path) -> RollbackMarker:
    return RollbackMarker(f"sqlite:///{tmp_path}/ledger.db", tmp_path / "ledger.db.seen")


def test_a_mark_that_lags_doubts_nothing(book: GuardStore, mark: RollbackMarker) -> None:
    """As after a crash between a commit and the mark."""
    assert mark.describe_doubt() == ""
    book.add_override(wish("w1"))
    mark.advance()
    for number in range(5):
        book.add_override(wish(f"later {number}"))
        assert mark.describe_doubt() == ""


def test_an_older_copy_another_ledger_and_a_history_written_anew_are_told_apart(
    book: GuardStore, mark: RollbackMarker, tmp_path: Path
) -> None:
    file = tmp_path / "ledger.db"
    copy_ledger(parse_ledger_address(mark.url), tmp_path / "early.db")
    book.add_override(wish("w1"))
    mark.advance()
    seen = mark.read_noted_head()
    assert seen is not None
    book.close()
    whole = file.read_bytes()
    file.write_bytes((tmp_path / "early.db").read_bytes())
    assert "is older than the one used last: its audit ends at 1:" in mark.describe_doubt()
    with GuardStore(mark.url, rails=WIDE) as again:
        again.add_override(wish("w1", who="eve"))
        again.add_override(wish("w2"))
    assert f"this ledger is not the one used last: its audit log does not contain {seen.anchor.seq}:" in mark.describe_doubt()
    file.unlink()
    with GuardStore(mark.url, rails=WIDE):
        assert "another ledger was here (" in mark.describe_doubt()
    for suffix in ("-wal", "-shm"):
        file.with_name(f"ledger.db{suffix}").unlink(missing_ok=True)
    file.write_bytes(whole)
    assert mark.describe_doubt() == ""  # control: the right one, put back


def test_a_mark_is_written_only_when_there_is_something_new_and_where_it_can_be(book: GuardStore, mark: RollbackMarker) -> None:
    mark.advance()
    first = mark.path.stat()
    mark.advance()
    assert mark.path.stat().st_ino == first.st_ino
    book.add_override(wish("w1"))
    mark.advance()
    assert mark.path.stat().st_ino != first.st_ino
    assert json.loads(mark.path.read_text())["seq"] == 2
    nowhere = RollbackMarker(mark.url, Path("/proc/nowhere/seen"))
    nowhere.advance()
    assert nowhere.describe_doubt() == ""


# With the commands that people have


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with a_house(tmp_path) as made:
        yield made


def notes(house: House) -> str:
    with closing(sqlite3.connect(house.folder / "ledger.db")) as file:
        return "\n".join(row[0] for row in file.execute("SELECT notes FROM guard_run ORDER BY id"))


def test_a_backup_put_back_holds_the_watchdog_until_it_is_adopted(house: House) -> None:
    assert house.run("--offline", "watch", "--once") == 0, house.said
    assert house.run("db", "backup", "copy.db") == 0
    assert house.run("freeze", "--why", "the grid is down") == 0
    assert house.run("--offline", "watch", "--once") == 0
    assert house.run("audit", "verify") == 0, house.said
    assert house.run("audit", "adopt") == 0
    assert "nothing to adopt" in house.said
    (house.folder / "copy.db").rename(house.folder / "ledger.db")
    assert house.run("--offline", "watch", "--once") == 0
    assert "not the one used last" in house.said
    assert "older_ledger: this ledger is older than the one used last" in notes(house)
    assert house.run("audit", "verify") == 3
    assert "this ledger is older than the one used last:" in house.said
    assert house.run("--offline", "watch", "--once") == 0  # a run of its own moves the mark not
    assert house.run("audit", "verify") == 3
    assert house.run("audit", "adopt") == 2
    assert "--why" in house.said
    assert house.run("audit", "adopt", "--why", "the disk died") == 0, house.said
    assert "It lacks leases and protections made since it was copied" in house.said
    assert house.run("audit", "show") == 0
    assert "accepted audit " in house.said
    assert house.run("audit", "verify") == 0, house.said
    assert house.run("--offline", "watch", "--once") == 0
    assert "not the one used last" not in house.said
