"""`costguard top`: a full-screen list of the running machines, with keys."""

from __future__ import annotations

import sys

from click import Context

from costguard.cli import options as o
from costguard.errors import CostguardError, InputError

EXAMPLES = """Examples:

\b
  costguard top
  costguard --offline top          # read only the ledger, which a running watchdog updates

It polls the configured providers once a minute and reads the ledger every five seconds. Keys: o sorts (b burn, n name, u
owner, w work, d duty), / filters, k keeps a machine for two hours, a approves the stop that a policy asks for, r polls the
providers now, q quits. It stops nothing itself: only costguard watch acts.
"""


def command(ctx: Context, zone: o.Zone = None) -> None:
    """Show the list until q is pressed."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        hint = "costguard status prints the same once; costguard watch writes a line for each change"
        raise InputError("needs a terminal to draw on", field="top", hint=hint)
    try:
        from costguard.cli.top_screen import TopApp
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] != "textual":
            raise
        hint = "pip install 'gpu-costguard[top]'"
        raise CostguardError("costguard top needs Textual, which is not installed", hint=hint) from None
    from costguard.services.top import TopSession

    TopApp(TopSession(zone=zone, offline=ctx.obj.offline, config=ctx.obj.config)).run()
