"""Write `costguard/sizing/huggingface/model_types.py`: which model types are shaped like a type that costguard reads.

transformers is the judge: a type is "like" a reader if the reader counts every parameter of its class on torch's `meta`
device, with the class's defaults and with each of its sizes changed in turn. Neither is a dependency of costguard:

    python3 -m venv /tmp/check && /tmp/check/bin/pip install torch transformers
    PYTHONPATH=. /tmp/check/bin/python scripts/build_model_types.py

The defaults are those of the classes that appear inside another config.json, which leaves out whatever equals them.
"""

from __future__ import annotations

import importlib
import json
import logging
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from costguard.errors import CostguardError
from costguard.sizing.huggingface import READERS, build_architecture_from_config
from costguard.sizing.huggingface.model_types import LIKE
from costguard.sizing.huggingface.towers import TOWERS

FOLDER = Path(__file__).parents[1] / "costguard" / "sizing" / "huggingface"
PREFERRED = ("llama", "mistral", "qwen3", "qwen3_moe", "olmoe", "mixtral", "deepseek_v3", "glm4_moe", "nemotron", "bert", "opt")
"""Which of several readers with the same counts stands for them: the plainest."""
STRANGE = {
    "ernie": "an encoder with a task embedding that is absent by default",
    "xlm-roberta-xl": "an encoder whose norms come first",
    "megatron-bert": "an encoder whose norms come first",
    "granitemoeshared": "its shared feed-forward is absent by default",
    "hyperclovax": "its optional norms are absent by default",
    "data2vec-text": "an encoder: positions differ",
}
INSIDE = ("gemma", "gemma2", "gemma3_text", "gpt_oss", "llama", "mistral", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe")
SMALL = {"vocab_size": 1000, "num_hidden_layers": 4}
CHANGED = re.compile(r"(size|dim|heads|layers|rank|experts|ffn|width|num_\w+)$")
torch: Any = importlib.import_module("torch")
transformers: Any = importlib.import_module("transformers")
auto: Any = importlib.import_module("transformers.models.auto.modeling_auto")
CLASSES, MODELS = transformers.models.auto.configuration_auto.CONFIG_MAPPING, auto.MODEL_FOR_CAUSAL_LM_MAPPING


def main() -> int:
    """Write the module; print each type that transformers has and no reader counts."""
    logging.disable(logging.CRITICAL)
    read = [name for name in READERS if name not in LIKE]
    order = [*PREFERRED, *(name for name in read if name not in PREFERRED)]
    like, unread = dict[str, str](), list[str]()
    for name in sorted(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        if name in read or name in STRANGE:
            continue
        fitting, cases = list(order), 0
        for config, parameters in _list_cases(name):
            fitting, cases = [reader for reader in fitting if _count(reader, config) == parameters], cases + 1
            if not fitting:
                break
        if cases > 1 and fitting:
            like[name] = fitting[0]
            print(f"{name} is like {fitting[0]}: {cases} configs", flush=True)
        else:
            unread.append(name)
    text = sorted({*INSIDE, *like, *(inner for inner, _ in TOWERS.values())} & set(CLASSES))
    (FOLDER / "model_types.py").write_text(_write_module(like, {name: _read_defaults(name) for name in text}))
    print(f"{len(unread)} types have no reader: {' '.join(unread)}", file=sys.stderr)
    return 0


def _list_cases(name: str) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Yield (config, parameters) with the defaults, and with each size changed; what the class refuses is left out."""
    usual = _build(name, {})
    if usual is not None:
        yield usual
    small = _build(name, SMALL)
    for key, value in (small[0] if small else {}).items():
        changed = isinstance(value, int) and not isinstance(value, bool) and CHANGED.search(key) and value > 0
        case = _build(name, {**SMALL, key: 2 * value}) if changed else None
        if case is not None:
            yield case
    for key in ("tie_word_embeddings", "attention_bias", "mlp_bias"):
        case = _build(name, {**SMALL, key: not small[0][key]}) if small and key in small[0] else None
        if case is not None:
            yield case


def _build(name: str, values: Mapping[str, Any]) -> tuple[Mapping[str, Any], int] | None:
    try:
        config = CLASSES[name](**values)
        with torch.device("meta"):
            model = MODELS[type(config)](config)
    except Exception:  # noqa: BLE001  # a class that refuses its own sizes says nothing of its shape
        return None
    written = {k: v for k, v in json.loads(json.dumps(config.to_dict(), default=str)).items() if k != "architectures"}
    return {**written, "architectures": ["ForCausalLM"]}, sum(p.numel() for p in model.parameters())


def _count(reader: str, config: Mapping[str, Any]) -> int | None:
    try:
        return build_architecture_from_config({**config, "model_type": reader}, name=reader).parameters
    except CostguardError:
        return None


def _read_defaults(name: str) -> dict[str, object]:
    """Return the defaults of the class that a reader reads."""
    source = "".join(file.read_text() for file in sorted(FOLDER.glob("*.py")) if file.name != "model_types.py")
    keys = set(re.findall(r'"([a-z_]+)"', source))
    values = CLASSES[name]().to_dict()
    doubled = {k: 2 * v for k in ("hidden_size", "num_attention_heads") if isinstance(v := values.get(k), int)}
    derived = CLASSES[name](**{**doubled, **({"hidden_size": 4 * values["hidden_size"]} if doubled else {})}).to_dict()
    kept = {k: v for k, v in sorted(values.items()) if k in doubled or derived.get(k) == v}  # head_dim follows from others
    return {k: v for k, v in kept.items() if k in keys and k != "model_type" and isinstance(v, int | str) and v != ""}


def _write_module(like: Mapping[str, str], defaults: Mapping[str, Mapping[str, object]]) -> str:
    rows = (f"{name} " + " ".join(f"{k}={v}" for k, v in values.items()) for name, values in defaults.items())
    table = "\n".join(textwrap.fill(row, 120, subsequent_indent="  ", break_on_hyphens=False) for row in rows)
    made = f"transformers {transformers.__version__}, torch {torch.__version__.partition('+')[0]}"
    shapes = "\n".join(f'    "{name}": "{reader}",' for name, reader in sorted(like.items()))
    return MODULE.format(made=made, like=shapes, table=table)


MODULE = '''"""Model types that are shaped like another, and what classes assume: written by `scripts/build_model_types.py`.

{made}. Nothing here is written by hand.
"""

from collections.abc import Mapping

LIKE: Mapping[str, str] = {{
{like}
}}
"""Model type -> the type whose reader counts every parameter of its class."""

DEFAULTS_TABLE = """
{table}
"""


def _read_value(text: str) -> object:
    return {{"True": True, "False": False}}.get(text, int(text) if text.isdigit() else text)


def _read_table(text: str) -> dict[str, dict[str, object]]:
    table = dict[str, dict[str, object]]()
    for word in text.split():
        key, sign, value = word.partition("=")
        if sign:
            next(reversed(table.values()))[key] = _read_value(value)
        else:
            table[word] = {{}}
    return table


DEFAULTS = _read_table(DEFAULTS_TABLE)
"""Model type -> the defaults of its class, which a nested table of a config.json leaves out."""
'''


if __name__ == "__main__":
    raise SystemExit(main())
