"""The live view of the watch: drawn for a terminal, as lines for a pipe."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO

import pyte
import pytest
from rich.console import Console

from costguard.cli.watch_screen import draw_watch, open_live_display
from costguard.guard.signals import HUNG, IDLE, Activity
from costguard.metering.spending import ScopeCoverage
from costguard.reporting.status import build_scope_status
from costguard.values.money import Money
from costguard.values.resource import ResourceKey, ScopeKey
from costguard.views.watch import WatchedAction, WatchedBudget, WatchedMachine, WatchedNotice, WatchView, list_changes
from tests.books import money

NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def seen(name: str, outcome: str = "complete") -> ScopeCoverage:
    whole = NOON if outcome == "complete" else NOON - HOUR
    return ScopeCoverage(
        scope=ScopeKey("aws", "123", name), outcome=outcome, at=NOON, since=NOON, last_complete_at=whole, why="timeout"
    )


TRAIN = WatchedMachine(
    key=ResourceKey("aws", "123", "us-east-1", "i-1"),
    name="train-1",
    owner="ada",
    told="A100-80GB-SXM x8",
    power="running",
    rate=Money.parse("32.77"),
    work=Activity(state=IDLE, confidence=0.9, reasons=("GPU duty 0 %",), since=NOON - HOUR),
    next_act="stop",
    next_at=NOON + timedelta(minutes=10),
)
EVIL = replace(
    TRAIN,
    key=ResourceKey("vast", "me", "", "24"),
    name="\x1b[31m<b>[red]x\n" + "long" * 40,
    work=Activity(state=HUNG, confidence=0.7),
    rate=None,
    held_by=("it has a lease",),
)
VIEW = WatchView(
    at=NOON,
    mode="acting",
    burn=Money.parse("32.77"),
    month=money("100"),
    scopes=(
        build_scope_status(seen("us-east-1"), NOON, HOUR / 4),
        build_scope_status(seen("eu-west-1", "failed"), NOON, HOUR / 4),
    ),
    machines=(TRAIN, EVIL),
    budgets=(
        WatchedBudget(
            name="lab", cap=Money.parse("500"), spent=money("482.1"), time_to_cap=HOUR / 2, overshoot=Money.parse("16.39")
        ),
    ),
    acts=(WatchedAction(at=NOON, subject="aws/123/us-east-1/i-9", act="stop", state="unconfirmed", why="still running"),),
    notices=(WatchedNotice(id="idle train-1", what="train-1 is idle since 11:00"),),
)


def drawn(view: WatchView, width: int, *, colours: bool = False) -> str:
    out = StringIO()
    Console(file=out, width=width, force_terminal=colours, markup=False).print(draw_watch(view, width))
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 140])
def test_everything_that_matters_fits_the_terminal(width: int) -> None:
    out = drawn(VIEW, width)
    assert max(len(line) for line in out.splitlines()) <= width
    for words in ("$32.7700/h", "month $100.00", "acting", "1 of 2 accounts read", "not read: aws/123/eu-west-1 (failed)"):
        assert words in out, out
    for words in ("train-1", "idle 0.90", "1 h", "stop in 10 min", "hung 0.70", "it has a lease", "unknown"):
        assert words in out, out
    for words in ("lab", "$482.10", "$500.00", "96%", "30 min", "$16.39", "unconfirmed", "train-1 is idle since"):
        assert words in out, out


def test_a_name_draws_nothing_of_its_own() -> None:
    out = drawn(VIEW, 140)
    assert "\x1b" not in out
    assert "<b>[red]" in out


def test_a_freeze_and_a_run_that_was_not_recorded_are_shouted_about() -> None:
    out = drawn(replace(VIEW, frozen="ada: metrics are wrong", committed=False), 80)
    assert "FROZEN: ada: metrics are wrong" in out
    assert "could not be recorded" in out


def test_a_pipe_gets_all_there_is_at_first_and_then_only_what_changed() -> None:
    first = list_changes(None, VIEW)
    assert len(first) == 6
    assert all(line.startswith("2026-11-02 12:00 UTC  ") and "\n" not in line and "\x1b" not in line for line in first)
    assert list_changes(VIEW, replace(VIEW, at=NOON + HOUR)) == ()
    grown = replace(VIEW.notices[0], what="train-1 is idle since 11:00, $33 so far")
    assert list_changes(VIEW, replace(VIEW, notices=(grown,))) == (), "an amount that grows is no new alert"
    hair = replace(TRAIN, work=replace(TRAIN.work, confidence=0.91))
    assert list_changes(VIEW, replace(VIEW, machines=(hair, EVIL))) == ()
    kept = replace(TRAIN, held_by=("ada keeps it",))
    (line,) = list_changes(VIEW, replace(VIEW, machines=(kept, EVIL)))
    assert line.endswith("train-1 i-1: running, idle (0.90), $32.7700/h, stop at 12:10 UTC, held: ada keeps it")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"machines": (TRAIN,)}, "gone: "),
        ({"frozen": "ada: no"}, "all acts are frozen: ada: no"),
        ({"committed": False}, "could not be recorded"),
        ({"mode": "dry run"}, "burns $32.7700 an hour, dry run"),
        ({"notices": (WatchedNotice(id="b", what="a new one"),)}, "a new one"),
        ({"scopes": (VIEW.scopes[0], build_scope_status(seen("eu-west-1"), NOON, HOUR))}, "aws/123/eu-west-1 is read again"),
        ({"acts": (replace(VIEW.acts[0], state="done", why=""),)}, "stop of aws/123/us-east-1/i-9: done"),
    ],
    ids=["gone", "frozen", "committed", "mode", "notice", "scope", "act"],
)
def test_each_kind_of_change_is_one_line(change: dict[str, object], says: str) -> None:
    (line,) = list_changes(VIEW, replace(VIEW, **change))  # type: ignore[arg-type]  # a test's own fields
    assert says in line


class Terminal(StringIO):
    """Text that is written to a terminal."""

    def isatty(self) -> bool:
        return True


LONG = "event=refused hint=" + "costguard_plan_" * 8


def test_a_view_is_drawn_again_in_its_place_and_lines_appear_above_it_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen through a terminal's eyes: nothing of the view before is left, and the cursor is back at the end."""
    for name, value in (("TERM", "xterm"), ("COLUMNS", "80"), ("LINES", "30")):
        monkeypatch.setenv(name, value)
    out, screen = Terminal(), pyte.Screen(80, 30)
    monkeypatch.setattr(sys, "stdout", out)
    with open_live_display() as show:
        show(VIEW)
        print("at=12:00 event=polled")  # noqa: T201 - as a log line is written
        print(LONG)  # noqa: T201
        assert "\x1b[?25l" in out.getvalue()
        show(replace(VIEW, machines=(TRAIN,)))
    assert LONG in out.getvalue()
    pyte.Stream(screen).feed(out.getvalue().replace("\n", "\r\n"))
    seen = [line.rstrip() for line in screen.display]
    assert seen[0] == "at=12:00 event=polled"
    assert sum("accounts read" in line for line in seen) == 1
    assert sum("train-1  " in line for line in seen) == 1
    assert not any("long" in line for line in seen)
    assert not screen.cursor.hidden
    above = seen[: next(n for n, line in enumerate(seen) if "train-1  " in line)]
    assert "train-1 is idle since 11:00" in above
    assert not any(seen[screen.cursor.y :])
