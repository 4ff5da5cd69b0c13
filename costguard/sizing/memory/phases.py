"""The phases of a job that can be its memory peak, with the bytes alive on one GPU in each.

Training example: Llama-2-7B, full fine-tuning in bf16. With 8 sequences of 2048 and no checkpointing, the loss is the peak
(147.2 GB: the tensors kept by 32 layers, and fp32 logits three times). With one sequence and full checkpointing, the end of the
backward pass is the peak (53.9 GB: all gradients exist, and hardly any activations).

The serving phases are loading, prefill of the prompt and decoding of tokens. Example: Llama-3-8B in bf16 holds 16.1 GB of
weights, and 128 KiB of keys and values for each token of each sequence: 32 layers x 2 x 8 key heads x 128 x 2 bytes. 16
sequences of 8192 tokens need 17.2 GB of cache, more than the weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from costguard.sizing.memory import overheads
from costguard.sizing.memory.frameworks import FP32, choose_loss, get_framework, is_layer_recomputed
from costguard.sizing.memory.model_measure import ModelMeasure
from costguard.sizing.memory.sharding import MemoryBuffers, ModelStates, PipelineStage
from costguard.sizing.recipe import Parallelism, Recipe

TERMS = ("weights", "gradients", "optimizer", "activations", "logits", "buffers")


class MemoryPhase(NamedTuple):
    """One phase: bytes of each of `TERMS` on one GPU, and `total`, their sum."""

    name: str
    weights: int
    gradients: int
    optimizer: int
    activations: int
    logits: int
    buffers: int
    total: int

    @property
    def terms(self) -> dict[str, int]:
        """Return the bytes of each term by its name."""
        return dict(zip(TERMS, self[1:-1], strict=True))


Moment = tuple[str, float, float, float, float]
"""What differs between the phases of a training step: name, gradients, activations, logits, and buffers beside the standing
ones, in bytes that are not rounded yet. Plain tuples: nine of them are made for every footprint."""


def build_phase(
    name: str,
    *,
    weights: float,
    gradients: float = 0.0,
    optimizer: float = 0.0,
    activations: float = 0.0,
    logits: float = 0.0,
    buffers: float = 0.0,
) -> MemoryPhase:
    """Return the MemoryPhase of these terms in whole bytes; negative terms become 0."""
    w, g, o, a, x, b = (max(int(term), 0) for term in (weights, gradients, optimizer, activations, logits, buffers))
    return MemoryPhase(name, w, g, o, a, x, b, w + g + o + a + x + b)


@dataclass(slots=True)  # not frozen: seventeen fields would cost a footprint 1.5 of its 25 microseconds; it never leaves here
class TrainingStep:
    """Values that all phases of a training step share, in bytes on one GPU.

    - `alive`: activations of all micro-batches in flight at the end of the forward pass. `left`: those at the first
        layer in the backward pass.
    - `layer`: one layer while it computes. `feed`, `attend`: what the backward pass through each half adds to what it
        kept.
    - `fed`: gradients of its feed-forward. `outside`: final norm and the head's input.
    - `accumulated`: gradients of earlier passes. `standing`: buffers that exist in every phase.
    """

    m: ModelMeasure
    recipe: Recipe
    held: ModelStates
    buffers: MemoryBuffers
    alive: float
    left: float
    layer: float
    feed: float
    attend: float
    fed: float
    entry: float
    outside: float
    logits: float
    accumulated: float
    standing: float
    checkpointed: bool
    tp: int

    def build_phases(self, moments: Iterable[Moment]) -> Iterator[MemoryPhase]:
        """Yield the phase of each moment: with the states and buffers that every phase has, in whole bytes, none below 0."""
        # Written out: this runs nine times a footprint, and a footprint dozens of times a quote (bench/quote.py).
        states, waiting, standing = self.held, self.accumulated, self.standing
        w, o = max(int(states.weights), 0), max(int(states.optimizer), 0)
        for name, gradients, activations, logits, buffers in moments:
            g = int(gradients if gradients > waiting else waiting)  # noqa: FURB136 - max() is slower
            a, x, b = int(activations), int(logits), int(standing + buffers)
            if g < 0 or a < 0 or x < 0 or b < 0:
                g, a, x, b = max(g, 0), max(a, 0), max(x, 0), max(b, 0)
            yield MemoryPhase(name, w, g, o, a, x, b, w + g + o + a + x + b)


def list_training_phases(
    m: ModelMeasure, recipe: Recipe, stage: PipelineStage, states: ModelStates, buffers: MemoryBuffers
) -> tuple[MemoryPhase, ...]:
    """Return the bytes alive in each training phase on one GPU of `stage`."""
    step = _build_step(m, recipe, stage, states, buffers)
    moments = (
        *_list_loss_moments(step),
        *_list_last_layer_moments(step),
        *_list_first_layer_moments(step),
        ("step", states.gradients, 0.0, 0.0, buffers.step),
    )
    encoders = m.numbers.compute * m.loaded
    return (build_phase("load", weights=states.weights + encoders, buffers=buffers.load), *step.build_phases(moments))


def _build_step(
    m: ModelMeasure, recipe: Recipe, stage: PipelineStage, states: ModelStates, buffers: MemoryBuffers
) -> TrainingStep:
    parallel = stage.parallel
    split = get_framework(recipe).sequence_parallel
    tokens = m.tokens / (parallel.tp * parallel.cp)
    unsplit_tokens = tokens if split else m.tokens / parallel.cp
    kept_bytes = stage.share * (tokens * m.waiting + (unsplit_tokens - tokens) * m.waiting_unsplit)
    shared = tokens * (m.mask + m.stem)
    gathers = m.tokens / parallel.cp * m.layer.gathers if parallel.tp > 1 and split else 0.0
    entry = unsplit_tokens * m.layer.entry
    head_input = (m.tokens / parallel.cp - unsplit_tokens) * m.head_input
    return TrainingStep(
        m=m,
        recipe=recipe,
        held=states,
        buffers=buffers,
        alive=kept_bytes * stage.in_flight + shared - unsplit_tokens * m.unneeded * stage.first,
        left=kept_bytes * (stage.in_flight - 1) + shared,
        layer=tokens * m.layer.whole + (unsplit_tokens - tokens) * m.layer.unsplit,
        feed=tokens * m.layer.feed_forward_work + entry - tokens * m.layer.entry + gathers,
        attend=tokens * (m.layer.attention_work - m.layer.feed_forward) + entry - tokens * m.layer.entry + gathers,
        fed=states.layer_gradient - states.attention_gradient,
        entry=entry,
        outside=(unsplit_tokens * (m.outside - m.stem) + head_input) * stage.last,
        logits=tokens * m.predicted * m.vocab * stage.last,
        accumulated=states.gradients if has_waiting_gradients(recipe, parallel) else 0.0,
        standing=buffers.standing,
        checkpointed=is_layer_recomputed(recipe),
        tp=parallel.tp,
    )


def has_waiting_gradients(recipe: Recipe, parallel: Parallelism) -> bool:
    """Return whether gradients exist before the backward pass: of earlier passes, or in a buffer that is never freed."""
    return (
        recipe.gradient_accumulation > 1 or parallel.pp > 1 or (get_framework(recipe).holds_gradients and not recipe.adapters)
    )


def _list_loss_moments(s: TrainingStep) -> tuple[Moment, ...]:
    """Return the phases in the loss, in its backward pass, and in the backward pass of the head.

    Autocast's copies are kept for the backward pass unless the layer is recomputed. Copies of trained weights stay in
    autocast's own cache until the forward pass ends in either case.
    """
    b, head = s.buffers, s.buffers.head + s.buffers.cast_head + s.buffers.kept
    saved = 0.0 if s.checkpointed else b.casts
    inside, loss, back = _compute_logits(s)
    casts = b.casts if s.m.casts_cached else max(saved, b.cast_layer)
    activations = s.alive + s.outside
    return (
        ("forward", 0.0, activations, inside, head + casts),
        ("loss", 0.0, activations, loss, head + saved),
        ("backward, head", s.held.head_gradient, activations, back, head + saved),
    )


def _compute_logits(s: TrainingStep) -> tuple[float, float, float]:
    """Return the bytes of logits in the loss, in its backward pass, and in the backward pass of the head.

    The first are the logits, their copy in the loss's precision and its log-softmax. The second are the log-softmax and two
    gradients, or what the library holds instead (`FrameworkTraits.loss_copies`). The third is one gradient in the computed
    precision; under autocast it is freed when the head's gradient is cast to fp32. A chunked loss holds these for one chunk,
    plus the full logits and their gradient if chunks are cut from full logits.
    """
    loss, compute, numbers = s.m.loss_number, s.m.numbers.compute, s.logits
    traits = get_framework(s.recipe)
    kind = choose_loss(s.recipe)
    if kind == "in-place":
        # The loss shifts the logits by one token: a copy in which the gradient is written, and the gradient of the whole.
        return 2 * compute * numbers, 3 * compute * numbers, 2 * compute * numbers
    if kind != "whole":
        full_logits = compute * numbers if kind == "chunked" else 0.0
        chunks = overheads.LOSS_CHUNKS if full_logits else max(s.m.vocab / s.m.hidden, 1.0)
        return full_logits, 2 * full_logits + 3 * loss * numbers / chunks, full_logits
    back = compute * numbers
    if traits.loss_compiled and s.recipe.compiled:
        return back, 2 * back, back
    copies = traits.loss_copies if s.tp == 1 else traits.loss_copies_split
    cap = compute * numbers * s.m.capped
    inside = (compute + loss * (1 if loss == compute else min(copies, 2))) * numbers
    if s.m.numbers.autocast and s.held.head_gradient:
        back = max(0.0, back - s.held.head_gradient) + s.buffers.cast_head
    return inside + cap, copies * loss * numbers + cap, back + cap


def _list_last_layer_moments(s: TrainingStep) -> tuple[Moment, ...]:
    """Return the phases of the backward pass through the last layer.

    Nearly all activations exist, but of the gradients only the head's.
    """
    activations = s.alive + (s.layer if s.checkpointed else 0.0)
    casts = s.buffers.cast_layer if s.checkpointed else s.buffers.casts
    return _list_half_moments(s, "last", s.held.head_waiting, activations, casts + s.buffers.kept)


def _list_first_layer_moments(s: TrainingStep) -> tuple[Moment, ...]:
    """Return the phases of the backward pass through the first layer and the embedding.

    Nearly all gradients exist, but of the activations only one layer's. A tied embedding gets its second gradient here, so the
    first, the second and their sum exist at once.
    """
    h = s.held
    grads = h.whole_gradients - (h.head_gradient + h.layer_gradient + (0.0 if s.m.tied else h.embedding_gradient)) / h.transit
    rest = h.whole_gradients - h.root_gradient / h.transit
    return (
        *_list_half_moments(s, "first", grads * h.gradients_stay + h.head_waiting, s.left + s.layer, s.buffers.cast_layer),
        (
            "backward, embedding",
            rest * h.gradients_stay + h.root_gradient + 2 * h.embedding_gradient * s.m.tied,
            s.left + s.entry,
            0.0,
            0.0,
        ),
    )


def _list_half_moments(s: TrainingStep, which: str, grads: float, activations: float, casts: float) -> tuple[Moment, ...]:
    """Return the backward phases of both halves of a layer.

    `grads`: bytes of gradients that exist already. `casts`: of copies of weights. Autocast frees its copy of a matrix after its
    use, so in attention's backward pass those of the feed-forward are gone.
    """
    h, b, m = s.held, s.buffers, s.m
    left = casts - b.cast_layer * (1 - m.attention_parameters / m.layer_parameters)
    return (
        (f"backward, {which} feed-forward", grads + h.down_gradient, activations + s.feed, 0.0, casts),
        (f"backward, {which} attention", grads + s.fed, activations + s.attend, 0.0, left),
    )


def compute_kv_cache_bytes(m: ModelMeasure, stage: PipelineStage) -> float:
    """Return the bytes of keys, values and states of `micro_batch` sequences of `seq_len` on one GPU."""
    ranks = min(stage.parallel.tp, m.cache_splits) * stage.parallel.cp
    return stage.share * (m.numbers.compute * m.cached * m.tokens + FP32 * m.states) / ranks


def list_serving_phases(
    m: ModelMeasure, recipe: Recipe, stage: PipelineStage, states: ModelStates, buffers: MemoryBuffers
) -> tuple[MemoryPhase, ...]:
    """Return the bytes alive in each serving phase on one GPU of `stage`, with a full cache."""
    parallel = stage.parallel
    prompt = min(m.tokens, recipe.prefill_chunk or overheads.PREFILL_TOKENS) / (parallel.tp * parallel.cp)
    step = recipe.micro_batch / parallel.tp
    logits = (m.numbers.compute + FP32) * m.vocab * step * stage.last
    standing = buffers.standing + buffers.head + compute_kv_cache_bytes(m, stage)
    return (
        build_phase("load", weights=states.weights, buffers=buffers.load),
        build_phase("prefill", weights=states.weights, activations=prompt * m.layer.passing, logits=logits, buffers=standing),
        build_phase("decode", weights=states.weights, activations=step * m.layer.passing, logits=logits, buffers=standing),
    )
