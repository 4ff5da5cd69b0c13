"""What is measured of a model once, whatever its split: parameters by kind and bytes per token (`measure`, `convnet`)."""

from __future__ import annotations

from dataclasses import dataclass

from costguard.sizing.memory.activations import LayerActivations
from costguard.sizing.memory.frameworks import Numerics


@dataclass(frozen=True, slots=True)
class ModelMeasure:
    """Parameters by kind, and bytes per token.

    Parameters:
    - `matrices` of all layers (including `experts`), `small` (norms, biases, positions), `embedding`, `head`,
        `adapters`.
    - Of one layer: `layer_parameters`, `attention_parameters`, and those of its last matrix (`down_parameters`).

    Bytes per token:

    - `waiting`: kept by all layers between their passes. `waiting_unsplit`: the part of it that every tensor-parallel
        rank holds in full unless the sequence is split too.
    - `layer`: the widest layer while it computes. `stem`: before the layers. `outside`: before and after them.
        `head_input`: the part of `outside` that the head reads.
    - `mask`: shared by all layers. `unneeded`: what the first layer does not need to keep.

    Others:

    - `beside`: parameters of frozen models that are held beside this one. `loaded`: of those that are
        beside it only until the first step (text encoders, whose outputs are computed once). `content`: see `RunKind`.
    - `capped`: logits pass through a tanh, whose result is kept.
    - `cached`: numbers of keys and values per token. `cache_splits`: ranks over which tensor parallelism can divide
        them (a latent cannot be divided and is on every rank). `states`: numbers that linear attention stores instead,
        for all sequences.
    - `predicted`: share (0..1) of the tokens for which words are predicted: of an encoder-decoder, its decoder's.
    - `casts`: bytes of autocast's copies of all layers' matrices. `casts_cached`: they stay until the forward pass
        ends.
    """

    numbers: Numerics
    matrices: int
    experts: int
    small: int
    embedding: int
    head: int
    adapters: int
    tied: bool
    layer_parameters: int
    attention_parameters: int
    down_parameters: int
    largest_matrix: int
    head_quantised: bool
    tokens: int
    waiting: float
    waiting_unsplit: float
    layer: LayerActivations
    stem: float
    outside: float
    head_input: float
    mask: float
    unneeded: float
    casts: int
    cast_layer: int
    cast_head: int
    casts_cached: bool
    vocab: int
    predicted: float
    hidden: int
    loss_number: int
    capped: bool
    cached: float
    states: int
    cache_splits: int
    beside: int = 0
    loaded: int = 0
    content: str = "text"
