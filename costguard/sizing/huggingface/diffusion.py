"""DiT: a transformer over the patches of an image's latent, steered by time and class (Peebles and Xie, arXiv 2212.09748).

Example: DiT-XL/2 at 256 pixels sees a latent of 32 x 32 x 4, 16 x 16 = 256 tokens: 28 layers of 1152, 675,129,632 parameters.
A third of them (adaLN's modulation, 6 x 1152^2 a layer) work once a sample, not once a token: they count as memory, and
hardly as FLOPs (118.6 G multiply-adds an image). A layer keeps 40.1 x 1152 bytes a token in bf16, as autograd's saved tensors
do (40.1; 80.2 in fp32; torch 2.13, 2026-11).
"""

from __future__ import annotations

from collections.abc import Mapping

from costguard.sizing.architecture import Architecture, Attention, FeedForward, LayerBlock
from costguard.sizing.huggingface.config import ModelConfig
from costguard.values.checks import require

DIT_DEFAULTS: Mapping[str, object] = {
    "image_size": 256,
    "patch_size": 2,
    "in_channels": 4,
    "num_labels": 1000,
    "latent_shrinks": 8,
}
FREQUENCIES = 256
"""Width of the time step's sines."""
MODULATIONS = 6
"""Shift, scale and gate of each half of a layer."""
KEPT_TENSORS = 6
"""Tensors of a layer's width kept as norms keep their input: two norms' inputs, what is scaled twice, what is gated twice."""


def read_dit(config: ModelConfig, name: str) -> Architecture:
    """A DiT with learned variance, as published."""
    c = config.fill_defaults(DIT_DEFAULTS)
    hidden, layers, heads = c.read_size("hidden_size"), c.read_size("num_hidden_layers"), c.read_size("num_attention_heads")
    patch, latent, labels = c.read_size("patch_size"), c.read_size("in_channels"), c.read_size("num_labels")
    require(hidden % heads == 0, "num_attention_heads", f"{heads} do not divide {hidden}", f"write a divisor of {hidden}")
    tokens = (c.read_size("image_size") // c.read_size("latent_shrinks") // patch) ** 2
    block = LayerBlock(
        layers=layers,
        hidden=hidden,
        attention=Attention(heads=heads, kv_heads=heads, head_dim=hidden // heads, qkv_bias=True, out_bias=True),
        feed_forward=FeedForward(ffn=4 * hidden, gated=False, bias=True, activation="gelu"),
        norm="layernorm-no-parameters",
        norms=KEPT_TENSORS,
        causal=False,
        tokens=tokens,
    )
    values = patch * patch * latent
    return Architecture(
        name=name,
        kind="dit",
        blocks=(block,),
        has_head=False,
        extras=(
            ("modulation", layers * MODULATIONS * (hidden * hidden + hidden)),
            ("patches", values * hidden + hidden),
            ("positions", tokens * hidden),
            ("time", (FREQUENCIES + 1) * hidden + (hidden + 1) * hidden),
            ("classes", (labels + 1) * hidden),
            ("final", 2 * (hidden * hidden + hidden) + (hidden + 1) * 2 * values),
        ),
        sample_tokens=tokens,
        positions=tokens,
    )
