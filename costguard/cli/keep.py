"""`costguard keep`: record a lease.

Examples:
  costguard keep i-0a1b2c3d --for 4h --why "evaluation runs until tonight"
  costguard keep train-1 --for 90m --why "in a meeting"
  costguard keep train-1 --lift
  costguard keep --list                # which machines are kept or protected, by whom and for how long

ID is the provider's id, a name, the beginning of either, or provider/account/region/id. The policies limit the length of a
lease and the number of renewals. A hard cap stops the machine despite its lease.
"""

from typing import Annotated

from typer import Context, Option

from costguard.cli import options as o
from costguard.errors import InputError
from costguard.services import CommandAnswer


def command(
    ctx: Context,
    id: o.AnyMachine = None,  # noqa: A002 - as it is shown
    length: o.Length = None,
    why: o.Why = None,
    lift: Annotated[bool, Option("--lift", help="Lift the lease.")] = False,
    list_all: Annotated[bool, Option("--list", help="List the machines that are kept or protected.")] = False,
) -> CommandAnswer:
    """Record a lease, or list all of them."""
    from costguard.services.guarding import overrides

    if list_all:
        return overrides.list_kept_machines(config=ctx.obj.config)
    if id is None:
        raise InputError("is missing", field="ID", hint="write costguard keep ID --for 4h; costguard status lists the machines")
    return overrides.keep_resource(id, length=length, why=why, lift=lift, config=ctx.obj.config)
