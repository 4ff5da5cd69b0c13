"""Keys of training configs that change bytes or hours in ways that are easy to pass over."""

from __future__ import annotations

from pathlib import Path

import pytest

from costguard.formats import read_config
from costguard.formats.loading import load_config_file
from costguard.formats.reading import ConfigReading
from tests.conftest import Command
from tests.formats.test_published import flatten

LF = "model_name_or_path: gpt2\nstage: sft\nfinetuning_type: lora\nper_device_train_batch_size: 1\n"
TRL = "model_name_or_path: gpt2\nper_device_train_batch_size: 1\nnum_train_epochs: 1\n"
AX = "base_model: unsloth/Meta-Llama-3.1-8B-bnb-4bit\nsequence_len: 64\nmicro_batch_size: 1\n"
LIT = "checkpoint_dir: a/gpt2\ntrain: {micro_batch_size: 1, global_batch_size: 1, max_seq_length: 64}\n"
SLOTH = (
    "from unsloth import FastLanguageModel\nm, t = FastLanguageModel.from_pretrained('unsloth/Qwen3-8B', load_in_4bit=True)\n"
    "m = FastLanguageModel.get_peft_model(m, r=16, target_modules=['q_proj', 'embed_tokens', 'lm_head'])\n"
    "t = %sTrainer(model=m, args=%sConfig(per_device_train_batch_size=2))\n"
)
TITAN = (
    '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nbatch_size = 1\nseq_len = 8192\nsteps = 10\ntensor_parallel_degree = 2\n'
    "data_parallel_shard_degree = 4\n[experimental]\npipeline_parallel_degree = 4\ncontext_parallel_degree = 2\n"
    'pipeline_parallel_schedule = "1F1B"\n'
)
COMMAND = "#!/bin/bash\ntorchrun --nproc_per_node 2 t.py --model_name_or_path gpt2 --per_device_train_batch_size 1 %s\n"
MANY = " ".join(f"--own_{letter} 1" for letter in "abcdefghijklmnopqrst")
STATED: dict[str, tuple[str, str, dict[str, object]]] = {
    "DPO with completions": (
        "a.yaml",
        f"{TRL}beta: 0.1\nmax_length: 64\nmax_prompt_length: 32\nmax_completion_length: 32\n",
        {"preference.algorithm": "dpo", "seq_len": 64},
    ),
    "DPO without a beta": ("a.yaml", f"{TRL}max_length: 64\nmax_completion_length: 32\n", {"preference.algorithm": "dpo"}),
    "GRPO": ("a.yaml", f"{TRL}beta: 0.1\nnum_generations: 4\n", {"preference.algorithm": "grpo", "preference.completions": 4}),
    "GRPO without generations": (
        "a.yaml",
        f"{TRL}beta: 0.1\nmax_prompt_length: 32\nmax_completion_length: 32\n",
        {"preference.algorithm": "grpo", "preference.completion_len": 32},
    ),
    "ORPO of Unsloth": (
        "a.py",
        SLOTH % ("ORPO", "ORPO"),
        {"preference.algorithm": "dpo", "preference.reference": False, "lora.targets": ["q_proj"]},
    ),
    "one device": ("a.yaml", f"{LIT}lora_r: 8\n", {"checkpointing": "none", "parallel.fsdp": None}),
    "one device of full": ("a.yaml", LIT, {"checkpointing": "none", "parallel.fsdp": None}),
    "a model of four bits": ("a.yaml", f"{AX}adapter: lora\n", {"method": "qlora", "quant": "nf4", "model": "llama-3.1-8b"}),
    "one of TRL": (
        "a.yaml",
        TRL.replace("gpt2", "unsloth/Meta-Llama-3.1-8B-bnb-4bit") + "use_peft: true\n",
        {"method": "qlora", "quant": "nf4"},
    ),
    "one of LLaMA-Factory": (
        "a.yaml",
        LF.replace("gpt2", "unsloth/Meta-Llama-3.1-8B-bnb-4bit"),
        {"method": "qlora", "quant": "nf4"},
    ),
    "gradients alone": ("a.yaml", f"{TRL}fsdp: shard_grad_op auto_wrap\n", {"parallel.zero": 2, "parallel.fsdp": None}),
    "gradients alone of Axolotl": (
        "a.yaml",
        f"{AX}fsdp: [auto_wrap]\nfsdp_config: {{fsdp_sharding_strategy: SHARD_GRAD_OP}}\n",
        {"parallel.zero": 2, "parallel.fsdp": None},
    ),
    "older degrees": (
        "a.toml",
        TITAN,
        {"parallel.tp": 2, "parallel.pp": 4, "parallel.cp": 2, "parallel.fsdp": True},
    ),
}
LEFT = {
    "a target": ("a.yaml", f"{LF}additional_target: embed_tokens,lm_head\n", "additional_target"),
    "more words": ("a.yaml", f"{LF}resize_vocab: true\n", "resize_vocab"),
    "embeddings": ("a.py", SLOTH % ("SFT", "SFT"), "target_modules"),
    "KTO": ("a.py", SLOTH % ("KTO", "KTO"), "KTOTrainer"),
    "eight bits": ("a.yaml", f"{AX}load_in_8bit: true\n", "load_in_8bit"),
    "four bits": ("a.yaml", AX, "base_model"),
    "hybrid sharding": ("a.yaml", f"{TRL}fsdp: hybrid_shard auto_wrap\n", "fsdp"),
    "hybrid sharding of Axolotl": ("a.yaml", f"{AX}fsdp_config: {{fsdp_sharding_strategy: HYBRID_SHARD}}\n", "hybrid sharding"),
    "the last of many": ("a.sh", COMMAND % MANY, "--own_t"),
    "every second layer": (
        "a.toml",
        f"{TITAN}[activation_checkpoint]\nmode = 'selective'\nselective_ac_option = '2'\n",
        "selective_ac_option",
    ),
    "a precision of eight bits": (
        "a.yaml",
        "model: {dtype: float8, model_config: {}}\nparallelism: {dp: 1, tp: 1, pp: 1}\ntokens: {micro_batch_size: 1}\n",
        "model.dtype",
    ),
    "a second document": ("a.yaml", f"{TRL}---\n{TRL}", "document 2"),
    "a negative count": ("a.yaml", f"{LF}cutoff_len: -5\n", "cutoff_len"),
    "two trainers": ("a.py", SLOTH % ("SFT", "SFT") + "c = SFTConfig(max_steps=3)\n", "2 trainers"),
    "arguments of a function": (
        "a.py",
        (SLOTH % ("SFT", "SFT")).replace("train_batch_size=2", "train_batch_size=2, **make()"),
        "**",
    ),
}


def read(folder: Path, name: str, text: str) -> ConfigReading:
    (folder / name).write_text(text)
    return read_config(load_config_file(folder / name))


@pytest.mark.parametrize("case", STATED)
def test_what_a_config_states_in_another_form_is_read(case: str, tmp_path: Path) -> None:
    name, text, expected = STATED[case]
    found = dict(flatten(read(tmp_path, name, text).table))
    assert {key: found.get(key) for key in expected} == expected


@pytest.mark.parametrize("case", LEFT)
def test_what_is_not_sized_is_named(case: str, tmp_path: Path) -> None:
    name, text, key = LEFT[case]
    found = read(tmp_path, name, text)
    assert any(key in one for one in found.unread), found.unread
    assert key not in found.ignored


def test_arguments_of_the_trainer_that_change_nothing_are_not_named_as_not_read(tmp_path: Path) -> None:
    found = read(tmp_path, "a.sh", COMMAND % "--output_dir x --learning_rate 1e-4 --logging_steps 5 --own 1")
    assert found.unread == ("--own (of the command)",)


def test_a_key_that_stands_twice_is_named_and_the_last_one_counts(tmp_path: Path) -> None:
    found = read(tmp_path, "a.yaml", f"{LF}cutoff_len: 512\ncutoff_len: 1024\n")
    assert found.table["seq_len"] == 1024
    assert any("appears twice" in note and "cutoff_len" in note for note in found.notes)


@pytest.mark.parametrize(
    ("lines", "length"),
    [
        ("LEN=64\n", "64"),
        ("LEN=64\nLEN=32\n", None),
        ("for LEN in 32 64; do\n", None),
        ("export LEN=$(date)\n", None),
        ("cat > x.sh <<'EOF'\nLEN=64\ntorchrun x.py --model_name_or_path gpt2-xl --per_device_train_batch_size 8\nEOF\n", None),
    ],
)
def test_a_variable_of_a_script_counts_if_it_is_set_once_to_plain_words(lines: str, length: str | None, tmp_path: Path) -> None:
    found = read(tmp_path, "a.sh", COMMAND.replace("torchrun", f"{lines}torchrun") % "--max_length $LEN")
    assert found.table["model"] == "gpt2"
    assert found.table.get("seq_len") == (None if length is None else int(length))
    assert any("max_length" in one for one in found.unread) is (length is None)


def test_adapters_of_embeddings_do_not_end_in_an_error(costguard: Command, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(SLOTH % ("SFT", "SFT"))
    assert costguard("size", "a.py", "--json").code == 0
