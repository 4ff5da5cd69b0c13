"""FLOPs per token, computed from the shape of the model and the recipe; and the peak rates of a GPU for them.

    forward   = 2 N + 4 L w c        backward = 4 N + 8 L w c        recompute = forward of what is computed twice

N are the weights that a token is multiplied with: the matrices of the layers (of a mixture, only the token's experts) and the
head, but not the input embedding, norms or biases. `w` is the summed width of the heads, and `c` the average number of tokens
that a query attends to: s/2 under a causal mask, w - w^2 / 2s in a window of w < s, s if attention goes both ways. With c = s/2
this is the familiar 6 N + 6 L h s (Narayanan et al. 2021, PaLM appendix B; 12 L h s where a source counts full attention). A
frozen base has no weight gradients: 4 N (LoRA, QLoRA).

Example: Llama-2-7B at 2048 tokens. N = 32 x (4 x 4096^2 + 3 x 4096 x 11008) + 32000 x 4096 = 6,607,077,376, attention 6 x 32 x
4096 x 2048 = 1.61e9: 41.25 GFLOP per token, of which 13.75 forward; full recompute adds 13.49 (not the head).

A token of an encoder-decoder is one position of the input: the decoder processes `decoder_len` tokens a sample, or as many as
the encoder if none is stated, and only those are predicted. A LayerBlock with its own `tokens` (an image tower) always
processes those. Their cost is spread over the tokens of the sample.

`TokenWork` divides the FLOPs by the rate at which they run. Example: Llama-2-7B trained in fp8 at 2048 tokens runs the layers'
matrices at the fp8 rate, and the head (0.8 GFLOP) and the scores (0.54 GFLOP forward, 2.5 times that backward) at the 16-bit
rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from costguard.sizing.architecture import LINEAR_CHUNK, Architecture, Attention, FeedForward, LayerBlock
from costguard.sizing.recipe import GGUF_BITS, LORA_GROUPS, SERVED_BYTES, Lora, Recipe
from costguard.values.gpu import Gpu

GIGA = 1e9
ATTENTION_MATRICES = frozenset(
    {"q_proj", "k_proj", "v_proj", "o_proj", "q_a_proj", "q_b_proj", "kv_a_proj", "kv_b_proj", "in_proj"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flops:
    """FLOPs per token.

    `attention`: the share (0..1) of `forward` spent on scores and values. `explain`: the formula, line by line.
    """

    forward: float
    backward: float
    recompute: float
    attention: float
    explain: tuple[str, ...] = ()

    @property
    def model(self) -> float:
        """Return the FLOPs that the model needs, as counted by "model FLOPs utilisation"."""
        return self.forward + self.backward

    @property
    def hardware(self) -> float:
        """Return the FLOPs that the GPU computes, including recomputation."""
        return self.forward + self.backward + self.recompute


def count_flops_per_token(architecture: Architecture, recipe: Recipe) -> Flops:
    """Return the FLOPs of one token at `recipe.seq_len`.

    Inference has only a forward pass; with adapters, the base has no weight gradients.
    """
    sample = architecture.sample_tokens or recipe.seq_len
    shares = [(block, _count_tokens(block, recipe) / sample) for block in architecture.blocks]
    walked = architecture.walk.multiply_adds / sample if architecture.walk else 0
    layers = walked + _compute_stated_scale(architecture) * sum(
        share * b.layers * _count_layer_weights(b) for b, share in shares
    )
    scores = sum(share * b.layers * _count_score_flops(b, recipe) for b, share in shares)
    adapters = sum(share * b.layers * _count_adapter_weights(b, recipe.lora) for b, share in shares) if recipe.adapters else 0.0
    if architecture.walk and recipe.adapters:
        names = frozenset(name for name in architecture.walk.matrices if _carries_adapter(name, recipe.lora))
        adapters += architecture.walk.count_adapter_multiply_adds(names, recipe.lora.rank) / sample
    predicted = architecture.compute_predicted_share(recipe.seq_len, recipe.decoder_len)
    head = predicted * architecture.embedding_parameters if architecture.has_head else 0
    forward = 2 * (layers + head + adapters) + scores
    backward = _count_backward(layers + head, adapters, scores, recipe)
    recompute = _count_recompute(2 * (layers + adapters) + scores, scores, recipe)
    return Flops(
        forward=forward,
        backward=backward,
        recompute=recompute,
        attention=scores / forward,
        explain=_explain_flops(
            {"layers": layers, "head": head, "adapters": adapters}, scores, backward, recompute, (architecture, recipe)
        ),
    )


def _count_tokens(block: LayerBlock, recipe: Recipe) -> int:
    """Return the tokens of one sample that `block` processes."""
    return block.count_tokens(recipe.seq_len, recipe.decoder_len)


def _count_layer_weights(block: LayerBlock) -> int:
    """Return the weights that one token is multiplied with in one layer: attention, its experts and the router.

    Norms and biases are not counted.
    """
    return block.attention_parameters + _count_feed_forward_weights(block.feed_forward, block.hidden)


def _count_score_flops(block: LayerBlock, recipe: Recipe) -> float:
    """Return the forward FLOPs of queries x keys and scores x values, per token of one layer."""
    attention, tokens = block.attention, _count_tokens(block, recipe)
    if attention.state is not None:  # a state is updated and read, and the pairs within a chunk are scored
        pairs = count_context_tokens(attention, min(LINEAR_CHUNK, tokens), causal=True)
        return 4.0 * attention.state.size + 4.0 * attention.query_width * pairs
    context_tokens = count_context_tokens(attention, tokens, causal=block.causal and recipe.attention != "eager")
    cross = (block.cross_tokens or recipe.seq_len) if block.cross_attention else 0
    return 2.0 * (attention.query_width + _compute_value_width(attention)) * (context_tokens + cross)


def count_context_tokens(attention: Attention, tokens: int, *, causal: bool) -> float:
    """Return the average number of tokens for which a query computes a score.

    Eager attention also computes the masked half, so `causal` is False for it.
    """
    window = min(attention.window or tokens, tokens)
    return window * (1 - window / (2 * tokens)) if causal else float(window)


def _compute_value_width(attention: Attention) -> int:
    """Return the width of the values of all heads: heads x value size."""
    return attention.heads * (attention.head_dim if attention.latent is None else attention.latent.value_dim)


def _count_adapter_weights(block: LayerBlock, lora: Lora) -> int:
    """Return the adapter weights of one layer that a token uses: rank x (inputs + outputs) of each adapted matrix.

    Each expert has its own adapters, and a token uses those of its own experts.
    """
    attention = sum(i + o for n, (i, o) in block.attention.list_matrices(block.hidden).items() if _carries_adapter(n, lora))
    forward = sum(i + o for n, (i, o) in block.feed_forward.list_matrices(block.hidden).items() if _carries_adapter(n, lora))
    return lora.rank * (attention + max(1, block.feed_forward.experts_per_token) * forward)


def _count_adapted(block: LayerBlock, lora: Lora) -> int:
    """Return the matrices of one layer that carry an adapter, each of which is a module; experts are not."""
    names = [*block.attention.list_matrices(block.hidden)]
    names += [] if block.feed_forward.experts else [*block.feed_forward.list_matrices(block.hidden)]
    return sum(_carries_adapter(name, lora) for name in names)


def _carries_adapter(name: str, lora: Lora) -> bool:
    if lora.targets in LORA_GROUPS:
        return lora.targets == "all-linear" or name in ATTENTION_MATRICES
    return name in lora.targets


def _count_feed_forward_weights(feed_forward: FeedForward, hidden: int) -> int:
    each = sum(i * o for i, o in feed_forward.list_matrices(hidden).values())
    if not feed_forward.experts:
        return each
    shared = (feed_forward.gated + 2) * hidden * feed_forward.shared_ffn
    return feed_forward.experts_per_token * each + shared + feed_forward.experts * hidden


def _compute_stated_scale(architecture: Architecture) -> float:
    """Return the factor by which a stated parameter count exceeds the computed layers; 1 if no count is stated."""
    if architecture.stated_params is None or not architecture.blocks:
        return 1.0
    counted = sum(b.layers * b.parameters_each for b in architecture.blocks)
    missing = architecture.stated_params - architecture.computed_parameters
    return max(0.0, 1 + missing / counted)


def _count_backward(weights: float, adapters: float, scores: float, recipe: Recipe) -> float:
    """Return the backward FLOPs per token.

    Gradients of the inputs cost as much as the forward pass, and gradients of the trained weights cost the same again.
    """
    if not recipe.trains:
        return 0.0
    trained = adapters if recipe.adapters else weights
    return 2 * (weights + adapters) + 2 * trained + 2 * scores


def _count_recompute(layers_forward: float, scores: float, recipe: Recipe) -> float:
    """Return the FLOPs per token of recomputation.

    Full checkpointing repeats every layer's forward pass, selective only the scores (Korthikanti et al. 2022).
    """
    if not recipe.trains:
        return 0.0
    return {"none": 0.0, "selective": scores, "full": layers_forward}[recipe.checkpointing]


def _explain_flops(
    weights: dict[str, float], scores: float, backward: float, recompute: float, job: tuple[Architecture, Recipe]
) -> tuple[str, ...]:
    """Return the formula with its numbers, in GFLOP per token, or per image or clip where those are counted."""
    architecture, recipe = job
    noun, share = describe_sample(architecture)
    giga = GIGA * share
    total = sum(weights.values())
    parts = " + ".join(f"{name} {n / giga:.3f}" for name, n in weights.items() if n or name == "layers")
    attended = f" + attention {scores / giga:.3f}" if scores else ""
    forward = f"2 x {total / giga:.3f}{attended} = {(2 * total + scores) / giga:.3f} GFLOP {noun}"
    length = f" at {recipe.seq_len} tokens" if architecture.sample_unit is None else ""
    lines = [f"multiply-adds of {noun} = {parts} = {total / giga:.3f} G", f"forward{length} = {forward}"]
    if recipe.trains:
        kind = "of inputs only: the base is frozen" if recipe.adapters else "of inputs and weights"
        lines.append(f"backward, gradients {kind} = {backward / giga:.3f} GFLOP {noun}")
    if recompute:
        lines.append(f"recompute, {recipe.checkpointing} checkpointing = {recompute / giga:.3f} GFLOP {noun}")
    return tuple(lines)


def describe_sample(architecture: Architecture) -> tuple[str, float]:
    """Return what is counted ("a token", "an image", "a clip of 30 seconds"), and a token's share of it."""
    unit, each = architecture.sample_unit, architecture.units_per_sample
    if unit is None:
        return "a token", 1.0
    noun = "an image" if unit == "images" else f"a clip of {each:g} {unit.rpartition('_')[2]}"
    return noun, 1 / (architecture.sample_tokens or 1)


CONVOLUTION_WIDTH = 512
NUMBERS_PER_HIDDEN = 15
"""What a layer writes and reads outside its matrices, per hidden unit and pass; what convolutions keep is counted so."""
REDUCED_PRECISIONS = ("fp4", "fp8")
"""Precisions below 16 bits, narrowest first."""
FLASH_BACKWARD = 2.5
"""Flash attention computes the scores again in its backward pass: 2.5 forwards, not 2 (Dao 2023)."""
QUANTISED_BYTES = {"int8": 1.0, "nf4": 0.53, "int4": 0.53, "mxfp4": 0.53} | {name: b / 8 for name, b in GGUF_BITS.items()}
"""Bytes a quantised weight travels in, with the scales of its blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenWork:
    """The work of a job per token, independent of hardware and parallelism: FLOPs by rate, bytes and weights.

    `hidden_layers`, `ffn_layers`, `routed_hidden`: width x layers of all layers, of feed-forwards, of mixtures. `words`: size
    of the vocabulary, times the share of tokens that is predicted. `walked`: the layers are convolutions. `layers`,
    `mixture_layers`: their number, and that of those with experts. `experts`: experts of one such layer.
    `adapted_matrices`: matrices of all layers that carry an adapter, those of experts not counted. `unit`: what the
    model's input is counted in (tokens, images, frames), and `units_per_token`: how many of them a token is.
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
    layers: int
    mixture_layers: int
    experts: int
    adapted_matrices: int
    unit: str = "tokens"
    units_per_token: float = 1.0

    @property
    def mixture(self) -> bool:
        """Return whether a token uses only some of the experts."""
        return self.expert_weights > 0


@lru_cache(maxsize=64)
def count_work(architecture: Architecture, recipe: Recipe) -> TokenWork:
    """Return the work of `recipe` on `architecture`; cached, because a quote needs it for many GPUs."""
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
        words=architecture.vocab * architecture.compute_predicted_share(recipe.seq_len, recipe.decoder_len)
        if architecture.has_head
        else 0,
        weights=architecture.parameters - idle,
        expert_weights=idle,
        weight_bytes=_choose_weight_bytes(recipe),
        hidden=max((b.hidden for b in architecture.blocks), default=CONVOLUTION_WIDTH),
        walked=architecture.walk is not None,
        routed_hidden=sum(b.layers * b.hidden for b in architecture.blocks if b.feed_forward.experts),
        experts_per_token=max((b.feed_forward.experts_per_token for b in architecture.blocks), default=0),
        layers=sum(b.layers for b in architecture.blocks),
        mixture_layers=sum(b.layers for b in architecture.blocks if b.feed_forward.experts),
        experts=max((b.feed_forward.experts for b in architecture.blocks), default=0),
        adapted_matrices=sum(b.layers * _count_adapted(b, recipe.lora) for b in architecture.blocks) if recipe.adapters else 0,
        unit=architecture.sample_unit or "tokens",
        units_per_token=architecture.units_per_sample / (architecture.sample_tokens or 1) if architecture.sample_unit else 1.0,
    )


def _choose_weight_bytes(recipe: Recipe) -> float:
    """Return the bytes in which a weight is read or sent.

    They depend on the quantisation; otherwise on the precision a model is served in; 4 in plain fp32, else 2.
    """
    if recipe.quant != "none":
        return QUANTISED_BYTES[recipe.quant]
    served = {} if recipe.trains else SERVED_BYTES
    return ({"fp32": 4.0} | served).get(recipe.precision, 2.0)


def _count_head_flops(architecture: Architecture, recipe: Recipe) -> float:
    """Return the FLOPs per token of the head, which always runs in 16 bits."""
    if not architecture.has_head:
        return 0.0
    predicted = architecture.compute_predicted_share(recipe.seq_len, recipe.decoder_len)
    forward = 2.0 * predicted * architecture.embedding_parameters
    return forward * (1 + recipe.trains * (1 if recipe.adapters else 2))


def _compute_ffn_width(block: LayerBlock) -> float:
    f = block.feed_forward
    return (max(1, f.experts_per_token) * f.ffn + f.shared_ffn) * (1.5 if f.gated else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakRate:
    """Peak TFLOPS of one device.

    - `matrix`: for the layers at the recipe's precision. `wide`: for head and scores in 16 bits.
    - `reduced`: "fp8" or "fp4" if the layers run in it, else blank.
    - `fp16`: 16 bits mean fp16, because the recipe states it or the GPU has no bf16.
    """

    matrix: float
    wide: float
    reduced: str = ""
    fp16: bool = False
    notes: tuple[str, ...] = ()


def find_peak_rate(recipe: Recipe, gpu: Gpu) -> PeakRate | None:
    """Return the rates at which `recipe` runs on `gpu`; None if the datasheet has none."""
    if recipe.precision == "fp32":
        return _find_fp32_peak(gpu)
    wide = gpu.bf16_tflops or gpu.fp32_tflops
    if wide is None:
        return None
    fp16 = recipe.precision.startswith("fp16") or not gpu.has_bf16
    notes = () if gpu.bf16_tflops else (f"{gpu.name} has no fast 16-bit arithmetic: timed at its fp32 rate",)
    if recipe.precision not in REDUCED_PRECISIONS:
        return PeakRate(matrix=wide / gpu.dies, wide=wide / gpu.dies, fp16=fp16, notes=notes)
    for precision in REDUCED_PRECISIONS[REDUCED_PRECISIONS.index(recipe.precision) :]:
        rate = gpu.fp8_tflops if precision == "fp8" else gpu.fp4_tflops
        if rate is not None and rate > wide:
            return PeakRate(matrix=rate / gpu.dies, wide=wide / gpu.dies, reduced=precision, fp16=fp16, notes=notes)
        notes = (*notes, f"{gpu.name} has no faster {precision} arithmetic: timed at its next wider rate")
    return PeakRate(matrix=wide / gpu.dies, wide=wide / gpu.dies, fp16=fp16, notes=notes)


def _find_fp32_peak(gpu: Gpu) -> PeakRate | None:
    """Return the full fp32 rate, which PyTorch uses by default; a faster TF32 rate is only mentioned in a note."""
    if gpu.fp32_tflops is None:
        return None
    faster = (gpu.tf32_tflops or 0) > gpu.fp32_tflops
    tip = f"timed at full fp32; set_float32_matmul_precision('high') would use {gpu.tf32_tflops} TFLOPS of TF32"
    rate = gpu.fp32_tflops / gpu.dies
    return PeakRate(matrix=rate, wide=rate, notes=(tip,) if faster else ())
