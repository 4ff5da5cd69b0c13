"""Options that several commands share, and the place of each flag in the job's table.

Every option is text here: settings and services check each value once, wherever it was written, and name its field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated

import typer

from costguard.errors import InputError, shorten
from costguard.sizing.recipe import LORA_GROUPS

Text = str | None
Names = list[str] | None

JobFile = Annotated[Text, typer.Argument(metavar="[JOB]", help="Job file (TOML or JSON); flags override it.")]
Template = Annotated[Text, typer.Option(metavar="NAME", help="A prepared job (lora-7b); list shows all.")]
Model = Annotated[
    Text, typer.Option("--model", "-m", metavar="NAME", help="A built-in model (llama-3.1-8b), or a config.json.")
]
Method = Annotated[Text, typer.Option(metavar="NAME", help="pretrain | full | lora | qlora | inference")]
Preference = Annotated[
    Text, typer.Option(metavar="NAME", help="dpo | ppo | grpo: preference training, with more models in memory.")
]
Precision = Annotated[Text, typer.Option(metavar="NAME", help="bf16 | bf16-amp | fp16 | fp16-amp | fp32 | fp8 | fp4")]
Quant = Annotated[Text, typer.Option(metavar="NAME", help="none | nf4 | int8 | int4 | mxfp4, or a GGUF type: q4_k_m")]
Optimizer = Annotated[Text, typer.Option(metavar="NAME", help="adamw, adamw-8bit, paged-adamw-8bit, adafactor, lion, sgd ...")]
RequestsPerSecond = Annotated[Text, typer.Option(metavar="N", help="Of a server: requests per second, on average.")]
PromptLen = Annotated[Text, typer.Option(metavar="N", help="Of a server: tokens of a prompt.")]
OutputLen = Annotated[Text, typer.Option(metavar="N", help="Of a server: tokens of an answer.")]
SeqLen = Annotated[Text, typer.Option(metavar="N", help="Tokens per sequence.")]
DecoderLen = Annotated[Text, typer.Option(metavar="N", help="Of an encoder-decoder (T5, Whisper): tokens of its output.")]
Images = Annotated[Text, typer.Option(metavar="N", help="Instead of tokens, for ViT, CLIP, U-Nets, FLUX: images, all epochs.")]
AudioSeconds = Annotated[Text, typer.Option(metavar="N", help="Instead of tokens, for Whisper: seconds of sound, all epochs.")]
DenoisingSteps = Annotated[Text, typer.Option(metavar="N", help="Of a diffusion model that makes images: passes each (50).")]
KvCache = Annotated[
    Text, typer.Option("--kv-cache", metavar="NAME", help="auto | fp8: what a server stores keys and values in.")
]
Frames = Annotated[Text, typer.Option(metavar="N", help="Instead of tokens, for Wan, CogVideoX: frames of video, all epochs.")]
MicroBatch = Annotated[Text, typer.Option(metavar="N", help="Sequences per GPU and pass.")]
GlobalBatch = Annotated[
    Text, typer.Option("--global-batch-tokens", metavar="N", help="Tokens per optimizer step over all GPUs.")
]
Checkpointing = Annotated[Text, typer.Option(metavar="NAME", help="none | selective | full")]
Attention = Annotated[Text, typer.Option(metavar="NAME", help="flash | flash3 | eager")]
LoraRank = Annotated[Text, typer.Option(metavar="N", help="Rank of the adapters (16).")]
LoraTargets = Annotated[Text, typer.Option(metavar="NAMES", help="attention | all-linear | q_proj,v_proj,...")]
Zero = Annotated[Text, typer.Option(metavar="N", help="ZeRO stage 0-3.")]
Fsdp = Annotated[bool | None, typer.Option("--fsdp/--no-fsdp", help="Shard weights fully (FSDP).")]
Tp = Annotated[Text, typer.Option(metavar="N", help="Tensor-parallel ranks.")]
Pp = Annotated[Text, typer.Option(metavar="N", help="Pipeline-parallel ranks.")]
Cp = Annotated[Text, typer.Option(metavar="N", help="Context-parallel ranks.")]
Ep = Annotated[Text, typer.Option(metavar="N", help="Expert-parallel ranks.")]
Offload = Annotated[Text, typer.Option(metavar="NAME", help="none | optimizer | all")]
On = Annotated[
    Text, typer.Option("--on", metavar="GPU:COUNT[xNODES]", help="Fixed hardware, e.g. A100-80GB-SXM:8 or H100:8x4.")
]
Provider = Annotated[Names, typer.Option("--provider", "-p", metavar="NAME", help="Only this provider (repeatable).")]
Exclude = Annotated[Names, typer.Option("--exclude", metavar="NAME", help="Not this provider (repeatable).")]
Region = Annotated[
    Names,
    typer.Option("--region", metavar="NAME", help="Only this region or place: us-east-1, us, eu, europe, de (repeatable)."),
]
Tier = Annotated[
    Names,
    typer.Option("--tier", metavar="NAME", help="Only on-demand, spot, reserved, community or secure (repeatable)."),
]
GpuName = Annotated[Names, typer.Option("--gpu", metavar="NAME", help="Only this GPU (repeatable).")]
SecureOnly = Annotated[
    bool, typer.Option("--secure-only", help="No machines of private hosts: no community tier, no marketplace.")
]
MaxPriceAge = Annotated[
    Text, typer.Option("--max-price-age", metavar="TIME", help="Only prices that were seen so lately: 7d, 2w.")
]
Framework = Annotated[
    Text, typer.Option("--framework", metavar="NAME", help="hf | unsloth | torchtune | megatron ...: what trains it.")
]
FusedLoss = Annotated[bool, typer.Option("--fused-loss", help="The loss is computed in chunks (Liger): less memory.")]
Compile = Annotated[bool, typer.Option("--compile", help="The model is compiled (torch.compile).")]
Market = Annotated[Text, typer.Option(metavar="FILE", help="A market file instead of the shipped snapshot.")]
Calibration = Annotated[
    Text, typer.Option(metavar="FILE", help="File of observed runs (default: in the platform's data folder).")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print Markdown tables.")]
Format = Annotated[Text, typer.Option("--format", metavar="NAME", help="table | json | csv | markdown, or an installed one.")]
FocusVersion = Annotated[Text, typer.Option("--focus-version", metavar="N", help="For --format focus: 1.2 | 1.3 | 1.4 (1.4).")]
Output = Annotated[
    Text,
    typer.Option("--output", "-o", metavar="FILE", help="Write to this file atomically; its extension sets the format."),
]
Force = Annotated[bool, typer.Option("--force", help="Let --output replace an existing file.")]
Zone = Annotated[Text, typer.Option("--zone", metavar="NAME", help="Time zone for month boundaries, e.g. Europe/Berlin.")]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse a job for which something must be assumed.")]
Explain = Annotated[bool, typer.Option("--explain", help="Show every term with its formula and source.")]

FLAG_PLACES: Mapping[str, tuple[str, ...]] = {
    "template": ("template",),
    "model": ("model",),
    "method": ("method",),
    "preference": ("preference", "algorithm"),
    "precision": ("precision",),
    "quant": ("quant",),
    "optimizer": ("optimizer",),
    "tokens": ("tokens",),
    "images": ("images",),
    "audio_seconds": ("audio_seconds",),
    "frames": ("frames",),
    "denoising_steps": ("denoising_steps",),
    "kv_cache": ("kv_cache",),
    "decoder_len": ("decoder_len",),
    "seq_len": ("seq_len",),
    "micro_batch": ("micro_batch",),
    "global_batch_tokens": ("global_batch_tokens",),
    "checkpointing": ("checkpointing",),
    "attention": ("attention",),
    "disk_gb": ("disk_gb",),
    "checkpoint_every_hours": ("checkpoint_every_hours",),
    "requests_per_second": ("requests_per_second",),
    "prompt_len": ("prompt_len",),
    "output_len": ("output_len",),
    "lora_rank": ("lora", "rank"),
    "lora_targets": ("lora", "targets"),
    "zero": ("parallel", "zero"),
    "fsdp": ("parallel", "fsdp"),
    "tp": ("parallel", "tp"),
    "pp": ("parallel", "pp"),
    "cp": ("parallel", "cp"),
    "ep": ("parallel", "ep"),
    "offload": ("parallel", "offload"),
    "max_usd": ("limits", "max_usd"),
    "max_hours": ("limits", "max_hours"),
    "max_gpus": ("limits", "max_gpus"),
    "provider": ("limits", "providers"),
    "exclude": ("limits", "exclude"),
    "secure_only": ("limits", "secure_only"),
    "max_price_age": ("limits", "max_price_age"),
    "framework": ("framework",),
    "fused_loss": ("fused_loss",),
    "compile": ("compiled",),
    "region": ("limits", "regions"),
    "tier": ("limits", "tiers"),
    "gpu": ("limits", "gpus"),
}
"""Flag -> where its value stands in the job's table."""

NUMBER_FLAGS = frozenset(
    "tokens seq_len micro_batch global_batch_tokens disk_gb checkpoint_every_hours lora_rank zero "  # noqa: SIM905
    "tp pp cp ep max_hours max_gpus requests_per_second prompt_len output_len images audio_seconds frames "
    "decoder_len denoising_steps".split()
)
SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9, "t": 10**12}
NUMBER = re.compile(r"([+-]?(?:\d{1,3}(?:,\d{3})+|\d+(?:_\d+)*|(?=\.\d))(?:\.\d*)?(?:e[+-]?\d{1,3})?)([kmgbt]?)", re.ASCII)
"""Commas stand between thousands only: `1,5` may mean one and a half, so it is asked about, not read as 15."""

SWITCHES = frozenset(("secure_only", "fused_loss", "compile"))
"""Flags that say nothing where they are not given."""
LONGEST_NUMBER = 60
LIST = "list"
"""Asked for in place of a template's name: all of them are shown."""

FORMATS = ("json", "csv", "markdown")


def build_job_table(params: Mapping[str, object]) -> dict[str, object]:
    """Return the job's table built from the given flags."""
    table: dict[str, object] = {}
    for flag, place in FLAG_PLACES.items():
        value = params.get(flag)
        if value is None or value in ([], ()) or (value is False and flag in SWITCHES):
            continue
        inner = table
        for key in place[:-1]:
            inner = inner.setdefault(key, {})  # type: ignore[assignment]  # only tables stand at inner keys
        inner[place[-1]] = _convert_value(flag, value)
    return table


def parse_number(text: str, flag: str) -> int | float:
    """Parse a number such as 50000000, 50_000_000, 50e6, 50M, 1.5B."""
    found = NUMBER.fullmatch(text.strip().lower()) if len(text) <= LONGEST_NUMBER else None
    if not found:
        raise InputError(
            f"must be a number, not '{shorten(text, 40)}'", field=f"--{flag.replace('_', '-')}", hint="write 50e6 or 50M"
        )
    value = Decimal(found[1].replace(",", "")) * SUFFIXES[found[2]]  # exact, where 0.07 * 10**6 in floats is not 70000
    return int(value) if value == value.to_integral_value() else float(value)


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


def _convert_value(flag: str, value: object) -> object:
    if isinstance(value, str) and flag in NUMBER_FLAGS:
        return parse_number(value, flag)
    if flag == "lora_targets" and isinstance(value, str) and value not in LORA_GROUPS:
        return [t.strip() for t in value.split(",") if t.strip()]
    return list(value) if isinstance(value, tuple) else value
