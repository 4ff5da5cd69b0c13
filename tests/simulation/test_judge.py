"""The judge knows nothing of costguard, and sees what was done to a log or a ledger behind its back."""

from __future__ import annotations

import ast
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.drawing import plan_of
from tests.simulation.judge import violations
from tests.simulation.mutants import too_sure
from tests.simulation.plans import CAP, DRILL, Box, Does, Happens, Plan
from tests.simulation.playing import folder as made
from tests.simulation.reading import LEDGER, LOG, read
from tests.simulation.world import World

HERE = Path(__file__).parent
PROGRAM = ("judge_main", "judge", "judge_money", "judge_due", "judge_ledger", "judge_outages", "reading", "sometimes")
RAILS = {"acts_per_10m": 2, "fleet_share_10m": 1.0, "fleet_share_day": 1.0, "breaker_least": 50}
BOXES = tuple(Box(f"b{n}", cloud, "2.99", (Does(0, "quiet"),)) for n, cloud in enumerate(("aws", "runpod", "runpod")))
EVENTS = (Happens(3, "down", "aws", 2), Happens(7, "dies", how="told"), Happens(9, "bounce", "b1"))
PLAN = Plan(1, DRILL, 26, BOXES, EVENTS, RAILS)
Entry = dict[str, Any]


@pytest.fixture(scope="module")
def played() -> Iterator[Path]:
    with made() as folder:
        World(PLAN, folder).play()
        yield folder


@pytest.fixture(scope="module")
def capped() -> Iterator[Path]:
    with made() as folder:
        World(replace(plan_of(6, CAP), minutes=40), folder).play()
        yield folder


@pytest.fixture
def copy(played: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(played, tmp_path / "copy"))


def log(change: Callable[[Entry], Entry | None]) -> Callable[[Path], None]:
    def doctor(folder: Path) -> None:
        entries = [json.loads(line) for line in (folder / LOG).read_text().splitlines()]
        changed = [after for entry in entries if (after := change(entry)) is not None]
        (folder / LOG).write_text("".join(json.dumps(one) + "\n" for one in changed))

    return doctor


def ledger(*statements: str) -> Callable[[Path], None]:
    """Done by somebody who takes the triggers down first."""

    def doctor(folder: Path) -> None:
        with closing(sqlite3.connect(folder / LEDGER)) as connection, connection:
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                connection.execute(f"DROP TRIGGER {name}")  # a name of our own
            for statement in statements:
                assert connection.execute(statement).rowcount > 0, statement

    return doctor


def of(kind: str, **changes: object) -> Callable[[Path], None]:
    return log(lambda entry: entry | changes if entry["e"] == kind else entry)


def without(kind: str) -> Callable[[Path], None]:
    return log(lambda entry: None if entry["e"] == kind else entry)


def cheaper(entry: Entry) -> Entry:
    return (
        entry | {"money": [[name, low, high - 1000] for name, low, high in entry["money"]]} if entry["e"] == "said" else entry
    )


def dearer(entry: Entry) -> Entry:
    return (
        entry | {"money": [[n, low + 10**8, high + 10**8] for n, low, high in entry["money"]]}
        if entry["e"] == "said"
        else entry
    )


CLOSED = "(SELECT id FROM span WHERE end_us IS NOT NULL AND presence = 'seen' AND low > 0 LIMIT 1)"
DOCTORED: dict[str, tuple[Callable[[Path], None], str]] = {
    "a high that is a thousand nano-dollars too low": (log(cheaper), "was said"),
    "a low above the truth": (log(dearer), "was said"),
    "a span worth nothing": (ledger(f"UPDATE span SET low = 0, expected = 0, high = 0 WHERE id = {CLOSED}"), "comes to 0"),  # noqa: S608 - our own
    "a span that begins twice": (
        ledger(f"UPDATE span SET start_us = start_us - 60000000, anchor_us = anchor_us - 60000000 WHERE id > {CLOSED}"),  # noqa: S608
        "overlaps",
    ),
    "a day that is lost": (ledger("DELETE FROM daily"), "the days come to"),
    "a request without its intent": (of("asked", rows=[]), "no committed intent"),
    "a request that came late": (
        log(lambda entry: entry | {"clock_at": entry["clock_at"] + 31 * 10**6} if entry["e"] == "asked" else entry),
        "had expired",
    ),
    "a request for another run": (of("asked", started=1), "its intent is of the life"),
    "a machine that had a controller": (
        log(lambda e: e | {"untouchable": {"i-b0": "a controller has it"}} if e["e"] == "world" else e),
        "a controller has it",
    ),
    "rails that were tighter": (
        log(
            lambda e: (
                e | {"rails": {"acts_per_10m": 0, "fleet_share_10m": 0.1, "fleet_share_day": 0.1}} if e["e"] == "world" else e
            )
        ),
        "machines in",
    ),
    "a machine that was stopped twice": (
        log(lambda e: e | {"name": "i-b1", "started": 7} if e["e"] == "asked" else e),
        "was stopped 2 times in one life",
    ),
    "a message that never came": (without("message"), "never arrived"),
    "a message that came again": (
        log(lambda e: None if e["e"] == "ended" else e),
        "arrived 2 times, and 0 watchdogs ended",
    ),
    "nobody told before a stop": (ledger("UPDATE outbox SET at_us = at_us + 36000000000"), "nobody was told before"),
    "an edited audit": (ledger("UPDATE audit SET body = replace(body, ':', ': ') WHERE seq = 4"), "breaks at its row"),
    "an audit cut short": (ledger("DELETE FROM audit WHERE seq > 3"), "does not begin with those"),
    "a scope that stays dark": (ledger("UPDATE coverage SET outcome = 'failed'"), "and nothing is wrong since"),
    "an intent that stays in doubt": (ledger("UPDATE intent SET state = 'verifying'"), "is still verifying"),
    "evidence that was never told": (without("measured"), "samples of this life"),
    "work that was measured": (of("does", what="busy"), "it worked"),
}


@pytest.mark.parametrize(("doctor", "said"), DOCTORED.values(), ids=DOCTORED)
def test_the_judge_sees(doctor: Callable[[Path], None], said: str, copy: Path) -> None:
    assert violations(read(copy)) == []
    doctor(copy)
    found = violations(read(copy))
    assert any(said in one for one in found), found


def test_the_judge_sees_a_wish_that_nobody_minded(copy: Path) -> None:
    with (copy / LOG).open("a") as file:
        wish = {"e": "wish", "id": "x", "what": "freeze", "at": 0, "until": 2 * 10**15, "name": "", "started": None}
        file.write(json.dumps(wish) + "\n")
    assert any("a freeze holds" in one for one in violations(read(copy)))


@pytest.mark.proof
def test_the_judge_sees_a_cap_that_was_passed(capped: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(capped, tmp_path / "copy"))
    assert violations(read(copy)) == []
    log(lambda e: e | {"cap": "1.00"} if e["e"] == "world" else e | {"over": 0.0} if e["e"] == "shown" else e)(copy)
    assert any("was spent of 1.00" in one for one in violations(read(copy)))


def test_the_judge_notices_a_ledger_that_is_too_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    too_sure(monkeypatch)
    with made() as folder:
        record = World(replace(PLAN, minutes=7), folder).play()
        assert any("was said" in one for one in violations(record))


@pytest.mark.parametrize("module", PROGRAM)
def test_no_part_of_the_judge_imports_costguard(module: str) -> None:
    tree = ast.parse((HERE / f"{module}.py").read_text())
    for node in ast.walk(tree):
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            mine = name.removeprefix("tests.simulation").removeprefix(".")
            assert name.split(".")[0] in sys.stdlib_module_names or mine.split(".")[0] in {"", *PROGRAM}, name


def test_the_judge_is_a_program_that_needs_nothing_installed(copy: Path) -> None:
    command = [sys.executable, "-S", str(HERE / "judge_main.py"), str(copy)]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (found.returncode, found.stderr) == (0, "")
    assert "sometimes: message delivered twice: 1" in found.stdout
    without("message")(copy)
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert found.returncode == 1
    assert "never arrived" in found.stdout
