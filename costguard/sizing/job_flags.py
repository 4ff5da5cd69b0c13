"""The flags of a job as text: where each stands in the job's table, and how its number is read.

The command line and the page of a quote read them with the same functions.
"""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, NamedTuple, TypedDict, get_args

from costguard.errors import InputError, shorten
from costguard.sizing.recipe import CHECKPOINTINGS, LORA_GROUPS, METHODS, OPTIMIZERS, PRECISIONS, QUANTS
from costguard.values.checks import fold_name, require
from costguard.values.resource import TIERS


class JobFlag(NamedTuple):
    """How a field of a job is given. `place`: where its value stands in the job's table, if not under the field's name."""

    metavar: str
    help: str
    place: tuple[str, ...] = ()


Number = float | str
"""A number, or text as a flag takes it: `50e6`, `"50M"`."""
Names = str | Sequence[str]
ON_OFF = ""
"""The metavar of a switch."""


class JobFields(TypedDict, total=False):
    """The fields that state a job and its limits: the flags of `costguard quote`, with `_` for `-`.

    This is their one declaration: the options of commands, the tools of the MCP server and the Python API are made from it.
    """

    template: Annotated[str, JobFlag("NAME", "Prepared job (lora-7b); list shows all.")]
    model: Annotated[str, JobFlag("NAME", "Built-in model (llama-3.1-8b), or a config.json.")]
    params: Annotated[
        Number, JobFlag("N", "Parameters of a model of no known shape: 3B, sized as the nearest known one.", ("model",))
    ]
    method: Annotated[str, JobFlag("NAME", "pretrain | full | lora | qlora | inference")]
    preference: Annotated[
        str,
        JobFlag("NAME", "dpo | ppo | grpo: preference training, with more models in memory.", ("preference", "algorithm")),
    ]
    precision: Annotated[str, JobFlag("NAME", "bf16 | bf16-amp | fp16 | fp16-amp | fp32 | fp8 | fp4")]
    quant: Annotated[str, JobFlag("NAME", "none | nf4 | int8 | int4 | mxfp4, or a GGUF type: q4_k_m")]
    optimizer: Annotated[str, JobFlag("NAME", "adamw, adamw-8bit, paged-adamw-8bit, adafactor, lion, sgd ...")]
    tokens: Annotated[Number, JobFlag("N", "Tokens over all epochs, or to generate: 50e6, 1.5B.")]
    images: Annotated[Number, JobFlag("N", "Images over all epochs, instead of tokens (ViT, CLIP, U-Nets, FLUX).")]
    audio_seconds: Annotated[Number, JobFlag("N", "Seconds of audio over all epochs, instead of tokens (Whisper).")]
    frames: Annotated[Number, JobFlag("N", "Video frames over all epochs, instead of tokens (Wan, CogVideoX).")]
    denoising_steps: Annotated[Number, JobFlag("N", "Denoising steps per generated image (50).")]
    kv_cache: Annotated[str, JobFlag("NAME", "auto | fp8: format of the server's KV cache.")]
    decoder_len: Annotated[Number, JobFlag("N", "Output tokens of an encoder-decoder (T5, Whisper).")]
    seq_len: Annotated[Number, JobFlag("N", "Tokens per sequence.")]
    micro_batch: Annotated[Number, JobFlag("N", "Sequences per GPU and pass.")]
    global_batch_tokens: Annotated[Number, JobFlag("N", "Tokens per optimizer step over all GPUs.")]
    checkpointing: Annotated[str, JobFlag("NAME", "none | selective | full")]
    attention: Annotated[str, JobFlag("NAME", "flash | flash3 | eager")]
    disk_gb: Annotated[Number, JobFlag("N", "Disk size in GB (default: computed).")]
    checkpoint_every_hours: Annotated[Number, JobFlag("N", "Hours between checkpoints, for spot (1).")]
    requests_per_second: Annotated[Number, JobFlag("N", "Average requests per second of a server.")]
    prompt_len: Annotated[Number, JobFlag("N", "Tokens per prompt of a server.")]
    output_len: Annotated[Number, JobFlag("N", "Tokens per answer of a server.")]
    lora_rank: Annotated[Number, JobFlag("N", "Rank of the adapters (16).", ("lora", "rank"))]
    lora_targets: Annotated[Names, JobFlag("NAMES", "attention | all-linear | q_proj,v_proj,...", ("lora", "targets"))]
    zero: Annotated[Number, JobFlag("N", "ZeRO stage 0-3.", ("parallel", "zero"))]
    fsdp: Annotated[bool, JobFlag(ON_OFF, "Shard weights fully (FSDP).", ("parallel", "fsdp"))]
    tp: Annotated[Number, JobFlag("N", "Tensor-parallel ranks.", ("parallel", "tp"))]
    pp: Annotated[Number, JobFlag("N", "Pipeline-parallel ranks.", ("parallel", "pp"))]
    cp: Annotated[Number, JobFlag("N", "Context-parallel ranks.", ("parallel", "cp"))]
    ep: Annotated[Number, JobFlag("N", "Expert-parallel ranks.", ("parallel", "ep"))]
    offload: Annotated[str, JobFlag("NAME", "none | optimizer | all", ("parallel", "offload"))]
    max_usd: Annotated[Number, JobFlag("USD", "Exclude offers expected to cost more.", ("limits", "max_usd"))]
    max_hours: Annotated[Number, JobFlag("N", "Exclude offers expected to take longer.", ("limits", "max_hours"))]
    max_gpus: Annotated[Number, JobFlag("N", "Maximum number of GPUs over all nodes (64).", ("limits", "max_gpus"))]
    provider: Annotated[Names, JobFlag("NAME", "Only this provider.", ("limits", "providers"))]
    exclude: Annotated[Names, JobFlag("NAME", "Exclude this provider.", ("limits", "exclude"))]
    secure_only: Annotated[
        bool,
        JobFlag(ON_OFF, "Exclude private hosts: community tiers and marketplaces.", ("limits", "secure_only")),
    ]
    max_price_age: Annotated[str, JobFlag("TIME", "Ignore prices older than this (7d, 2w).", ("limits", "max_price_age"))]
    fit: Annotated[str, JobFlag("NAME", "yes: refuse GPUs on which it only may fit.", ("limits", "fit"))]
    framework: Annotated[
        str, JobFlag("NAME", "hf | unsloth | torchtune | torchtitan | litgpt | megatron | deepspeed; as it was: hf-2024.")
    ]
    fused_loss: Annotated[bool, JobFlag(ON_OFF, "Compute the loss in chunks (Liger), which needs less memory.")]
    compile: Annotated[bool, JobFlag(ON_OFF, "Compile the model (torch.compile).", ("compiled",))]
    region: Annotated[Names, JobFlag("NAME", "Only this region or place: us-east-1, eu.", ("limits", "regions"))]
    tier: Annotated[Names, JobFlag("NAME", "Only on-demand, spot, reserved, community or secure.", ("limits", "tiers"))]
    gpu: Annotated[Names, JobFlag("NAME", "Only this GPU.", ("limits", "gpus"))]


FIELD_TYPES = {name: get_args(kind) for name, kind in JobFields.__annotations__.items()}
"""Field -> its type, and its JobFlag."""
FLAG_PLACES: Mapping[str, tuple[str, ...]] = {name: flag.place or (name,) for name, (_, flag) in FIELD_TYPES.items()}
"""Flag -> where its value stands in the job's table."""
NUMBER_FLAGS = frozenset(name for name, (kind, _) in FIELD_TYPES.items() if kind == Number) - {"max_usd"}
"""Flags whose text is read as a number here; money has a reader of its own."""
SWITCHES = frozenset(name for name, (kind, _) in FIELD_TYPES.items() if kind is bool) - {"fsdp"}
"""Flags that say nothing where they are not given; --no-fsdp says something."""
LIST_FLAGS = frozenset(name for name, (kind, _) in FIELD_TYPES.items() if kind == Names) - {"lora_targets"}
"""Flags that may be repeated."""
SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9, "t": 10**12}
NUMBER = re.compile(r"([+-]?(?:\d{1,3}(?:,\d{3})+|\d+(?:_\d+)*|(?=\.\d))(?:\.\d*)?(?:e[+-]?\d{1,3})?)([kmgbt]?)", re.ASCII)
"""Commas stand between thousands only: `1,5` may mean one and a half, so it is asked about, not read as 15."""

PARAMS_LEAST, PARAMS_MOST = 10**6, 10**13
LONGEST_NUMBER = 60
HOURS = re.compile(r"(\d+(?:\.\d*)?) ?(m|min|minutes?|h|hours?|d|days?|w|weeks?)", re.ASCII)
HOURS_OF = {"m": Decimal(1) / 60, "h": Decimal(1), "d": Decimal(24), "w": Decimal(168)}
USD = re.compile(r"(?:\$ ?|usd ?)?((?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?)(?: ?\$| ?usd)?", re.ASCII | re.IGNORECASE)

CHOICES: Mapping[str, tuple[str, ...]] = {
    "method": METHODS,
    "precision": PRECISIONS,
    "quant": QUANTS,
    "optimizer": OPTIMIZERS,
    "checkpointing": CHECKPOINTINGS,
    "tier": TIERS,
}
"""Flags whose values people type in other letters: `LoRA`, `ondemand`, `AdamW`. Files state them exactly."""
PROVIDER_NAMES = {
    **dict.fromkeys(("amazon", "ec2"), "aws"),
    **dict.fromkeys(("google", "gce", "googlecloud"), "gcp"),
    **dict.fromkeys(("lambdalabs", "lambdacloud"), "lambda"),
    **dict.fromkeys(("vastai",), "vast"),
    **dict.fromkeys(("runpodio",), "runpod"),
    **dict.fromkeys(("oracle", "oraclecloud"), "oci"),
    **dict.fromkeys(("microsoft",), "azure"),
    **dict.fromkeys(("linode",), "akamai"),
    **dict.fromkeys(("datacrunch",), "verda"),
}
"""Other names of providers, folded (`vast.ai` is `vastai`) -> ours; also former ones: DataCrunch is Verda, Linode is Akamai."""


AMOUNT_FLAGS = frozenset(("tokens", "images", "audio_seconds", "frames", "global_batch_tokens"))
"""Flags of amounts that are millions and more: `30m` is one, where as a time it would be minutes."""


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
        if place[-1] in inner:  # of --model and --params
            raise InputError("is given together with --model", field=f"--{flag}", hint="leave out one of them")
        inner[place[-1]] = _convert_value(flag, value)
    return table


def read_amounts(table: Mapping[str, object]) -> dict[str, object]:
    """Return a job's table with the amounts that are written as in flags: `tokens = "1M"`. Other text stays, to be refused."""
    amounts = {
        place[0]: parse_number(value, flag)
        for flag, place in FLAG_PLACES.items()
        if flag in AMOUNT_FLAGS
        for value in [table.get(place[0])]
        if isinstance(value, str) and len(value) <= LONGEST_NUMBER and NUMBER.fullmatch(value.strip().lower())
    }
    return {**table, **amounts}


def parse_number(text: str, flag: str) -> int | float:
    """Parse a number such as 50000000, 50_000_000, 50e6, 50M, 1.5B."""
    match = NUMBER.fullmatch(text.strip().lower()) if len(text) <= LONGEST_NUMBER else None
    if not match:
        raise InputError(
            f"must be a number, not '{shorten(text, 40)}'", field=f"--{flag.replace('_', '-')}", hint="write 50e6 or 50M"
        )
    value = Decimal(match[1].replace(",", "")) * SUFFIXES[match[2]]  # exact, where 0.07 * 10**6 in floats is not 70000
    return int(value) if value == value.to_integral_value() else float(value)


def parse_hours(text: str, flag: str) -> int | float:
    """Parse hours (12, 1.5) or a time with its unit (12h, 90m, 2d): `90m` are minutes, and never 90 million hours."""
    match = HOURS.fullmatch(text.strip().lower()) if len(text) <= LONGEST_NUMBER else None
    return parse_number(text, flag) if match is None else float(Decimal(match[1]) * HOURS_OF[match[2][0]])


def _convert_value(flag: str, value: object) -> object:
    if isinstance(value, str) and flag in NUMBER_FLAGS:
        value = parse_number(value, flag)
    if flag == "params":
        return _name_by_parameters(value)
    if flag in LIST_FLAGS and isinstance(value, list | tuple):
        return _split_names(flag, value)
    if flag in CHOICES and isinstance(value, str):
        return _match_name(flag, value)
    if flag == "max_usd" and isinstance(value, str) and (amount := USD.fullmatch(value.strip())):
        return amount[1].replace(",", "")
    if flag == "lora_targets" and isinstance(value, str) and value not in LORA_GROUPS:
        return [t.strip() for t in value.split(",") if t.strip()]
    return list(value) if isinstance(value, tuple) else value


def _name_by_parameters(count: object) -> str:
    """Return the name of a model of `count` parameters and no known shape: `3b`."""
    fits = isinstance(count, int | float) and PARAMS_LEAST <= count <= PARAMS_MOST
    require(fits, "--params", f"must be 1M to 10,000B, not {count}", "write the parameters of the model: 3B")
    return f"{float(count) / SUFFIXES['b']:.12g}b"  # type: ignore[arg-type]  # it is a number


def split_names(params: Mapping[str, Sequence[str] | None]) -> dict[str, list[str]]:
    """Return the names of each repeatable flag, also those between commas: `-p aws,amazon` is aws twice."""
    return {flag: [str(name) for name in _split_names(flag, value or ())] for flag, value in params.items()}


def _split_names(flag: str, values: Sequence[object]) -> list[object]:
    names = [name for text in values for name in (text.split(",") if isinstance(text, str) else [text])]
    return [_match_name(flag, name.strip()) if isinstance(name, str) else name for name in names]


def _match_name(flag: str, text: str) -> str:
    """Return what `text` names in our words if that is certain; else `text`, which is refused with the nearest names."""
    folded = fold_name(text)
    if flag in ("provider", "exclude"):
        return PROVIDER_NAMES.get(folded, text.lower())
    return next((one for one in CHOICES.get(flag, ()) if fold_name(one) == folded), text)
