"""Draw a WatchView on a terminal with rich.

Colours: red is burning or failed, yellow is waiting, green is working. At 80 columns owner, evidence and machine type are left
out; at 140 they are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from costguard.errors import shorten, to_one_line
from costguard.guard.signals import ACTIVE, HUNG, IDLE, UNKNOWN, WARMING
from costguard.values.text_format import format_interval, format_length, format_local_time, format_scope, get_currency_sign
from costguard.views.watch import WatchedBudget, WatchedMachine, WatchView, format_next_action, format_rate

WIDE = 120
"""Columns from which on all is shown."""
WORK_COLOURS = {ACTIVE: "green", WARMING: "cyan", IDLE: "yellow", HUNG: "bold red", UNKNOWN: "magenta"}
ACT_COLOURS = {"done": "green", "failed": "bold red", "unconfirmed": "bold red", "cancelled": "dim"}
MOST_MACHINES, MOST_LINES = 40, 5
NEARLY_SPENT_SHARE = 0.85


def draw_watch(view: WatchView, width: int) -> RenderableType:
    """Return the whole view for a terminal of `width` columns."""
    return Group(*_draw_parts(view, wide=width >= WIDE))


@contextmanager
def open_live_display() -> Iterator[Callable[[WatchView], None]]:
    """Yield a function that redraws a run in place (NO_COLOR and COLUMNS are honoured); log lines appear above it."""
    console = Console(highlight=False, emoji=False, markup=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:
        yield lambda view: live.update(draw_watch(view, console.width), refresh=True)


def _draw_parts(view: WatchView, *, wide: bool) -> Iterator[RenderableType]:
    yield _draw_head(view)
    for scope in view.scopes:
        if not scope.seen or scope.state == "failed":
            why = f": {scope.now.why}" if scope.now.why else ""
            text = f"not seen: {format_scope(scope.now.scope)} ({scope.state}){why}"
            yield Text(shorten(to_one_line(text), 200), style="bold red", overflow="ellipsis", no_wrap=True)
    if view.machines:
        yield _draw_machines(view, wide=wide)
    if view.budgets:
        yield _draw_budgets(view.budgets)
    for act in view.acts[-MOST_LINES:]:
        text = f"{act.at:%H:%M} {act.act} {act.subject}: {act.state}{f', {act.why}' if act.why else ''}"
        yield Text(to_one_line(text), style=ACT_COLOURS.get(act.state, "yellow"), overflow="ellipsis", no_wrap=True)
    for notice in view.notices[-MOST_LINES:]:
        yield Text(to_one_line(notice), style="yellow", overflow="ellipsis", no_wrap=True)


def _draw_head(view: WatchView) -> Text:
    head = Text(overflow="fold")
    head.append(f"{format_rate(view.burn)}/h", style="bold")
    head.append(f"  month ${format_interval(view.month)}  ")
    head.append(view.mode, style="green" if view.mode == "acting" else "yellow")
    seen = sum(scope.seen for scope in view.scopes)
    head.append(f"  {seen} of {len(view.scopes)} accounts read", style="" if seen == len(view.scopes) else "bold red")
    head.append(f"  {format_local_time(view.at)}", style="dim")
    if view.frozen:
        head.append(f"\nFROZEN: {to_one_line(view.frozen)}", style="bold cyan")
    if not view.committed:
        head.append("\nThe run could not be recorded: no acts until the ledger can be written.", style="bold red")
    return head


def _draw_machines(view: WatchView, *, wide: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=False)
    table.add_column("machine", no_wrap=True, overflow="ellipsis", min_width=8, max_width=32 if wide else 20)
    if wide:
        table.add_column("what", no_wrap=True, overflow="ellipsis", max_width=22)
        table.add_column("owner", no_wrap=True, overflow="ellipsis", max_width=14)
    table.add_column("$/h", justify="right", no_wrap=True)
    table.add_column("work", no_wrap=True)
    table.add_column("since", justify="right", no_wrap=True)
    table.add_column("next", overflow="fold", min_width=28 if wide else 16)
    if wide:
        table.add_column("why", overflow="ellipsis", no_wrap=True)
    for machine in view.machines[:MOST_MACHINES]:
        table.add_row(*_list_cells(machine, view, wide=wide))
    if len(view.machines) > MOST_MACHINES:
        table.caption = f"and {len(view.machines) - MOST_MACHINES} more (costguard plan lists them)"
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
    held = bool(machine.held_by)
    yield Text(
        to_one_line(format_next_action(machine, view.at)),
        style="cyan" if held else "bold yellow" if machine.next_act else "dim",
    )
    if wide:
        yield Text(to_one_line("; ".join(work.reasons)), style="dim")


def _draw_budgets(budgets: tuple[WatchedBudget, ...]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("budget", "spent", "cap", "", "to cap", "worst over"):
        table.add_column(name, justify="left" if name == "budget" else "right", no_wrap=True, overflow="ellipsis")
    for budget in budgets:
        style = "bold red" if budget.share >= 1 else "yellow" if budget.share >= NEARLY_SPENT_SHARE else "green"
        left = "-" if budget.time_to_cap is None else format_length(budget.time_to_cap)
        over = "-" if budget.overshoot is None else f"{get_currency_sign(budget.overshoot.currency)}{budget.overshoot.format()}"
        table.add_row(
            Text(shorten(to_one_line(budget.name), 20)),
            Text(f"{get_currency_sign(budget.cap.currency)}{budget.spent.high.format()}"),
            Text(f"{get_currency_sign(budget.cap.currency)}{budget.cap.format()}"),
            Text(f"{budget.share:.0%}", style=style),
            Text(left, style=style if budget.time_to_cap is not None else ""),
            Text(over),
        )
    return table
