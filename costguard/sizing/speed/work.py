"""A job as work: FLOPs by the rate they run at and bytes per token, counted once; and the peak rates of a GPU for it.

Example: Llama-2-7B trained in fp8 at 2048 tokens: the layers' matrices run at the fp8 rate, the head (0.8 GFLOP) and the
scores (0.54 GFLOP forward, 2.5 times that backward) at the 16-bit rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from costguard.sizing.architecture import Architecture, LayerBlock
from costguard.sizing.recipe import Recipe
from costguard.sizing.speed.flops import Flops, count_flops_per_token
from costguard.values.gpu import Gpu

CONVOLUTION_WIDTH = 512
NUMBERS_PER_HIDDEN = 15
"""What a layer writes and reads outside its matrices, per hidden unit and pass; what convolutions keep is counted so."""
REDUCED_PRECISIONS = ("fp4", "fp8")
"""Precisions below 16 bits, narrowest first."""
FLASH_BACKWARD = 2.5
"""Flash attention computes the scores again in its backward pass: 2.5 forwards, not 2 (Dao 2023)."""
QUANTISED_BYTES = {"int8": 1.0, "nf4": 0.53, "int4": 0.53}
"""Bytes a quantised weight travels in, with the scales of its blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenWork:
    """A job per token: FLOPs by the rate they run at, bytes, and weights. Independent of hardware and sharing.

    `hidden_layers`, `ffn_layers`, `routed_hidden`: width x layers, of all, of feed-forwards, of mixtures; `words` of the
    vocabulary. `walked`: the layers are convolutions.
    """

    flops: Flops
    matrix_flops: float
    wide_flops: float
    attention_flops: float
    passes: int
    hidden_layers: float
    ffn_layers: float
    words: float
    weights: float
    expert_weights: float
    weight_bytes: float
    routed_hidden: float
    hidden: float
    experts_per_token: float
    walked: bool

    @property
    def mixture(self) -> bool:
        """Whether a token passes only some of the experts."""
        return self.expert_weights > 0


@lru_cache(maxsize=64)
def count_work(architecture: Architecture, recipe: Recipe) -> TokenWork:
    """Count `recipe` on `architecture` once; a quote asks for the same job on many GPUs."""
    flops = count_flops_per_token(architecture, recipe)
    scores = flops.attention * flops.forward
    again = recipe.checkpointing != "none"
    wide = _count_head_flops(architecture, recipe)
    idle = architecture.parameters - architecture.active_parameters
    walked = architecture.walk.kept if architecture.walk else 0
    return TokenWork(
        flops=flops,
        matrix_flops=flops.hardware - scores * (1 + 2 * recipe.trains + again * recipe.trains) - wide,
        wide_flops=wide,
        attention_flops=scores * (1 + recipe.trains * (FLASH_BACKWARD + again)),
        passes=1 + recipe.trains * (1 + (recipe.checkpointing == "full")),
        hidden_layers=sum(b.layers * b.hidden for b in architecture.blocks) + walked / NUMBERS_PER_HIDDEN,
        ffn_layers=sum(b.layers * _compute_ffn_width(b) for b in architecture.blocks),
        words=architecture.vocab if architecture.has_head else 0,
        weights=architecture.parameters - idle,
        expert_weights=idle,
        weight_bytes=_choose_weight_bytes(recipe),
        hidden=max((b.hidden for b in architecture.blocks), default=CONVOLUTION_WIDTH),
        walked=architecture.walk is not None,
        routed_hidden=sum(b.layers * b.hidden for b in architecture.blocks if b.feed_forward.experts),
        experts_per_token=max((b.feed_forward.experts_per_token for b in architecture.blocks), default=0),
    )


def _choose_weight_bytes(recipe: Recipe) -> float:
    """Bytes a weight is read or sent in: quantised, fp8 where served so, else 2, or 4 in plain fp32."""
    if recipe.quant != "none":
        return QUANTISED_BYTES[recipe.quant]
    served = {"fp8": 1.0} if not recipe.trains else {}
    return ({"fp32": 4.0} | served).get(recipe.precision, 2.0)


def _count_head_flops(architecture: Architecture, recipe: Recipe) -> float:
    """The head runs in 16 bits whatever the layers do."""
    if not architecture.has_head:
        return 0.0
    forward = 2.0 * architecture.embedding_parameters
    return forward * (1 + recipe.trains * (1 if recipe.adapters else 2))


def _compute_ffn_width(block: LayerBlock) -> float:
    f = block.feed_forward
    return (max(1, f.experts_per_token) * f.ffn + f.shared_ffn) * (1.5 if f.gated else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakRate:
    """TFLOPS of one device: `matrix` for the layers at the recipe's precision, `wide` for head and scores in 16 bits.

    `reduced`: "fp8" or "fp4" where the layers run in so few bits, else blank.
    `fp16`: 16 bits mean fp16, because the recipe says so or the GPU knows no bf16.
    """

    matrix: float
    wide: float
    reduced: str = ""
    fp16: bool = False
    notes: tuple[str, ...] = ()


def find_peak_rate(recipe: Recipe, gpu: Gpu) -> PeakRate | None:
    """The rates `recipe` runs at on `gpu`; None where the datasheet gives none."""
    if recipe.precision == "fp32":
        return _find_fp32_peak(gpu)
    wide = gpu.bf16_tflops or gpu.fp32_tflops
    if wide is None:
        return None
    asked = recipe.precision.startswith("fp16")
    fp16 = asked or not gpu.has_bf16
    notes = () if asked else _list_bf16_notes(gpu)
    if gpu.bf16_tflops is None:
        notes = (f"{gpu.name} has no fast 16-bit arithmetic: timed at its fp32 rate",)
    if recipe.precision not in REDUCED_PRECISIONS:
        return PeakRate(matrix=wide / gpu.dies, wide=wide / gpu.dies, fp16=fp16, notes=notes)
    for precision in REDUCED_PRECISIONS[REDUCED_PRECISIONS.index(recipe.precision) :]:
        rate = gpu.fp8_tflops if precision == "fp8" else gpu.fp4_tflops
        if rate is not None and rate > wide:
            return PeakRate(matrix=rate / gpu.dies, wide=wide / gpu.dies, reduced=precision, fp16=fp16, notes=notes)
        notes = (*notes, f"{gpu.name} has no faster {precision} arithmetic: timed at its next wider rate")
    return PeakRate(matrix=wide / gpu.dies, wide=wide / gpu.dies, fp16=fp16, notes=notes)


def _find_fp32_peak(gpu: Gpu) -> PeakRate | None:
    """PyTorch multiplies fp32 at full precision unless told otherwise, so TF32 is offered, not assumed."""
    if gpu.fp32_tflops is None:
        return None
    faster = (gpu.tf32_tflops or 0) > gpu.fp32_tflops
    tip = f"timed at full fp32; set_float32_matmul_precision('high') would use {gpu.tf32_tflops} TFLOPS of TF32"
    rate = gpu.fp32_tflops / gpu.dies
    return PeakRate(matrix=rate, wide=rate, notes=(tip,) if faster else ())


def _list_bf16_notes(gpu: Gpu) -> tuple[str, ...]:
    if gpu.has_bf16:
        return ()
    return (f"{gpu.name} has no bf16 arithmetic and would emulate it far slower: timed as fp16-amp, which it needs",)
