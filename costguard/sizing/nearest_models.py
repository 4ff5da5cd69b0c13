"""Finds the shipped models whose shape is nearest to an unknown name, by the size that the name states.

Example: `llama-3.1-9b` is of the family llama and says 9 B: of the llamas, llama-3.1-8b is nearest in size and in spelling.
`my-org/foo-7b` is of no family that is shipped: of the plain decoders, those of about 7 B are named.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from costguard.values.checks import find_nearest_names, fold_name

SIZE = re.compile(r"(?<![a-z0-9.])(?:(\d+)x)?(\d+(?:\.\d+)?)([bm])(?![a-z0-9])")
ACTIVE = re.compile(r"(?<![a-z0-9.])a\d+(?:\.\d+)?b(?![a-z0-9])")
EXPERTS = re.compile(r"(?<![a-z0-9.])\d+x\d")
UNITS = {"b": 1e9, "m": 1e6}
PLAIN_TYPES = ("llama", "mistral", "qwen2", "qwen3")
"""Decoders without anything unusual, which most models with a name of their own are."""
MIXTURE_TYPES = ("qwen3_moe", "mixtral", "deepseek_v3")
SAME_SIZE = 0.1
"""Sizes whose logarithms differ by less are alike: the spelling decides."""
FAR_SIZE = 2.0
"""A shape of the same kind is taken only from a model of up to twice the size, or of half."""
SAME_FAMILY = 0.8
"""How alike two words are at least of which one is the other's misspelling: `lama` and llama."""
MOST_NAMED = 3


class ShippedModel(NamedTuple):
    """A shipped model as far as its shape can be told from a name: its parameters, and the model_type of its config."""

    parameters: float
    model_type: str


def find_nearest_models(name: str, shipped: Mapping[str, ShippedModel]) -> tuple[str, ...]:
    """Return the names in `shipped` nearest to `name`, best first: of its family by size, else of its kind by size.

    A name that states neither a shipped family nor a size has no nearest: equal letters say nothing (LTX-2 is no gpt2).
    """
    own = name.rsplit("/", 1)[-1].lower()
    size, family = read_size(own), _find_family(own, shipped)
    mixture = bool(ACTIVE.search(own) or EXPERTS.search(own))
    candidates = [other for other in shipped if family and other.startswith(family)]
    alike = [
        other
        for other in candidates
        if bool(ACTIVE.search(other) or EXPERTS.search(other)) == mixture
        and (size is None or 1 / FAR_SIZE < shipped[other].parameters / size < FAR_SIZE)
    ]
    if not candidates:
        types = MIXTURE_TYPES if mixture else PLAIN_TYPES
        alike = [other for other, model in shipped.items() if model.model_type in types and size is not None]

    def rank(other: str) -> tuple[float, float]:
        distance = abs(math.log(shipped[other].parameters / size)) if size else 0
        return round(distance / SAME_SIZE), -_compare_spelling(own, other)

    return tuple(sorted(sorted(alike or candidates, reverse=True), key=rank)[:MOST_NAMED])


def _find_family(own: str, shipped: Mapping[str, ShippedModel]) -> str:
    """Return the family that a word of the name `own` is, or is a misspelling of; "" if none is shipped."""
    families = {word for other in shipped if (word := re.split(r"[^a-z]", other, maxsplit=1)[0])}
    words = [word for word in re.split(r"[^a-z]+", own) if len(word) > 1]
    shared = next((word for word in words if word in families), "")
    return shared or next(iter(find_nearest_names(words[0], tuple(families), cutoff=SAME_FAMILY)), "") if words else ""


def read_size(name: str) -> float | None:
    """Return the parameters that a name states: 9e9 of `llama-3.1-9b`, 56e9 of `foo-8x7b`; None if it states none."""
    match = SIZE.search(name.lower())
    if match is None:
        return None
    experts, number, unit = match.groups()
    return float(number) * UNITS[unit] * (int(experts) if experts else 1) or None


def _compare_spelling(one: str, other: str) -> float:
    from difflib import SequenceMatcher

    return SequenceMatcher(a=fold_name(one), b=fold_name(other)).ratio()
