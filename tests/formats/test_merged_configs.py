"""Several configs of one run: whose machines, steps and precision count, in whichever order they are named."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from costguard.formats import read_config
from costguard.formats.loading import load_config_file
from costguard.formats.merging import merge_readings
from costguard.formats.reading import ConfigReading
from tests.conftest import Command

SFT = (
    "model_name_or_path: meta-llama/Llama-3.1-8B\nbf16: true\nmax_length: 2048\nper_device_train_batch_size: 1\n"
    "gradient_accumulation_steps: 8\nmax_steps: 500\ngradient_checkpointing: true\n"
)
HEAD = "compute_environment: LOCAL_MACHINE\nnum_machines: 1\nnum_processes: 8\nmixed_precision: bf16\n"
DDP = f"{HEAD}distributed_type: MULTI_GPU\n"
FSDP = f"{HEAD}distributed_type: FSDP\nfsdp_config: {{fsdp_sharding_strategy: %s}}\n"
ZERO = f"{HEAD}distributed_type: DEEPSPEED\ndeepspeed_config: {{zero_stage: 3, gradient_accumulation_steps: 1}}\n"
SKY = "resources: {accelerators: 'H100:8'}\nnum_nodes: 2\nrun: x\n"
TITAN = (
    '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 1\nseq_len = 8192\nsteps = 10\n[parallelism]\n'
    "data_parallel_replicate_degree = %d\ndata_parallel_shard_degree = 8\n"
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    for name, text in {"sft.yaml": SFT, "ddp.yaml": DDP, "ds3.yaml": ZERO, "sky.yaml": SKY}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def read(folder: Path, *names: str) -> ConfigReading:
    return merge_readings([read_config(load_config_file(folder / name)) for name in names])


@pytest.mark.parametrize(
    ("training", "launch", "precision"),
    [
        (SFT, DDP, "bf16-amp"),
        (f"{SFT}torch_dtype: bfloat16\n", DDP, "bf16"),
        (f"{SFT}torch_dtype: bfloat16\n", ZERO, "bf16-amp"),  # DeepSpeed has fp32 masters
        (SFT.replace("bf16: true\n", "torch_dtype: float32\n"), DDP, "bf16-amp"),
        (SFT.replace("bf16: true\n", ""), DDP, "bf16-amp"),
        (SFT.replace("bf16: true\n", "lora_r: 8\n"), DDP, "bf16"),
        (SFT.replace("bf16: true\n", "fp16: true\n"), DDP, "fp16-amp"),
    ],
)
def test_autocast_of_accelerate_is_not_the_precision_of_weights(
    training: str, launch: str, precision: str, folder: Path
) -> None:
    (folder / "sft.yaml").write_text(training)
    (folder / "ddp.yaml").write_text(launch)
    for names in permutations(("sft.yaml", "ddp.yaml")):
        assert read(folder, *names).table["precision"] == precision


def test_autocast_beside_a_method_of_flags_is_that_of_the_method(costguard: Command) -> None:
    rest = ("--model", "gpt2", "--seq-len", "64", "--json")
    for method, precision in (("lora", "bf16"), ("full", "bf16-amp")):
        assert costguard("size", "ddp.yaml", "--method", method, *rest).data["job"]["precision"] == precision


def test_masters_of_deepspeed_beside_a_method_of_flags_are_those_of_the_method(costguard: Command) -> None:
    Path("ds.json").write_text('{"zero_optimization": {"stage": 2}, "fp16": {"enabled": true}}')
    rest = ("--model", "gpt2", "--seq-len", "64", "--json")
    for method, precision in (("full", "fp16-amp"), ("lora", "fp16")):
        assert costguard("size", "ds.json", "--method", method, *rest).data["job"]["precision"] == precision
    assert costguard("size", "ds.json", "--method", "full", "--precision", "fp16", *rest).data["job"]["precision"] == "fp16"


def test_a_launcher_without_sharding_does_not_end_that_of_the_training_config(folder: Path) -> None:
    for line, field, value in (("fsdp: full_shard", "fsdp", True), ("deepspeed: ds_z2_config.json", "zero", 2)):
        (folder / "sft.yaml").write_text(f"{SFT}{line}\n")
        for names in permutations(("sft.yaml", "ddp.yaml")):
            parallel = read(folder, *names).table["parallel"]
            assert isinstance(parallel, dict)
            assert parallel[field] == value


def test_data_parallel_over_fp32_weights_does_not_fit_a_card(costguard: Command) -> None:
    ran = costguard("size", "sft.yaml", "ddp.yaml", "--on", "H100:8", "--json")
    assert ran.code == 3
    assert (ran.data["job"]["precision"], ran.data["fits"]) == ("bf16-amp", False)


def test_sharding_within_groups_is_not_sized_as_sharding_over_all(folder: Path) -> None:
    hybrid = FSDP % "HYBRID_SHARD"
    for name, text, left in (
        ("one.yaml", hybrid, False),
        ("many.yaml", hybrid.replace("num_machines: 1", "num_machines: 8").replace("processes: 8", "processes: 64"), True),
        ("one.toml", TITAN % 1, False),
        ("many.toml", TITAN % 8, True),
    ):
        (folder / name).write_text(text)
        found = read(folder, name)
        assert ("fsdp" in found.table["parallel"]) is not left, name  # type: ignore[operator]  # a table
        assert any("HYBRID_SHARD" in one or "replicate" in one for one in found.unread) is left, name


def test_machines_and_steps_do_not_depend_on_the_order(folder: Path) -> None:
    for names in permutations(("sft.yaml", "sky.yaml", "ds3.yaml")):
        found = read(folder, *names)
        assert found.hardware is not None
        assert (found.hardware.gpu, found.hardware.gpu_count, found.hardware.nodes) == ("H100", 8, 2)
        assert (found.plan.accumulation, found.plan.steps) == (8, 500)
        for words, loser in (("accumulation: 8 of ", "ds3.yaml"), ("machines: 8 on each of 2 of ", "ds3.yaml")):
            assert any(note.startswith(words) and loser in note.partition(", not ")[2] for note in found.notes), found.notes
        assert "accumulation 8, steps 500" in found.describe()


def test_a_gpu_named_beside_a_launch_file_keeps_its_count(costguard: Command, folder: Path, market: str) -> None:
    ends = ("--market", market, "--json")
    answer = costguard("quote", "sft.yaml", "ds3.yaml", "--gpu", "H100", *ends).data
    assert answer["job"]["tokens"] == 500 * 8 * 8 * 2048
    assert {(o["gpu"], o["gpu_count"]) for o in answer["options"]} == {("H100-SXM", 8)}
    limits = "resources: {limits: {nvidia.com/gpu: 8}}"
    (folder / "k8s.yaml").write_text(f"apiVersion: v1\nkind: Pod\nspec: {{containers: [{{name: x, {limits}}}]}}\n")
    costguard("quote", "k8s.yaml", "--hours", "5", "--market", market).says("no single kind of GPU", "--gpu H100")
    machine = {"gpu": "H100-SXM", "gpu_count": 8, "hours": 5.0}
    for flags in (("--gpu", "H100"), ("--gpu", "H100", "--count", "8"), ("--on", "H100:8")):
        assert costguard("quote", "k8s.yaml", *flags, "--hours", "5", *ends).data["job"] == machine, flags
    two = costguard("quote", "k8s.yaml", "--on", "H100:8x2", "--hours", "5", *ends).data["job"]
    assert two == {**machine, "nodes": 2}
    smaller = costguard("quote", "sky.yaml", "--count", "4", "--hours", "5", *ends).data["job"]
    assert smaller == {**machine, "gpu_count": 4, "nodes": 2}
    several = costguard("quote", "sft.yaml", "ds3.yaml", "--gpu", "H100", "--gpu", "H200", *ends).data
    assert {o["gpu_count"] for o in several["options"]} == {8}
    costguard("quote", "sft.yaml", "--on", "H100:8", "--hours", "5").says("--on")
