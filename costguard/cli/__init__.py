"""The command line: one command per file, imported only when it is run.

`COMMANDS` is the table of contents: `costguard --help` prints it without importing any command, which keeps it as fast as a
bare program of its kind (bench/start).
"""

from __future__ import annotations

import gc
import os
import re
import sys
from dataclasses import dataclass
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer import Abort, Context, Exit, Option, TyperException
from typer.core import TyperGroup
from typer.main import get_command

from costguard import __version__
from costguard.cli.commands import AnswerCommand, refuse_empty_values, repeat_global_options
from costguard.errors import CostguardError, InputError, UnknownNameError, replace_unprintable, shorten, to_one_line
from costguard.system import file_security

COMMAND_GROUPS = {
    "Before a run": {
        "quote": "Quote a job: cost and duration on each offer, ranked.",
        "size": "Compute the GPU memory that a job needs, and list the GPUs it fits on.",
        "review": "Quote the changed job files before and after a change; comment in CI.",
        "models": "List the built-in models, with their sizes.",
        "gpus": "List the known GPUs: memory, bandwidth, TFLOPS, power, price.",
        "offers": "List rental offers and the age of each price.",
        "prices": "Show the prices that quotes use and their age, or fetch current ones.",
        "breakeven": "Compute when buying a GPU becomes cheaper than renting it.",
        "admit": "Reserve a run's cost in its budgets before launch.",
        "submit": "Admit a run, then start its launcher (sky, sbatch, ...).",
        "run": "Run a command with a quote, a budget hold and tracking.",
        "calibrate": "Calibrate quotes and sizes with observed runs (tokens/s, hours, peak memory).",
    },
    "Clouds": {
        "status": "Show running machines, their cost, and the month's forecast.",
        "stop": "Stop one machine: check it, ask you, send one request, verify.",
        "terminate": "Terminate one machine: check it, ask you, send one request, verify.",
        "start": "Start one machine: show its price, ask you, send one request, verify.",
    },
    "Guard": {
        "watch": "Run the watchdog: poll, evaluate policies, notify and act until stopped.",
        "serve": "Serve agents, pages and the API over HTTP in a separate process.",
        "notify": "Send a test message to each route, and show what came back.",
        "plan": "Show the acts that policies plan, their times, and what blocks them.",
        "policy": "Check, explain, test, arm or accept policies.",
        "simulate": "Replay policies over recorded history: stops, savings, false stops.",
        "keep": "Keep a machine running for a limited time (a lease), and show its cost.",
        "until": "Record or show the dates that end machines.",
        "protect": "Protect a machine from all acts until the protection is lifted.",
        "snooze": "Snooze messages about a machine or a policy; acts are not affected.",
        "freeze": "Freeze all acts until the freeze is lifted.",
        "approve": "Approve one act that a policy asked for.",
        "breaker": "Show or close the breaker: it holds acts if many machines turn idle.",
        "busy": "Mark a machine busy for a limited time, overriding its metrics.",
        "phase": "Declare a phase of work that a machine's metrics do not show.",
        "explain": "Explain a reason id from costguard's output: untold, breaker, rate ...",
    },
    "Money": {
        "report": "Report the costs of a period, and list what they do not include.",
        "add": "Enter a cost by hand, or correct one: storage, Colab, power, egress.",
        "reconcile": "Compare the providers' bills with the recorded charges and explain differences.",
    },
    "Setup": {
        "init": "Ask what may be done, and write a settings file for the credentials found.",
        "settings": "Explain the keys of the settings file.",
        "doctor": "Check access to every provider, and show how to fix problems.",
        "providers": "Show what costguard supports for each provider, and its limits.",
        "agent": "Enrol, list or revoke the agents on machines.",
        "web": "Manage tokens and logins for the web pages and the HTTP API.",
        "mcp": "Serve quotes, status and reports to agents over the Model Context Protocol.",
        "metrics": "Print the ledger's figures for Prometheus: money, machines, guard health.",
        "audit": "Show or verify the tamper-evident log.",
        "db": "Locate, back up, check or upgrade the ledger.",
        "docs": "Print a page of the documentation.",
        "iam": "Print a cloud's permissions for costguard's key.",
        "demo": "Show a quote, then a guarded weekend and two weeks of simulated clouds.",
    },
}
"""The commands by what they are for, in the order of `--help`."""
COMMANDS = {name: summary for group in COMMAND_GROUPS.values() for name, summary in group.items()}

OTHER_NAMES = {
    **dict.fromkeys(("ls", "list", "ps", "top", "machines", "instances"), "status"),
    **dict.fromkeys(("bill", "cost", "costs", "spend", "spending"), "report"),
    **dict.fromkeys(("configure", "setup", "login"), "init"),
    **dict.fromkeys(("check", "test"), "doctor"),
    **dict.fromkeys(("down", "halt", "shutdown"), "stop"),
    **dict.fromkeys(("delete", "destroy", "kill", "rm"), "terminate"),
    **dict.fromkeys(("estimate", "price"), "quote"),
    **dict.fromkeys(("daemon", "guard", "monitor"), "watch"),
    "budget": "status",
    "config": "settings",
    "lease": "keep",
    "version": "--version",
}
"""What people type -> what they mean. It is named in the error and never run: a wrong guess must not act."""

OWN_SCREEN = frozenset(("watch", "run", "serve", "submit", "mcp"))
"""Commands that write to the terminal while they run."""
INTERRUPTED = 130
COMPLETION_VARIABLE = "_COSTGUARD_COMPLETE"
"""Where typer's script of a shell says what it wants."""
GARBAGE_LOOKED_FOR_EVERY = 20_000
"""New objects. Modules and classes stay: at Python's own 700 a fifth of a status's time was looking for cycles among them."""
EXTRA_UNIT_PATTERN = re.compile(r"unexpected extra argument\(s\) \((?:h|d|w|m|min|minutes?|hours?|days?|weeks?)\b")
"""What is said of `--for 4 hours`."""
SHORT_OPTIONS = {"--model": "-m", "--provider": "-p", "--output": "-o"}
"""Options that can be typed as one letter (`options`): an error names what was typed."""
LONGEST_SHOWN = 300
"""Characters of a message that may quote what somebody typed."""


@dataclass(slots=True)
class GlobalOptions:
    """The options that every command has, before or after its name."""

    config: str | None = None
    json_log: bool = False
    debug: bool = False
    offline: bool = False
    wide: bool = False
    verbose: bool = False


class LazyGroup(TyperGroup):
    """A group that lists its commands by name and imports one when it is run."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002 - the signature is typer's, with classes without a public name
        """Return every command's name, in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401, ARG002 - same
        """Import and return the command; None if it does not exist."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"costguard.cli.{cmd_name}")
        app: typer.Typer | None = getattr(module, "app", None)
        if app is None:
            app = typer.Typer(add_completion=False, rich_markup_mode=None)
            app.command(cmd_name, cls=getattr(module, "COMMAND", AnswerCommand))(module.command)
        command: Any = get_command(app)
        message = (
            str(module.__doc__).partition("\n\n")[2].replace("Examples:\n", "Examples:\n\n").replace("\n\n  ", "\n\n\b\n  ")
        )  # \b: typer keeps the lines of a block
        command.name, command.help = cmd_name, f"{COMMANDS[cmd_name]}\n\n{message}"
        for one in getattr(command, "commands", {"": command}).values():
            one.params.extend(repeat_global_options(self.params, one.params))
            one.own_screen = cmd_name in OWN_SCREEN
        return command

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - same
        """Parse the options before the command's name; an empty value is refused. `help stop` is `stop --help`."""
        args = [*args[1:2], "--help"] if args[:1] == ["help"] else args
        try:
            rest = super().parse_args(ctx, args)
        except typer.TyperException as error:
            self._name_command_of_option(getattr(error, "option_name", None), args)
            raise
        refuse_empty_values(self.params, ctx.params)
        return rest

    def _name_command_of_option(self, option: str | None, args: list[str]) -> None:
        """Raise InputError if an option of a command stands before its name: `costguard --json status`."""
        name = next((word for word in args if word in COMMANDS), None)
        if option is not None and name is not None:
            hint = f"write it after the command: costguard {name} {option}"
            raise InputError("is no option of costguard itself", field=option, hint=hint)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - same
        """Return the requested command; raises UnknownNameError, with similar names, if it does not exist."""
        if args and args[0] not in COMMANDS and not ctx.resilient_parsing:
            from difflib import get_close_matches

            word = args[0][:80].lower()
            suggestions = get_close_matches(word, COMMANDS, n=2, cutoff=0.7)  # a guess at 0.5 names other deeds
            suggestions = [OTHER_NAMES[word]] if word in OTHER_NAMES else suggestions
            raise UnknownNameError("command", args[0], field="COMMAND", nearest=tuple(suggestions), hint="see costguard --help")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002 - same
        """Write the list of commands for `--help`."""
        for title, commands in COMMAND_GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))


def _print_version(ctx: Context, value: bool) -> None:
    if value:
        sys.stdout.write(f"costguard {__version__}\n")
        ctx.exit()


def _root(
    ctx: Context,
    config: Annotated[str | None, Option(metavar="FILE", help="Settings file (default: ./costguard.toml).")] = None,
    json_log: Annotated[bool, Option("--json-log", help="Write warnings and errors to stderr as JSON lines.")] = False,
    debug: Annotated[bool, Option("--debug", help="Show the traceback of an error.")] = False,
    offline: Annotated[
        bool, Option("--offline", help="Do not use the network: use only prices stored on this machine.")
    ] = False,
    wide: Annotated[bool, Option("--wide", help="Show all columns, even if lines become long.")] = False,
    verbose: Annotated[bool, Option("--verbose", "-v", help="Print progress on stderr.")] = False,
    version: Annotated[
        bool, Option("--version", "-V", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Guard money spent on cloud GPUs: quote a run before it starts, watch it, report it."""
    ctx.obj = GlobalOptions(config=config, json_log=json_log, debug=debug, offline=offline, wide=wide, verbose=verbose)
    if ctx.invoked_subcommand is None:
        sys.stdout.write(f"{ctx.get_help()}\n")


_typer = typer.Typer(
    name="costguard",
    cls=LazyGroup,
    rich_markup_mode=None,  # help and errors hold TOML, labels and vendors' words: "[providers.runpod]" is no style
    invoke_without_command=True,
    callback=_root,
    epilog="\b\nStart with:\n  costguard quote --model llama-3.1-8b --method qlora --tokens 50e6",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app: Any = get_command(_typer)


def main() -> None:
    """Run one command; every expected failure writes at most five lines to stderr and ends with the documented exit code."""
    gc.set_threshold(GARBAGE_LOOKED_FOR_EVERY)
    _open_streams()
    file_security.restrict_process()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal that cannot show a letter shows "?" instead of failing
            stream.reconfigure(errors="replace")
    sys.exit(run_cli(sys.argv[1:]))


def _open_streams() -> None:
    """Open closed standard streams on /dev/null, so that no other file gets their numbers and receives the output.

    Writing an answer to a closed output still fails. A program that costguard starts finds the streams closed.
    """
    for number, flag in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flag)
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115 - until we end


def run_cli(arguments: list[str]) -> int:  # noqa: PLR0911 - one line a way to end
    """Run `costguard` with these arguments and return its exit code."""
    own_arguments = arguments[: arguments.index("--")] if "--" in arguments else arguments  # the rest may be another program's
    debug, json_log = "--debug" in own_arguments, "--json-log" in own_arguments
    try:
        code = _invoke(arguments)
        sys.stdout.flush()
    except CostguardError as error:
        return _print_error(_name_typed_option(str(error), own_arguments), error.exit_code, json_log=json_log, debug=debug)
    except TyperException as error:
        message = shorten(to_one_line(error.format_message()), LONGEST_SHOWN) + _build_help_hint(error)
        return _print_error(message, InputError.exit_code, json_log=json_log)
    except (KeyboardInterrupt, Abort):
        return _print_error("interrupted", INTERRUPTED, json_log=json_log)
    except EOFError:
        sys.stderr.write("\n")  # what was asked stands there still
        return _print_error("interrupted", INTERRUPTED, json_log=json_log)
    except SystemExit:
        return _print_error("a part of costguard ended the program", CostguardError.exit_code, json_log=json_log, debug=debug)
    except BrokenPipeError:
        # The reader (`| head`) has gone: not our failure. Point stdout away so that the flush at exit is quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        # A full disk, a closed stream: nothing of ours, and nothing more can be written there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        what = f"the output could not be written: {shorten(to_one_line(str(error.strerror or error)), LONGEST_SHOWN)}"
        hint = "free disk space, or write to another place"
        return _print_error(f"{what}\nhint: {hint}", CostguardError.exit_code, json_log=json_log, debug=debug)
    except Exception as error:  # noqa: BLE001 - the last net: whatever it is, people get a line and scripts a code
        return _print_unexpected(error, json_log=json_log, debug=debug)
    return code if isinstance(code, int) else 0


def _invoke(arguments: list[str]) -> object:
    """Run what `arguments` name, or answer a shell that completes words, and return the exit code or None."""
    completing = bool(os.environ.get(COMPLETION_VARIABLE))
    try:
        if completing:
            app.main(list(arguments), prog_name="costguard", standalone_mode=False)
        context = app.make_context("costguard", list(arguments))
    except Exit as ended:
        return ended.exit_code
    except SystemExit as ended:  # typer ends so once it completed words, or showed or installed its scripts
        return ended.code
    except Exception:
        if completing:  # a shell shows what is written here between the words that somebody types
            return CostguardError.exit_code
        raise
    try:
        with context:
            return app.invoke(context)
    except Exit as ended:
        return ended.exit_code


def _print_unexpected(error: Exception, *, json_log: bool, debug: bool) -> int:
    from costguard.system.secret import scrub_environment

    what = shorten(to_one_line(scrub_environment(f"unexpected {type(error).__name__}: {error}")), LONGEST_SHOWN)
    hint = "this is a bug in costguard; run with --debug and report it"
    return _print_error(f"{what}\nhint: {hint}", CostguardError.exit_code, json_log=json_log, debug=debug)


def _build_help_hint(error: TyperException) -> str:
    """Return a hint: the help to read, and for words that no argument takes what may have separated them."""
    context = getattr(error, "ctx", None)
    if context is None or context.parent is None:
        return "\nhint: see costguard --help"
    is_unit = EXTRA_UNIT_PATTERN.search(error.format_message())
    together = "write a time without a space, such as 4h; " if is_unit else ""
    return f"\nhint: {together}see {context.command_path} --help"


def _name_typed_option(message: str, arguments: list[str]) -> str:
    """Return `message` with the short option that was typed where it begins with the long one: `-p: unknown provider`."""
    long = message.partition(":")[0]
    short = SHORT_OPTIONS.get(long)
    is_typed = any(one == short or (short and one.startswith(short) and not one.startswith("--")) for one in arguments)
    is_long = any(one == long or one.startswith(f"{long}=") for one in arguments)
    return f"{short}{message.removeprefix(long)}" if short and is_typed and not is_long else message


def _print_error(message: str, code: int, *, json_log: bool, debug: bool = False) -> int:
    """Write an error as text or as one JSON line, and return `code`; with `debug` also the current traceback."""
    if debug:
        import traceback

        from costguard.system.secret import scrub_environment

        sys.stderr.write(scrub_environment(traceback.format_exc()))
    text = replace_unprintable(message)
    if json_log:
        import json

        sys.stderr.write(json.dumps({"level": "error", "exit": code, "message": text}) + "\n")
    else:
        sys.stderr.write(f"error: {text}\n")
    return code
