"""A SQLite ledger gives the room of removed samples back to the disk, in steps that may be cut off anywhere."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine

from costguard.ledger.db import connection, free_pages
from costguard.ledger.db.connection import begin_write, open_engine
from costguard.ledger.db.free_pages import can_shrink, give_back_pages
from costguard.ledger.db.maintenance import check_ledger, upgrade_ledger
from costguard.ledger.spans.sample_retention import SAMPLE_RETENTION, keep_samples_bounded
from costguard.ledger.spans.writer import LedgerWriter, record_samples
from costguard.values.sample import Sample
from tests.ledger.fleet import CEILINGS, HOUR, MINUTE, RULES, START, key, machine, poll

pytestmark = pytest.mark.usefixtures("without_pauses")
NOW = START + 100 * HOUR + SAMPLE_RETENTION


@pytest.fixture(autouse=True)
def _of_a_small_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_pages, "STEP_PAGES", 20)
    monkeypatch.setattr(free_pages, "FREE_PAGES_MIN", 10)


@pytest.fixture
def engine(sqlite_url: str) -> Iterator[Engine]:
    """A ledger with 20,000 samples, all of which are due."""
    yield from _fill(sqlite_url)


def _fill(url: str) -> Iterator[Engine]:
    with LedgerWriter(url, rules=RULES, ceilings=CEILINGS) as book:
        book.record_polls([poll(0, machine("i-1"))])
    engine = open_engine(url)
    _add_samples(engine, 0)
    yield engine
    engine.dispose()


def _add_samples(engine: Engine, first: int = 5000) -> int:
    names, minutes = ("gpu_util", "power", "cpu_util", "network_bytes_s"), range(first, first + 5000)
    samples = [Sample(key=key("i-1"), signal=name, at=START + n * MINUTE, value=n) for n in minutes for name in names]
    record_samples(engine, samples)
    return len(samples)


def _count_pages(engine: Engine) -> tuple[int, int]:
    with engine.connect() as opened:
        pages, free = (opened.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in ("page_count", "freelist_count"))
        return pages, free


def _dump(url: str) -> list[str]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as opened:
        return list(opened.iterdump())


def test_a_ledger_shrinks_in_steps_and_keeps_a_reserve(engine: Engine, sqlite_url: str) -> None:
    pages, _ = _count_pages(engine)
    result = keep_samples_bounded(engine, NOW)
    assert result.samples == 20_000
    left, free = _count_pages(engine)
    assert result.freed_bytes == 4096 * (pages - left) > 4096 * 120
    assert 0 < free <= max(10, left // 10)
    assert check_ledger(sqlite_url) == []
    assert keep_samples_bounded(engine, NOW) == (0, 0, 0)


def test_killed_between_two_steps_or_within_one_the_ledger_is_whole(
    engine: Engine, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("costguard.ledger.spans.sample_retention.give_back_pages", lambda _: 0)
    keep_samples_bounded(engine, NOW)
    rows, sizes = _dump(sqlite_url), [_count_pages(engine)[0]]

    def kill_third(engine: Engine) -> AbstractContextManager[Connection]:
        steps.append(1)
        if len(steps) == 3:
            raise KeyboardInterrupt
        return begin_write(engine)

    @contextmanager
    def kill_within(engine: Engine) -> Iterator[Connection]:
        with begin_write(engine) as opened:
            yield opened
            raise KeyboardInterrupt

    steps = list[int]()
    for kill in (kill_third, kill_within):
        monkeypatch.setattr(free_pages, "begin_write", kill)
        with pytest.raises(KeyboardInterrupt):
            give_back_pages(engine)
        sizes.append(_count_pages(engine)[0])
        assert _dump(sqlite_url) == rows
    assert sizes == [sizes[0], sizes[0] - 40, sizes[0] - 40]
    monkeypatch.setattr(free_pages, "begin_write", begin_write)
    assert give_back_pages(engine) > 0
    assert _dump(sqlite_url) == rows
    assert check_ledger(sqlite_url) == []


def test_a_ledger_of_before_keeps_its_size_until_it_is_rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/older.db"
    with monkeypatch.context() as older:
        older.setattr(connection, "NEW_FILE_PRAGMAS", ())
        filled = _fill(url)
        engine = next(filled)
    assert not can_shrink(engine)
    pages, _ = _count_pages(engine)
    assert keep_samples_bounded(engine, NOW).freed_bytes == 0
    assert _count_pages(engine)[0] == pages
    rows = _dump(url)
    size, smaller = upgrade_ledger(url).rewritten or (0, 0)
    assert size > 2 * smaller > 0
    assert (tmp_path / "older.db").stat().st_size == smaller
    assert (_dump(url), check_ledger(url), can_shrink(engine)) == (rows, [], True)
    assert upgrade_ledger(url).rewritten is None
    assert (_add_samples(engine), keep_samples_bounded(engine, NOW + 100 * HOUR).freed_bytes > 4096 * 90) == (20_000, True)
    assert check_ledger(url) == []  # the engine was open when another process rewrote the file
    assert next(filled, None) is None  # it closes the ledger
