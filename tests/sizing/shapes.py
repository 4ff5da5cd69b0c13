"""Architectures for tests: Llama-like models of any size, and shipped ones by name."""

from __future__ import annotations

from functools import cache

from costguard.data import ShippedFacts
from costguard.sizing.architecture import Architecture, Attention, FeedForward, LayerBlock

FACTS = ShippedFacts()


@cache
def shipped(name: str) -> Architecture:
    return FACTS.get_architecture(name)


def llama_like(
    *, layers: int = 4, hidden: int = 512, heads: int = 8, kv_heads: int = 8, ffn: int = 1376, vocab: int = 1000
) -> Architecture:
    """A decoder with Llama's modules."""
    attention = Attention(heads=heads, kv_heads=kv_heads, head_dim=hidden // heads)
    block = LayerBlock(layers=layers, hidden=hidden, attention=attention, feed_forward=FeedForward(ffn=ffn))
    return Architecture(name="llama-like", kind="decoder", blocks=(block,), vocab=vocab, extras=(("norm", hidden),))


def of_size(billions: float) -> Architecture:
    """A decoder as wide as Llama-2-7B, or half as wide below 3 billion, with as many layers as make `billions` parameters."""
    hidden, ffn = (4096, 11008) if billions >= 3 else (2048, 5504)
    each = 4 * hidden * hidden + 3 * hidden * ffn
    layers = max(round((billions * 1e9 - 2 * 32000 * hidden) / each), 1)
    return llama_like(layers=layers, hidden=hidden, heads=32, kv_heads=32, ffn=ffn, vocab=32000)


def stated(billions: float) -> Architecture:
    """Llama-2-7B's shape with exactly `billions` parameters stated."""
    base = shipped("llama-2-7b")
    return Architecture(name="stated", kind="decoder", blocks=base.blocks, vocab=32000, stated_params=round(billions * 1e9))
