"""Job files through the real command line: TOML, JSON and YAML, relative paths, shapes by numbers, and flags that win."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command, Ran

TOML = """
model = "llama-3.1-8b"
method = "qlora"
precision = "bf16"
optimizer = "paged-adamw-8bit"
seq_len = 1024
micro_batch = 2
checkpointing = "full"
attention = "flash"

[dataset]
examples = 50_000
tokens_per_example = 500
epochs = 2

[lora]
rank = 8
targets = ["q_proj", "v_proj"]

[parallel]
zero = 2

[limits]
max_usd = 100.5
providers = ["aws", "runpod"]
gpus = ["H100"]
"""
CONFIG = {
    "model_type": "llama", "hidden_size": 1024, "num_attention_heads": 8, "num_hidden_layers": 4, "intermediate_size": 2816,
    "vocab_size": 32000,
}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs" / "models").mkdir(parents=True)
    (tmp_path / "jobs" / "models" / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "jobs" / "job.toml").write_text(TOML)
    return tmp_path / "jobs"


YAML = """
model: llama-3.1-8b
method: qlora
precision: bf16
optimizer: paged-adamw-8bit
seq_len: 1024
micro_batch: 2
checkpointing: full
attention: flash
tokens: 50e6
lora: {rank: 8, targets: [q_proj, v_proj]}
parallel:
  zero: 2
limits:
  max_usd: 100.5
  providers: [aws, runpod]
  gpus: [H100]
"""


def test_a_job_in_yaml_is_read_as_the_same_job_in_toml(costguard: Command, market: str, folder: Path) -> None:
    (folder / "job.yaml").write_text(YAML)
    toml, yaml = (costguard("quote", f"jobs/job.{kind}", "--market", market, "--json").data for kind in ("toml", "yaml"))
    assert toml == yaml


def test_an_amount_may_be_written_as_in_a_flag(costguard: Command, market: str, folder: Path) -> None:
    (folder / "own.yaml").write_text('model: gpt2\nmethod: full\ntokens: "1.5M"\n')
    assert costguard("quote", "jobs/own.yaml", "--market", market, "--json").data["job"]["tokens"] == 1_500_000
    (folder / "own.toml").write_text('model = "gpt2"\ntokens = "1Q"\n')
    costguard("quote", "jobs/own.toml").says("own.toml: tokens: must be a whole number, not '1Q' (at line 2)")


def test_a_flag_is_no_line_of_the_file_and_wins_over_what_is_wrong_in_it(costguard: Command, folder: Path) -> None:
    (folder / "wrong.toml").write_text('model = "gpt2"\ntokens = -5\n[limits]\nmax_hours = 0\n')
    assert costguard("quote", "jobs/wrong.toml", "--tokens", "5e6", "--max-hours", "2").code == 0
    refused = costguard("quote", "jobs/wrong.toml", "--tokens", "-6")
    refused.says("error: --tokens: must be at least 1, not -6", "jobs/wrong.toml: limits.max_hours: must be", "(at line 4)")


def test_every_field_of_a_toml_file_reaches_the_job(costguard: Command, market: str) -> None:
    data = costguard("quote", "jobs/job.toml", "--market", market, "--json").data
    job: dict[str, Any] = data["job"]
    assert job["tokens"] == 50_000_000
    assert (job["optimizer"], job["seq_len"], job["micro_batch"]) == ("paged-adamw-8bit", 1024, 2)
    assert job["lora"] == {"rank": 8, "targets": ["q_proj", "v_proj"]}
    assert job["parallel"]["zero"] == 2
    assert {(o["provider"], o["gpu"]) for o in data["options"]} == {("aws", "H100-SXM"), ("runpod", "H100-SXM")}
    assert "H100 is H100-SXM, H100-PCIe, H100-NVL: name one to see it alone" in data["warnings"]


def small(ran: Ran) -> dict[str, Any]:
    assert ran.code == 0, ran.err
    job: dict[str, Any] = ran.data["job"]
    assert job["parameters"] < 2e8
    return job


def test_a_path_in_a_file_starts_at_the_folder_of_the_file(costguard: Command, folder: Path) -> None:
    (folder / "own.toml").write_text('path = "models/config.json"\n')
    assert small(costguard("size", "jobs/own.toml", "--json"))["model"] == "models"
    (folder / "own.toml").write_text('model = "./models/config.json"\n')
    small(costguard("size", "jobs/own.toml", "--json"))


def test_a_path_in_a_flag_starts_where_the_person_stands(costguard: Command) -> None:
    small(costguard("size", "--model", "jobs/models/config.json", "--json"))
    small(costguard("size", "jobs/job.toml", "--model", "./jobs/models/config.json", "--json"))
    costguard("size", "jobs/job.toml", "--model", "./models/config.json").says("no such file")


def test_a_model_may_be_stated_by_its_numbers(costguard: Command, folder: Path) -> None:
    table = {"kind": "decoder", "layers": 4, "hidden": 1024, "heads": 8, "ffn": 2816, "gated": True, "vocab": 32000}
    (folder / "own.json").write_text(json.dumps({"architecture": table, "method": "full"}))
    by_numbers = small(costguard("size", "jobs/own.json", "--json"))
    by_config = small(costguard("size", "--model", "jobs/models/config.json", "--json"))
    assert by_numbers["parameters"] == by_config["parameters"]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("own.json", '{"lora": {\n"rank": 8},\n"model": "gpt2",\n"rank": 9}', "own.json: rank: unknown key 'rank' (at line 4)"),
        ("own.json", '{"model": "gpt2",\n"lora": {"alpha": 2,\n"rank": "x"}}', "own.json: lora.rank: must be a whole number"),
        ("own.yaml", "model: gpt2\nlimits:\n", "own.yaml: limits: must be a table, not None (at line 2)"),
        ("own.toml", 'model = "gpt2"\n"a.b" = 1\n', "own.toml: a.b: unknown key 'a.b' (at line 2)"),
        ("own.toml", 'model = "gpt2"\ntemplat = "lora-7b"\n', "did you mean template"),
    ],
)
def test_an_error_names_the_line_of_the_key_itself(costguard: Command, folder: Path, name: str, text: str, words: str) -> None:
    (folder / name).write_text(text)
    costguard("quote", f"jobs/{name}").says(words)
