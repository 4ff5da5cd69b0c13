"""The commands of costguard: typer's, with the global options behind their names as well, and one form of errors.

Every option is text, a flag or a list of text (`Text`, `bool`, `Names` of `cli/options.py`): settings and services check each
value once, wherever it was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from costguard.errors import InputError
from costguard.values.checks import require_one_of


class CostguardCommand(TyperCommand):
    """A command.

    `own_screen`: it writes to the terminal while it runs, so that no line of progress may stand there; so does
    `status --watch`.
    """

    own_screen = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer's context, of a class without a public name
        """Parse `args`; every error of them names this command's help, also those that typer raises without a context."""
        try:
            rest = super().parse_args(ctx, args)
        except typer.TyperException as error:
            if getattr(error, "ctx", ctx) is None:
                error.ctx = ctx  # type: ignore[attr-defined]
            raise
        refuse_empty_values(self.params, ctx.params)
        return rest

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - what the command returns
        """Run it; an unknown format is refused before any request or write."""
        from costguard.cli.options import check_format
        from costguard.system.progress import show_progress

        check_format(ctx.params)
        quiet = self.own_screen or bool(ctx.params.get("watch"))
        with show_progress(f"{ctx.info_name} is at work", verbose=ctx.obj.verbose, quiet=quiet):
            return super().invoke(ctx)


class VerbatimCommand(CostguardCommand):
    """Options come before the command; everything after its first word belongs to it, with or without `--`."""

    allow_interspersed_args = False


class ActionGroup(TyperGroup):
    """The commands of one topic, `costguard policy lint`. `default`: the one that runs where none is named; "": none does."""

    default = ""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - same
        """Find the command's name, which options may stand before: `costguard policy --json lint`."""
        words = [word for word in args if not word.startswith("-")]
        name = next((word for word in words if word in self.commands), "")
        helps = ctx.resilient_parsing or not {"-h", "--help"}.isdisjoint(args)
        if not name and not helps and (not args or args[0].startswith("-")):
            name = self.default
        if not name and not helps:
            if not words:
                raise InputError("is missing", field="ACTION", hint=f"write one of: {', '.join(self.commands)}")
            require_one_of(words[0], self.commands, "ACTION")
        if name:
            place = args.index(name) if name in args else len(args)
            args = [name, *args[:place], *args[place + 1 :]]
        return super().parse_args(ctx, args)


def build_group(default: str = "") -> typer.Typer:
    """Return an app for the commands of one topic; `default`: as in ActionGroup."""
    kind = type("Actions", (ActionGroup,), {"default": default})
    return typer.Typer(cls=kind, add_completion=False, rich_markup_mode=None)


def refuse_empty_values(parameters: Iterable[Any], values: dict[str, Any]) -> None:
    """Raise InputError for a value that is empty (`--market "$UNSET"`): it must not count as not given.

    The words of another program (an argument that takes all that follows) may be empty.
    """
    for parameter in parameters:
        value = values.get(parameter.name)
        if parameter.nargs != -1 and (value == "" or (isinstance(value, list | tuple) and "" in value)):
            option = isinstance(parameter, TyperOption)
            name = max(parameter.opts, key=len) if option else str(parameter.metavar)
            hint = f"write {name} {parameter.metavar}" if option else "write one"
            raise InputError("is empty", field=name, hint=hint if parameter.required else f"{hint}, or leave it out")


def repeat_global_options(options: Iterable[Any], own: Iterable[Any]) -> Iterator[TyperOption]:
    """Yield hidden copies of global options that count as if they stood before the command.

    Those with a callback, and those that the command has an option of its `own` for, are left out.
    """
    taken = {word for parameter in own for word in parameter.opts}
    for one in options:
        if isinstance(one, TyperOption) and one.callback is None and taken.isdisjoint(one.opts):
            repeated = copy(one)
            repeated.hidden, repeated.expose_value, repeated.callback = True, False, _set_global_option
            yield repeated


def _set_global_option(ctx: Any, parameter: Any, value: object) -> None:  # noqa: ANN401 - typer's, without public names
    refuse_empty_values([parameter], {parameter.name: value})
    if value and ctx.obj is not None:  # a shell that completes words has no global options
        setattr(ctx.obj, parameter.name, value)
