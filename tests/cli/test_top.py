"""`costguard top` on Textual's own pilot, with a real ledger behind it: what is shown, and that keys do what they say."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from costguard.cli.top_screen import ReasonScreen, TopApp
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.observation import Observation, Price
from costguard.providers import plugins
from costguard.reporting.status import ResourceBurn
from costguard.services import overrides
from costguard.services.ledger_answers import load_current_status
from costguard.services.top import TopSession
from costguard.values.money import Rate
from costguard.values.resource import make_storable
from costguard.values.sample import GPU_UTIL, Sample
from tests.cli.acme import Account, Acme, installed, unreachable
from tests.conftest import Command
from tests.ledger.fleet import RULES, key, poll
from tests.notifiers.hostile import CORPUS

Play = Callable[[TopApp, Pilot[None]], Awaitable[None]]
SHORT_LEASES = """
[[policy]]
name = "short"
when = 'power == "running"'
then = [{ do = "record" }]
lease = { max = "30m" }
"""
PATIENCE = 400
"""How often it is looked whether the screen has what is waited for: no time is asserted."""


@pytest.fixture
def folder(costguard: Command, tmp_path: Path) -> Path:
    """Settings and a ledger of two machines of ada and ben, of which ada's was busy."""
    assert costguard.__name__ == "ran", "in its empty folder"
    (tmp_path / "costguard.toml").write_text('[ledger]\nurl = "sqlite:///ledger.db"\n')
    return tmp_path


def recorded(folder: Path, *seen: Observation, samples: tuple[Sample, ...] = ()) -> datetime:
    now = datetime.now(UTC).replace(microsecond=0)
    with LedgerWriter(f"sqlite:///{folder}/ledger.db", rules=RULES, ceilings={}) as ledger:
        for at in (now - timedelta(minutes=30), now):
            ledger.record_polls([replace(poll(0, *seen), at=at)])
        ledger.record_samples(samples)
    return now


def machine(name: str, usd: str, owner: str, number: int = 0) -> Observation:
    started = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
    return Observation(
        key=key(f"i-{number}{name[:4] if name.isalnum() else ''}"),
        state="running",
        name=name,
        gpu="H100-SXM",
        gpu_count=1,
        prices=(Price(Rate.parse(usd)),),
        owner=owner,
        started_at=started,
    )


def played(play: Play, *, offline: bool = True) -> None:
    async def scene() -> None:
        top = TopApp(TopSession(offline=offline))
        async with top.run_test(size=(120, 30)) as pilot:
            await until(pilot, lambda: bool(top._rows))
            await play(top, pilot)

    asyncio.run(scene())


async def until(pilot: Pilot[None], there: Callable[[], bool]) -> None:
    for _ in range(PATIENCE):
        if there():
            return
        await pilot.pause(0.02)
    raise AssertionError("it never came")


def lines(top: TopApp) -> list[str]:
    table = top._table()
    return ["  ".join(cell.plain for cell in table.get_row_at(n)) for n in range(table.row_count)]


def text(top: TopApp, name: str) -> str:
    return str(top.query_one(name, Static).render())


def two(folder: Path) -> None:
    busy, quiet = machine("train", "2", "ada"), machine("eval", "3", "ben")
    at = datetime.now(UTC) - timedelta(minutes=2)
    recorded(folder, busy, quiet, samples=(Sample(key=busy.key, signal=GPU_UTIL, at=at, value=98.0),))


def test_a_row_says_what_a_machine_burns_and_how_busy_it_was(folder: Path) -> None:
    two(folder)

    async def play(top: TopApp, pilot: Pilot[None]) -> None:
        await pilot.pause()
        first, second = lines(top)
        assert "eval  $3.0000  ············" in first
        assert "train  $2.0000  ···········█" in second
        assert "$5.0000/h   1 of 1 accounts read" in text(top, "#head")
        assert "2 machines by burn" in text(top, "#head")

    played(play)


def test_keys_sort_and_filter_and_the_cursor_stays_on_its_machine(folder: Path) -> None:
    two(folder)

    async def play(top: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("down")
        assert (chosen := top._chosen()) is not None
        assert chosen.called == "train"
        await pilot.press("d")
        assert lines(top)[0].startswith("train")
        assert top._chosen() == chosen
        await pilot.press("o")
        assert lines(top)[0].startswith("eval"), "burn comes after duty"
        await pilot.press("slash", *"ben", "enter")
        assert [line.split()[0] for line in lines(top)] == ["eval"]
        assert "1 of 2 machines" in text(top, "#head")
        await pilot.press("escape")
        assert len(lines(top)) == 2

    played(play)


def test_k_records_a_lease_with_its_reason_after_a_yes(folder: Path) -> None:
    two(folder)

    async def play(top: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("k")
        assert isinstance(top.screen, ReasonScreen)
        await pilot.press("enter")
        assert isinstance(top.screen, ReasonScreen), "no reason, no lease"
        await pilot.press(*"evaluation", "enter")
        await until(pilot, lambda: "is kept until" in top._said)
        await until(pilot, lambda: "kept for" in lines(top)[0])
        assert "eval" in top._said
        assert len(lines(top)) == 2, "a reason is not a filter"

    played(play)
    (lease,) = (one.beside.lease for one in status_of(folder) if one.beside.lease)
    assert (lease.why, lease.who) == ("evaluation", overrides.describe_user())
    assert lease.until is not None
    assert timedelta(hours=2) - (lease.until - lease.at) < timedelta(seconds=1), "it ends on a whole second"


def test_escape_records_nothing(folder: Path) -> None:
    two(folder)

    async def play(top: TopApp, pilot: Pilot[None]) -> None:
        for key_ in ("k", "a"):
            await pilot.press(key_, *"why", "escape")
            assert top._said == "Cancelled."

    played(play)
    assert [one for one in status_of(folder) if one.beside.lease] == []


def test_a_records_a_yes_to_a_stop_and_stops_nothing(folder: Path) -> None:
    two(folder)

    async def play(top: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("a", *"fine", "enter")
        await until(pilot, lambda: "Approved: stop of eval" in top._said)

    played(play)
    with overrides.open_guard_store(TopSession(offline=True).settings) as book:
        (wish,) = book.load_open_overrides(datetime.now(UTC))
        assert (wish.what, wish.subject, wish.why) == ("approve", "stop", "fine")
        assert book.load_open_intents() == []


def test_what_cannot_be_done_is_said(folder: Path) -> None:
    two(folder)
    (folder / "costguard.toml").write_text(f"{(folder / 'costguard.toml').read_text()}{SHORT_LEASES}")

    async def play(top: TopApp, pilot: Pilot[None]) -> None:
        await pilot.press("k", *"mine", "enter")
        await until(pilot, lambda: "Nothing was done" in top._said and top._said != "Cancelled.")
        assert "short allows leases of at most 0.5 h" in top._said

    played(play)


def test_it_asks_the_providers_first_and_again_at_r_and_makes_the_ledger(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    account = Account("acme")
    monkeypatch.setattr(plugins, "load_providers", installed(Acme(accounts=[account])))
    with (folder / "costguard.toml").open("a") as settings:
        settings.write("[providers.acme]\n")

    async def play(top: TopApp, pilot: Pilot[None]) -> None:
        assert lines(top)[0].startswith("m-1  $2.5000")
        assert account.asked == 1
        await pilot.press("r")
        await until(pilot, lambda: account.asked == 2 and not top._asking)
        await until(pilot, lambda: not any(top._troubles.values()))
        account.says = unreachable("acme")
        await pilot.press("r")
        await until(pilot, lambda: "acme" in text(top, "#told") and "no connection" in text(top, "#told"))
        assert lines(top)[0].startswith("m-1"), "what is known stays"

    played(play, offline=False)


def test_hostile_names_are_text(folder: Path) -> None:
    names = [make_storable(name) for name in CORPUS if name][:60]
    recorded(folder, *(machine(name, "1", name, number) for number, name in enumerate(names)))

    async def play(top: TopApp, pilot: Pilot[None]) -> None:
        await pilot.pause()
        shown = lines(top)
        assert len(shown) == len(names)
        assert all(line.isprintable() for line in shown)
        await pilot.press("k")
        assert isinstance(top.screen, ReasonScreen)
        await pilot.press("escape")

    played(play)


def status_of(folder: Path) -> tuple[ResourceBurn, ...]:
    watched = TopSession(offline=True)
    assert folder.is_dir()
    return load_current_status(watched.settings, watched.zone, None)[0].resources


def test_a_pipe_is_told_what_to_use_instead(costguard: Command) -> None:
    ran = costguard("top")
    assert ran.code == 2
    assert "needs a terminal to draw on" in ran.err
    assert "costguard status" in ran.err


def test_without_textual_it_says_what_to_install(costguard: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.delitem(sys.modules, "costguard.cli.top_screen")
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.setitem(sys.modules, "textual.app", None)
    ran = costguard("top")
    assert ran.code == 1
    assert "pip install 'gpu-costguard[top]'" in ran.err
