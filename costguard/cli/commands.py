"""Make a click command of a function whose parameters state its options.

    def command(ctx: Context, ask: Annotated[bool, Option("--ask", help="Ask the clouds.")] = False) -> None: ...

has the flag `--ask`. Every option is text, a flag or a list of text (`Text`, `bool`, `Names`): settings and services check each
value once, wherever it was written.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import click
from click import Context, Parameter
from click.core import augment_usage_errors
from click.shell_completion import CompletionItem

from costguard.errors import InputError

Text = str | None
Names = tuple[str, ...]
"""What was given several times; empty: never."""


class Option:
    """How a parameter is given as an option.

    `names`: `--model`, `-m`; none: the parameter's name with dashes. `metavar`: what its value is called in the help; a flag
    has none. `callback`: called with context, parameter and value before the command, and before other options are checked.
    """

    def __init__(
        self,
        *names: str,
        metavar: str | None = None,
        help: str,  # noqa: A002 - click's word
        callback: Callable[[Context, Parameter, Any], Any] | None = None,
    ) -> None:
        self.names, self.metavar, self.help, self.callback = names, metavar, help, callback


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """How a parameter is given by its place. `metavar`: its name in the help, in brackets if it may be left out."""

    metavar: str
    help: str


class TextType(click.ParamType[str]):
    """Text as it was typed. An empty value (`--market "$UNSET"`) raises InputError: it must not count as not given."""

    name = "text"

    def convert(self, value: str, param: Parameter | None, ctx: Context | None) -> str:  # noqa: ARG002 - click's signature
        """Return `value`; the words of another program (an argument that takes all that follows) may be empty."""
        if value == "" and param is not None and param.nargs != -1:
            name = max(param.opts, key=len) if param.param_type_name == "option" else str(param.metavar).strip("[]")
            hint = f"write {name} {param.metavar}" if param.param_type_name == "option" else "write one"
            raise InputError("is empty", field=name, hint=hint if param.required else f"{hint}, or leave it out")
        return value

    def shell_complete(self, ctx: Context, param: Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002 - click's
        """Have the shell offer files."""
        return [CompletionItem(incomplete, type="file")]


TEXT = TextType()


class CostguardCommand(click.Command):
    """A command with the global options after its name as well.

    `own_screen`: it writes to the terminal while it runs, so that no line of progress may stand there;
    so does `status --watch`.
    """

    own_screen = False

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse `args`; every error of them names this command's help, also those that click raises without a context."""
        with augment_usage_errors(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Context) -> Any:  # noqa: ANN401 - what the command returns
        """Run it; an unknown format is refused before any request or write."""
        from costguard.cli.options import check_format
        from costguard.system.progress import show_progress

        check_format(ctx.params)
        with show_progress(
            f"{ctx.info_name} is at work", verbose=ctx.obj.verbose, quiet=self.own_screen or bool(ctx.params.get("watch"))
        ):
            return super().invoke(ctx)


def build_parameters(function: Callable[..., object]) -> list[Parameter]:
    """Return the options and arguments that the annotated parameters of `function` state."""
    signature = inspect.signature(function, eval_str=True)
    return [_build_parameter(one) for one in signature.parameters.values() if hasattr(one.annotation, "__metadata__")]


def _build_parameter(stated: inspect.Parameter) -> Parameter:
    kind, (how,) = stated.annotation.__origin__, stated.annotation.__metadata__
    default = stated.default
    several = kind == Names
    if isinstance(how, Argument):
        shown = f"  [default: {default}]" if isinstance(default, str) else ""
        more = {"required": True} if default is inspect.Parameter.empty else {"default": default}
        nargs = -1 if several else 1
        return click.Argument([stated.name], type=TEXT, nargs=nargs, metavar=how.metavar, help=how.help + shown, **more)
    names = how.names or (f"--{stated.name.replace('_', '-')}",)
    return click.Option(
        [stated.name, *names],
        type=bool if how.metavar is None else TEXT,
        is_flag=how.metavar is None or None,  # False would let its value be left out
        default=default,
        multiple=several,
        metavar=how.metavar,
        help=how.help,
        show_default=default is True or isinstance(default, str),
        callback=how.callback,
        is_eager=how.callback is not None,
        expose_value=how.callback is None,
    )


def repeat_global_options(options: Iterable[Parameter], own: Iterable[Parameter]) -> list[Parameter]:
    """Return hidden copies of global options that count as if they stood before the command.

    Those with a callback, and those that the command has an option of its `own` for, are left out.
    """
    taken = {word for param in own for word in param.opts}
    return [
        click.Option(
            [one.name, *one.opts],
            type=one.type,
            is_flag=one.is_flag or None,
            metavar=one.metavar,
            hidden=True,
            expose_value=False,
            callback=_set_global_option,
        )
        for one in options
        if isinstance(one, click.Option) and one.callback is None and taken.isdisjoint(one.opts)
    ]


def _set_global_option(ctx: Context, param: Parameter, value: object) -> None:
    if value and ctx.obj is not None:  # a shell that completes words has no global options
        setattr(ctx.obj, param.name, value)
