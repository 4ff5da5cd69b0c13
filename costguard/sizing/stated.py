"""The `[architecture]` table, read key by key; a missing key takes what its kind usually has, or is an error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from costguard.errors import InputError
from costguard.sizing.architecture import NORMS
from costguard.values.checks import describe_value, require_one_of, require_whole_number

SIZES = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "positions", "window", "params")
EXPERT_KEYS = ("experts", "experts_per_token", "shared_ffn")
LATENT_KEYS = ("q_rank", "kv_rank", "rope_dim", "nope_dim", "value_dim")
FLAGS = ("gated", "tied_embeddings", "bias", "qkv_bias")
WORDS = ("kind", "name", "norm", "activation")
IMAGE_KEYS = ("image_size", "patch_size", "labels")
TEXT_KEYS = ("text_layers", "text_hidden", "text_heads")
ARCHITECTURE_KEYS = (*WORDS, *SIZES, *FLAGS, *EXPERT_KEYS, *LATENT_KEYS, *IMAGE_KEYS, *TEXT_KEYS)

MOST_LAYERS = 10_000
MOST_WIDTH = 10**9
EXAMPLE_VALUES = {"layers": 32, "hidden": 4096, "heads": 32, "experts_per_token": 2, "kv_rank": 512}


@dataclass(frozen=True, slots=True, kw_only=True)
class KindDefaults:
    """What models of one kind have where nothing is said."""

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


@dataclass(frozen=True, slots=True)
class ArchitectureTable:
    """The table, and what its kind usually has."""

    table: Mapping[str, object]
    usual: KindDefaults

    def read_size(self, key: str, default: int | None = None, *, least: int = 1, most: int = MOST_WIDTH) -> int:
        """`table[key]`, else `default`, else an error that says how to write it."""
        value = self.table.get(key, default)
        if value is None:
            raise InputError("is missing", field=_name_field(key), hint=f"write {key} = {EXAMPLE_VALUES.get(key, 64)}")
        return require_whole_number(value, _name_field(key), least=least, most=most)

    def read_optional(self, key: str) -> int | None:
        """`table[key]`, None where it is absent."""
        return self.read_size(key) if self.table.get(key) is not None else None

    def read_flag(self, key: str, *, default: bool) -> bool:
        """`table[key]` as true or false."""
        value = self.table.get(key, default)
        if not isinstance(value, bool):
            raise InputError(
                f"is {describe_value(value)}, not true or false", field=_name_field(key), hint=f"write {key} = true"
            )
        return value

    @property
    def vocab(self) -> int:
        """Rows of the embedding."""
        return self.read_size("vocab", self.usual.vocab, least=0)

    @property
    def norm(self) -> str:
        """Kind of norm."""
        return require_one_of(self.table.get("norm", self.usual.norm), NORMS, _name_field("norm"))

    @property
    def tied(self) -> bool:
        """Whether the head is the embedding."""
        return self.read_flag("tied_embeddings", default=self.usual.tied)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was taken for granted and moves the count."""
        if "vocab" in self.table or not self.usual.vocab:
            return ()
        return (f"architecture.vocab is not stated: {self.usual.vocab:,} taken",)


def _name_field(key: str) -> str:
    """How an error names `key`."""
    return f"architecture.{key}"
