"""The commands of costguard: typer's, with the global options behind their names as well, and one form of errors.

A command is a function that returns its answer; its class (`AnswerCommand`, `FileCommand`, `FormatCommand`) says how that is
written, and brings the options for it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from functools import partial
from inspect import Parameter, Signature
from typing import Annotated, Any, ClassVar, get_args

import typer
from typer import Option
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from costguard.cli.options import FILE, FORMATS, HELP_GROUPS, NAMED_FORMAT, Options
from costguard.errors import InputError
from costguard.values.checks import require_one_of

WHOLE_HELP = "costguard.whole_help"
"""In a command's context where all options were asked for."""
EXAMPLES_SHOWN = 4
"""Lines of examples in a short help."""


class CostguardCommand(TyperCommand):
    """A command. Its function takes the parameters of its signature; options beside them are read off `ctx.params`.

    - `options`: such options, shown before those of the signature.
    - `answer_options`: those that say how the answer is written which the function returns.
    - `makes`: fields of a document that some formats need and only this command's answers have.
    - `short`: the options that `--help` shows; empty: all of them.
    - `own_screen`: it writes to the terminal while it runs, so that no line of progress may stand there; so does
      `status --watch`.
    """

    answer_options: ClassVar[Options] = {}
    makes: tuple[str, ...] = ()
    own_screen = False

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - typer's
        options: Options | None = None,
        short: Iterable[str] = (),
        **settings: Any,  # noqa: ANN401 - typer's
    ) -> None:
        super().__init__(*args, **settings)
        self.short = frozenset(short)
        own, self.own = self.params, {one.name for one in self.params}
        arguments = [one for one in own if not isinstance(one, TyperOption)]
        more = read_options(options or {})
        self.params = [*arguments, *more, *(one for one in own if one not in arguments), *read_options(self.answer_options)]
        self.params += read_options(HELP_ALL) if self.short else []

    def format_help_text(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - same
        """Write what the command does; in a short help with the first of its examples."""
        text = self.help
        if self.short and WHOLE_HELP not in ctx.meta:
            head, _, examples = str(self.help).partition("\b\n")
            self.help = f"{head}\b\n" + "\n".join(examples.splitlines()[:EXAMPLES_SHOWN])
        super().format_help_text(ctx, formatter)
        self.help = text

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - same
        """Write the options: of a command with many in groups, and only the usual ones unless all were asked for."""
        if not self.short:
            super().format_options(ctx, formatter)
            return
        usual = self.short | {"help", "help_all"}
        shown = [one for one in self.get_params(ctx) if WHOLE_HELP in ctx.meta or one.name in usual]
        heading_of = {name: heading for heading, names in HELP_GROUPS.items() for name in names}
        for heading in ("Job", *HELP_GROUPS):
            records = (one.get_help_record(ctx) for one in shown if heading_of.get(one.name, "Job") == heading)
            if lines := [one for one in records if one is not None]:
                with formatter.section(heading):
                    formatter.write_dl(lines)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer's context, of a class without a public name
        """Parse `args`; every error of them names this command's help, also those that typer raises without a context."""
        try:
            rest = super().parse_args(ctx, args)
        except typer.TyperException as error:
            self._refuse_other_option(ctx, getattr(error, "option_name", None))
            if getattr(error, "ctx", ctx) is None:
                error.ctx = ctx  # type: ignore[attr-defined]
            raise
        refuse_empty_values(self.params, ctx.params)
        return rest

    def _refuse_other_option(self, ctx: Any, option: str | None) -> None:  # noqa: ANN401 - same
        """Raise InputError if another command of the same topic has the option: `costguard prices --public` meant refresh."""
        topic = getattr(ctx.parent.command, "commands", {})
        having = [name for name, one in topic.items() if any(option in parameter.opts for parameter in one.params)]
        if having and ctx.info_name not in having:
            hint = f"write {ctx.parent.command_path} {having[0]} {option}"
            raise InputError(f"is not used by {ctx.command_path}", field=option, hint=hint)

    def invoke(self, ctx: Any) -> None:  # noqa: ANN401 - same
        """Run it and write its answer; a format that is unknown or does not fit is refused before any request or write."""
        from costguard.system.progress import show_progress

        if self.answer_options:
            from costguard.cli.answer import check_format

            check_format(ctx, self.makes)
        quiet = self.own_screen or bool(ctx.params.get("watch") or ctx.params.get("serve"))
        with show_progress(f"{ctx.info_name} is running", verbose=ctx.obj.verbose, quiet=quiet):
            with self._name_options(ctx):
                answer = ctx.invoke(self.callback, **{name: value for name, value in ctx.params.items() if name in self.own})
            if answer is not None:
                from costguard.cli.answer import write_answer

                write_answer(answer, ctx)

    @contextmanager
    def _name_options(self, ctx: Any) -> Iterator[None]:  # noqa: ANN401 - same
        """Within the block, let an error of a job's field that was given as an option name the option: not `limits.gpus`."""
        try:
            yield
        except InputError as error:
            from costguard.sizing.job_flags import FLAG_PLACES

            parameters = [one for one in self.params if ctx.params.get(one.name) not in (None, False, [])]
            options = {".".join(FLAG_PLACES[one.name]): one.opts[0] for one in parameters if one.name in FLAG_PLACES}
            for one in getattr(error, "errors", (error,)):
                one.field = options.get(one.field or "", one.field)
                one.args = (str(one),)
            raise


class AnswerCommand(CostguardCommand):
    """A command whose answer is printed as text, JSON, CSV or Markdown."""

    answer_options: ClassVar[Options] = FORMATS


class FileCommand(AnswerCommand):
    """A command whose answer may be written to a file as well."""

    answer_options: ClassVar[Options] = {**FORMATS, **FILE}


class FormatCommand(FileCommand):
    """A command whose answer may have any installed format as well."""

    answer_options: ClassVar[Options] = {**FORMATS, **NAMED_FORMAT, **FILE}


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
            if place and not helps and name in args and self.commands[name].hidden:
                what = f"{name} is a command of the {ctx.info_name} and takes no options before it"
                raise InputError(what, field="ACTION", hint=f"{ctx.command_path} {name}")
            args = [name, *args[:place], *args[place + 1 :]]
        return super().parse_args(ctx, args)


def build_group(default: str = "") -> typer.Typer:
    """Return an app for the commands of one topic; `default`: as in ActionGroup."""
    kind = type("Actions", (ActionGroup,), {"default": default})
    return typer.Typer(cls=kind, add_completion=False, rich_markup_mode=None)


def add_options(kind: type[CostguardCommand], options: Options, short: Iterable[str] = ()) -> Any:  # noqa: ANN401 - typer takes what makes a command
    """Return what makes a command of this class with `options`; `short`: those that `--help` shows, in groups; empty: all."""
    return partial(kind, options=options, short=short)


def _print_whole_help(ctx: Any, value: bool) -> None:  # noqa: ANN401 - typer's context
    if value:
        ctx.meta[WHOLE_HELP] = True
        sys.stdout.write(f"{ctx.get_help()}\n")
        ctx.exit()


HELP_ALL: Options = {
    "help_all": Annotated[
        bool,
        Option("--help-all", help="Show all options.", is_eager=True, expose_value=False, callback=_print_whole_help),
    ]
}


@contextmanager
def name_missing_package(field: str, extra: str) -> Iterator[None]:
    """Within the block, raise InputError for a package that is not installed. `extra`: what brings it."""
    try:
        yield
    except ImportError as error:
        what = f"needs a package that is not installed: {error.name or error}"
        raise InputError(what, field=field, hint=f"in a clone of costguard: pip install '.[{extra}]'") from None


def read_options(options: Options) -> list[Any]:
    """Return typer's form of `options`."""

    def hold(**_: object) -> None:
        """Hold the signature off which typer reads them."""

    if not options:
        return []
    read: Any = hold
    read.__signature__ = Signature(
        [
            Parameter(name, Parameter.KEYWORD_ONLY, default=False if get_args(kind)[0] is bool else None, annotation=kind)
            for name, kind in options.items()
        ]
    )
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(read)
    return get_command(app).params


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
    own_words = {word for parameter in own for word in parameter.opts}
    for one in options:
        if isinstance(one, TyperOption) and one.callback is None and own_words.isdisjoint(one.opts):
            repeated = copy(one)
            repeated.hidden, repeated.expose_value, repeated.callback = True, False, _set_global_option
            yield repeated


def _set_global_option(ctx: Any, parameter: Any, value: object) -> None:  # noqa: ANN401 - typer's, without public names
    refuse_empty_values([parameter], {parameter.name: value})
    if value and ctx.obj is not None:  # a shell that completes words has no global options
        setattr(ctx.obj, parameter.name, value)
