"""An upgrade of an old ledger is killed at its points: nothing is lost, a whole copy is there before the first change.

COSTGUARD_MIGRATION_STRIDE=1 tries each point; `python -m tests.crashes --story migrating` also moments between them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import pytest

from costguard.ledger.db import maintenance
from costguard.ledger.db.schema import HEAD_REVISION
from tests.crashes.migrating import GOLDENS, NEW, TABLES, VERSION, Upgrader, play, stage
from tests.crashes.places import ROOT, environment
from tests.crashes.upgrader import CONTROLS, Doom, put
from tests.ledger.test_upgrades import rows

STRIDE = int(os.environ.get("COSTGUARD_MIGRATION_STRIDE", "19"))


@pytest.fixture(scope="module")
def upgrader() -> Iterator[Upgrader]:
    with stage() as made:
        yield made


@pytest.mark.proof
def test_an_upgrade_that_is_killed_at_any_point_loses_nothing_and_is_made_good(upgrader: Upgrader) -> None:
    assert NEW == HEAD_REVISION
    points = sum(len(range(1, upgrader.points[name] + 1)) for name in GOLDENS)
    line = play(upgrader, 1, 0, -(-points // STRIDE), stride=STRIDE)
    assert line["wrong"] == []
    assert line["kills"] == -(-points // STRIDE)
    assert points > 250


@pytest.mark.proof
def test_what_has_the_name_of_a_copy_is_whole_whenever_its_maker_is_killed(upgrader: Upgrader) -> None:
    assert all(upgrader.copies.values())
    for number in (1000, 1001):  # drawn ones: a third of them within the copy
        line = play(upgrader, 1, number, 6)
        assert line["wrong"] == []


@pytest.mark.proof
@pytest.mark.parametrize("task", CONTROLS)
def test_an_upgrade_that_is_broken_on_purpose_is_caught(upgrader: Upgrader, task: str) -> None:
    assert any(play(upgrader, 1, number, 4, task=task)["wrong"] for number in range(8))


@contextmanager
def server() -> Iterator[subprocess.Popen[str]]:
    """A fork server of upgrades."""
    command = [sys.executable, "-m", "tests.crashes.upgrader"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=environment(), text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def upgraded(process: subprocess.Popen[str], doom: Doom) -> int:
    """Its exit code."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{json.dumps(asdict(doom))}\n")
    process.stdin.flush()
    return int(json.loads(process.stdout.readline())[0])


@pytest.mark.proof
@pytest.mark.parametrize("name", GOLDENS)
def test_an_upgrade_on_a_server_that_is_killed_at_any_point_changes_nothing(postgres_url: str, name: str) -> None:
    put(postgres_url, name)
    before, nth = {table: rows(postgres_url, table, "1") for table in TABLES}, 1
    with server() as process:
        while (code := upgraded(process, Doom(postgres_url, nth))) == -signal.SIGKILL:
            version = rows(postgres_url, "alembic_version", "1")
            assert version == [(name[:VERSION],)] or (version == [(NEW,)] and nth > 100)
            assert {table: rows(postgres_url, table, "1") for table in TABLES} == before, f"point {nth}"
            nth += STRIDE
        assert code == 0
        assert upgraded(process, Doom(postgres_url)) == 0
    assert nth > 100
    assert rows(postgres_url, "alembic_version", "1") == [(NEW,)]
    assert {table: rows(postgres_url, table, "1") for table in TABLES} == before
    assert maintenance.check_ledger(postgres_url) == []
