"""How the modules of a job are written, as far as it decides what they keep for the backward pass.

Example: Llama in Hugging Face on batches of two: flash attention with a mask a layer, key heads repeated, norms in pieces.
The same model under Megatron: no mask, key heads as they are, norms in one kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

from costguard.core.frameworks import fuses, modules
from costguard.core.numerics import Numerics
from costguard.core.recipe import Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """`trained`: the base weights need gradients. `targets`, `rank`: of adapters. `seq`: tokens a query can see.

    `flash`: scores are never whole. `masked`: each layer keeps a mask of a number a score, for all heads. `biased`: attention
    adds a learned bias to scores, so they are whole (T5). `softmax_fp32`: eager attention's softmax is fp32 and then cast.
    `repeats_kv`, `packs_qkv`, `kernels`, `casts_adapters`: see `frameworks.Modules`. `fused`: norms and activations are one
    kernel. `quantised_input`: bytes a number of the input that a frozen quantised matrix keeps.
    """

    numerics: Numerics
    trained: bool
    targets: frozenset[str]
    rank: int
    flash: bool
    masked: bool
    repeats_kv: bool
    packs_qkv: bool
    quantised_input: int
    kernels: bool
    casts_adapters: bool
    fused: bool
    softmax_fp32: bool
    biased: bool
    dropout: bool
    seq: int


def style_of(recipe: Recipe, kind: str, numerics: Numerics, targets: frozenset[str], seq: int) -> Style:
    """How the recipe's framework writes the modules of a model of `kind`.

    Hugging Face makes a mask where a batch may hold padding: several sequences that are not cut from one stream.
    """
    known, fused = modules(recipe), fuses(recipe)
    return Style(
        numerics=numerics,
        trained=not recipe.adapters,
        targets=targets,
        rank=recipe.lora.rank,
        flash=recipe.attention != "eager",
        masked=known.pads and recipe.micro_batch > 1 and recipe.method != "pretrain" and not recipe.compiled,
        repeats_kv=known.repeats_kv and not fused,
        packs_qkv=known.packs_qkv,
        quantised_input=known.quantised_input if recipe.quant != "none" else 0,
        kernels=known.kernels,
        casts_adapters=known.casts_adapters,
        fused=fused,
        softmax_fp32=known.softmax_fp32 and kind != "encoder",
        biased=kind == "encoder-decoder",
        dropout=recipe.dropout,
        seq=seq,
    )
