"""Draw a WatchView on a terminal with rich, and redraw it in place.

Colours: red is burning or failed, yellow is waiting, green is working. At 80 columns owner, evidence and machine type are left
out; at 140 they are shown. Names and words of vendors are `Text`, never markup: `[provider]` is printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from costguard.errors import shorten, to_one_line
from costguard.guard.signals import ACTIVE, HUNG, IDLE, UNKNOWN, WARMING
from costguard.values.text_format import (
    format_interval,
    format_length,
    format_local_time,
    format_scope,
)
from costguard.views.watch import WatchedBudget, WatchedMachine, WatchView, format_next_action, format_rate

WIDE = 120
"""Columns from which on all is shown."""
WORK_COLOURS = {ACTIVE: "green", WARMING: "cyan", IDLE: "yellow", HUNG: "bold red", UNKNOWN: "magenta"}
ACT_COLOURS = {"done": "green", "failed": "bold red", "unconfirmed": "bold red", "cancelled": "dim"}
MOST_MACHINES, MOST_LINES = 40, 5
LEAST_MACHINES, LINES_AROUND = 5, 10
"""Machines that are shown on the lowest terminal; lines of heads, rules and frames."""
NEARLY_SPENT_SHARE = 0.85

CutText = partial(Text, overflow="ellipsis", no_wrap=True)
WrappedText = partial(Text, overflow="fold", no_wrap=False)


@contextmanager
def open_live_display() -> Iterator[Callable[[WatchView], None]]:
    """Yield a function that redraws a run in place (NO_COLOR and COLUMNS are honoured); log lines appear above it, whole."""
    console = Console(highlight=False, emoji=False, markup=False, soft_wrap=True)
    with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:
        yield lambda view: live.update(draw_watch(view, console.width, console.height), refresh=True)


def draw_watch(view: WatchView, width: int, height: int = 0) -> RenderableType:
    """Return the whole view for a terminal of `width` columns and `height` lines; 0: any number of lines.

    Alerts, acts and budgets come first, then the machines that need somebody, and of the others as many as fit.
    """
    return Group(*_draw_parts(view, wide=width >= WIDE, height=height))


def _draw_parts(view: WatchView, *, wide: bool, height: int) -> Iterator[RenderableType]:
    yield _draw_head(view)
    if view.frozen:
        yield WrappedText(f"FROZEN: {to_one_line(view.frozen)}", style="bold cyan")
    if not view.committed:
        yield WrappedText("The run could not be recorded: no acts until the ledger can be written.", style="bold red")
    for scope in view.scopes:
        if not scope.seen or scope.state == "failed":
            why = f": {scope.now.why}" if scope.now.why else ""
            text = f"not read: {format_scope(scope.now.scope)} ({scope.state}){why}"
            yield CutText(shorten(to_one_line(text), 200), style="bold red")
    for notice in view.notices[-MOST_LINES:]:
        yield CutText(to_one_line(notice.what), style="yellow")
    for act in view.acts[-MOST_LINES:]:
        text = f"{act.at:%H:%M} {act.act} {act.subject}: {act.state}{f', {act.why}' if act.why else ''}"
        yield CutText(to_one_line(text), style=ACT_COLOURS.get(act.state, "yellow"))
    if view.budgets:
        yield _draw_budgets(view.budgets)
    quiet = [one for one in view.machines if not one.next_act and one.work.state not in (IDLE, HUNG)]
    pressing = [one for one in view.machines if one not in quiet]
    lines = len(view.notices[-MOST_LINES:]) + len(view.acts[-MOST_LINES:]) + len(view.budgets) + LINES_AROUND
    room = min(MOST_MACHINES, max(height - lines, LEAST_MACHINES) if height else MOST_MACHINES)
    machines = [*pressing, *quiet][:room]
    if machines:
        yield _draw_machines(machines, view, wide=wide)
    if left := len(view.machines) - len(machines):
        more = "more quiet" if len(machines) >= len(pressing) else "more"
        yield CutText(f"and {left} {more} (costguard plan lists them)", style="dim", justify="center")


def _draw_head(view: WatchView) -> Text:
    scopes_read = sum(scope.seen for scope in view.scopes)
    parts = (
        (f"{format_rate(view.burn)}/h", "bold"),
        (f"month ${format_interval(view.month)}", ""),
        (view.mode, "green" if view.mode == "acting" else "yellow"),
        (f"{scopes_read} of {len(view.scopes)} accounts read", "" if scopes_read == len(view.scopes) else "bold red"),
        (format_local_time(view.at), "dim"),
    )
    return WrappedText("  ").join([Text(*part) for part in parts])


def _build_table() -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")


def _draw_machines(machines: Sequence[WatchedMachine], view: WatchView, *, wide: bool) -> Table:
    table = _build_table()
    add_column = partial(table.add_column, no_wrap=True, overflow="ellipsis")
    add_column("machine", min_width=8, max_width=32 if wide else 20)
    if wide:
        add_column("what", max_width=22)
        add_column("owner", max_width=14)
    add_column("$/h", justify="right")
    add_column("work")
    add_column("since", justify="right")
    table.add_column("next", no_wrap=False, overflow="fold", min_width=28 if wide else None)
    if wide:
        add_column("why")
    for machine in machines:
        table.add_row(*_list_cells(machine, view, wide=wide))
    return table


def _list_cells(machine: WatchedMachine, view: WatchView, *, wide: bool) -> Iterator[Text]:
    work = machine.work
    yield Text(machine.called)
    if wide:
        yield Text(to_one_line(machine.told))
        yield Text(to_one_line(machine.owner or "-"))
    yield Text(format_rate(machine.rate).removeprefix("$"), style="" if machine.rate else "magenta")
    running = machine.power == "running"
    state = f"{work.state} {work.confidence:.2f}" if running else machine.power
    yield Text(state, style=WORK_COLOURS.get(work.state, "") if running else "dim")
    yield Text(format_length(view.at - work.since) if work.since and running else "-")
    is_held = bool(machine.held_by)
    yield Text(
        to_one_line(format_next_action(machine, view.at)),
        style="cyan" if is_held else "bold yellow" if machine.next_act else "dim",
    )
    if wide:
        yield Text(to_one_line("; ".join(work.reasons)), style="dim")


def _draw_budgets(budgets: tuple[WatchedBudget, ...]) -> Table:
    table = _build_table()
    for name in ("budget", "spent", "cap", "", "to cap", "worst over"):
        table.add_column(name, justify="left" if name == "budget" else "right", no_wrap=True, overflow="ellipsis")
    for budget in budgets:
        style = "bold red" if budget.share >= 1 else "yellow" if budget.share >= NEARLY_SPENT_SHARE else "green"
        left = "-" if budget.time_to_cap is None else format_length(budget.time_to_cap)
        over = "-" if budget.overshoot is None else str(budget.overshoot)
        table.add_row(
            Text(shorten(to_one_line(budget.name), 20)),
            Text(str(budget.spent.high)),
            Text(f"{budget.cap}{budget.unit}"),
            Text(f"{budget.share:.0%}", style=style),
            Text(left, style=style if budget.time_to_cap is not None else ""),
            Text(over),
        )
    return table
