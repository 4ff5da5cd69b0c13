"""Forms of launch files that the published examples do not have: what hardware each states, and what is left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from costguard.errors import InputError
from costguard.formats import read_config
from costguard.formats.loading import load_config_file
from costguard.formats.reading import ConfigReading
from costguard.formats.sbatch import parse_clock

POD = "{spec: {containers: [{name: x, resources: {limits: {nvidia.com/gpu: %d}}}]}}"
CASES = {
    "one pod a worker": (
        "a.yaml",
        (
            "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nspec:\n  pytorchReplicaSpecs:\n"
            f"    Master: {{replicas: 1, template: {POD % 8}}}\n    Worker: {{replicas: 3, template: {POD % 8}}}\n"
        ),
        (None, 8, 4, None),
    ),
    "a job set": (
        "a.yaml",
        (
            "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nspec:\n  replicatedJobs:\n"
            f"    - {{name: w, replicas: 2, template: {{spec: {{parallelism: 2, template: {POD % 4}}}}}}}\n"
        ),
        (None, 4, 4, None),
    ),
    "a cron job": (
        "a.yaml",
        f"apiVersion: batch/v1\nkind: CronJob\nspec: {{jobTemplate: {{spec: {{activeDeadlineSeconds: 7200, template: {POD % 1}}}}}}}\n",
        (None, 1, 1, None),
    ),
    "a selector behind a service": (
        "a.yaml",
        (
            "apiVersion: v1\nkind: Service\nspec: {ports: []}\n---\napiVersion: batch/v1\nkind: Job\nspec:\n  activeDeadlineSeconds: 7200\n"
            "  template: {spec: {nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB},"
            " containers: [{resources: {requests: {nvidia.com/gpu: '2'}}}]}}\n"
        ),
        ("NVIDIA-A100-SXM4-80GB", 2, 1, 2.0),
    ),
    "typed GPUs of all nodes": ("a.sh", "#!/bin/bash\n#SBATCH -N 2\n#SBATCH -G a100:16\n#SBATCH -t 90\n", ("a100", 8, 2, 1.5)),
    "a constraint": ("a.sh", "#!/bin/bash\n#SBATCH --gpus-per-node=4\n#SBATCH -C v100\n", ("v100", 4, 1, None)),
    "GPUs of a task": (
        "a.sh",
        "#!/bin/bash\n#SBATCH --ntasks-per-node=4\n#SBATCH --gpus-per-task=h100:2\n",
        ("h100", 8, 1, None),
    ),
    "several resources": ("a.sh", "#!/bin/bash\n#SBATCH --gres=nvme:1,gpu:l40s:2\n", ("l40s", 2, 1, None)),
    "name, memory and count": (
        "a.yml",
        "type: task\nresources: {gpu: 'A100:80GB:4'}\nmax_duration: 1d\n",
        ("A100", 4, 1, 24.0),
    ),
    "a table": ("a.yml", "type: task\nnodes: 2\nresources: {gpu: {name: H100, count: 8}}\n", ("H100", 8, 2, None)),
    "one accelerator of a table": ("a.yaml", "resources: {accelerators: {L4: 4}}\nrun: x\n", ("L4", 4, 1, None)),
    "a cluster of Modal": (
        "a.py",
        (
            "import modal\napp = modal.App()\n@app.function(gpu='H100:8', timeout=60 * 60)\n@modal.experimental.clustered(size=4)\n"
            "def f(): ...\n"
        ),
        ("H100", 8, 4, 1.0),
    ),
    "workers of two GPUs": (
        "a.py",
        "import ray\nN = 8\nc = ScalingConfig(num_workers=N, use_gpu=True, resources_per_worker={'GPU': 2}, accelerator_type='A100')\n",
        ("A100", 8, 2, None),
    ),
    "a remote function": (
        "a.py",
        (
            "import ray\nfrom ray.util import accelerators\n@ray.remote(num_gpus=2, accelerator_type=accelerators.NVIDIA_TESLA_V100)\n"
            "def f(): ...\n"
        ),
        ("V100", 2, 1, None),
    ),
}


def read(folder: Path, name: str, text: str) -> ConfigReading:
    (folder / name).write_text(text)
    return read_config(load_config_file(folder / name))


@pytest.mark.parametrize("case", CASES)
def test_the_machines_of_a_launch_file(case: str, tmp_path: Path) -> None:
    name, text, expected = CASES[case]
    found = read(tmp_path, name, text).hardware
    assert found is not None
    assert (found.gpu, found.gpu_count, found.nodes, found.hours) == expected


@pytest.mark.parametrize(
    ("text", "hours"),
    [("90", 1.5), ("90:30", 1.508333), ("12:00:00", 12), ("3-00:00:00", 72), ("1-12", 36), ("2-01:30", 49.5), ("soon", None)],
)
def test_the_clock_of_slurm(text: str, hours: float | None) -> None:
    assert parse_clock(text) == (None if hours is None else pytest.approx(hours, abs=1e-4))


def test_a_notebook_is_read_without_its_shell_lines(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# max_steps = 5"]},
        {"cell_type": "code", "source": ["%%capture\n", "!pip install unsloth"]},
        {"cell_type": "code", "source": ["!nvidia-smi\n", "from unsloth import FastLanguageModel\n", "LENGTH = 4096\n"]},
        {
            "cell_type": "code",
            "source": "model, t = FastLanguageModel.from_pretrained('unsloth/Qwen3-8B', max_seq_length=LENGTH, load_in_4bit=False)",
        },
        {"cell_type": "code", "source": ["args = SFTConfig(per_device_train_batch_size=4, max_steps=30, optim='adamw_8bit')"]},
    ]
    found = read(tmp_path, "a.ipynb", json.dumps({"cells": cells}))
    assert {
        "model": "qwen3-8b",
        "seq_len": 4096,
        "micro_batch": 4,
        "method": "full",
        "optimizer": "adamw-8bit",
    }.items() <= found.table.items()
    assert found.plan.steps == 30


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("resources: {accelerators: ['A100:8', 'H100:8']}\nrun: x\n", "several kinds"),
        ("resources: {accelerators: 'A100:0.5'}\nrun: x\n", "not a whole number"),
        ("type: task\nresources: {gpu: 'A100,H100:8'}\n", "several kinds"),
        ("type: task\nresources: {gpu: 'H100'}\nmax_price: 3\nbackends: [cudo]\n", "cudo"),
    ],
)
def test_what_is_not_one_kind_of_machine_is_left_and_said(tmp_path: Path, text: str, left: str) -> None:
    assert any(left in note for note in read(tmp_path, "a.yaml", text).list_notes())


def test_pods_that_differ_are_said(tmp_path: Path) -> None:
    text = (
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nspec:\n  pytorchReplicaSpecs:\n"
        f"    Master: {{replicas: 1, template: {POD % 1}}}\n    Worker: {{replicas: 3, template: {POD % 8}}}\n"
    )
    assert any("pods of 1 and of 8 GPUs" in note for note in read(tmp_path, "a.yaml", text).list_notes())


def test_gpus_that_nodes_do_not_divide_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not divided evenly"):
        read(tmp_path, "a.sh", "#!/bin/bash\n#SBATCH -N 3\n#SBATCH --gpus=8\n")


def test_arguments_of_a_script_of_its_own_are_said(tmp_path: Path) -> None:
    text = "deepspeed --num_gpus=2 own.py --max_seq_length 512 --verbose --deepspeed z.json 2>&1 | tee out.log\n"
    notes = " ".join(read(tmp_path, "a.sh", text).list_notes())
    assert "--max_seq_length (of a script" in notes
    assert "z.json" in notes
    assert "--verbose" not in notes
