"""Options that several commands share, and the place of each flag in the job's table.

Every option is text here: settings and services check each value once, wherever it was written, and name its field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from typer import Argument, Option

from costguard.errors import InputError
from costguard.sizing.job_flags import FIELD_TYPES, LIST_FLAGS, build_job_table, parse_number

__all__ = ["build_job_table", "parse_number"]

Text = str | None
Names = list[str] | None
"""What may be given several times; None: never."""


def state_field(name: str, *names: str) -> Any:  # noqa: ANN401 - as typer's Option
    """Return the option of a field of JobFields. `names`: of the option, if they are not the field's with dashes."""
    kind, flag = FIELD_TYPES[name]
    text = f"{flag.help.removesuffix('.')} (repeatable)." if name in LIST_FLAGS else flag.help
    names = names or (f"--{name.replace('_', '-')}",)
    return Option(*names, help=text) if kind is bool else Option(*names, metavar=flag.metavar, help=text)


JobFiles = Annotated[
    Names,
    Argument(
        metavar="FILE",
        help="Job file; or configs and launch files of other tools: Axolotl, TRL, SkyPilot ... Flags override them.",
    ),
]
Template = Annotated[Text, state_field("template")]
Model = Annotated[Text, state_field("model", "--model", "-m")]
Method = Annotated[Text, state_field("method")]
Preference = Annotated[Text, state_field("preference")]
Precision = Annotated[Text, state_field("precision")]
Quant = Annotated[Text, state_field("quant")]
Optimizer = Annotated[Text, state_field("optimizer")]
RequestsPerSecond = Annotated[Text, state_field("requests_per_second")]
PromptLen = Annotated[Text, state_field("prompt_len")]
OutputLen = Annotated[Text, state_field("output_len")]
SeqLen = Annotated[Text, state_field("seq_len")]
DecoderLen = Annotated[Text, state_field("decoder_len")]
Images = Annotated[Text, state_field("images")]
AudioSeconds = Annotated[Text, state_field("audio_seconds")]
DenoisingSteps = Annotated[Text, state_field("denoising_steps")]
KvCache = Annotated[Text, state_field("kv_cache")]
Frames = Annotated[Text, state_field("frames")]
MicroBatch = Annotated[Text, state_field("micro_batch")]
GlobalBatch = Annotated[Text, state_field("global_batch_tokens")]
Checkpointing = Annotated[Text, state_field("checkpointing")]
Attention = Annotated[Text, state_field("attention")]
LoraRank = Annotated[Text, state_field("lora_rank")]
LoraTargets = Annotated[Text, state_field("lora_targets")]
Zero = Annotated[Text, state_field("zero")]
Fsdp = Annotated[bool | None, state_field("fsdp", "--fsdp/--no-fsdp")]
Tp = Annotated[Text, state_field("tp")]
Pp = Annotated[Text, state_field("pp")]
Cp = Annotated[Text, state_field("cp")]
Ep = Annotated[Text, state_field("ep")]
Offload = Annotated[Text, state_field("offload")]
On = Annotated[Text, Option("--on", metavar="GPU:COUNT[xNODES]", help="Fixed hardware, e.g. A100-80GB-SXM:8 or H100:8x4.")]
Provider = Annotated[Names, state_field("provider", "--provider", "-p")]
Exclude = Annotated[Names, state_field("exclude")]
Region = Annotated[Names, state_field("region")]
Tier = Annotated[Names, state_field("tier")]
GpuName = Annotated[Names, state_field("gpu")]
SecureOnly = Annotated[bool, state_field("secure_only")]
MaxPriceAge = Annotated[Text, state_field("max_price_age")]
Framework = Annotated[Text, state_field("framework")]
FusedLoss = Annotated[bool, state_field("fused_loss")]
Compile = Annotated[bool, state_field("compile")]
Tokens = Annotated[Text, state_field("tokens")]
MaxUsd = Annotated[Text, state_field("max_usd")]
MaxHours = Annotated[Text, state_field("max_hours")]
MaxGpus = Annotated[Text, state_field("max_gpus")]
DiskGb = Annotated[Text, state_field("disk_gb")]
CheckpointEveryHours = Annotated[Text, state_field("checkpoint_every_hours")]
Market = Annotated[Text, Option(metavar="FILE", help="A market file instead of the shipped snapshot.")]
Calibration = Annotated[Text, Option(metavar="FILE", help="File of observed runs (default: in the platform's data folder).")]
Json = Annotated[bool, Option("--json", help="Print one JSON object.")]
Csv = Annotated[bool, Option("--csv", help="Print CSV.")]
Markdown = Annotated[bool, Option("--markdown", help="Print Markdown tables.")]
Format = Annotated[Text, Option("--format", metavar="NAME", help="table | json | csv | markdown, or an installed one.")]
FocusVersion = Annotated[Text, Option("--focus-version", metavar="N", help="For --format focus: 1.2 | 1.3 | 1.4 (1.4).")]
Output = Annotated[
    Text,
    Option("--output", "-o", metavar="FILE", help="Write to this file atomically; its extension sets the format."),
]
Force = Annotated[bool, Option("--force", help="Let --output replace an existing file.")]
Zone = Annotated[Text, Option("--zone", metavar="NAME", help="Time zone for month boundaries, e.g. Europe/Berlin.")]
Strict = Annotated[bool, Option("--strict", help="Refuse a job for which something must be assumed.")]
Explain = Annotated[bool, Option("--explain", help="Show every term with its formula and source.")]

LIST = "list"
"""Asked for in place of a template's name: all of them are shown."""

FORMATS = ("json", "csv", "markdown")


def choose_format(params: Mapping[str, object], otherwise: str = "table") -> str:
    """Return the requested format, `otherwise` if none was; raises InputError if several were."""
    chosen = {f"--{f}": f for f in FORMATS if params.get(f)}
    stated = params.get("format")
    if isinstance(stated, str) and stated not in chosen.values():
        chosen["--format"] = stated
    if len(chosen) > 1:
        first, second, *_ = chosen
        raise InputError(f"{first} and {second} cannot be used together", hint="keep one of them")
    return next(iter(chosen.values()), otherwise)


def check_format(params: Mapping[str, object]) -> None:
    """Raise InputError if several formats were requested, or one that does not exist."""
    name = choose_format(params)
    if params.get("format") is not None:
        from costguard.providers.plugins import load_renderer

        load_renderer(name)
