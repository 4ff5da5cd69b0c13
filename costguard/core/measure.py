"""What of a job's memory does not depend on how it is split: parameters by kind, and bytes a token by place.

Measured once for a model and a recipe, so that trying hundreds of splits costs microseconds each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from costguard.core.activations import Kept, Style, kept_by, norm_kept, style_of
from costguard.core.architecture import Architecture, Block
from costguard.core.numerics import FP32, Numerics, numerics
from costguard.core.recipe import Parallel, Recipe
from costguard.core.states import adapter_parameters, targets_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Parameters by kind (`experts` are part of `matrices`), tokens, and bytes a token (`kept`, `entries`: all layers)."""

    numbers: Numerics
    layers: int
    matrices: int
    experts: int
    small: int
    embedding: int
    head: int
    adapters: int
    tied: bool
    largest_layer: int
    largest_matrix: int
    tokens: int
    kept: float
    entries: float
    worst: Kept
    casts: int
    vocab: int
    cached: int
    mask: int
    loss_number: int
    outside: float
    stem: float
    idle_entry: float
    layer_parameters: int
    attention_parameters: int
    down_parameters: int


@lru_cache(maxsize=256)
def measure(architecture: Architecture, recipe: Recipe, sharded: int) -> Measure:
    """The measure of `architecture` under `recipe`; `sharded`: 0 whole copies, 1 ZeRO, 2 FSDP, which decides who holds a master."""
    numbers = numerics(recipe, (Parallel(), Parallel(zero=1), Parallel(fsdp=True))[sharded])
    targets = targets_of(architecture, recipe.lora) if recipe.adapters else frozenset[str]()
    default = architecture.sample_tokens or recipe.seq_len
    layers = [(b, kept_by(b, style_of(recipe, architecture.kind, numbers, targets, b.tokens or default))) for b in architecture.blocks]
    main = architecture.main
    style = style_of(recipe, architecture.kind, numbers, targets, default)
    matrices = sum(b.layers * (b.parameters_each - b.small_parameters) for b in architecture.blocks)
    embedding, head = architecture.embedding_parameters, architecture.head_parameters
    scale = [(b.tokens or default) / default for b, _ in layers]
    return Measure(
        numbers=numbers,
        layers=architecture.layers,
        matrices=matrices,
        experts=sum(b.layers * b.feed_forward.experts * _expert_parameters(b) for b in architecture.blocks),
        small=architecture.parameters - matrices - embedding - head,
        embedding=embedding,
        head=head,
        adapters=sum(b.layers * adapter_parameters(b, targets, recipe.lora.rank) for b in architecture.blocks),
        tied=architecture.tied_embeddings and architecture.has_head,
        largest_layer=max(b.parameters_each for b in architecture.blocks),
        largest_matrix=max(main.hidden * max(main.feed_forward.ffn, main.attention.query_width), 1),
        tokens=recipe.micro_batch * default,
        kept=sum(r * b.layers * k.layer for r, (b, k) in zip(scale, layers, strict=True)),
        entries=sum(r * b.layers * k.entry for r, (b, k) in zip(scale, layers, strict=True)),
        worst=max((k for _, k in layers), key=lambda k: k.layer),
        casts=sum(b.layers * k.casts for b, k in layers),
        vocab=architecture.vocab if architecture.has_head else 0,
        cached=sum(b.layers * b.attention.cached_width for b in architecture.blocks if b.causal),
        mask=style.seq if style.masked and style.flash and main.causal else 0,
        loss_number=FP32 if architecture.kind == "decoder" or numbers.autocast else numbers.compute,
        stem=_stem_kept(architecture, numbers),
        outside=_head_kept(architecture, style) + _stem_kept(architecture, numbers),
        idle_entry=norm_kept(main.hidden, main.norm, style, numbers.residual) if recipe.adapters else 0.0,
        layer_parameters=main.parameters_each,
        attention_parameters=main.attention_parameters,
        down_parameters=main.feed_forward.ffn * main.hidden * max(main.feed_forward.experts, 1),
    )


def _expert_parameters(block: Block) -> int:
    return block.feed_forward.parameters_each(block.hidden) if block.feed_forward.experts else 0


def _head_kept(architecture: Architecture, style: Style) -> float:
    """The final norm, and its result as the head's input."""
    main = architecture.main
    operand = style.numerics.operand * main.hidden if style.trained else 0
    return norm_kept(main.hidden, main.norm, style, style.numerics.residual) + operand


def _stem_kept(architecture: Architecture, numbers: Numerics) -> float:
    """Before the first layer: pixels, and their cast copy; or BERT's embedding norm, with its head's dense layer and norm."""
    if architecture.kind == "vit":
        return PATCH_VALUES * (FP32 + (numbers.compute if numbers.compute != FP32 else 0))
    if architecture.kind == "encoder" and architecture.has_head:
        return architecture.hidden * (numbers.residual + 2 * numbers.compute)
    return 0.0


PATCH_VALUES = 3 * 16 * 16
"""Numbers of one image patch: 3 colours of 16 x 16 pixels (14 x 14 in some)."""
