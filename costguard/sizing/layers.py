"""The repeated layer that an `[architecture]` table states: attention, feed-forward, norms."""

from __future__ import annotations

from costguard.sizing.architecture import Attention, FeedForward, LayerBlock
from costguard.sizing.latent import LatentAttention
from costguard.sizing.stated import EXPERT_KEYS, LATENT_KEYS, MOST_LAYERS, MOST_WIDTH, ArchitectureTable, _name_field
from costguard.values.checks import describe_value, require


def _read_block(stated: ArchitectureTable) -> LayerBlock:
    """One run of `layers` equal layers."""
    return LayerBlock(
        layers=stated.read_size("layers", most=MOST_LAYERS),
        hidden=stated.read_size("hidden"),
        attention=_read_attention(stated),
        feed_forward=_read_feed_forward(stated),
        norm=stated.norm,
    )


def _read_attention(stated: ArchitectureTable) -> Attention:
    hidden, heads = stated.read_size("hidden"), stated.read_size("heads")
    shared = stated.read_size("kv_heads", heads)
    require(
        heads % shared == 0,
        _name_field("kv_heads"),
        f"{shared} does not divide heads ({heads})",
        f"write a divisor of {heads}",
    )
    latent = _read_latent_attention(stated)
    bias = stated.read_flag("bias", default=stated.usual.bias)
    return Attention(
        heads=heads,
        kv_heads=shared,
        head_dim=_read_head_width(hidden, heads, stated.read_optional("head_dim"), "heads")
        if latent is None
        else latent.nope_dim + latent.rope_dim,
        qkv_bias=stated.read_flag("qkv_bias", default=bias),
        out_bias=bias,
        window=stated.read_optional("window"),
        latent=latent,
    )


def _read_latent_attention(stated: ArchitectureTable) -> LatentAttention | None:
    """MLA where any of its keys is stated: then all but q_rank (0: queries pass no latent) must be."""
    if not any(key in stated.table for key in LATENT_KEYS):
        return None
    sizes = {key: stated.read_size(key) for key in LATENT_KEYS[1:]}
    return LatentAttention(q_rank=stated.read_size("q_rank", 0, least=0), **sizes)


def _read_head_width(hidden: int, heads: int, head_dim: int | None, key: str) -> int:
    """`head_dim`, else hidden / heads, which must be whole."""
    if head_dim is not None:
        return head_dim
    require(
        hidden % heads == 0,
        _name_field(key),
        f"{heads} heads do not divide a hidden size of {hidden}",
        f"write a divisor of {hidden}, or state head_dim",
    )
    return hidden // heads


def _read_feed_forward(stated: ArchitectureTable) -> FeedForward:
    gated = stated.read_flag("gated", default=stated.usual.gated)
    experts = stated.read_size("experts", 0, least=0)
    require(
        bool(experts) or not any(key in stated.table for key in EXPERT_KEYS[1:]),
        _name_field("experts"),
        "is missing beside experts_per_token or shared_ffn",
        "write experts = 8, or leave the others out",
    )
    each = stated.read_size("experts_per_token") if experts else 0
    require(each <= experts, _name_field("experts_per_token"), f"{each} is more than experts ({experts})", "write 2")
    activation = stated.table.get("activation", "silu" if gated else "gelu")
    require(
        isinstance(activation, str),
        _name_field("activation"),
        f"must be text, not {describe_value(activation)}",
        'write "gelu"',
    )
    return FeedForward(
        ffn=stated.read_size("ffn", 4 * stated.read_size("hidden"), most=4 * MOST_WIDTH),
        gated=gated,
        bias=stated.read_flag("bias", default=stated.usual.bias),
        activation=str(activation),
        experts=experts,
        experts_per_token=each,
        shared_ffn=stated.read_size("shared_ffn", 0, least=0),
    )
