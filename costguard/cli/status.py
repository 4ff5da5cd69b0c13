"""`costguard status`: what is running, what it costs, and the month's forecast; with `--watch` redrawn until Ctrl-C.

Examples:
  costguard status
  costguard status --ask
  costguard status --watch             # redrawn every 10 seconds, until Ctrl-C
  costguard status -p aws --owner vision --state idle --sort spent
  costguard status --zone Europe/Berlin
  costguard status --json | jq .burn_usd_per_hour
  costguard status --check             # exit code 3 if a budget is over
  costguard --offline status --line    # one line, for a shell prompt

If `costguard watch` polled every account within its interval, status reads the ledger and shows the age of the data.
Otherwise it polls the configured providers first. `--ask` always polls them, `costguard --offline status` never. `--watch`
polls them at most once a minute.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from time import monotonic, sleep
from typing import Annotated

from typer import Context, Option

from costguard.cli import options as o
from costguard.cli.answer import find_format
from costguard.cli.commands import FormatCommand
from costguard.errors import InputError
from costguard.services import CommandAnswer
from costguard.sizing.job_flags import split_names
from costguard.views.document import DIM, PLAIN, Document

SHORTEST_PAUSE, DEFAULT_PAUSE = timedelta(seconds=1), timedelta(seconds=10)
LONGEST_PAUSE = timedelta(hours=1)
LINES_OF_TABLE, LEAST_ROWS = 3, 5
"""Lines of a table beside its rows; machines that are shown on the lowest terminal."""
ASKED_EVERY_S = 60.0
"""With `--watch`: between two answers that may ask the clouds; between them the ledger answers."""


COMMAND = FormatCommand


def command(
    ctx: Context,
    zone: o.Zone = None,
    provider: o.Provider = None,
    owner: Annotated[o.Names, Option("--owner", metavar="NAME", help="Only machines of this owner (repeatable).")] = None,
    state: Annotated[
        o.Names, Option("--state", metavar="NAME", help="Only idle, hung, running, stopped ... (repeatable).")
    ] = None,
    sort: Annotated[
        o.Text, Option("--sort", metavar="NAME", help="usd_per_hour (default) | spent | name | owner | provider | up")
    ] = None,
    ask: Annotated[bool, Option("--ask", help="Poll the providers, even if the watchdog just did.")] = False,
    strict: Annotated[bool, Option("--strict", help="Exit 4 if a provider could not be queried.")] = False,
    check: Annotated[bool, Option("--check", help="Exit 3 if a budget is over.")] = False,
    line: Annotated[bool, Option("--line", help="One line: burn, month, tightest budget.")] = False,
    watch: Annotated[bool, Option("--watch", help="Redraw on this terminal until Ctrl-C.")] = False,
    every: Annotated[o.Text, Option("--every", metavar="TIME", help="With --watch: time between redraws (10s).")] = None,
) -> CommandAnswer | None:
    """Return the current costs and machines, or redraw them."""
    pause = _read_pause(ctx, every) if watch else None
    if every is not None and pause is None:
        raise InputError("sets how often --watch redraws", field="--every", hint="add --watch")
    from costguard.reporting.status_filter import StatusFilter
    from costguard.services.report import status_answer

    names = split_names({"provider": provider, "owner": owner, "state": state})
    chosen = StatusFilter(
        providers=names["provider"], owners=names["owner"], states=names["state"], sort=sort or "usd_per_hour"
    )

    def answer(*, offline: bool) -> CommandAnswer:
        return status_answer.answer_status(
            zone=zone,
            strict=strict,
            offline=offline,
            ask=ask,
            check=check,
            line=line,
            chosen=chosen if any(names.values()) or sort else None,
            config=ctx.obj.config,
        )

    if pause is None:
        return answer(offline=ctx.obj.offline)
    _redraw_until_interrupted(answer, pause, offline=ctx.obj.offline, wide=ctx.obj.wide)
    return None


def _read_pause(ctx: Context, every: str | None) -> timedelta:
    """Return the time between two drawings; raises InputError if it is none, or if there is no terminal to draw on."""
    from costguard.settings.fields import parse_duration

    for name in ("strict", "check"):
        if ctx.params[name]:
            raise InputError("sets an exit code, which --watch does not have", field=f"--{name}", hint="leave one of them out")
    if find_format(ctx).name != "table" or ctx.params.get("output"):
        raise InputError("draws tables on a terminal", field="--watch", hint="leave out --watch, or the format and the file")
    if not sys.stdout.isatty():
        hint = "costguard status prints the same once; costguard watch writes a line for each change"
        raise InputError("needs a terminal to draw on", field="--watch", hint=hint)
    return DEFAULT_PAUSE if every is None else parse_duration(every, "--every", least=SHORTEST_PAUSE, most=LONGEST_PAUSE)


def _fold_quiet_rows(document: Document, height: int) -> Document:
    """Return `document` for a terminal of `height` lines: acts and budgets first, and of the machines as many rows as fit."""
    machines, *others = document.tables or (None,)
    if machines is None or "resource" not in machines.columns:
        return document
    lines_around = len(document.lead) + sum(len(one.rows) + LINES_OF_TABLE for one in others) + 2 * LINES_OF_TABLE
    quiet = [n for n, tone in enumerate(machines.tones) if tone in (PLAIN, DIM)]
    pressing = [n for n in range(len(machines.rows)) if n not in quiet]
    rows = [*pressing, *quiet][: max(height - lines_around, LEAST_ROWS)]
    folded = replace(
        machines,
        rows=tuple(machines.rows[n] for n in rows),
        short={name: tuple(cells[n] for n in rows) for name, cells in machines.short.items()},
        tones=tuple(machines.tones[n] for n in rows),
        ids=tuple(machines.ids[n] for n in rows),
    )
    left = len(machines.rows) - len(rows)
    notes = (f"and {left} more{' quiet' * (len(rows) >= len(pressing))}", *document.notes) if left else document.notes
    return replace(document, tables=(*others, folded), notes=notes)


def _redraw_until_interrupted(answer: Callable[..., CommandAnswer], pause: timedelta, *, offline: bool, wide: bool) -> None:
    """Draw the answer again and again; Ctrl-C ends it, and leaves the last one on the terminal."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text as StyledText

    from costguard.renderers.table import render

    asked_at = -ASKED_EVERY_S
    with Live(console=Console(highlight=False), auto_refresh=False, vertical_overflow="ellipsis") as live:
        try:
            while True:
                may_ask = not offline and monotonic() - asked_at >= ASKED_EVERY_S
                shown = answer(offline=not may_ask)
                if may_ask:
                    asked_at = monotonic()
                drawn = render(_fold_quiet_rows(shown.document, live.console.height), wide="yes" if wide else "")
                live.update(StyledText.from_ansi(drawn, no_wrap=True, end=""), refresh=True)
                sleep(pause.total_seconds())
        except KeyboardInterrupt:
            return
