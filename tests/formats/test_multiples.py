"""What multiplies a cost is read or named as not read, and bad counts are refused with the file and its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from costguard.errors import InputError
from costguard.formats import read_config
from costguard.formats.loading import load_config_file
from costguard.formats.reading import ConfigReading

LIMITS = "resources: {limits: {nvidia.com/gpu: 8}}"
JOB = (
    "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec:\n  completions: 20\n  parallelism: 2\n  template:\n    spec:\n"
    "      nodeSelector: {cloud.google.com/gke-spot: 'true', cloud.google.com/gke-accelerator: nvidia-h100-80gb, zone: a}\n"
    "      restartPolicy: Never\n      containers: [{name: x, " + LIMITS + "}]\n"
)
RAY = "import ray\n@ray.remote(num_gpus=1, accelerator_type='A100')\nclass A: ...\n"
MODAL = "import modal\napp = modal.App()\n@app.function(gpu='H100:8', image=x, min_containers=4)\ndef f(): ...\n"
TASK = "resources: {accelerators: 'H100:8'}\nrun: x\n"
SBATCH = "#!/bin/bash\n#SBATCH "

MACHINES = {
    "tasks of all nodes": ("a.sh", f"{SBATCH}--nodes=2 --ntasks=16 --gpus-per-task=h100:1\n", ("h100", 8, 2)),
    "tasks of one node": ("a.sh", f"{SBATCH}--ntasks=8 --gpus-per-task=1\n", (None, 8, 1)),
    "tasks of no stated node": ("a.sh", f"{SBATCH}--ntasks=16 --gpus-per-task=1\n", (None, 8, 2)),
    "GPUs of no stated node": ("a.sh", f"{SBATCH}--gpus=h100:16\n", ("h100", 8, 2)),
    "pods at once": ("a.yaml", JOB, ("nvidia-h100-80gb", 8, 2)),
    "a name before the task": ("a.yaml", f"name: x\n---\n{TASK}", ("H100", 8, 1)),
    "machines of torchrun": (
        "a.sh",
        "#!/bin/bash\ntorchrun --nnodes=2 --nproc_per_node 8 t.py --model_name_or_path gpt2 --max_steps 5\n",
        (None, 8, 2),
    ),
}
LEFT = {
    "an array": ("a.sh", f"{SBATCH}--array=0-9 --gpus=h100:8\n", "array"),
    "replicas of a service": ("a.yaml", f"{TASK}service: {{replicas: 4, readiness_probe: /}}\n", "service.replicas"),
    "workers of a pool": ("a.yaml", f"{TASK}pool: {{workers: 3}}\n", "pool.workers"),
    "completions": ("a.yaml", JOB, "spec.completions"),
    "another label of a node": ("a.yaml", JOB, "spec.template.spec.nodeSelector.zone"),
    "a second class": ("a.py", RAY + RAY.replace("gpus=1", "gpus=4").replace("class A", "class B"), "num_gpus"),
    "actors": ("a.py", RAY, "num_gpus"),
    "containers": ("a.py", MODAL, "min_containers"),
    "a second task": ("a.yaml", f"name: x\n---\n{TASK}---\nname: evaluate\n{TASK}", "evaluate"),
    "a time that is none": ("a.sh", f"{SBATCH}--gpus=h100:8 --time=soon\n", "time"),
    "a duration that is none": ("a.yaml", "type: task\nresources: {gpu: 'H100:8'}\nmax_duration: soon\n", "max_duration"),
}
POD = "apiVersion: batch/v1\nkind: Job\nspec: {%s, template: {spec: {containers: [{resources: {limits: {nvidia.com/gpu: %s}}}]}}}\n"
BAD = {
    "no node": ("a.sh", f"{SBATCH}--gpus=h100:8 --nodes=0\n", "nodes"),
    "a raised digit": ("a.sh", f"{SBATCH}--gpus=h100:8 --nodes=²\n", "nodes"),
    "no GPU": ("a.sh", f"{SBATCH}--gres=gpu:h100:0\n", "gres"),
    "many digits": ("a.sh", f"{SBATCH}--gpus=h100:{'9' * 5000}\n", "gpus"),
    "many digits of time": ("a.sh", f"{SBATCH}--gpus=h100:8 --nodes={'9' * 5000}\n", "nodes"),
    "tasks of no number": ("a.sh", f"{SBATCH}--gpus-per-task=h100:8 --ntasks-per-node=²\n", "ntasks-per-node"),
    "a raised digit of dstack": ("a.yaml", "type: task\nresources: {gpu: 'H100:²'}\n", "resources.gpu"),
    "many digits of dstack": ("a.yaml", f"type: task\nresources: {{gpu: 'H100:{'9' * 5000}'}}\n", "resources.gpu"),
    "nodes true": ("a.yaml", "type: task\nnodes: true\nresources: {gpu: 'H100:8'}\n", "nodes"),
    "a raised digit of Modal": ("a.py", MODAL.replace("H100:8", "H100:²"), "gpu"),
    "many digits of Modal": ("a.py", MODAL.replace("H100:8", f"H100:{'9' * 5000}"), "gpu"),
    "a cluster of none": ("a.py", f"{MODAL}@modal.experimental.clustered(size=0)\ndef g(): ...\n", "clustered"),
    "parallelism true": ("a.yaml", POD % ("parallelism: true", 8), "parallelism"),
    "a negative deadline": ("a.yaml", POD % ("activeDeadlineSeconds: -5", 8), "activeDeadlineSeconds"),
    "many digits of a pod": ("a.yaml", POD % ("parallelism: 1", f"'{'9' * 5000}'"), "nvidia.com/gpu"),
    "a true accelerator": ("a.yaml", "resources: {accelerators: {H100: true}}\nrun: x\n", "resources.accelerators"),
    "a negative accelerator": ("a.yaml", "resources: {accelerators: {H100: -3}}\nrun: x\n", "resources.accelerators"),
    "a raised accelerator": ("a.yaml", "resources: {accelerators: 'H100:²'}\nrun: x\n", "resources.accelerators"),
    "no node of SkyPilot": ("a.yaml", f"{TASK}num_nodes: 0\n", "num_nodes"),
    "no worker": ("a.py", "import ray\nc = ScalingConfig(num_workers=0, use_gpu=True)\n", "num_workers"),
    "no machine": (
        "a.yaml",
        "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: 0\nnum_processes: 8\n",
        "num_machines",
    ),
}


def read(folder: Path, name: str, text: str) -> ConfigReading:
    (folder / name).write_text(text)
    return read_config(load_config_file(folder / name))


@pytest.mark.parametrize("case", MACHINES)
def test_what_multiplies_machines_is_read(case: str, tmp_path: Path) -> None:
    name, text, expected = MACHINES[case]
    found = read(tmp_path, name, text).hardware
    assert found is not None
    assert (found.gpu, found.gpu_count, found.nodes) == expected


@pytest.mark.parametrize("case", LEFT)
def test_what_multiplies_the_cost_and_is_not_read_is_named(case: str, tmp_path: Path) -> None:
    name, text, key = LEFT[case]
    found = read(tmp_path, name, text)
    assert any(key in one for one in found.unread), found.unread
    assert not any(key in one for one in found.ignored)


def test_what_a_manifest_was_read_for_is_not_said_to_have_no_effect(tmp_path: Path) -> None:
    found = read(tmp_path, "a.yaml", JOB)
    assert found.table == {"limits": {"tiers": ["spot"]}}
    assert set(found.ignored) == {"apiVersion", "kind", "metadata.name", "spec.template.spec.restartPolicy"}
    assert len(found.unread) == 2


@pytest.mark.parametrize("case", BAD)
def test_a_bad_count_is_refused_with_its_file_and_key(case: str, tmp_path: Path) -> None:
    name, text, key = BAD[case]
    with pytest.raises(InputError) as refused:
        read(tmp_path, name, text)
    assert str(tmp_path / name) in str(refused.value.field)
    assert key in str(refused.value.field)
