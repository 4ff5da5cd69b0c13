"""Draw a WatchView on a terminal, and redraw it in place.

Colours: red is burning or failed, yellow is waiting, green is working. At 80 columns owner, evidence and machine type are left
out; at 140 they are shown.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import TextIO, cast

from costguard.errors import shorten, to_one_line
from costguard.guard.signals import ACTIVE, HUNG, IDLE, UNKNOWN, WARMING
from costguard.system.terminal import Column, Styled, cut_line, format_row, format_styled, has_styles
from costguard.values.cell_width import cut_to_width, measure_width, wrap_text
from costguard.values.text_format import format_interval, format_length, format_local_time, format_scope, get_currency_sign
from costguard.views.watch import WatchedBudget, WatchedMachine, WatchView, format_next_action, format_rate

WIDE = 120
"""Columns from which on all is shown."""
WORK_COLOURS = {ACTIVE: "green", WARMING: "cyan", IDLE: "yellow", HUNG: "bold red", UNKNOWN: "magenta"}
ACT_COLOURS = {"done": "green", "failed": "bold red", "unconfirmed": "bold red", "cancelled": "dim"}
MOST_MACHINES, MOST_LINES = 40, 5
NEARLY_SPENT_SHARE = 0.85


GAP, NARROWEST = 3, 3
HIDE_CURSOR, SHOW_CURSOR, ERASE_LINE, UP = "\x1b[?25l", "\x1b[?25h", "\r\x1b[2K", "\x1b[1A"

Line = Sequence[Styled]


def draw_watch(view: WatchView, width: int) -> list[Line]:
    """Return the whole view as lines for a terminal of `width` columns."""
    return [cut_line(line, width) for line in _draw_parts(view, width)]


def write_lines(lines: Sequence[Line], *, styles: bool, colours: bool) -> str:
    """Return `lines` as a terminal reads them; without `colours` bold and dim are left, without `styles` nothing is."""
    return "\n".join(
        "".join(format_styled(one.text, one.look if styles else "", colours=colours) for one in line) for line in lines
    )


@contextmanager
def open_live_display() -> Iterator[Callable[[WatchView], None]]:
    """Yield a function that redraws a run in place (NO_COLOR and COLUMNS are honoured); log lines appear above it."""
    screen = LiveScreen(sys.stdout)
    above = LinesAbove(screen, sys.stdout), LinesAbove(screen, sys.stderr)
    with redirect_stdout(cast("TextIO", above[0])), redirect_stderr(cast("TextIO", above[1])):
        try:
            yield screen.show
        finally:
            for stream in above:
                stream.end_line()
            screen.close()


class LiveScreen:
    """The last lines of a terminal, which are drawn again for each view. All writing takes turns."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._lock = out, threading.RLock()
        self._view: WatchView | None = None
        self._height = 0  # lines that are drawn now
        self._moves = has_styles()
        if self._moves:
            self._write(HIDE_CURSOR)

    def show(self, view: WatchView) -> None:
        """Draw `view` in place of the one before; on a terminal that cannot move its cursor nothing until the end."""
        with self._lock:
            self._view = view
            if self._moves:
                self._write(self._erase() + self._draw(view))

    def write_above(self, text: str) -> None:
        """Write whole lines above the view."""
        with self._lock:
            self._write(self._erase() + text)
            if self._view is not None and self._moves:
                self._write(self._draw(self._view))

    def close(self) -> None:
        """Leave the whole of the last view, however long it is."""
        with self._lock:
            last = "" if self._view is None else f"{self._erase()}{self._draw(self._view, whole=True)}\n"
            self._height, self._view = 0, None
            self._write(f"{last}{SHOW_CURSOR if self._moves else ''}")

    def _erase(self) -> str:
        height, self._height = self._height, 0
        return ERASE_LINE + f"{UP}{ERASE_LINE}" * (height - 1) if height else ""

    def _draw(self, view: WatchView, *, whole: bool = False) -> str:
        size = shutil.get_terminal_size()
        lines = draw_watch(view, size.columns)
        if len(lines) > size.lines and not whole:
            lines = [*lines[: size.lines - 1], [Styled("...".center(size.columns))]]
        self._height = len(lines)
        return write_lines(lines, styles=self._moves, colours=not os.environ.get("NO_COLOR"))

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


class LinesAbove:
    """A stream whose lines appear above the screen; in all else it is `stream`."""

    def __init__(self, screen: LiveScreen, stream: TextIO) -> None:
        self._screen, self._stream, self._begun = screen, stream, ""

    def write(self, text: str) -> int:
        """Write the lines that are whole now; the rest waits for its end."""
        whole, newline, self._begun = (self._begun + text).rpartition("\n")
        if newline:
            self._screen.write_above(whole + newline)
        return len(text)

    def end_line(self) -> None:
        """Write what waits."""
        if self._begun:
            self.write("\n")

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def _draw_parts(view: WatchView, width: int) -> Iterator[Line]:
    yield from _draw_head(view, width)
    for scope in view.scopes:
        if not scope.seen or scope.state == "failed":
            why = f": {scope.now.why}" if scope.now.why else ""
            text = f"not seen: {format_scope(scope.now.scope)} ({scope.state}){why}"
            yield _draw_line(shorten(to_one_line(text), 200), "bold red", width)
    if view.machines:
        yield from _draw_machines(view, width)
    if view.budgets:
        yield from _draw_budgets(view.budgets, width)
    for act in view.acts[-MOST_LINES:]:
        text = f"{act.at:%H:%M} {act.act} {act.subject}: {act.state}{f', {act.why}' if act.why else ''}"
        yield _draw_line(to_one_line(text), ACT_COLOURS.get(act.state, "yellow"), width)
    for notice in view.notices[-MOST_LINES:]:
        yield _draw_line(to_one_line(notice), "yellow", width)


def _draw_line(text: str, look: str, width: int) -> Line:
    return [Styled(cut_to_width(text, width), look)]


def _draw_head(view: WatchView, width: int) -> Iterator[Line]:
    seen = sum(scope.seen for scope in view.scopes)
    parts = [
        Styled(f"{format_rate(view.burn)}/h", "bold"),
        Styled(f"month ${format_interval(view.month)}"),
        Styled(view.mode, "green" if view.mode == "acting" else "yellow"),
        Styled(f"{seen} of {len(view.scopes)} accounts read", "" if seen == len(view.scopes) else "bold red"),
        Styled(format_local_time(view.at), "dim"),
    ]
    line = list[Styled]()
    for part in parts:  # a part that has no room begins the next line
        if line and sum(measure_width(one.text) for one in line) + 2 + measure_width(part.text) > width:
            yield line
            line = []
        line += [Styled("  "), part] if line else [part]
    yield line
    if view.frozen:
        for text in wrap_text(f"FROZEN: {to_one_line(view.frozen)}", width, fold=True):
            yield [Styled(text, "bold cyan")]
    if not view.committed:
        for text in wrap_text("The run could not be recorded: no acts until the ledger can be written.", width, fold=True):
            yield [Styled(text, "bold red")]


@dataclass(frozen=True, slots=True)
class Head:
    """A column of a table here: its heading, its widths in cells, and what gives way first where there is no room."""

    name: str
    least: int = 0
    most: int = 1000
    right: bool = False
    wraps: bool = False
    yields: int = 0


def _draw_table(heads: Sequence[Head], rows: Sequence[Sequence[Styled]], width: int) -> Iterator[Line]:
    """Yield an empty line, headings, a rule, the rows and an empty line; what has no room is cut."""
    texts = [[head.name, *(row[place].text for row in rows)] for place, head in enumerate(heads)]
    widths = [min(head.most, max(head.least, *map(measure_width, column))) for head, column in zip(heads, texts, strict=True)]
    for place in sorted(range(len(heads)), key=lambda place: -heads[place].yields):
        over = sum(widths) + GAP * (len(widths) - 1) + 2 - width
        if over > 0 and heads[place].yields:
            widths[place] = max(heads[place].least or NARROWEST, widths[place] - over)
    columns = [Column(width=cells, right=head.right, wraps=head.wraps) for head, cells in zip(heads, widths, strict=True)]
    yield []
    yield from ([Styled(" "), *line] for line in format_row([Styled(head.name, "bold") for head in heads], columns, gap=GAP))
    yield [Styled(" " + "─" * (sum(widths) + GAP * (len(widths) - 1)))]
    for row in rows:
        yield from ([Styled(" "), *line] for line in format_row(row, columns, gap=GAP))
    yield []


def _draw_machines(view: WatchView, width: int) -> Iterator[Line]:
    wide = width >= WIDE
    heads = [Head("machine", least=8, most=32 if wide else 20, yields=1)]
    heads += [Head("what", most=22), Head("owner", most=14)] if wide else []
    heads += [Head("$/h", right=True), Head("work"), Head("since", right=True)]
    heads.append(Head("next", least=28 if wide else 16, wraps=True, yields=3))
    heads += [Head("why", yields=2)] if wide else []
    yield from _draw_table(heads, [tuple(_list_cells(one, view, wide=wide)) for one in view.machines[:MOST_MACHINES]], width)
    if len(view.machines) > MOST_MACHINES:
        text = f"and {len(view.machines) - MOST_MACHINES} more (costguard plan lists them)"
        yield [Styled(text.center(width).rstrip(), "dim")]


def _list_cells(machine: WatchedMachine, view: WatchView, *, wide: bool) -> Iterator[Styled]:
    work = machine.work
    yield Styled(machine.called)
    if wide:
        yield Styled(to_one_line(machine.told))
        yield Styled(to_one_line(machine.owner or "-"))
    yield Styled(format_rate(machine.rate).removeprefix("$"), "" if machine.rate else "magenta")
    running = machine.power == "running"
    state = f"{work.state} {work.confidence:.2f}" if running else machine.power
    yield Styled(state, WORK_COLOURS.get(work.state, "") if running else "dim")
    yield Styled(format_length(view.at - work.since) if work.since and running else "-")
    held = bool(machine.held_by)
    yield Styled(
        to_one_line(format_next_action(machine, view.at)),
        "cyan" if held else "bold yellow" if machine.next_act else "dim",
    )
    if wide:
        yield Styled(to_one_line("; ".join(work.reasons)), "dim")


def _draw_budgets(budgets: tuple[WatchedBudget, ...], width: int) -> Iterator[Line]:
    heads = [Head("budget"), *(Head(name, right=True) for name in ("spent", "cap", "", "to cap", "worst over"))]
    rows = list[tuple[Styled, ...]]()
    for budget in budgets:
        look = "bold red" if budget.share >= 1 else "yellow" if budget.share >= NEARLY_SPENT_SHARE else "green"
        left = "-" if budget.time_to_cap is None else format_length(budget.time_to_cap)
        over = "-" if budget.overshoot is None else f"{get_currency_sign(budget.overshoot.currency)}{budget.overshoot.format()}"
        rows.append(
            (
                Styled(shorten(to_one_line(budget.name), 20)),
                Styled(f"{get_currency_sign(budget.cap.currency)}{budget.spent.high.format()}"),
                Styled(f"{get_currency_sign(budget.cap.currency)}{budget.cap.format()}"),
                Styled(f"{budget.share:.0%}", look),
                Styled(left, look if budget.time_to_cap is not None else ""),
                Styled(over),
            )
        )
    yield from _draw_table(heads, rows, width)
