"""Compare our parameter counts with those of transformers and diffusers, to the last parameter, without loading a weight.

Each model is built from its config on torch's `meta` device, where a tensor has a shape and no memory, so DeepSeek-V3
takes seconds and megabytes. None of the three is a dependency of costguard; give them an environment:

    python3 -m venv /tmp/check && /tmp/check/bin/pip install torch transformers diffusers
    PYTHONPATH=. /tmp/check/bin/python scripts/check_architectures.py            # all shipped names
    PYTHONPATH=. /tmp/check/bin/python scripts/check_architectures.py gpt2 bert  # those that contain a word
    PYTHONPATH=. /tmp/check/bin/python scripts/check_architectures.py --defaults # each class as it is without a config

Exit 1 where a count differs and the entry does not say so (`transformers_params`, explained in its `note`). The last
run is dated in `costguard/data/architectures.json` under `checked`.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from costguard.errors import CostguardError
from costguard.sizing.huggingface import READERS, build_architecture_from_config

SHIPPED = Path(__file__).parents[1] / "costguard" / "data" / "architectures.json"
TASKS = (
    "AutoModelForCausalLM",
    "AutoModelForMaskedLM",
    "AutoModelForSeq2SeqLM",
    "AutoModelForImageTextToText",
    "AutoModelForImageClassification",
    "AutoModelForSequenceClassification",
    "AutoModel",
)

Case = tuple[str, Mapping[str, Any], int | None]
"""A name, its config, and the count that transformers is known to give where that is not ours."""

LEFT_OUT = {
    "CLIPForImageClassification": "the image tower alone",
    "WhisperForCausalLM": "the decoder alone",
    "Glm4MoeForCausalLM": "its own defaults do not divide; every release states head_dim",
    "Glm4MoeModel": "as above",
    "Mistral3ForConditionalGeneration": "its class ties the head, no release does",
}
torch: Any = importlib.import_module("torch")
transformers: Any = importlib.import_module("transformers")


def main(words: list[str]) -> int:
    """Print one line a model; 1 where any differs."""
    cases = defaults() if words == ["--defaults"] else shipped(words)
    different = 0
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    print(f"{'name':44} {'ours':>18} {'transformers':>18} {'difference':>12}")
    for name, config, explained in cases:
        ours, theirs = our_count(name, config), their_count(config)
        differs = isinstance(theirs, int) and theirs not in (ours, explained)
        different += differs
        gap = ours - theirs if isinstance(ours, int) and isinstance(theirs, int) else "?"
        remark = "differs" if differs else "explained" if theirs == explained else ""
        print(f"{name:44} {ours!s:>18} {theirs!s:>18} {gap!s:>12}  {remark}", flush=True)
    print(f"{different} differ")
    return 1 if different else 0


def shipped(words: list[str]) -> Iterator[Case]:
    """Each shipped name that contains one of `words` (all, without words)."""
    for name, entry in json.loads(SHIPPED.read_text())["models"].items():
        if not words or any(word in name for word in words):
            yield name, entry["config"], entry.get("transformers_params")


def defaults() -> Iterator[Case]:
    """Each model type we read, with each task its class has, as transformers would write its config.json."""
    known = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    for model_type in sorted(READERS):
        if model_type not in known:
            print(f"{model_type:44} transformers has no class of this name")
            continue
        written = known[model_type]()
        for task in TASKS:
            classes = getattr(transformers, task)._model_mapping  # noqa: SLF001  # no public way to the class of a task
            if type(written) in classes:
                model_class = classes[type(written)]
                model_class = model_class[0] if isinstance(model_class, tuple) else model_class
                if model_class.__name__ in LEFT_OUT:
                    print(f"{model_class.__name__:44} left out: {LEFT_OUT[model_class.__name__]}")
                    continue
                yield model_class.__name__, {**written.to_diff_dict(), "architectures": [model_class.__name__]}, None


def our_count(name: str, config: Mapping[str, Any]) -> int | str:
    """Parameters as costguard counts them, or the error it raises."""
    try:
        return build_architecture_from_config(config, name=name).parameters
    except CostguardError as error:
        return str(error).splitlines()[0]


def their_count(config: Mapping[str, Any]) -> int | str:
    """Parameters of the class that the config names, tied ones once; why not, where the class cannot be built."""
    try:
        return _their_count(config)
    except Exception as error:  # noqa: BLE001  # a class that fails on its own defaults is a line of the table
        return f"{type(error).__name__}: {error}"


def _their_count(config: Mapping[str, Any]) -> int:
    if "_class_name" in config:
        with torch.device("meta"):
            made = getattr(importlib.import_module("diffusers"), config["_class_name"]).from_config(dict(config))
        return sum(p.numel() for p in made.parameters())
    stated = {k: v for k, v in config.items() if k not in ("model_type", "architectures")}
    model_class = getattr(transformers, config["architectures"][0])
    with torch.device("meta"):
        model = model_class(transformers.AutoConfig.for_model(config["model_type"], **stated))
    return sum(p.numel() for p in model.parameters())


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    sys.exit(main(sys.argv[1:]))
