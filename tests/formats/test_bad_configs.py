"""Configs that cannot or must not be read: named, exit 2, nothing executed, and what could be read is shown."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from costguard import api
from costguard.errors import CostguardError
from tests.campaign import examples
from tests.conftest import Command
from tests.formats.published import PUBLISHED

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 10)}]\n" for n in range(9)
)
AXOLOTL = "base_model: gpt2\nsequence_len: 512\nmicro_batch_size: 2\n"
CASES = {
    "bomb.yaml": (BOMB, ("bomb.yaml", "20,000 values")),
    "deep.yaml": ("a: " + "[" * 80 + "]" * 80, ("levels",)),
    "deep.json": ('{"zero_optimization": ' + "[" * 80 + "]" * 80 + "}", ("levels",)),
    "object.yaml": (
        "a: 1\nb: !!python/object/apply:os.system ['touch ran']\n",
        ("line 2", "python/object", "nothing is executed"),
    ),
    "large.yaml": ("a: " + "x" * (9 * 2**20), ("larger than 8 MiB",)),
    "training_args.bin": ("\x80\x04", ("pickle", "not read", "to_json_string")),
    "itself.yaml": ("a: &a\n  b: *a\n", ("line 2", "refers to itself")),
    "written.ipynb": (
        json.dumps({"cells": [{"cell_type": "code", "source": ["%%writefile c.yaml\n", "base_model: gpt2\n"]}]}),
        ("format of the config is not known", "name that file"),
    ),
    "two.sh": (
        "#!/bin/bash\n" + "torchrun x.py --model_name_or_path gpt2 --per_device_train_batch_size 8\n" * 2,
        ("2 training commands", "state the job"),
    ),
    "list.yaml": ("- a\n- b\n", ("contains no keys",)),
    "broken.yaml": ("a: [1\nb: 2\n", ("broken.yaml line 2", "not valid YAML")),
    "template.yaml": ("base_model: {{ model }}\nsequence_len: {% if x %}\n", ("is a template",)),
    "unknown.yaml": ("hello: world\n", ("format of the config is not known", "Axolotl")),
    "unknown.py": ("print(1)\n", ("format of the config is not known",)),
    "broken.py": ("import modal\n@app.function(gpu='A100'\n", ("not valid Python",)),
    "filled.yaml": (
        "base_model: gpt2\nsequence_len: ${{ inputs.len }}\nmicro_batch_size: 2\n",
        ("sequence_len", "micro_batch 2"),
    ),
    "no_model.json": (json.dumps({"per_device_train_batch_size": 4, "num_train_epochs": 1}), ("no model", "micro_batch 4")),
    "strange.yaml": (
        f"{AXOLOTL}base_model_config: x\n".replace("gpt2", "me/mine"),
        ("unknown model 'me/mine'", "seq_len 512"),
    ),
    "words.yaml": (AXOLOTL.replace("512", "many"), ("words.yaml: sequence_len", "must be a number")),
    "table.yaml": (AXOLOTL.replace("gpt2", "{a: 1}"), ("base_model", "must be text")),
    "computed.sbatch": (
        "#!/bin/bash\n#SBATCH --nodes=2\nsrun --gpus-per-node=$N python x\n",
        ("computed.sbatch", "state --hours N"),
    ),
    "dollar.sbatch": (
        "#!/bin/bash\n#SBATCH --gres=gpu:$NGPU\npython x\n",
        ("names no model and no time limit", "state --hours N"),
    ),
    "computed.py": ("import modal\n@app.function(gpu=pick())\ndef f(): ...\n", ("gpu", "computed when the program runs")),
    "cpu.py": ("import ray\nc = ScalingConfig(num_workers=2, use_gpu=False)\n", ("use_gpu", "no GPU")),
    "no_gpu.yaml": ("apiVersion: v1\nkind: Pod\nspec: {containers: [{name: x}]}\n", ("no nvidia.com/gpu",)),
    "half.yaml": (
        "apiVersion: v1\nkind: Pod\nspec: {containers: [{resources: {limits: {nvidia.com/gpu: half}}}]}\n",
        ("not a whole number of GPUs: 'half'",),
    ),
    "strange_gpu.yaml": ("resources: {accelerators: 'Z9000:8'}\nrun: x\n", ("strange_gpu.yaml: GPU", "unknown GPU 'Z9000'")),
}


@pytest.mark.parametrize("name", CASES)
def test_what_cannot_be_read_is_named_and_nothing_is_run(costguard: Command, tmp_path: Path, name: str) -> None:
    text, words = CASES[name]
    (tmp_path / name).write_text(text)
    costguard("quote", name, *(("--hours", "1") if "gpu" in name else ())).says(*words)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [name]


def test_fifty_megabytes_are_refused_before_they_are_parsed(costguard: Command, tmp_path: Path) -> None:
    with (tmp_path / "huge.yaml").open("wb") as file:
        file.truncate(50 * 2**20)
    costguard("quote", "huge.yaml").says("huge.yaml", "larger than 8 MiB")


@pytest.mark.parametrize("word", ["\x1b[31mred", "\u202eesrever", "a\nerror: forged"])
def test_a_hostile_key_or_model_acts_on_no_terminal(costguard: Command, tmp_path: Path, word: str) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"base_model": word, "sequence_len": 8, "micro_batch_size": 1, word: 1}))
    ran = costguard("size", "a.json")
    assert ran.code == 2
    ran.is_clean()
    (tmp_path / "a.json").write_text(json.dumps({"base_model": "gpt2", "sequence_len": 8, "micro_batch_size": 1, word: 1}))
    ran = costguard("size", "a.json")
    assert ran.code == 0
    ran.is_clean()


@pytest.mark.parametrize("text", ["", "\x00", "\ufeff", "a", "{", "[]", "null", "---\n---\n", "? a\n", "<<: *x\n", "1: 2\n"])
@pytest.mark.parametrize("ending", ["yaml", "toml", "json", "py", "ipynb", "sh", "sbatch", "xyz"])
def test_odd_files_end_in_a_clean_refusal(costguard: Command, tmp_path: Path, text: str, ending: str) -> None:
    (tmp_path / f"odd.{ending}").write_text(text)
    ran = costguard("size", f"odd.{ending}")
    assert ran.code == 2, ran
    ran.is_clean()


ODD: tuple[object, ...] = (
    *(None, "", -1, 0, 1e400, float("nan"), 10**30, [], {}, "x" * 500, "\x00", True, False, "auto", [[]], {"a": {"b": 1}}),
    *("${{ x }}", "1e9", -5.5, [1, 2], "\x1b[31m", 3.7, "all", "none", {"_component_": 5}, "../x", "/etc/passwd"),
)


def list_paths(table: object, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(table, dict):
        for key, value in table.items():
            yield (*above, key)
            yield from list_paths(value, (*above, key))


def test_a_published_config_with_odd_values_is_read_or_refused_and_never_fails(tmp_path: Path) -> None:
    chance = random.Random(26)  # noqa: S311 - no secret
    written = [one for one in PUBLISHED if one.name.endswith(("yaml", "yml", "json"))]
    for number in range(examples(100)):
        one = chance.choice(written)
        table = next(iter(yaml.safe_load_all(one.text)))
        for _ in range(chance.choice([1, 1, 2, 4])):
            *above, last = chance.choice([*list_paths(table), ("added",)])
            inner = table
            for key in above:
                inner = inner[key]
            inner[last] = json.loads(json.dumps(chance.choice(ODD)))
        file = tmp_path / one.name
        file.write_text(json.dumps(table) if one.name.endswith("json") else yaml.dump(table))
        with suppress(CostguardError):
            api.size(file, model="gpt2", seq_len=128) if number % 2 else api.size(file)
