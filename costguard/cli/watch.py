"""`costguard watch`: poll, evaluate, notify and act until a signal ends it.

Examples:
  costguard watch                  # in a terminal: a live view; in a pipe: a line for each change
  costguard watch --dry-run        # evaluates and notifies, but never acts
  costguard watch --once --interval 5m   # one run, for a timer that starts every five minutes
  costguard --json-log watch       # as a service: config/systemd/costguard.service

Exit codes of --once: 1 if no provider could be queried or none is configured; with --strict 4 if one of them could not.

SIGTERM or Ctrl-C: finish acts in progress, then end. SIGHUP: read the settings again if they are valid; on a terminal SIGHUP
(the terminal was closed) ends the watchdog.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated

from typer import Context, Exit, Option

from costguard.cli import options as o
from costguard.cli.commands import CostguardCommand, name_missing_package
from costguard.system.process import limit_malloc

if TYPE_CHECKING:  # a type and no more: --help imports nothing
    from costguard.cli import GlobalOptions
    from costguard.services.guarding.watchdog_context import WatchdogContext
    from costguard.services.serving.agent_desk import AgentDesk
    from costguard.views.watch import WatchView

GC_THRESHOLDS = (50_000, 20, 100)
"""Garbage collections: a run makes a million objects and few rings; each collection looks at all of them."""

COMMAND = CostguardCommand


def command(
    ctx: Context,
    once: Annotated[bool, Option("--once", help="Run once, then end.")] = False,
    interval: Annotated[o.Text, Option("--interval", metavar="TIME", help="Time between two runs (60s).")] = None,
    strict: Annotated[bool, Option("--strict", help="With --once: exit 4 if a provider could not be queried.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Never act, even if policies are armed.")] = False,
) -> None:
    """Run the watchdog and exit with its exit code."""
    gc.set_threshold(*GC_THRESHOLDS)
    limit_malloc()
    from costguard.services.watch_loop import watch

    global_options = ctx.obj
    with _open_display() as show:
        code = watch.run_watch(
            once=once,
            strict=strict,
            interval=interval,
            dry_run=dry_run,
            show=show,
            config=global_options.config,
            json_log=global_options.json_log,
            offline=global_options.offline,
            open_door=partial(_open_door, global_options),
        )
    raise Exit(code)


def _open_door(global_options: GlobalOptions, room: WatchdogContext, desk: AgentDesk) -> AbstractContextManager[object]:
    """Return a context that has HTTP served; raises InputError if the required package is not installed."""
    with name_missing_package("web.listen", "web"):
        from costguard.web.child import open_door_process, require_packages

        require_packages()
    return open_door_process(global_options.config, json_log=global_options.json_log, room=room, desk=desk)


@contextmanager
def _open_display() -> Iterator[Callable[[WatchView], None]]:
    """Yield a function that shows a run: redrawn on a terminal, otherwise one line per change."""
    if sys.stdout.isatty():
        from costguard.cli.watch_screen import open_live_display

        with open_live_display() as draw:
            yield draw
    else:
        yield _build_line_printer()


def _build_line_printer() -> Callable[[WatchView], None]:
    from costguard.views.watch import list_changes

    last_views: list[WatchView] = []

    def show(view: WatchView) -> None:
        sys.stdout.writelines(f"{line}\n" for line in list_changes(last_views[-1] if last_views else None, view))
        sys.stdout.flush()
        last_views[:] = [view]

    return show
