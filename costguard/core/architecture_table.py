"""The shape of a model that somebody states in numbers: the job file's `[architecture]` table.

    [architecture]
    layers = 32
    hidden = 4096
    heads = 32
    ffn = 11008
    vocab = 32000

is Llama-2-7B: 6,738,415,616 parameters. What is left out takes the usual value of its `kind`; what was taken for
granted and moves the count stands in `Architecture.notes`. `params` replaces the count where the shape is not fully known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from costguard.core.architecture import (
    KINDS,
    NORMS,
    Architecture,
    Attention,
    Block,
    FeedForward,
    Latent,
)
from costguard.core.checks import described, nearest_names, one_of, require, whole
from costguard.errors import InputError, UnknownNameError

SIZES = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "positions", "window", "params")
EXPERT_KEYS = ("experts", "experts_per_token", "shared_ffn")
LATENT_KEYS = ("q_rank", "kv_rank", "rope_dim", "nope_dim", "value_dim")
FLAGS = ("gated", "tied_embeddings", "bias", "qkv_bias")
WORDS = ("kind", "name", "norm", "activation")
IMAGE_KEYS = ("image_size", "patch_size", "labels")
TEXT_KEYS = ("text_layers", "text_hidden", "text_heads")
KEYS = (*WORDS, *SIZES, *FLAGS, *EXPERT_KEYS, *LATENT_KEYS, *IMAGE_KEYS, *TEXT_KEYS)

MOST_LAYERS = 10_000
MOST_WIDTH = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Usual:
    """What models of one kind have where nothing is said."""

    vocab: int
    norm: str = "layernorm"
    gated: bool = False
    bias: bool = True
    tied: bool = False


USUAL = {
    "decoder": Usual(vocab=32_000, norm="rmsnorm", gated=True, bias=False),
    "encoder": Usual(vocab=30_522, tied=True),
    "encoder-decoder": Usual(vocab=32_128, norm="rmsnorm", bias=False, tied=True),
    "vit": Usual(vocab=0),
    "clip": Usual(vocab=49_408),
}
CLIP_WORDS = 77


def architecture_from_table(table: Mapping[str, object]) -> Architecture:
    """The shape that `table` states; InputError names the key that is missing, unknown, wrong or contradicted."""
    require(isinstance(table, Mapping), "architecture", "must be a table", "write it as an [architecture] section")
    _known(table)
    kind = one_of(table.get("kind", "decoder"), KINDS, _field("kind"))
    stated = Stated(table, USUAL[kind])
    architecture = BUILDERS[kind](stated, _name(table))
    params = table.get("params")
    return replace(
        architecture,
        stated_params=None if params is None else whole(params, _field("params")),
        notes=() if params is not None else stated.notes,
    )


@dataclass(frozen=True, slots=True)
class Stated:
    """The table, and what its kind usually has."""

    table: Mapping[str, object]
    usual: Usual

    def size(self, key: str, default: int | None = None, *, least: int = 1, most: int = MOST_WIDTH) -> int:
        """`table[key]`, else `default`, else an error that says how to write it."""
        value = self.table.get(key, default)
        if value is None:
            raise InputError("is missing", field=_field(key), hint=f"write {key} = {EXAMPLES.get(key, 64)}")
        return whole(value, _field(key), least=least, most=most)

    def optional(self, key: str) -> int | None:
        """`table[key]`, None where it is absent."""
        return self.size(key) if self.table.get(key) is not None else None

    def flag(self, key: str, *, default: bool) -> bool:
        """`table[key]` as true or false."""
        value = self.table.get(key, default)
        if not isinstance(value, bool):
            raise InputError(f"is {described(value)}, not true or false", field=_field(key), hint=f"write {key} = true")
        return value

    @property
    def vocab(self) -> int:
        """Rows of the embedding."""
        return self.size("vocab", self.usual.vocab, least=0)

    @property
    def norm(self) -> str:
        """Kind of norm."""
        return one_of(self.table.get("norm", self.usual.norm), NORMS, _field("norm"))

    @property
    def tied(self) -> bool:
        """Whether the head is the embedding."""
        return self.flag("tied_embeddings", default=self.usual.tied)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was taken for granted and moves the count."""
        if "vocab" in self.table or not self.usual.vocab:
            return ()
        return (f"architecture.vocab is not stated: {self.usual.vocab:,} taken",)


def _decoder(stated: Stated, name: str) -> Architecture:
    block = _block(stated)
    positions = stated.optional("positions")
    return Architecture(
        name=name,
        kind="decoder",
        blocks=(block,),
        vocab=stated.vocab,
        tied_embeddings=stated.tied,
        extras=_extras(("positions", (positions or 0) * block.hidden), ("final_norm", block.hidden * NORMS[block.norm])),
        positions=positions,
    )


def _encoder(stated: Stated, name: str) -> Architecture:
    """As BERT: learned positions (512), a norm after the embedding, a head that predicts masked words."""
    block = replace(_block(stated), causal=False)
    hidden, positions = block.hidden, stated.size("positions", 512)
    return Architecture(
        name=name,
        kind="encoder",
        blocks=(block,),
        vocab=stated.vocab,
        tied_embeddings=stated.tied,
        extras=_extras(("positions", positions * hidden), ("embedding_norm", hidden * NORMS[block.norm])),
        positions=positions,
    )


def _encoder_decoder(stated: Stated, name: str) -> Architecture:
    """As T5: `layers` in each half, no positions unless stated."""
    encoder = replace(_block(stated), causal=False)
    decoder = replace(encoder, norms=3, causal=True, cross_attention=True)
    positions = stated.optional("positions")
    learned = 2 * (positions or 0) * encoder.hidden
    return Architecture(
        name=name,
        kind="encoder-decoder",
        blocks=(encoder, decoder),
        vocab=stated.vocab,
        tied_embeddings=stated.tied,
        extras=_extras(("positions", learned), ("final_norms", 2 * encoder.hidden * NORMS[encoder.norm])),
        positions=positions,
    )


def _vit(stated: Stated, name: str) -> Architecture:
    """Patches of 16 pixels of an image of 224, a class token, 1,000 labels: unless stated."""
    tokens, patch = _patches(stated)
    block = replace(_block(stated), causal=False, tokens=tokens)
    hidden, labels = block.hidden, stated.size("labels", 1000, least=0)
    return Architecture(
        name=name,
        kind="vit",
        blocks=(block,),
        has_head=False,
        extras=_extras(
            *_image_ends(block, tokens, patch, norms=1), ("patch_bias", hidden), ("classifier", labels * (hidden + 1))
        ),
        sample_tokens=tokens,
        positions=tokens,
    )


def _clip(stated: Stated, name: str) -> Architecture:
    """The numbers are the image tower's; the text tower is its equal unless text_layers, text_hidden, text_heads say."""
    tokens, patch = _patches(stated)
    vision = replace(_block(stated), causal=False, tokens=tokens)
    hidden, heads = stated.size("text_hidden", vision.hidden), stated.size("text_heads", vision.attention.heads)
    words = stated.size("positions", CLIP_WORDS)
    text = replace(
        vision,
        layers=stated.size("text_layers", vision.layers, most=MOST_LAYERS),
        hidden=hidden,
        attention=replace(
            vision.attention, heads=heads, kv_heads=heads, head_dim=_head_width(hidden, heads, None, "text_heads")
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
        extras=_extras(
            *_image_ends(vision, tokens, patch, norms=2),
            ("text.positions", words * hidden),
            ("text.final_norm", hidden * NORMS[text.norm]),
            ("projections", hidden * (hidden + vision.hidden)),
            ("logit_scale", 1),
        ),
        sample_tokens=tokens + words,
        positions=words,
    )


BUILDERS = {
    "decoder": _decoder,
    "encoder": _encoder,
    "encoder-decoder": _encoder_decoder,
    "vit": _vit,
    "clip": _clip,
}
EXAMPLES = {"layers": 32, "hidden": 4096, "heads": 32, "experts_per_token": 2, "kv_rank": 512}


def _block(stated: Stated) -> Block:
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
        _field("kv_heads"),
        f"{shared} does not divide heads ({heads})",
        f"write a divisor of {heads}",
    )
    latent = _latent(stated)
    bias = stated.flag("bias", default=stated.usual.bias)
    return Attention(
        heads=heads,
        kv_heads=shared,
        head_dim=_head_width(hidden, heads, stated.optional("head_dim"), "heads")
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


def _head_width(hidden: int, heads: int, head_dim: int | None, key: str) -> int:
    if head_dim is not None:
        return head_dim
    require(
        hidden % heads == 0,
        _field(key),
        f"{heads} heads do not divide a hidden size of {hidden}",
        f"write a divisor of {hidden}, or state head_dim",
    )
    return hidden // heads


def _feed_forward(stated: Stated) -> FeedForward:
    gated = stated.flag("gated", default=stated.usual.gated)
    experts = stated.size("experts", 0, least=0)
    require(
        bool(experts) or not any(key in stated.table for key in EXPERT_KEYS[1:]),
        _field("experts"),
        "is missing beside experts_per_token or shared_ffn",
        "write experts = 8, or leave the others out",
    )
    each = stated.size("experts_per_token") if experts else 0
    require(each <= experts, _field("experts_per_token"), f"{each} is more than experts ({experts})", "write 2")
    activation = stated.table.get("activation", "silu" if gated else "gelu")
    require(isinstance(activation, str), _field("activation"), f"must be text, not {described(activation)}", 'write "gelu"')
    return FeedForward(
        ffn=stated.size("ffn", 4 * stated.size("hidden"), most=4 * MOST_WIDTH),
        gated=gated,
        bias=stated.flag("bias", default=stated.usual.bias),
        activation=str(activation),
        experts=experts,
        experts_per_token=each,
        shared_ffn=stated.size("shared_ffn", 0, least=0),
    )


def _patches(stated: Stated) -> tuple[int, int]:
    """(tokens of an image with its class token, side of a patch)."""
    image, patch = stated.size("image_size", 224, most=100_000), stated.size("patch_size", 16, most=100_000)
    require(patch <= image, _field("patch_size"), f"{patch} is larger than image_size ({image})", "write patch_size = 16")
    return (image // patch) ** 2 + 1, patch


def _image_ends(block: Block, tokens: int, patch: int, *, norms: int) -> tuple[tuple[str, int], ...]:
    hidden = block.hidden
    return (
        ("patches", 3 * patch * patch * hidden),
        ("class_token", hidden),
        ("image_positions", tokens * hidden),
        ("image_norms", norms * hidden * NORMS[block.norm]),
    )


def _extras(*named: tuple[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple((name, count) for name, count in named if count)


def _known(table: Mapping[str, object]) -> None:
    for key in table:
        if key not in KEYS:
            raise UnknownNameError(
                "key",
                str(key),
                field=_field(str(key)),
                nearest=nearest_names(str(key), KEYS),
                hint=f"known keys: {', '.join(KEYS)}",
            )


def _name(table: Mapping[str, object]) -> str:
    name = table.get("name", "custom")
    require(isinstance(name, str) and bool(name), _field("name"), f"must be text, not {described(name)}", 'write name = "mine"')
    return str(name)


def _field(key: str) -> str:
    return f"architecture.{key}"
