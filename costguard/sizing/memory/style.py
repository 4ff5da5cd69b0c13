"""How the modules of a job are written, as far as it decides what they keep for the backward pass.

Example: Llama in Hugging Face on batches of two: flash attention with a mask a layer, key heads repeated, norms in pieces.
The same model under Megatron: no mask, key heads as they are, norms in one kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

from costguard.sizing.architecture import LayerBlock
from costguard.sizing.layer_implementation import LIKE_LLAMA, LayerImplementation
from costguard.sizing.memory.frameworks import get_framework, has_fused_kernels
from costguard.sizing.memory.numerics import Numerics
from costguard.sizing.recipe import Recipe

LONGEST_PADDED = 16_384
"""Tokens: a single sequence longer than that is taken to be a stream, which needs no mask (ml-engineering's runs of 32k to
256k tokens have none: it would be 137 GB)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerStyle:
    """What decides it.

    `trained`: the base weights need gradients. `targets`, `rank`: of adapters. `seq`: tokens a query can see, of `batch`
    sequences. `flash`: scores are never whole. `masked`: each layer keeps a mask of a number a score, for all heads.
    `biased`: attention adds a learned bias to scores (T5). `wide_softmax`: eager attention's softmax is fp32 and then cast.
    `repeats_kv`, `packs_qkv`, `kernels`, `casts_adapters`: see `frameworks.Modules`. `fused`: norms and activations are one
    kernel. `quantised_input`: bytes a number of the input that a frozen quantised matrix keeps. `released`: the modules are
    transformers' own, and `written` says how; else they are like Llama's.
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
    wide_softmax: bool
    biased: bool
    dropout: bool
    seq: int
    batch: int
    released: bool
    written: LayerImplementation

    def has_mask(self, block: LayerBlock) -> bool:
        """Whether each layer of `block` keeps a mask: where it sees all tokens, none is needed."""
        return self.masked and self.written.masked and (block.causal or block.attention.window is not None)


def choose_layer_style(recipe: Recipe, block: LayerBlock, numerics: Numerics, targets: frozenset[str], seq: int) -> LayerStyle:
    """How the recipe's framework writes the modules of `block`.

    Hugging Face makes a mask where a batch may hold padding: sequences that are not cut from one stream. One alone may be
    padded to a fixed length; a long one is not. (Run on fake tensors, one of any length has a mask.)
    """
    known, fused = get_framework(recipe), has_fused_kernels(recipe)
    written = block.written if known.pads else LIKE_LLAMA  # whoever pads is transformers
    return LayerStyle(
        numerics=numerics,
        trained=not recipe.adapters,
        targets=targets,
        rank=recipe.lora.rank,
        flash=recipe.attention != "eager",
        masked=_is_masked(recipe, seq),
        repeats_kv=known.repeats_kv and not fused,
        packs_qkv=known.packs_qkv,
        quantised_input=known.quantised_input if recipe.quant != "none" else 0,
        kernels=known.kernels,
        casts_adapters=known.casts_adapters,
        fused=fused,
        wide_softmax=known.softmax_fp32 and written.wide_softmax,
        biased=block.written.biased,
        dropout=recipe.dropout,
        seq=seq,
        batch=recipe.micro_batch,
        released=known.pads,
        written=written,
    )


def _is_masked(recipe: Recipe, seq: int) -> bool:
    may_pad = get_framework(recipe).pads and recipe.method != "pretrain" and not recipe.compiled
    return may_pad and (recipe.micro_batch > 1 or seq <= LONGEST_PADDED)
