"""No file outside of a config's folder is opened, whatever names it; nor outside of the folder that a review may read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from costguard import api
from costguard.errors import InputError
from costguard.services.quote.file_limit import restrict_files
from tests.conftest import Command

SECRET = "c0ffee-secret"  # noqa: S105 - the word that must not be shown
SHAPE = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 256,
}
CONFIGS = {
    "a.yaml": "base_model: %s\nsequence_len: 64\nmicro_batch_size: 1\n",
    "b.yaml": "model_name_or_path: %s\nper_device_train_batch_size: 1\nmax_length: 64\nnum_train_epochs: 1\n",
    "c.yaml": "model_name_or_path: %s\nstage: sft\nfinetuning_type: full\ncutoff_len: 64\nper_device_train_batch_size: 1\n",
    "d.yaml": "checkpoint_dir: %s\ntrain: {micro_batch_size: 1, global_batch_size: 1, max_seq_length: 64}\n",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    (tmp_path / "outside.json").write_text(json.dumps({**SHAPE, SECRET: SECRET}))
    (tmp_path / "secret.txt").write_text(f"{SECRET} is = no TOML\n")
    inside = tmp_path / "run"
    (inside / "model").mkdir(parents=True)
    (inside / "model" / "config.json").write_text(json.dumps(SHAPE))
    (inside / "link.json").symlink_to(tmp_path / "outside.json")
    (inside / "linked").symlink_to(tmp_path)
    return inside


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(
    "model",
    [
        "/etc/passwd",
        "../outside.json",
        "../secret.txt",
        "./link.json",
        "link.json",
        "linked/outside.json",
        "~/x.json",
        "./no.json",
    ],
)
def test_a_model_outside_of_the_folder_is_a_name_that_is_not_known(
    costguard: Command, folder: Path, name: str, model: str
) -> None:
    (folder / name).write_text(CONFIGS[name] % model)
    ran = costguard("size", f"run/{name}")
    ran.says("unknown model", name)
    assert SECRET not in ran.err
    assert "TOML" not in ran.err


@pytest.mark.parametrize("model", ["model", "./model/", "model/config.json", "./model/config.json"])
def test_a_model_inside_of_the_folder_is_read(costguard: Command, folder: Path, model: str) -> None:
    for name, text in CONFIGS.items():
        (folder / name).write_text(text % model)
        assert costguard("size", f"run/{name}", "--json").code == 0, name


def test_a_job_that_a_stranger_wrote_is_kept_in_its_folder(folder: Path) -> None:
    job = folder / "job.toml"
    rest = 'method = "full"\nseq_len = 64\n'
    for line in ('path = "../outside.json"', 'model = "/etc/passwd"', 'path = "link.json"', 'model = "./linked/outside.json"'):
        job.write_text(f"{line}\n{rest}")
        with restrict_files(folder), pytest.raises(InputError, match="outside of the allowed folder"):
            api.size(job)
    job.write_text(f'path = "model/config.json"\n{rest}')
    with restrict_files(folder):
        api.size(job)
    job.write_text(f'path = "../outside.json"\n{rest}')
    api.size(job)
