"""Disks that lose power, fail, fill up or turn read-only: nothing acknowledged is lost, no lie is told, nobody acts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.disks import cuts, failing, outages, trace
from tests.disks.platter import Platter
from tests.disks.trace import Op

pytestmark = pytest.mark.skipif(bool(trace.why_not()), reason=trace.why_not() or "it can")

CUTS = int(os.environ.get("COSTGUARD_CUTS", "1000"))
CONTROL_CUTS = 200
EVERY = int(os.environ.get("COSTGUARD_IO_EVERY", "199"))
FIRST = int(os.environ.get("COSTGUARD_IO_FIRST", "0"))
SEED = 7


@pytest.mark.proof
@pytest.mark.parametrize(("way", "task"), list(cuts.WAYS.items()))
def test_no_power_cut_loses_what_was_acknowledged_or_harms_the_ledger(way: str, task: str, tmp_path: Path) -> None:
    life, outcome = cuts.campaign(task, CUTS // len(cuts.WAYS), tmp_path)
    print(f"\n{way}: {cuts.told(life, outcome)}")  # noqa: T201 - who looks on wants to see it
    assert life.course.faults == []
    assert outcome.first == []
    assert outcome.cuts == CUTS // len(cuts.WAYS)
    assert len(life.course.promises) > 300
    assert len(life.course.copies) == 2


@pytest.mark.proof
@pytest.mark.parametrize("task", cuts.CONTROLS.values(), ids=cuts.CONTROLS)
def test_a_ledger_that_is_broken_on_purpose_is_caught(task: str, tmp_path: Path) -> None:
    _, outcome = cuts.campaign(task, CONTROL_CUTS, tmp_path)
    assert outcome.kinds["lost"] > 0, outcome
    assert task != "off" or outcome.kinds["damaged"] > 0, outcome


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[failing.Bench]:
    with failing.bench(tmp_path_factory.mktemp("failing")) as bench:
        yield bench


@pytest.mark.proof
@pytest.mark.parametrize(
    "name",
    failing.CASES,
)
def test_a_command_whose_disk_fails_says_so_and_harms_nothing(name: str, made: failing.Bench) -> None:
    tally, found = failing.suffer(made, name, every=EVERY, first=FIRST)
    print(f"\n{name}: {failing.told(tally)}")  # noqa: T201 - who looks on wants to see it
    assert found == []
    assert tally["said so"] > 0


@pytest.mark.proof
@pytest.mark.parametrize("name", failing.CONTROLS)
def test_a_writer_that_does_not_hear_its_disk_is_caught(name: str, made: failing.Bench) -> None:
    _, found = failing.suffer(made, name, every=13, deaf=True)
    assert found


@pytest.mark.proof
def test_a_watchdog_whose_disk_is_full_only_observes_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    if outages.why_not():
        pytest.skip(outages.why_not())
    assert outages.full(tmp_path) == []


@pytest.mark.proof
def test_a_watchdog_whose_disk_is_read_only_only_observes_and_goes_on_when_it_is_not(tmp_path: Path) -> None:
    assert outages.read_only(tmp_path) == []


def written(*ops: tuple[str, int, int, bytes]) -> Platter:
    platter = Platter()
    for op in ops:
        platter.take(Op(*op))
    return platter


CREATED = (("O", 3, os.O_CREAT | os.O_RDWR, b"/d/a"), ("O", 4, 0, b"/d"), ("S", 4, 0, b""))


def found(platter: Platter, tries: int = 400) -> set[bytes | None]:
    """Everything that may be found of the file /d/a."""
    chance = Random(SEED)  # noqa: S311 - outcomes are drawn, not secret
    left = [platter.cut(chance).get("/d/a") for _ in range(tries)]
    return {None if data is None else bytes(data) for data in left}


def test_what_was_synced_is_there_and_what_was_not_may_be() -> None:
    synced = (*CREATED, ("W", 3, 0, b"a" * 512), ("S", 3, 0, b""))
    assert found(written(*synced)) == {b"a" * 512}
    later = found(written(*synced, ("W", 3, 0, b"b" * 512)))
    assert {b"a" * 512, b"b" * 512} < later
    assert all(data is not None and data == b"b" * data.count(b"b") + b"a" * data.count(b"a") for data in later)


def test_sectors_fare_apart_and_a_length_may_be_there_without_them() -> None:
    pages = (*CREATED, ("W", 3, 0, b"a" * 1024), ("S", 3, 0, b""), ("W", 3, 0, b"b" * 1024), ("W", 3, 1024, b"c" * 512))
    left = found(written(*pages))
    assert b"a" * 512 + b"b" * 512 + b"c" * 512 in left
    assert b"b" * 512 + b"a" * 512 in left
    assert b"a" * 1024 + bytes(512) in left


def test_a_name_is_certain_once_its_folder_is_synced() -> None:
    file = (("O", 3, os.O_CREAT | os.O_RDWR, b"/d/b"), ("W", 3, 0, b"x"), ("S", 3, 0, b""), ("R", -1, 0, b"/d/b\n/d/a"))
    assert found(written(*file)) == {None, b"x"}
    assert found(written(*file, ("O", 4, 0, b"/d"), ("S", 4, 0, b""))) == {b"x"}
    gone = written(*file, ("O", 4, 0, b"/d"), ("S", 4, 0, b""), ("U", -1, 0, b"/d/a"))
    assert found(gone) == {None, b"x"}
