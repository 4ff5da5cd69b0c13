"""Options that several commands share, and the place of each flag in the job's table.

Every option is text here: settings and services check each value once, wherever it was written, and name its field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from typer import Argument, Option

from costguard.errors import InputError
from costguard.sizing.job_flags import build_job_table, parse_number

__all__ = ["build_job_table", "parse_number"]

Text = str | None
Names = list[str] | None
"""What may be given several times; None: never."""

JobFiles = Annotated[
    Names,
    Argument(
        metavar="FILE",
        help="Job file; or configs and launch files of other tools: Axolotl, TRL, SkyPilot ... Flags override them.",
    ),
]
Template = Annotated[Text, Option(metavar="NAME", help="A prepared job (lora-7b); list shows all.")]
Model = Annotated[Text, Option("--model", "-m", metavar="NAME", help="A built-in model (llama-3.1-8b), or a config.json.")]
Method = Annotated[Text, Option(metavar="NAME", help="pretrain | full | lora | qlora | inference")]
Preference = Annotated[Text, Option(metavar="NAME", help="dpo | ppo | grpo: preference training, with more models in memory.")]
Precision = Annotated[Text, Option(metavar="NAME", help="bf16 | bf16-amp | fp16 | fp16-amp | fp32 | fp8 | fp4")]
Quant = Annotated[Text, Option(metavar="NAME", help="none | nf4 | int8 | int4 | mxfp4, or a GGUF type: q4_k_m")]
Optimizer = Annotated[Text, Option(metavar="NAME", help="adamw, adamw-8bit, paged-adamw-8bit, adafactor, lion, sgd ...")]
RequestsPerSecond = Annotated[Text, Option(metavar="N", help="Of a server: requests per second, on average.")]
PromptLen = Annotated[Text, Option(metavar="N", help="Of a server: tokens of a prompt.")]
OutputLen = Annotated[Text, Option(metavar="N", help="Of a server: tokens of an answer.")]
SeqLen = Annotated[Text, Option(metavar="N", help="Tokens per sequence.")]
DecoderLen = Annotated[Text, Option(metavar="N", help="Of an encoder-decoder (T5, Whisper): tokens of its output.")]
Images = Annotated[Text, Option(metavar="N", help="Instead of tokens, for ViT, CLIP, U-Nets, FLUX: images, all epochs.")]
AudioSeconds = Annotated[Text, Option(metavar="N", help="Instead of tokens, for Whisper: seconds of sound, all epochs.")]
DenoisingSteps = Annotated[Text, Option(metavar="N", help="Of a diffusion model that makes images: passes each (50).")]
KvCache = Annotated[Text, Option("--kv-cache", metavar="NAME", help="auto | fp8: what a server stores keys and values in.")]
Frames = Annotated[Text, Option(metavar="N", help="Instead of tokens, for Wan, CogVideoX: frames of video, all epochs.")]
MicroBatch = Annotated[Text, Option(metavar="N", help="Sequences per GPU and pass.")]
GlobalBatch = Annotated[Text, Option("--global-batch-tokens", metavar="N", help="Tokens per optimizer step over all GPUs.")]
Checkpointing = Annotated[Text, Option(metavar="NAME", help="none | selective | full")]
Attention = Annotated[Text, Option(metavar="NAME", help="flash | flash3 | eager")]
LoraRank = Annotated[Text, Option(metavar="N", help="Rank of the adapters (16).")]
LoraTargets = Annotated[Text, Option(metavar="NAMES", help="attention | all-linear | q_proj,v_proj,...")]
Zero = Annotated[Text, Option(metavar="N", help="ZeRO stage 0-3.")]
Fsdp = Annotated[bool | None, Option("--fsdp/--no-fsdp", help="Shard weights fully (FSDP).")]
Tp = Annotated[Text, Option(metavar="N", help="Tensor-parallel ranks.")]
Pp = Annotated[Text, Option(metavar="N", help="Pipeline-parallel ranks.")]
Cp = Annotated[Text, Option(metavar="N", help="Context-parallel ranks.")]
Ep = Annotated[Text, Option(metavar="N", help="Expert-parallel ranks.")]
Offload = Annotated[Text, Option(metavar="NAME", help="none | optimizer | all")]
On = Annotated[Text, Option("--on", metavar="GPU:COUNT[xNODES]", help="Fixed hardware, e.g. A100-80GB-SXM:8 or H100:8x4.")]
Provider = Annotated[Names, Option("--provider", "-p", metavar="NAME", help="Only this provider (repeatable).")]
Exclude = Annotated[Names, Option("--exclude", metavar="NAME", help="Not this provider (repeatable).")]
Region = Annotated[
    Names,
    Option("--region", metavar="NAME", help="Only this region or place: us-east-1, us, eu, europe, de (repeatable)."),
]
Tier = Annotated[
    Names,
    Option("--tier", metavar="NAME", help="Only on-demand, spot, reserved, community or secure (repeatable)."),
]
GpuName = Annotated[Names, Option("--gpu", metavar="NAME", help="Only this GPU (repeatable).")]
SecureOnly = Annotated[bool, Option("--secure-only", help="No machines of private hosts: no community tier, no marketplace.")]
MaxPriceAge = Annotated[Text, Option("--max-price-age", metavar="TIME", help="Only prices that were seen so lately: 7d, 2w.")]
Framework = Annotated[
    Text, Option("--framework", metavar="NAME", help="hf | unsloth | torchtune | megatron ...: what trains it.")
]
FusedLoss = Annotated[bool, Option("--fused-loss", help="The loss is computed in chunks (Liger): less memory.")]
Compile = Annotated[bool, Option("--compile", help="The model is compiled (torch.compile).")]
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
