"""Builds a model's shape from the `[architecture]` table of a job file, where the user states it in numbers.

    [architecture]
    layers = 32
    hidden = 4096
    heads = 32
    ffn = 11008
    vocab = 32000

This is Llama-2-7B: 6,738,415,616 parameters. A missing key takes the usual value of its `kind`, or is an error if there is
none. Assumed values that change the count are listed in `Architecture.notes`. `params` replaces the count if the shape is not
fully known.

Each kind of model has one builder, which adds embeddings, positions and heads to the repeated layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from costguard.errors import InputError, raise_errors
from costguard.sizing.architecture import NORMS, Architecture, Attention, FeedForward, LatentAttention, LayerBlock
from costguard.sizing.huggingface.config import ModelConfig
from costguard.sizing.huggingface.diffusion import read_dit
from costguard.sizing.layer_implementation import LIKE_BERT, LIKE_T5
from costguard.values.checks import (
    Check,
    choose_from,
    describe_value,
    list_value_errors,
    permit_none,
    require,
    require_whole_number,
)


def build_architecture_from_table(table: Mapping[str, object]) -> Architecture:
    """Return the shape that `table` states; raise InputError that names a missing, unknown, wrong or contradictory key."""
    raise_errors(list_value_errors(table, ARCHITECTURE_CHECKS, "architecture"))
    kind = str(table.get("kind", "decoder"))
    architecture_table = ArchitectureTable(table, KIND_DEFAULTS[kind])
    architecture = BUILDERS[kind](architecture_table, str(table.get("name", "custom")))
    params = table.get("params")
    return replace(
        architecture,
        stated_params=None if params is None else require_whole_number(params, _name_field("params")),
        notes=() if params is not None else architecture_table.notes,
    )


LATENT_KEYS = ("q_rank", "kv_rank", "rope_dim", "nope_dim", "value_dim")
EXPERT_KEYS = ("experts", "experts_per_token", "shared_ffn")
MOST_LAYERS = 10_000
MOST_WIDTH = 10**9
EXAMPLE_VALUES = {"layers": 32, "hidden": 4096, "heads": 32, "experts_per_token": 2, "kv_rank": 512}


@dataclass(frozen=True, slots=True, kw_only=True)
class KindDefaults:
    """Default values of one kind of model."""

    vocab: int
    norm: str = "layernorm"
    gated: bool = False
    bias: bool = True
    tied: bool = False


CLIP_WORDS = 77
KIND_DEFAULTS = {
    "decoder": KindDefaults(vocab=32_000, norm="rmsnorm", gated=True, bias=False),
    "encoder": KindDefaults(vocab=30_522, tied=True),
    "encoder-decoder": KindDefaults(vocab=32_128, norm="rmsnorm", bias=False, tied=True),
    "vit": KindDefaults(vocab=0),
    "clip": KindDefaults(vocab=49_408),
    "dit": KindDefaults(vocab=0),
}


def _check_text(value: object, field: str, example: str) -> None:
    require(isinstance(value, str) and bool(value), field, f"must be text, not {describe_value(value)}", f"write {example}")


def _check_flag(value: object, field: str) -> None:
    what = f"is {describe_value(value)}, not true or false"
    require(isinstance(value, bool), field, what, f"write {field.removeprefix('architecture.')} = true")


SIZE, COUNT, LAYERS, PIXELS = (
    permit_none(partial(require_whole_number, least=least, most=most))
    for least, most in ((1, MOST_WIDTH), (0, MOST_WIDTH), (1, MOST_LAYERS), (1, 100_000))
)
ARCHITECTURE_CHECKS: Mapping[str, Check] = {
    "kind": choose_from(KIND_DEFAULTS),
    "name": partial(_check_text, example='name = "mine"'),
    "norm": choose_from(NORMS),
    "activation": partial(_check_text, example='"gelu"'),
    "layers": LAYERS,
    **dict.fromkeys(("hidden", "heads", "kv_heads", "head_dim"), SIZE),
    "ffn": permit_none(partial(require_whole_number, most=4 * MOST_WIDTH)),
    "vocab": COUNT,
    **dict.fromkeys(("positions", "window"), SIZE),
    "params": permit_none(require_whole_number),
    **dict.fromkeys(("gated", "tied_embeddings", "bias", "qkv_bias"), _check_flag),
    "experts": COUNT,
    "experts_per_token": SIZE,
    "shared_ffn": COUNT,
    "q_rank": COUNT,
    **dict.fromkeys(("kv_rank", "rope_dim", "nope_dim", "value_dim"), SIZE),
    "image_size": PIXELS,
    "patch_size": PIXELS,
    "labels": COUNT,
    "text_layers": LAYERS,
    **dict.fromkeys(("text_hidden", "text_heads"), SIZE),
}
"""The keys of the table, each with what its value by itself must be."""


@dataclass(frozen=True, slots=True)
class ArchitectureTable:
    """The table and the defaults of its kind."""

    table: Mapping[str, object]
    usual: KindDefaults

    def read_size(self, key: str, default: int | None = None) -> int:
        """Return `table[key]`, else `default`; raise InputError with an example if both are missing."""
        value = self.table.get(key, default)
        if value is None:
            raise InputError("is missing", field=_name_field(key), hint=f"write {key} = {EXAMPLE_VALUES.get(key, 64)}")
        return require_whole_number(value, _name_field(key), least=0)

    def read_optional(self, key: str) -> int | None:
        """Return `table[key]`; None if it is absent."""
        return self.read_size(key) if self.table.get(key) is not None else None

    def read_flag(self, key: str, *, default: bool) -> bool:
        """`table[key]` as true or false."""
        return bool(self.table.get(key, default))

    @property
    def vocab(self) -> int:
        """Rows of the embedding."""
        return self.read_size("vocab", self.usual.vocab)

    @property
    def norm(self) -> str:
        """Kind of norm."""
        return str(self.table.get("norm", self.usual.norm))

    @property
    def tied(self) -> bool:
        """Whether the head is the embedding."""
        return self.read_flag("tied_embeddings", default=self.usual.tied)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return a note for each assumed value that changes the parameter count."""
        usual = {} if self.table.get("vocab") is not None or not self.usual.vocab else {"vocab": self.usual.vocab}
        if self.table.get("ffn") is None:
            usual["ffn"] = 4 * self.read_size("hidden")
        return tuple(f"architecture.{key} is not stated: {size:,} taken" for key, size in usual.items())


def _name_field(key: str) -> str:
    """Return the name of `key` in error messages."""
    return f"architecture.{key}"


def _build_decoder(table: ArchitectureTable, name: str) -> Architecture:
    block = _read_block(table)
    positions = table.read_optional("positions")
    return Architecture(
        name=name,
        kind="decoder",
        blocks=(block,),
        vocab=table.vocab,
        tied_embeddings=table.tied,
        extras=_list_extras(("positions", (positions or 0) * block.hidden), ("final_norm", block.hidden * NORMS[block.norm])),
        positions=positions,
    )


def _build_encoder(table: ArchitectureTable, name: str) -> Architecture:
    """Build an encoder like BERT: learned positions (512), a norm after the embedding, a head that predicts masked words."""
    block = replace(_read_block(table), causal=False, written=LIKE_BERT)
    hidden, positions = block.hidden, table.read_size("positions", 512)
    return Architecture(
        name=name,
        kind="encoder",
        blocks=(block,),
        vocab=table.vocab,
        tied_embeddings=table.tied,
        extras=_list_extras(("positions", positions * hidden), ("embedding_norm", hidden * NORMS[block.norm])),
        positions=positions,
    )


def _build_encoder_decoder(table: ArchitectureTable, name: str) -> Architecture:
    """Build a model like T5: `layers` in the encoder and in the decoder each, no positions unless stated."""
    encoder = replace(_read_block(table), causal=False, written=LIKE_T5)
    decoder = replace(encoder, norms=3, causal=True, cross_attention=True)
    positions = table.read_optional("positions")
    learned = 2 * (positions or 0) * encoder.hidden
    return Architecture(
        name=name,
        kind="encoder-decoder",
        blocks=(encoder, decoder),
        vocab=table.vocab,
        tied_embeddings=table.tied,
        extras=_list_extras(("positions", learned), ("final_norms", 2 * encoder.hidden * NORMS[encoder.norm])),
        positions=positions,
    )


def _build_vit(table: ArchitectureTable, name: str) -> Architecture:
    """Build a ViT; defaults: image of 224 pixels, patches of 16, a class token, 1,000 labels."""
    tokens, patch = _read_patches(table)
    block = replace(_read_block(table), causal=False, tokens=tokens)
    hidden, labels = block.hidden, table.read_size("labels", 1000)
    return Architecture(
        name=name,
        kind="vit",
        blocks=(block,),
        has_head=False,
        extras=_list_extras(
            *_list_image_extras(block, tokens, patch, norms=1), ("patch_bias", hidden), ("classifier", labels * (hidden + 1))
        ),
        sample_tokens=tokens,
        sample_unit="images",
        positions=tokens,
    )


def _build_clip(table: ArchitectureTable, name: str) -> Architecture:
    """Build a CLIP model; the table describes the image tower.

    The text tower has the same sizes unless text_layers, text_hidden or text_heads are stated.
    """
    tokens, patch = _read_patches(table)
    vision = replace(_read_block(table), causal=False, tokens=tokens)
    hidden, heads = table.read_size("text_hidden", vision.hidden), table.read_size("text_heads", vision.attention.heads)
    words = table.read_size("positions", CLIP_WORDS)
    text = replace(
        vision,
        layers=table.read_size("text_layers", vision.layers),
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
        vocab=table.vocab,
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
        sample_unit="images",
        positions=words,
    )


def _build_dit(table: ArchitectureTable, name: str) -> Architecture:
    """Build a DiT; defaults: image of 256 pixels, a latent an eighth as wide, patches of 2, 1,000 classes."""
    labels = table.read_size("labels", 1000)
    require(labels > 0, _name_field("labels"), "must be at least 1, not 0", "write 1 or more")
    return read_dit(
        ModelConfig(
            {
                "hidden_size": table.read_size("hidden"),
                "num_hidden_layers": table.read_size("layers"),
                "num_attention_heads": table.read_size("heads"),
                "image_size": table.read_size("image_size", 256),
                "patch_size": table.read_size("patch_size", 2),
                "num_labels": labels,
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


def _read_patches(table: ArchitectureTable) -> tuple[int, int]:
    """Return (tokens of an image including its class token, side of a patch in pixels)."""
    image, patch = table.read_size("image_size", 224), table.read_size("patch_size", 16)
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


def _list_extras(*extras: tuple[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple((name, count) for name, count in extras if count)


def _read_block(table: ArchitectureTable) -> LayerBlock:
    """Return one run of `layers` equal layers."""
    return LayerBlock(
        layers=table.read_size("layers"),
        hidden=table.read_size("hidden"),
        attention=_read_attention(table),
        feed_forward=_read_feed_forward(table),
        norm=table.norm,
    )


def _read_attention(table: ArchitectureTable) -> Attention:
    hidden, heads = table.read_size("hidden"), table.read_size("heads")
    shared = table.read_size("kv_heads", heads)
    require(
        heads % shared == 0,
        _name_field("kv_heads"),
        f"{shared} does not divide heads ({heads})",
        f"write a divisor of {heads}",
    )
    latent = _read_latent_attention(table)
    bias = table.read_flag("bias", default=table.usual.bias)
    return Attention(
        heads=heads,
        kv_heads=shared,
        head_dim=_read_head_width(hidden, heads, table.read_optional("head_dim"), "heads")
        if latent is None
        else latent.nope_dim + latent.rope_dim,
        qkv_bias=table.read_flag("qkv_bias", default=bias),
        out_bias=bias,
        window=table.read_optional("window"),
        latent=latent,
    )


def _read_latent_attention(table: ArchitectureTable) -> LatentAttention | None:
    """Return latent attention if any of its keys is stated, else None.

    All of its keys are then required except q_rank (default 0: queries have no latent).
    """
    if not any(key in table.table for key in LATENT_KEYS):
        return None
    sizes = {key: table.read_size(key) for key in LATENT_KEYS[1:]}
    return LatentAttention(q_rank=table.read_size("q_rank", 0), **sizes)


def _read_head_width(hidden: int, heads: int, head_dim: int | None, key: str) -> int:
    """Return `head_dim`, else hidden / heads; raise InputError if that is not whole."""
    if head_dim is not None:
        return head_dim
    require(
        hidden % heads == 0,
        _name_field(key),
        f"{heads} heads do not divide a hidden size of {hidden}",
        f"write a divisor of {hidden}, or state head_dim",
    )
    return hidden // heads


def _read_feed_forward(table: ArchitectureTable) -> FeedForward:
    gated = table.read_flag("gated", default=table.usual.gated)
    experts = table.read_size("experts", 0)
    require(
        bool(experts) or not any(key in table.table for key in EXPERT_KEYS[1:]),
        _name_field("experts"),
        "is required with experts_per_token or shared_ffn",
        "write experts = 8, or remove the others",
    )
    each = table.read_size("experts_per_token") if experts else 0
    require(each <= experts, _name_field("experts_per_token"), f"{each} is more than experts ({experts})", "write 2")
    activation = table.table.get("activation", "silu" if gated else "gelu")
    return FeedForward(
        ffn=table.read_size("ffn", 4 * table.read_size("hidden")),
        gated=gated,
        bias=table.read_flag("bias", default=table.usual.bias),
        activation=str(activation),
        experts=experts,
        experts_per_token=each,
        shared_ffn=table.read_size("shared_ffn", 0),
    )
