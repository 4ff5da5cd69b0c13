"""One builder for each kind of model an `[architecture]` table can state: the layers and what stands around them."""

from __future__ import annotations

from dataclasses import replace

from costguard.sizing.architecture import NORMS, Architecture, LayerBlock
from costguard.sizing.huggingface.config import ModelConfig
from costguard.sizing.huggingface.diffusion import read_dit
from costguard.sizing.layer_implementation import LIKE_BERT, LIKE_T5
from costguard.sizing.layers import _read_block, _read_head_width
from costguard.sizing.stated import CLIP_WORDS, MOST_LAYERS, ArchitectureTable, _name_field
from costguard.values.checks import require


def _build_decoder(stated: ArchitectureTable, name: str) -> Architecture:
    block = _read_block(stated)
    positions = stated.read_optional("positions")
    return Architecture(
        name=name,
        kind="decoder",
        blocks=(block,),
        vocab=stated.vocab,
        tied_embeddings=stated.tied,
        extras=_list_extras(("positions", (positions or 0) * block.hidden), ("final_norm", block.hidden * NORMS[block.norm])),
        positions=positions,
    )


def _build_encoder(stated: ArchitectureTable, name: str) -> Architecture:
    """As BERT: learned positions (512), a norm after the embedding, a head that predicts masked words."""
    block = replace(_read_block(stated), causal=False, written=LIKE_BERT)
    hidden, positions = block.hidden, stated.read_size("positions", 512)
    return Architecture(
        name=name,
        kind="encoder",
        blocks=(block,),
        vocab=stated.vocab,
        tied_embeddings=stated.tied,
        extras=_list_extras(("positions", positions * hidden), ("embedding_norm", hidden * NORMS[block.norm])),
        positions=positions,
    )


def _build_encoder_decoder(stated: ArchitectureTable, name: str) -> Architecture:
    """As T5: `layers` in each half, no positions unless stated."""
    encoder = replace(_read_block(stated), causal=False, written=LIKE_T5)
    decoder = replace(encoder, norms=3, causal=True, cross_attention=True)
    positions = stated.read_optional("positions")
    learned = 2 * (positions or 0) * encoder.hidden
    return Architecture(
        name=name,
        kind="encoder-decoder",
        blocks=(encoder, decoder),
        vocab=stated.vocab,
        tied_embeddings=stated.tied,
        extras=_list_extras(("positions", learned), ("final_norms", 2 * encoder.hidden * NORMS[encoder.norm])),
        positions=positions,
    )


def _build_vit(stated: ArchitectureTable, name: str) -> Architecture:
    """Patches of 16 pixels of an image of 224, a class token, 1,000 labels: unless stated."""
    tokens, patch = _read_patches(stated)
    block = replace(_read_block(stated), causal=False, tokens=tokens)
    hidden, labels = block.hidden, stated.read_size("labels", 1000, least=0)
    return Architecture(
        name=name,
        kind="vit",
        blocks=(block,),
        has_head=False,
        extras=_list_extras(
            *_list_image_extras(block, tokens, patch, norms=1), ("patch_bias", hidden), ("classifier", labels * (hidden + 1))
        ),
        sample_tokens=tokens,
        positions=tokens,
    )


def _build_clip(stated: ArchitectureTable, name: str) -> Architecture:
    """The numbers are the image tower's; the text tower is its equal unless text_layers, text_hidden, text_heads say."""
    tokens, patch = _read_patches(stated)
    vision = replace(_read_block(stated), causal=False, tokens=tokens)
    hidden, heads = stated.read_size("text_hidden", vision.hidden), stated.read_size("text_heads", vision.attention.heads)
    words = stated.read_size("positions", CLIP_WORDS)
    text = replace(
        vision,
        layers=stated.read_size("text_layers", vision.layers, most=MOST_LAYERS),
        hidden=hidden,
        attention=replace(
            vision.attention, heads=heads, kv_heads=heads, head_dim=_read_head_width(hidden, heads, None, "text_heads")
        ),
        feed_forward=replace(vision.feed_forward, ffn=4 * hidden),
        causal=True,
        tokens=words,
    )
    return Architecture(
        name=name,
        kind="clip",
        blocks=(vision, text),
        vocab=stated.vocab,
        vocab_width=hidden,
        has_head=False,
        extras=_list_extras(
            *_list_image_extras(vision, tokens, patch, norms=2),
            ("text.positions", words * hidden),
            ("text.final_norm", hidden * NORMS[text.norm]),
            ("projections", hidden * (hidden + vision.hidden)),
            ("logit_scale", 1),
        ),
        sample_tokens=tokens + words,
        positions=words,
    )


def _build_dit(stated: ArchitectureTable, name: str) -> Architecture:
    """As DiT: patches of 2 of a latent an eighth as wide as its image of 256, 1,000 classes: unless stated."""
    return read_dit(
        ModelConfig(
            {
                "hidden_size": stated.read_size("hidden"),
                "num_hidden_layers": stated.read_size("layers", most=MOST_LAYERS),
                "num_attention_heads": stated.read_size("heads"),
                "image_size": stated.read_size("image_size", 256, most=100_000),
                "patch_size": stated.read_size("patch_size", 2, most=100_000),
                "num_labels": stated.read_size("labels", 1000),
            },
            "architecture",
        ),
        name,
    )


BUILDERS = {
    "decoder": _build_decoder,
    "encoder": _build_encoder,
    "encoder-decoder": _build_encoder_decoder,
    "vit": _build_vit,
    "clip": _build_clip,
    "dit": _build_dit,
}


def _read_patches(stated: ArchitectureTable) -> tuple[int, int]:
    """(tokens of an image with its class token, side of a patch)."""
    image, patch = stated.read_size("image_size", 224, most=100_000), stated.read_size("patch_size", 16, most=100_000)
    require(patch <= image, _name_field("patch_size"), f"{patch} is larger than image_size ({image})", "write patch_size = 16")
    return (image // patch) ** 2 + 1, patch


def _list_image_extras(block: LayerBlock, tokens: int, patch: int, *, norms: int) -> tuple[tuple[str, int], ...]:
    hidden = block.hidden
    return (
        ("patches", 3 * patch * patch * hidden),
        ("class_token", hidden),
        ("image_positions", tokens * hidden),
        ("image_norms", norms * hidden * NORMS[block.norm]),
    )


def _list_extras(*named: tuple[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple((name, count) for name, count in named if count)
