"""Options that several commands share, and those of a job.

Every option is text here: settings and services check each value once, wherever it was written, and name its field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from typer import Argument, Option

from costguard.cli.completion import complete_names
from costguard.errors import InputError

Text = str | None
Names = list[str] | None
"""What may be given several times; None: never."""
Options = Mapping[str, Any]
"""Parameter -> its type, Annotated with an Option. A switch is False and the others are None where they are not given."""

OPTION_NAMES = {"model": ("--model", "-m"), "provider": ("--provider", "-p"), "fsdp": ("--fsdp/--no-fsdp",)}
"""Fields of a job whose option is named by more than the field with dashes."""
COMPLETED = {"model": "model", "gpu": "gpu", "template": "template", "provider": "provider", "exclude": "provider"} | {
    name: name for name in ("method", "precision", "quant", "optimizer", "checkpointing", "tier")
}
"""Fields of a job whose values a shell completes, with what is completed."""


def list_job_options(*fields: str) -> dict[str, Any]:
    """Return the options of these fields of JobFields; of all where none is named."""
    from costguard.sizing.job_flags import FIELD_TYPES, LIST_FLAGS

    annotated: Any = Annotated
    options = dict[str, Any]()
    for name in fields or FIELD_TYPES:
        kind, flag = FIELD_TYPES[name]
        names = OPTION_NAMES.get(name) or (f"--{name.replace('_', '-')}",)
        if kind is bool:
            options[name] = annotated[bool | None if name == "fsdp" else bool, Option(*names, help=flag.help)]
            continue
        several = name in LIST_FLAGS
        text = f"{flag.help.removesuffix('.')} (repeatable)." if several else flag.help
        complete = complete_names(COMPLETED[name]) if name in COMPLETED else None
        option = Option(*names, metavar=flag.metavar, help=text, autocompletion=complete)
        options[name] = annotated[Names if several else Text, option]
    return options


JobFiles = Annotated[
    Names,
    Argument(
        metavar="FILE",
        help="Job file, or configs of Axolotl, TRL, SkyPilot ...",
    ),
]
On = Annotated[
    Text,
    Option(
        "--on",
        metavar="GPU:COUNT[xNODES]",
        help="Hardware to use: H100:8, or H100:8x4 (4 nodes).",
        autocompletion=complete_names("gpu"),
    ),
]
Count = Annotated[Text, Option("--count", metavar="N", help="Number of GPUs per instance.")]
Hours = Annotated[Text, Option("--hours", metavar="N", help="Time to rent --gpu for, without a model: 12h, 2d.")]
Provider = Annotated[
    Names,
    Option(
        "--provider", "-p", metavar="NAME", help="Only this provider (repeatable).", autocompletion=complete_names("provider")
    ),
]
Market = Annotated[Text, Option("--market", metavar="FILE", help="Market file (default: the shipped snapshot).")]
Calibration = Annotated[
    Text, Option("--calibration", metavar="FILE", help="File of observed runs (default: in the platform's data folder).")
]
Zone = Annotated[Text, Option("--zone", metavar="NAME", help="Time zone for month boundaries, such as Europe/Berlin.")]
Strict = Annotated[bool, Option("--strict", help="Refuse a job that needs an assumption.")]
Explain = Annotated[bool, Option("--explain", help="Show every term with its formula and source.")]
MACHINE_HELP = "Machine: its id, its name, its short id, or the start of either."
Machine = Annotated[str, Argument(metavar="ID", help=MACHINE_HELP, autocompletion=complete_names("machine"))]
AnyMachine = Annotated[Text, Argument(metavar="ID", help=MACHINE_HELP, autocompletion=complete_names("machine"))]
Policy = Annotated[
    Text, Argument(metavar="NAME", help="Only this policy (default: all).", autocompletion=complete_names("policy"))
]
Why = Annotated[Text, Option("--why", metavar="TEXT", help="Reason, shown to other users.")]
Length = Annotated[Text, Option("--for", metavar="TIME", help="Duration: 45m, 4h, 2h30m, 7d.")]
Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask for confirmation.")]
Json = Annotated[bool, Option("--json", help="Print one JSON object.")]
Output = Annotated[
    Text,
    Option("--output", "-o", metavar="FILE", help="Write to this file atomically; its extension sets the format."),
]
Force = Annotated[bool, Option("--force", help="Replace an existing --output file.")]

FORMATS: Options = {
    "json": Json,
    "csv": Annotated[bool, Option("--csv", help="Print CSV.")],
    "markdown": Annotated[bool, Option("--markdown", help="Print Markdown tables.")],
}
NAMED_FORMAT: Options = {
    "format": Annotated[Text, Option("--format", metavar="NAME", help="table | json | csv | markdown, or an installed format.")]
}
FILE: Options = {"output": Output, "force": Force}

HELP_GROUPS: Mapping[str, frozenset[str]] = {
    "Hardware": frozenset(("on", "count", "hours", "gpu", "max_gpus", "fit", "id", "rate", "notices", "on_notice"))
    | {"signal_on_notice", "disk_gb"},
    "Market": frozenset(("max_usd", "max_hours", "provider", "exclude", "secure_only", "max_price_age", "region", "tier"))
    | {"market"},
    "Answer": frozenset(("top", "all_options", "sort", "calibration", "why", "explain", "strict", "exact", "json", "csv"))
    | {"markdown", "format", "output", "force", "help", "help_all", "yes", "then", "then_always", "yes_then", "result"},
}
"""Heading of a help -> its options; "Job" has the others."""


def choose_format(params: Mapping[str, object], otherwise: str = "table") -> str:
    """Return the requested format, `otherwise` if none was; raises InputError if several were."""
    chosen = {f"--{name}": name for name in FORMATS if params.get(name)}
    format_name = params.get("format")
    if isinstance(format_name, str) and format_name not in chosen.values():
        chosen["--format"] = format_name
    if len(chosen) > 1:
        first, second, *_ = chosen
        raise InputError(f"{first} and {second} cannot be used together", hint="keep one of them")
    return next(iter(chosen.values()), otherwise)
