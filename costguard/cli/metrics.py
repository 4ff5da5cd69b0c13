"""`costguard metrics`: the ledger's figures in Prometheus' text format.

Examples:
  costguard metrics
  costguard metrics | promtool check metrics
  costguard metrics --output /var/lib/node_exporter/costguard.prom --force   # for node_exporter's textfile collector
  costguard metrics --guard-within 5m    # a health check for containers

  `costguard watch` serves the same figures at /metrics; create a token: costguard web token prometheus
"""

import sys
from typing import Annotated

from typer import Context, Option

from costguard.cli import options as o
from costguard.cli.commands import CostguardCommand

COMMAND = CostguardCommand


def command(
    ctx: Context,
    guard_within: Annotated[
        o.Text, Option("--guard-within", metavar="TIME", help="Print nothing; exit 3 unless the guard ran within TIME.")
    ] = None,
    output: o.Output = None,
    force: o.Force = False,
) -> None:
    """Print the figures, or write them to a file atomically."""
    from costguard.cli.output import resolve_target, write_target
    from costguard.services.report.metrics import answer_metrics, check_guard_age

    if guard_within is not None:
        check_guard_age(guard_within, ctx.obj.config)
        return
    target = None if output is None else resolve_target(output, force=force)
    text = answer_metrics(ctx.obj.config)
    if target is None:
        sys.stdout.write(text)
    else:
        write_target([text], target, force=force)
