"""Reads a Hugging Face `config.json` key by key; every wrong value is an error that names its key.

The same size has several spellings (`n_embd` in GPT-2, `d_model` in T5, `hidden_size` elsewhere). No model type uses two of
them for different sizes, so the spellings are synonyms here, as in transformers' own attribute maps. An absent key takes the
default of its class; a `null` value counts as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from costguard.errors import InputError
from costguard.values.checks import describe_value, require, require_whole_number

MOST_LAYERS = 10_000
MOST_WIDTH = 10**9
"""No layer is wider and no vocabulary larger: the largest known are 65,536 and 320,000."""

HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model", "dim")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
FFN = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "d_ff", "hidden_dim")
POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len")
ACTIVATION = ("hidden_activation", "hidden_act", "activation_function", "activation")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The `values` of one config.json, or of the part of it that error messages call `where`."""

    values: Mapping[str, object]
    where: str = ""

    @property
    def hidden(self) -> int:
        """Width of the model."""
        return self.read_size(*HIDDEN)

    @property
    def layers(self) -> int:
        """Number of layers."""
        return self.read_size(*LAYERS, most=MOST_LAYERS)

    @property
    def heads(self) -> int:
        """Number of query heads."""
        return self.read_size(*HEADS)

    @property
    def vocab(self) -> int:
        """Return the rows of the embedding, including padding."""
        return self.read_size("vocab_size")

    def read_ffn(self, default: int | None = None) -> int:
        """Width of the feed-forward."""
        return self.read_size(*FFN, default=default)

    def read_positions(self, default: int | None = None) -> int:
        """Return the longest sequence for which positions are learned or supported."""
        return self.read_size(*POSITIONS, default=default)

    def read_activation(self, default: str = "silu") -> str:
        """Return the activation of the feed-forward by its transformers name."""
        return self.read_word(*ACTIVATION, default=default)

    def read_size(self, *keys: str, default: int | None = None, least: int = 1, most: int = MOST_WIDTH) -> int:
        """Return the first stated value of `keys`, else `default`.

        Raise InputError that names the first key if both are missing.
        """
        for key in keys:
            if self.values.get(key) is not None:
                self._refuse_layers(key)
                return require_whole_number(self.values[key], self.name_field(key), least=least, most=most)
        if default is None:
            raise InputError("is missing", field=self.name_field(keys[0]), hint="copy it from the model's config.json")
        return default

    def _refuse_layers(self, key: str) -> None:
        """Raise InputError if `key` has a list: one value a layer, of layers with different shapes."""
        value = self.values[key]
        if isinstance(value, list) and value and all(isinstance(one, int) for one in value):
            hint = f"write the mean of the layers, as an approximation: {key} = {round(sum(value) / len(value))}"
            what = f"has a value for each layer ({min(value)} to {max(value)}): layers of different shapes are not sized"
            raise InputError(what, field=self.name_field(key), hint=hint)

    def read_optional(self, key: str) -> int | None:
        """Return `key` as a size; None if it is absent or 0, which both mean unused."""
        return self.read_size(key, default=0, least=0) or None

    def read_flag(self, key: str, *, default: bool = False) -> bool:
        """`key` as true or false."""
        value = self.values.get(key)
        value = default if value is None else value
        if not isinstance(value, bool):
            raise InputError(
                f"must be true or false, not {describe_value(value)}", field=self.name_field(key), hint="write true or false"
            )
        return value

    def has_cap(self, key: str) -> bool:
        """Return whether the model has the cap `key`: true unless the config states null or 0."""
        return key not in self.values or bool(self.values[key])

    def read_word(self, *keys: str, default: str) -> str:
        """Return the first stated value of `keys` as text, else `default`."""
        for key in keys:
            value = self.values.get(key)
            if value is not None:
                require(
                    isinstance(value, str), self.name_field(key), f"must be text, not {describe_value(value)}", "write text"
                )
                return str(value)
        return default

    def read_items(self, key: str) -> list[object] | None:
        """Return `key` as a list; None if it is absent."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, list | tuple):
            raise InputError(f"must be a list, not {describe_value(value)}", field=self.name_field(key), hint="write [ ... ]")
        return None if value is None else list(value)

    def get_part(self, key: str, defaults: Mapping[str, object] | None = None) -> ModelConfig:
        """Return the table under `key`, with missing values filled from `defaults`.

        A nested table omits every value that equals its class default.
        """
        value = self.values.get(key)
        value = {} if value is None else value
        if not isinstance(value, Mapping):
            raise InputError(f"must be a table, not {describe_value(value)}", field=self.name_field(key), hint="write { ... }")
        values = {k: v for k, v in value.items() if v is not None}
        return ModelConfig({**(defaults or {}), **values}, self.name_field(key))

    def fill_defaults(self, defaults: Mapping[str, object]) -> ModelConfig:
        """Return this config with missing values filled from the class's `defaults`."""
        return ModelConfig({**defaults, **{k: v for k, v in self.values.items() if v is not None}}, self.where)

    def name_field(self, key: str) -> str:
        """Return the name of `key` in error messages."""
        return f"{self.where}.{key}" if self.where else key

    @property
    def task(self) -> str:
        """Return the task suffix of the first of `architectures`: 'ForCausalLM', 'Model' and so on; '' if it is not stated."""
        first = (self.read_items("architectures") or [""])[0]
        require(isinstance(first, str), self.name_field("architectures"), f"must hold names, not {describe_value(first)}")
        for task in ("LMHeadModel", "Model"):
            if str(first).endswith(task):
                return task
        return "For" + str(first).rpartition("For")[2] if "For" in str(first) else ""

    @property
    def labels(self) -> int:
        """Return the number of classes of a classifier: the length of `id2label`, else `num_labels`, else 2."""
        names = self.values.get("id2label")
        if isinstance(names, Mapping) and names:
            return len(names)
        return self.read_size("num_labels", default=2)
