"""Finds the shipped model that a name means: a release, a mirror of it, or a copy in other bits.

    find_model("unsloth/Qwen3-8B-unsloth-bnb-4bit", spellings)   # -> ("qwen3-8b", "nf4")
    find_model("RedHatAI/Llama-3.1-8B-Instruct-FP8-dynamic", spellings)   # -> ("llama-3.1-8b", "fp8")

A name is looked up as it is, then without its owner, then without the words that say how its weights are stored, and last
without words that change no shape: `-Instruct`, `-hf`, and the date of a revision where the name states a size beside it
(Qwen3-4B-2507). Without a size the date stays, since another year's Mistral-Small is another model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from costguard.sizing.nearest_models import SIZE
from costguard.values.checks import fold_name

STORED_WORDS: Mapping[str, str] = {
    r"(?:unsloth[-_.])?bnb[-_.](?:4bit|nf4)|nf4|4bit": "nf4",
    r"(?:bnb[-_.])?8bit|int8|gptq[-_.](?:int8|8bit)|(?:quantized[-_.])?w8a(?:8|16)": "int8",
    r"(?:awq|gptq|autoround)(?:[-_.](?:int4|4bit|marlin))?|int4|(?:quantized[-_.])?w4a16(?:[-_.]g\d+)?": "int4",
    r"fp8(?:[-_.](?:dynamic|block|kv|static|tensorwise))?": "fp8",
    r"nvfp4(?:a16)?|fp4": "nvfp4",
    r"mxfp4": "mxfp4",
    r"bf16|bfloat16": "bf16",
    r"fp16|f16|float16": "fp16",
}
"""How the end of a name says what the weights are stored in."""
STORED = tuple((re.compile(rf"[-_.](?:{words})$"), stored) for words, stored in STORED_WORDS.items())
PLAIN = re.compile(r"[-_.](?:unsloth|hf|it|instruct|chat|base|pt|thinking|gguf|mlx|qat|quantized|dynamic|offline|pytorch)$")
REVISION = re.compile(r"[-_](?:\d{4}|\d{6}|\d{8})$")
MOST_WORDS = 8
"""Words taken off the end of a name at most."""


def list_spellings(models: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return folded spelling -> model, of each name and alias, and of their last parts where no other model has them."""
    exact = {fold_name(one): name for name, aliases in models.items() for one in (name, *aliases)}
    ends = dict[str, str]()
    for name, aliases in models.items():
        for one in (name, *aliases):
            end = one.rpartition("/")[2]
            for spelling in (end, re.sub(r"[-_]hf$", "", end.lower())):
                ends.setdefault(fold_name(spelling), name)
    return ends | exact


def find_model(name: str, spellings: Mapping[str, str]) -> tuple[str, str | None] | None:
    """Return the shipped model that `name` means, and what its weights are stored in if the name says so; None if none."""
    written = name.strip().rstrip("/").replace("___", ".")  # as ModelScope's cache spells a dot: Qwen2___5-3B
    if fold_name(written) in spellings:
        return spellings[fold_name(written)], None
    for part in dict.fromkeys((written, written.rpartition("/")[2])):
        for spelling, stored in _shorten(part):
            if fold_name(spelling) in spellings:
                return spellings[fold_name(spelling)], stored
    return None


def _shorten(name: str) -> Iterator[tuple[str, str | None]]:
    """Yield `name` and what is left of it, word by word from its end, with what the removed words say of the storage."""
    text, stored = name.lower(), None
    yield text, stored
    for _ in range(MOST_WORDS):
        kinds = ((pattern.search(text), kind) for pattern, kind in STORED)
        match, kind = next((pair for pair in kinds if pair[0]), (PLAIN.search(text) or _find_revision(text), None))
        if match is None:
            return
        text, stored = text[: match.start()], stored or kind
        yield text, stored


def _find_revision(text: str) -> re.Match[str] | None:
    match = REVISION.search(text)
    return match if match and SIZE.search(text[: match.start()]) else None
