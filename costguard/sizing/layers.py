"""The repeated layer that an `[architecture]` table states: attention, feed-forward, norms."""

from __future__ import annotations

from costguard.sizing.architecture import Attention, Block, FeedForward
from costguard.sizing.latent import Latent
from costguard.sizing.stated import EXPERT_KEYS, LATENT_KEYS, MOST_LAYERS, MOST_WIDTH, Stated, field
from costguard.values.checks import describe_value, require


def block_of(stated: Stated) -> Block:
    """One run of `layers` equal layers."""
    return Block(
        layers=stated.size("layers", most=MOST_LAYERS),
        hidden=stated.size("hidden"),
        attention=_attention(stated),
        feed_forward=_feed_forward(stated),
        norm=stated.norm,
    )


def _attention(stated: Stated) -> Attention:
    hidden, heads = stated.size("hidden"), stated.size("heads")
    shared = stated.size("kv_heads", heads)
    require(
        heads % shared == 0,
        field("kv_heads"),
        f"{shared} does not divide heads ({heads})",
        f"write a divisor of {heads}",
    )
    latent = _latent(stated)
    bias = stated.flag("bias", default=stated.usual.bias)
    return Attention(
        heads=heads,
        kv_heads=shared,
        head_dim=head_width(hidden, heads, stated.optional("head_dim"), "heads")
        if latent is None
        else latent.nope_dim + latent.rope_dim,
        qkv_bias=stated.flag("qkv_bias", default=bias),
        out_bias=bias,
        window=stated.optional("window"),
        latent=latent,
    )


def _latent(stated: Stated) -> Latent | None:
    """MLA where any of its keys is stated: then all but q_rank (0: queries pass no latent) must be."""
    if not any(key in stated.table for key in LATENT_KEYS):
        return None
    sizes = {key: stated.size(key) for key in LATENT_KEYS[1:]}
    return Latent(q_rank=stated.size("q_rank", 0, least=0), **sizes)


def head_width(hidden: int, heads: int, head_dim: int | None, key: str) -> int:
    """`head_dim`, else hidden / heads, which must be whole."""
    if head_dim is not None:
        return head_dim
    require(
        hidden % heads == 0,
        field(key),
        f"{heads} heads do not divide a hidden size of {hidden}",
        f"write a divisor of {hidden}, or state head_dim",
    )
    return hidden // heads


def _feed_forward(stated: Stated) -> FeedForward:
    gated = stated.flag("gated", default=stated.usual.gated)
    experts = stated.size("experts", 0, least=0)
    require(
        bool(experts) or not any(key in stated.table for key in EXPERT_KEYS[1:]),
        field("experts"),
        "is missing beside experts_per_token or shared_ffn",
        "write experts = 8, or leave the others out",
    )
    each = stated.size("experts_per_token") if experts else 0
    require(each <= experts, field("experts_per_token"), f"{each} is more than experts ({experts})", "write 2")
    activation = stated.table.get("activation", "silu" if gated else "gelu")
    require(isinstance(activation, str), field("activation"), f"must be text, not {describe_value(activation)}", 'write "gelu"')
    return FeedForward(
        ffn=stated.size("ffn", 4 * stated.size("hidden"), most=4 * MOST_WIDTH),
        gated=gated,
        bias=stated.flag("bias", default=stated.usual.bias),
        activation=str(activation),
        experts=experts,
        experts_per_token=each,
        shared_ffn=stated.size("shared_ffn", 0, least=0),
    )
