"""Measures the part of a job's memory that does not depend on its split: parameters by kind and bytes per token.

It is measured once for a model and a recipe, so each of hundreds of splits then costs only microseconds.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from costguard.sizing.architecture import Architecture, LayerBlock
from costguard.sizing.memory.activations import LayerActivations, compute_layer_activations, compute_norm_kept
from costguard.sizing.memory.adapters import count_adapter_parameters, list_adapted_matrices
from costguard.sizing.memory.convnet import measure_convnet
from costguard.sizing.memory.frameworks import (
    FP32,
    LayerStyle,
    Numerics,
    choose_layer_style,
    choose_numerics,
    get_framework,
    is_layer_recomputed,
)
from costguard.sizing.memory.model_measure import ModelMeasure
from costguard.sizing.recipe import Parallelism, Recipe

PATCH_VALUES = 3 * 16 * 16
"""Numbers of one image patch: 3 colours of 16 x 16 pixels (14 x 14 in some)."""


@lru_cache(maxsize=256)
def measure_model(architecture: Architecture, recipe: Recipe, sharding: int) -> ModelMeasure:
    """Return the measure of `architecture` under `recipe`.

    `sharding`: 0 full copies, 1 ZeRO, 2 FSDP; it decides where a master copy is stored.
    """
    numbers = choose_numerics(recipe, (Parallelism(), Parallelism(zero=1), Parallelism(fsdp=True))[sharding])
    if architecture.denoises and numbers.module_io > numbers.compute:  # trainers of diffusion models do not prepare them
        numbers = replace(numbers, module_io=numbers.compute, residual=numbers.compute)
    if architecture.walk is not None:
        return measure_convnet(architecture, architecture.walk, recipe, numbers)
    targets = list_adapted_matrices(architecture, recipe.lora) if recipe.adapters else frozenset[str]()
    seq = architecture.sample_tokens or recipe.seq_len
    blocks, main = architecture.blocks, architecture.main
    lengths = [b.count_tokens(seq, recipe.decoder_len) for b in blocks]
    acting = _widen_modules(numbers)
    styles = [choose_layer_style(recipe, b, acting, targets, n) for b, n in zip(blocks, lengths, strict=True)]
    activations = [compute_layer_activations(b, s) for b, s in zip(blocks, styles, strict=True)]
    tokens = [b.layers * n / seq for b, n in zip(blocks, lengths, strict=True)]
    style = styles[blocks.index(main)]
    matrices = sum(b.layers * _count_matrix_parameters(b) for b in blocks)
    traits = get_framework(recipe)
    embedding, head = architecture.embedding_parameters, architecture.head_parameters
    if architecture.denoises and recipe.quant != "none":  # bitsandbytes, quanto and torchao quantise every linear layer
        matrices += sum(parameters for _, parameters in architecture.extras)
    small = architecture.parameters - matrices - embedding - head
    encoders = sum(parameters for _, parameters in architecture.companions)
    tied = architecture.tied_embeddings and architecture.has_head and traits.ties
    head = embedding if architecture.tied_embeddings and architecture.has_head and not tied else head
    quantised_head = recipe.quant != "none" and traits.quantises_head
    none = not is_layer_recomputed(recipe)
    stem = _compute_stem(architecture, numbers) + _compute_position_biases(main, style, checkpointed=not none)
    return ModelMeasure(
        numbers=numbers,
        beside=encoders * (not recipe.trains),
        loaded=encoders * (recipe.trains and recipe.quant == "none"),
        matrices=matrices,
        experts=sum(b.layers * b.feed_forward.experts * b.feed_forward.count_parameters_each(b.hidden) for b in blocks),
        small=small,
        embedding=embedding,
        head=head,
        adapters=sum(b.layers * count_adapter_parameters(b, targets, recipe.lora.rank) for b in blocks),
        tied=tied,
        layer_parameters=main.parameters_each,
        attention_parameters=main.attention_parameters,
        down_parameters=main.feed_forward.ffn * main.hidden * max(main.feed_forward.experts, 1),
        largest_matrix=max(head * quantised_head, *(i * o for b in blocks for i, o in _list_shapes(b))),
        head_quantised=quantised_head,
        tokens=recipe.micro_batch * seq,
        waiting=sum(t * _compute_waiting(recipe, k) for t, k in zip(tokens, activations, strict=True)),
        waiting_unsplit=sum(t * _compute_waiting_unsplit(recipe, k) for t, k in zip(tokens, activations, strict=True)),
        layer=max(activations, key=lambda k: k.whole),
        stem=stem,
        outside=stem + _compute_after_layers(main, style, encoder=architecture.kind == "encoder-decoder"),
        head_input=numbers.operand * main.hidden if style.trained else 0.0,
        mask=0 if none else _compute_mask_numbers(blocks, style, seq),
        unneeded=activations[0].unneeded if none else 0.0,
        casts=sum(b.layers * k.casts for b, k in zip(blocks, activations, strict=True)) - activations[0].unneeded_casts * none,
        cast_layer=max(k.casts for k in activations),
        cast_head=numbers.compute * (embedding if tied else head) if numbers.autocast else 0,
        casts_cached=numbers.autocast and not recipe.adapters,
        vocab=architecture.vocab if architecture.has_head else 0,
        predicted=architecture.compute_predicted_share(seq, recipe.decoder_len),
        hidden=main.hidden,
        loss_number=_choose_loss_bytes(architecture, recipe, numbers),
        capped=style.written.capped_logits,
        cached=recipe.cache_share * sum(b.layers * b.attention.cached_width for b in blocks if b.causal),
        states=recipe.micro_batch * sum(b.layers * b.attention.state_numbers for b in blocks),
        cache_splits=min(1 if b.attention.latent else b.attention.kv_heads for b in blocks),
        content="images" if architecture.denoises else "text" if architecture.sample_tokens is None else "samples",
    )


def _widen_modules(numbers: Numerics) -> Numerics:
    """Return the numbers of the modules: fp32 where they get and hand on fp32 (`Numerics.module_io`)."""
    wide = numbers.module_io > numbers.compute
    return replace(numbers, compute=numbers.module_io, operand=max(numbers.operand, numbers.module_io)) if wide else numbers


def _choose_loss_bytes(architecture: Architecture, recipe: Recipe, numbers: Numerics) -> int:
    """Return the bytes of a number in the loss.

    Most models cast logits to fp32, and autocast does so for all; only BERT and T5 do not cast without autocast.
    """
    casts = (architecture.main.written.wide_loss and get_framework(recipe).loss_fp32) or numbers.autocast
    return FP32 if casts else numbers.compute


def _count_matrix_parameters(block: LayerBlock) -> int:
    return block.parameters_each - block.small_parameters


def _list_shapes(block: LayerBlock) -> list[tuple[int, int]]:
    return [*block.attention.list_matrices(block.hidden).values(), *block.feed_forward.list_matrices(block.hidden).values()]


def _compute_waiting(recipe: Recipe, activations: LayerActivations) -> float:
    """Return the bytes per token that one layer keeps between its forward and its backward pass."""
    if not is_layer_recomputed(recipe):
        return activations.whole - (activations.scores if recipe.checkpointing == "selective" else 0.0)
    entry = 0.0 if recipe.offload_activations else activations.entry
    return entry if recipe.checkpointing == "full" else min(activations.selective, activations.whole)


def _compute_waiting_unsplit(recipe: Recipe, activations: LayerActivations) -> float:
    """Return the part of the waiting bytes that is outside matrices and heads.

    With checkpointing this is the entry; without, the norms and their results.
    """
    if not is_layer_recomputed(recipe):
        return activations.unsplit
    return 0.0 if recipe.offload_activations else activations.entry


def _compute_mask_numbers(blocks: tuple[LayerBlock, ...], style: LayerStyle, seq: int) -> int:
    """Return the bytes per token of masks that checkpointed layers hold between their passes.

    There is one mask for layers with a window and one for layers without. An entry is one byte with flash attention, and a
    number of the residual's size with eager attention.
    """
    mask_kinds = {b.attention.window is None for b in blocks if style.has_mask(b) or (b.causal and not style.flash)}
    return len(mask_kinds) * seq * (1 if style.flash else style.numerics.residual)


def _compute_position_biases(block: LayerBlock, style: LayerStyle, *, checkpointed: bool) -> float:
    """Return the bytes per token that T5's position bias keeps.

    If it is trained, each of the two stacks keeps the bucket of each pair of positions, 8 bytes. The decoder's bias is kept
    until the backward pass. With checkpointed layers the encoder's is kept too, and if the bias is frozen, the zeros of
    cross-attention.
    """
    if not style.biased or not (style.trained or checkpointed):
        return 0.0
    biases = 1 + checkpointed + (not style.trained)
    return (2 * 8 * style.trained + biases * style.numerics.residual * block.attention.heads) * style.seq / style.batch


def _compute_after_layers(main: LayerBlock, style: LayerStyle, *, encoder: bool) -> float:
    """Return the bytes per token of the final norm, and of its result if the head is trained.

    For an encoder-decoder, those of the encoder are included.
    """
    operand = style.numerics.operand * main.hidden if style.trained else 0
    norm = compute_norm_kept(main.hidden, main.norm, style, style.numerics.residual, style.written.norms)
    return norm + operand + encoder * (norm + (0 if style.numerics.autocast else operand))


def _compute_stem(architecture: Architecture, numbers: Numerics) -> float:
    """Return the bytes per token before the layers.

    For a ViT: the pixels and their cast copy. For BERT: the embedding norm, and the dense layer and norm of its head.
    """
    if architecture.kind == "vit":
        return PATCH_VALUES * (FP32 + (numbers.compute if numbers.compute != FP32 else 0))
    if architecture.kind == "encoder" and architecture.has_head:
        return architecture.hidden * (numbers.residual + 2 * numbers.compute)
    return float(architecture.hidden * numbers.residual * architecture.main.written.normed_embedding)
