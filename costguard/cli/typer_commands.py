"""Commands that take option values as typed, without typer's pydantic adapters.

typer 0.29 builds a pydantic TypeAdapter for every option of the command that runs: importing pydantic and building forty of
them is half of a quote's CPU time. Our options are text, flags and lists of text, which settings and services check. This is
the only module that uses a private name of typer (`_runtime_param`, pinned in constraints.txt) for speed;
`tests/cli/test_imports.py` fails when it stops working.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from typer._click import Context, Parameter
from typer.core import TyperCommand, TyperGroup

from costguard.errors import InputError


class PassThrough:
    """Replaces typer's adapter and returns the value unchanged."""

    def coerce(self, value: Any, param: Any, ctx: Context) -> Any:  # noqa: ANN401, ARG002 - typer's own signature
        """Return `value`; for a repeatable option that was not given an empty tuple, as typer does.

        An empty value (`--market "$UNSET"`) raises InputError: it must not count as not given.
        """
        rest = param.nargs == -1  # another program's arguments, which may be empty
        if value == "" or (isinstance(value, list | tuple) and "" in value and not rest):
            name = max(param.opts, key=len) if param.param_type_name == "option" else param.metavar.strip("[]")
            hint = f"write {name} {param.metavar}" if name != param.metavar else "write one"
            raise InputError("is empty", field=name, hint=f"{hint}, or leave it out" if not param.required else hint)
        return () if value is None and param.multiple else value


PASS_THROUGH = PassThrough()


class UncoercedCommand(TyperCommand):
    """A command whose options are passed on as typed. The global options may stand after its name as well.

    `own_screen`: it writes to the terminal while it runs, so that no line of progress may stand there.
    """

    own_screen = False

    def get_params(self, ctx: Context) -> list[Parameter]:
        """Return every option, including --help and, hidden, the global ones that the command has no option of its own for."""
        own = super().get_params(ctx)
        return _disable_coercion([*own, *_copy_global_options(ctx, own)])

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse `args`; global options among them count as if they stood before the command."""
        rest = super().parse_args(ctx, args)
        for option in _copy_global_options(ctx, super().get_params(ctx)):
            value = ctx.params.pop(option.name, None) if option.name else None
            if value and hasattr(ctx.obj, option.name):
                setattr(ctx.obj, option.name, value)
        return rest

    def invoke(self, ctx: Context) -> Any:  # noqa: ANN401 - what the command returns
        """Run it; an unknown format is refused before any request or write."""
        from costguard.cli.options import check_format
        from costguard.system.progress import show_progress

        check_format(ctx.params)
        with show_progress(f"{ctx.info_name} is at work", verbose=ctx.obj.verbose, quiet=self.own_screen):
            return super().invoke(ctx)


class UncoercedGroup(TyperGroup):
    """A group whose options are passed on as typed."""

    def get_params(self, ctx: Context) -> list[Parameter]:
        """Return every option, including --help."""
        return _disable_coercion(super().get_params(ctx))


def _copy_global_options(ctx: Context, own: list[Parameter]) -> list[Parameter]:
    """Return copies of the options before the command, without those that would run a callback or that `own` has, too."""
    taken = {word for param in own for word in param.opts}
    copies = []
    for param in ctx.parent.command.params if ctx.parent is not None else ():
        if param.callback is None and taken.isdisjoint(param.opts):
            option = copy(param)
            option.hidden = True  # type: ignore[attr-defined]  # it is an option
            copies.append(option)
    return copies


def _disable_coercion(params: list[Parameter]) -> list[Parameter]:
    for param in params:
        param._runtime_param = PASS_THROUGH  # type: ignore[attr-defined]  # noqa: SLF001 - said in the docstring above
    return params
