"""Low-rank adapters: which matrices have one, and how many parameters they add.

Example: rank 16 on all seven matrices of Llama-2-7B adds 16 x (4 x (4096 + 4096) + 3 x (4096 + 11008)) per layer, 40.0 M in
all.
"""

from __future__ import annotations

from costguard.errors import UnknownNameError
from costguard.sizing.architecture import Architecture, LayerBlock
from costguard.sizing.recipe import Lora
from costguard.values.checks import find_nearest_names

MATRIX_ALIASES = {
    "c_attn": ("q_proj", "k_proj", "v_proj"),
    "query_key_value": ("q_proj", "k_proj", "v_proj"),
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "Wqkv": ("q_proj", "k_proj", "v_proj"),
    "query": ("q_proj",),
    "key": ("k_proj",),
    "value": ("v_proj",),
    "q": ("q_proj",),
    "k": ("k_proj",),
    "v": ("v_proj",),
    "o": ("o_proj",),
    "out_proj": ("o_proj",),
    "dense": ("o_proj",),
    "c_proj": ("o_proj", "down_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "c_fc": ("up_proj",),
    "fc1": ("up_proj",),
    "fc2": ("down_proj",),
    "dense_h_to_4h": ("up_proj",),
    "dense_4h_to_h": ("down_proj",),
    "q_lin": ("q_proj",),
    "k_lin": ("k_proj",),
    "v_lin": ("v_proj",),
    "out_lin": ("o_proj",),
    "lin1": ("up_proj",),
    "lin2": ("down_proj",),
    "fc_in": ("up_proj",),
    "fc_out": ("down_proj",),
    "Wi": ("gate_proj", "up_proj"),
    "Wo": ("o_proj", "down_proj"),
    "kv_a_proj_with_mqa": ("kv_a_proj",),
    "w1": ("gate_proj",),
    "w2": ("down_proj",),
    "w3": ("up_proj",),
    "wi": ("up_proj",),
    "wi_0": ("gate_proj",),
    "wi_1": ("up_proj",),
    "wo": ("down_proj",),
    "to_q": ("q_proj",),
    "to_k": ("k_proj",),
    "to_v": ("v_proj",),
    "to_out.0": ("o_proj",),
    "net.0.proj": ("up_proj",),
    "net.2": ("down_proj",),
    "in_proj_qkvz": ("in_proj",),
    "in_proj_qkv": ("in_proj",),
}
"""What Hugging Face's modules are called in models that do not use Llama's names: GPT-2, NeoX, Falcon, MPT, BERT, T5, Phi,
Mixtral, linear attention (transformers 5.24, 2026-11), and diffusers' transformers and U-Nets (0.42). `c_proj` ends both
halves of a GPT-2 layer; PEFT goes by how a name ends."""


ATTENTION_INPUTS = ("q_proj", "k_proj", "v_proj")
ATTENTION_MATRICES = (*ATTENTION_INPUTS, "o_proj")
FEED_INPUTS = ("gate_proj", "up_proj")


def resolve_targets(architecture: Architecture, targets: tuple[str, ...], field: str = "lora.targets") -> tuple[str, ...]:
    """Return `targets` translated to internal matrix names.

    Raise UnknownNameError for a name that matches no matrix of `architecture`.
    """
    own = {
        name
        for block in architecture.blocks
        for name in (*block.attention.list_matrices(block.hidden), *block.feed_forward.list_matrices(block.hidden))
    }
    own |= architecture.walk.matrices if architecture.walk else set()
    names: list[str] = []
    for target in targets:
        matrices = (target,) if target in own else tuple(name for name in _resolve_alias(architecture, target) if name in own)
        if not matrices:
            hint = f"write attention, all-linear, or of this model's: {', '.join(sorted(own))}"
            raise UnknownNameError("matrix", target, field=field, nearest=find_nearest_names(target, own), hint=hint)
        names += matrices
    return tuple(dict.fromkeys(names))


def _resolve_alias(architecture: Architecture, target: str) -> tuple[str, ...]:
    """Return the internal names of `target`.

    In BERT, the three matrices after query, key and value all have names that end in `dense`.
    """
    if target == "dense" and architecture.kind == "encoder":
        return ("o_proj", "up_proj", "down_proj")
    return MATRIX_ALIASES.get(target, ())


def list_adapted_matrices(architecture: Architecture, lora: Lora) -> frozenset[str]:
    """Return the names of the matrices that have an adapter, with the model's own module names resolved."""
    if not isinstance(lora.targets, str):
        return frozenset(part for name in lora.targets for part in (name, *_resolve_alias(architecture, name)))
    blocks = architecture.blocks
    if architecture.walk is not None:
        own = architecture.walk.matrices
        return own & frozenset(ATTENTION_MATRICES) if lora.targets == "attention" else own
    attention = frozenset(name for b in blocks for name in b.attention.list_matrices(b.hidden))
    if lora.targets == "attention":
        return attention
    return attention | frozenset(name for b in blocks for name in b.feed_forward.list_matrices(b.hidden))


def count_adapter_parameters(block: LayerBlock, targets: frozenset[str], rank: int) -> int:
    """Return the parameters added to one layer: rank x (inputs + outputs) for each adapted matrix.

    With experts, every expert has its own adapters.
    """
    a, f = block.attention, block.feed_forward
    attention = _sum_sides(a.list_matrices(block.hidden), targets, ATTENTION_INPUTS if a.fused else ())
    feed = _sum_sides(f.list_matrices(block.hidden), targets, FEED_INPUTS if f.fused else ())
    return rank * ((2 if block.cross_attention else 1) * attention + max(f.experts, 1) * feed)


def _sum_sides(matrices: dict[str, tuple[int, int]], targets: frozenset[str], fused: tuple[str, ...]) -> int:
    """Return the sum of inputs and outputs of all adapted matrices.

    The matrices of `fused` are one matrix, whose input counts once.
    """
    alone = sum(i + o for name, (i, o) in matrices.items() if name in targets and name not in fused)
    if not any(name in targets for name in fused):
        return alone
    together = [matrices[name] for name in fused if name in matrices]
    return alone + sum(o for _, o in together) + max((i for i, _ in together), default=0)
