"""The recipe of a job: every setting that decides bytes and FLOPs, apart from the model's shape and the hardware."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from costguard.errors import InputError, UnknownNameError
from costguard.values.checks import (
    choose_from,
    declare_field,
    describe_value,
    find_nearest_names,
    fold_name,
    list_checks,
    require,
    require_number,
    require_one_of,
    require_whole_number,
)

METHODS = ("pretrain", "full", "lora", "qlora", "inference")
PRECISIONS = ("bf16", "bf16-amp", "fp16", "fp16-amp", "fp32", "fp8", "fp4")
GGUF_BITS = {
    "iq1_s": 2.0042,
    "iq1_m": 2.1460,
    "iq2_xxs": 2.3824,
    "iq2_xs": 2.5882,
    "iq2_s": 2.7403,
    "iq2_m": 2.9294,
    "iq3_xxs": 3.2548,
    "iq3_xs": 3.4977,
    "iq3_s": 3.6606,
    "iq3_m": 3.7628,
    "iq4_xs": 4.4597,
    "iq4_nl": 4.6818,
    "q2_k_s": 2.9697,
    "q2_k": 3.1593,
    "q3_k_s": 3.6429,
    "q3_k_l": 4.2979,
    "q4_k_s": 4.6672,
    "q4_k_m": 4.8944,
    "q5_k_s": 5.5704,
    "q5_k_m": 5.7036,
    "q6_k": 6.5633,
    "q8_0": 8.5008,
}
"""Bits a weight of llama.cpp's file types, every tensor counted: tools/quantize/README.md, table for Llama-3.1-8B, 2026-11."""

SERVED_BYTES = {"fp8": 1.0, "fp4": 0.5625}
"""Bytes of a weight in the matrices of a served model; NVFP4 has an 8-bit scale for each 16 of its 4-bit numbers."""

QUANTS = ("none", "nf4", "int8", "int4", "mxfp4", *GGUF_BITS)
OPTIMIZERS = (
    "adamw",
    "adamw-8bit",
    "paged-adamw",
    "paged-adamw-8bit",
    "adafactor",
    "lion",
    "lion-8bit",
    "sgd-momentum",
    "sgd",
)
CHECKPOINTINGS = ("none", "selective", "full")
EXPERTS_IMPLEMENTATIONS = ("auto", "grouped", "loop")
LOSSES = ("auto", "whole", "chunked", "in-place", "fused")
OPTIMIZER_KERNELS = ("auto", "fused", "foreach")
MOMENTS = ("auto", "fp32", "bf16")
KV_CACHES = ("auto", "fp8")
ATTENTIONS = ("flash", "flash3", "eager")
OFFLOADS = ("none", "optimizer", "all")
FRAMEWORKS = (
    *("hf", "hf-2024", "hf-2022", "torchtune", "litgpt", "litgpt-2023", "torchtitan", "torchtitan-2024"),
    *("trl", "axolotl", "llamafactory", "ms-swift", "diffusers", "hf-fsdp2", "megatron", "megatron-2021"),
    *("automodel", "deepspeed", "deepspeed-2023", "unsloth", "halo"),
)
"""Whose modules and optimizers run the job, where that changes the bytes: `sizing/memory/frameworks.py` says what each keeps.
A year means: as it was up to then; without one: as it is today."""

_TRANSFORMERS, _MEGATRON_CORE = "it trains transformers' modules with its Trainer", "it trains Megatron-Core's modules"
FRAMEWORK_ALIASES = {
    "transformers": ("hf", "another name of it"),
    "huggingface": ("hf", "another name of it"),
    "peft": ("hf", _TRANSFORMERS),
    "accelerate": ("hf", _TRANSFORMERS),
    "msswift": ("ms-swift", "another name of it"),
    "swift": ("ms-swift", "another name of it"),
    "megatronlm": ("megatron", "another name of it"),
    "megatroncore": ("megatron", "another name of it"),
    "megatronbridge": ("megatron", _MEGATRON_CORE),
    "nemo": ("megatron", _MEGATRON_CORE),
    "megatrondeepspeed": ("deepspeed", "another name of it"),
}
"""Folded names that people write, the framework that keeps the same bytes, and why. What such a library switches on by its own
settings (Liger, Unsloth's kernels, sample packing) is not implied: fused_loss, compiled and micro_batch state it."""
RUN_BY_TRANSFORMERS = ("trl", "axolotl", "llamafactory", "ms-swift", "diffusers")
"""Frameworks whose modules are those of `hf`: what was measured of one tells of the others."""
SERVER_NAMES = ("vllm", "sglang", "tensorrtllm", "trtllm", "tgi")

ADAPTER_METHODS = ("lora", "qlora")
AUTOCAST_RULES = ("cuda", "cpu")
SWITCHES = ("fused_loss", "compiled", "optimizer_in_backward", "double_quant", "offload_activations")
LORA_GROUPS = ("attention", "all-linear")


def require_bool(value: object, field: str) -> None:
    """Raise InputError unless `value` is true or false."""
    if not isinstance(value, bool):
        raise InputError(f"must be true or false, not {describe_value(value)}", field=field, hint="write true or false")


TOKENS, PASSES = partial(require_whole_number, most=100_000_000), partial(require_whole_number, most=1_000_000)
RANKS, LINK_SPEED = partial(require_whole_number, most=100_000), partial(require_number, least=0.01, most=1e6)


def resolve_framework(name: str) -> tuple[str, str]:
    """Return the framework that `name` means, and why if it is another word; an unknown name is returned as it is."""
    if name in FRAMEWORKS:
        return name, ""
    folded = fold_name(name)
    return (folded, "") if folded in FRAMEWORKS else FRAMEWORK_ALIASES.get(folded, (name, ""))


def name_library(framework: str) -> str:
    """Return the library whose modules a framework runs, whatever its year."""
    return "hf" if framework in RUN_BY_TRANSFORMERS else framework.partition("-")[0]


def _check_framework(name: object, field: str) -> None:
    """Raise an error that names the nearest framework unless `name` is one."""
    if isinstance(name, str) and name in FRAMEWORKS:
        return
    if isinstance(name, str) and fold_name(name) in SERVER_NAMES:
        what = f"'{name}' is a server, and every server is sized alike"
        raise InputError(what, field=field, hint="leave it out: method = 'inference' already implies it")
    near = find_nearest_names(str(name), (*FRAMEWORKS, *FRAMEWORK_ALIASES))
    hint = f"write one of: {', '.join(FRAMEWORKS)}"
    raise UnknownNameError("framework", str(name), field=field, nearest=near, hint=hint)


def _check_targets(value: object, field: str) -> None:
    if isinstance(value, str):
        require_one_of(value, LORA_GROUPS, field)
        return
    listed = isinstance(value, list | tuple) and bool(value) and all(isinstance(target, str) for target in value)
    what = "is empty" if value in ([], ()) else f"must be a list of names, not {describe_value(value)}"
    require(listed, field, what, "write ['q_proj', 'v_proj'], 'attention' or 'all-linear'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """Low-rank adapters of a job.

    `rank`: the adapter rank. `targets`: the linear layers that get an adapter, as a group name or a tuple of Hugging Face
    names. `dora`: each adapter also learns the magnitude of its matrix (DoRA, arXiv 2402.09353).
    """

    rank: int = declare_field(partial(require_whole_number, most=65_536), default=16)
    targets: str | tuple[str, ...] = declare_field(_check_targets, default="all-linear")
    dora: bool = declare_field(require_bool, default=False)

    def __post_init__(self) -> None:
        for name, check in LORA_CHECKS.items():
            check(getattr(self, name), f"lora.{name}")


LORA_CHECKS = list_checks(Lora)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Settings of one training or serving job.

    - `micro_batch`: sequences per GPU in one pass. `gradient_accumulation`: passes per optimizer step.
    - `framework`: the library that runs the job. `hf` is Hugging Face transformers with its eager modules.
    - `experts_implementation`: how a mixture computes its experts: all in one grouped product, or one after the other.
        "auto": as the library does.
    - `loss`: how the logits meet cross-entropy. "whole": as full fp32 tensors. "chunked": full 16-bit logits, cast chunk by
        chunk (torchtune). "in-place": the gradient is written into the 16-bit logits (Liger's cross-entropy). "fused": head
        and loss together, chunk by chunk, without logits (Liger). "auto": as the library does.
    - `fused_loss`: the same as "chunked" where the library cuts full logits, else as "fused".
    - `optimizer_kernel`: "foreach" updates all weights at once with temporaries of their size, "fused" needs none. "auto":
        as the library does. `moments`: what AdamW's moments are stored in. "auto": as the weights or their master copy.
    - `compiled`: torch.compile fuses norms and activations.
    - `optimizer_in_backward`: each gradient is applied and freed immediately.
    - `double_quant`: the nf4 scales are quantised too.
    - `dropout`: dropout is active, so masks and dropped scores are kept. None: as the released model trains in the library
        (yes for BERT, GPT-2 and T5 in transformers, no for Llama).
    - `autocast_rules`: what is computed in fp32 under autocast. "cuda": a GPU's list, with powers and every softmax. "cpu":
        the shorter one that fake CPU tensors follow (torch.amp, "Autocast Op Reference").
    - `offload_activations`: tensors that checkpointing keeps are stored in host memory.
    - `decoder_len`: tokens of an encoder-decoder's answer, which its decoder processes; None: as many as the encoder reads
        (of Whisper, the most it writes). `seq_len` is the encoder's.
    - `prefill_chunk`: prompt tokens processed at once when serving, over all sequences. None: the usual server default
        (`overheads.PREFILL_TOKENS`).
    - `kv_cache`: what a server stores keys and values in. "auto": 16 bits, as vLLM and SGLang do; "fp8": half of it.
    """

    method: str = declare_field(choose_from(METHODS), default="full")
    precision: str = declare_field(choose_from(PRECISIONS), default="bf16")
    quant: str = declare_field(choose_from(QUANTS), default="none")
    optimizer: str = declare_field(choose_from(OPTIMIZERS), default="adamw")
    seq_len: int = declare_field(TOKENS, default=2048)
    micro_batch: int = declare_field(PASSES, default=1)
    gradient_accumulation: int = declare_field(PASSES, default=1)
    checkpointing: str = declare_field(choose_from(CHECKPOINTINGS), default="full")
    attention: str = declare_field(choose_from(ATTENTIONS), default="flash")
    lora: Lora = Lora()
    framework: str = declare_field(_check_framework, default="hf")
    fused_loss: bool = declare_field(require_bool, default=False)
    compiled: bool = declare_field(require_bool, default=False)
    optimizer_in_backward: bool = declare_field(require_bool, default=False)
    double_quant: bool = declare_field(require_bool, default=False)
    offload_activations: bool = declare_field(require_bool, default=False)
    dropout: bool | None = declare_field(require_bool, default=None)
    autocast_rules: str = declare_field(choose_from(AUTOCAST_RULES), default="cuda")
    prefill_chunk: int | None = declare_field(TOKENS, default=None)
    experts_implementation: str = declare_field(choose_from(EXPERTS_IMPLEMENTATIONS), default="auto")
    loss: str = declare_field(choose_from(LOSSES), default="auto")
    optimizer_kernel: str = declare_field(choose_from(OPTIMIZER_KERNELS), default="auto")
    moments: str = declare_field(choose_from(MOMENTS), default="auto")
    decoder_len: int | None = declare_field(TOKENS, default=None)
    kv_cache: str = declare_field(choose_from(KV_CACHES), default="auto")

    def __post_init__(self) -> None:
        for name, check in RECIPE_CHECKS.items():
            check(getattr(self, name), name)
        require(
            self.kv_cache == "auto" or self.method == "inference",
            "kv_cache",
            f"applies to a server, not to method '{self.method}'",
            "leave it out, or write method = 'inference'",
        )
        require(
            not self.fused_loss or self.loss != "whole",
            "loss",
            "'whole' contradicts fused_loss = true",
            "leave fused_loss out, or write loss = 'fused'",
        )
        require(
            self.quant == "none" or self.method in ("qlora", "inference"),
            "quant",
            f"'{self.quant}' weights cannot be trained by method '{self.method}'",
            "use method = 'qlora', or quant = 'none'",
        )
        require(
            self.quant not in GGUF_BITS or self.method == "inference",
            "quant",
            f"'{self.quant}' is a llama.cpp file type, which is not trained",
            "use quant = 'nf4', or method = 'inference'",
        )
        require(
            self.quant != "none" or self.method != "qlora",
            "quant",
            "qlora needs quantised weights",
            "write quant = 'nf4', or method = 'lora'",
        )

    @property
    def trains(self) -> bool:
        """Whether there is a backward pass."""
        return self.method != "inference"

    @property
    def adapters(self) -> bool:
        """Whether only low-rank adapters are trained."""
        return self.method in ADAPTER_METHODS

    @property
    def amp(self) -> bool:
        """Return whether weights are stored in fp32 and computed in lower precision under autocast."""
        return self.precision.endswith("-amp")

    @property
    def cache_share(self) -> float:
        """Return the bytes of a cached key or value over those of a 16-bit one."""
        return 0.5 if self.kv_cache == "fp8" else 1.0

    @property
    def micro_tokens(self) -> int:
        """Return the tokens that one GPU processes in one pass, before context parallelism divides them."""
        return self.micro_batch * self.seq_len


RECIPE_CHECKS = list_checks(Recipe)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """How the GPUs of a job share the work.

    The number of data-parallel ranks is gpus / (tp x pp x cp). `ep` divides the experts among the data-parallel ranks.
    """

    zero: int = declare_field(partial(require_whole_number, least=0, most=3), default=0)
    fsdp: bool = declare_field(require_bool, default=False)
    tp: int = declare_field(RANKS, default=1)
    pp: int = declare_field(RANKS, default=1)
    cp: int = declare_field(RANKS, default=1)
    ep: int = declare_field(RANKS, default=1)
    offload: str = declare_field(choose_from(OFFLOADS), default="none")

    def __post_init__(self) -> None:
        for name, check in PARALLEL_CHECKS.items():
            check(getattr(self, name), f"parallel.{name}")
        require(
            not self.fsdp or self.zero in (0, 3),
            "parallel.zero",
            f"fsdp shards as stage 3 does, not {self.zero}",
            "leave zero out",
        )

    @property
    def stage(self) -> int:
        """Return the ZeRO stage whose sharding applies: 3 for FSDP full shard, else `zero`."""
        return 3 if self.fsdp else self.zero

    @property
    def model_ranks(self) -> int:
        """Return the number of GPUs that together hold one copy of the model."""
        return self.tp * self.pp * self.cp

    def count_data_ranks(self, gpus: int) -> int:
        """Return the number of data-parallel ranks on `gpus` GPUs.

        Raise InputError if tp x pp x cp does not divide `gpus`.
        """
        if gpus % self.model_ranks:  # asked before the words are put together: this runs once a footprint
            raise InputError(
                f"tp x pp x cp = {self.tp} x {self.pp} x {self.cp} = {self.model_ranks} ranks do not divide {gpus} GPUs",
                field="parallel",
                hint=f"choose tp, pp and cp whose product divides {gpus}",
            )
        return gpus // self.model_ranks


PARALLEL_CHECKS = list_checks(Parallelism)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSpeeds:
    """What the user states of the links between GPUs; None: the usual link of such GPUs (`speed/step_time.py`).

    `node_gbit`: Gbit/s into one machine, all network cards together. `gpu_gb_s`: GB/s (1e9 bytes) from one GPU to another of
    the same machine, in one direction.
    """

    node_gbit: float | None = declare_field(LINK_SPEED, default=None)
    gpu_gb_s: float | None = declare_field(LINK_SPEED, default=None)

    def __post_init__(self) -> None:
        for name, check in NETWORK_CHECKS.items():
            check(getattr(self, name), f"network.{name}")


NETWORK_CHECKS = list_checks(NetworkSpeeds)
USUAL_NETWORK = NetworkSpeeds()
"""Nothing is stated: each link is the usual one."""
