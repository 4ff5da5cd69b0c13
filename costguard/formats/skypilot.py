"""SkyPilot: a task's YAML (docs.skypilot.co, YAML spec, read 2026-11).

resources: {accelerators: H100:8, use_spot: true, cloud: aws, region: us-east-1}
num_nodes: 2
run: torchrun ... train.py --model_name_or_path meta-llama/Llama-3.1-8B
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from costguard.formats.commands import read_commands
from costguard.formats.launch import SMALLER_A100, list_variables, state_cloud
from costguard.formats.loading import ConfigFile
from costguard.formats.reading import ConfigDraft, LaunchHardware

LABEL = "SkyPilot"
KINDS = ("yaml",)

NO_EFFECT = (
    *("name", "setup", "envs", "secrets", "file_mounts", "volumes", "config", "experimental"),
    *("resources.ports", "resources.image_id", "resources.disk_tier", "resources.network_tier", "resources.labels"),
    *(
        "resources.job_recovery",
        "resources.spot_recovery",
        "resources.autostop",
        "resources.accelerator_args",
        "event_callback",
    ),
    *("service.readiness_probe", "service.ports", "service.tls", "service.load_balancing_policy"),
    *("resources.cpus", "resources.memory", "resources.priority", "resources._cluster_config_overrides"),
)

HEADER = {"name", "execution"}
"""Keys of the document before the tasks of a pipeline."""
FRACTION = re.compile(r"[0-9]{1,9}\.[0-9]{1,9}")


def recognise(file: ConfigFile) -> bool:
    """Return whether the keys are those of a task, or of a pipeline: tasks after a document with a name."""
    return bool(_list_tasks(file))


def _list_tasks(file: ConfigFile) -> list[Mapping[str, object]]:
    """Return the documents that are tasks; none if the file begins as something else."""
    documents = file.documents[1:] if len(file.documents) > 1 and file.table.keys() <= HEADER else file.documents
    tasks = [one for one in documents if _is_task(one)]
    return tasks if documents and _is_task(documents[0]) else []


def _is_task(table: Mapping[str, object]) -> bool:
    isolated = "type" not in table and "apiVersion" not in table
    return isolated and isinstance(table.get("resources"), dict) and bool({"run", "setup", "num_nodes"} & table.keys())


def read(draft: ConfigDraft) -> None:
    """Take the GPUs, nodes, cloud and tier, and the training command."""
    first, *others = _list_tasks(draft.file)
    draft.values = first
    for number, other in enumerate(others, 2):
        draft.leave(f"task {number} {other.get('name', '')}".rstrip(), "a further task of the pipeline: the first is quoted")
    gpu, count = _read_accelerators(draft)
    nodes = draft.take_machines("num_nodes") or 1
    for key in ("service.replicas", "service.replica_policy", "pool"):
        if draft.take(key) not in (None, 1):
            draft.leave("pool.workers" if key == "pool" else key, "one replica is quoted")
    if gpu is not None:
        draft.hardware = LaunchHardware(gpu=SMALLER_A100.get(gpu.upper(), gpu), gpu_count=count, nodes=nodes)
    if draft.take_flag("resources.use_spot"):
        draft.state("limits.tiers", ["spot"], "resources.use_spot")
    state_cloud(draft, "resources.cloud")
    region = draft.take_text("resources.region")
    if region is not None and draft.get("limits.providers"):
        draft.state("limits.regions", [region], "resources.region")
    elif region is not None:
        draft.leave("resources.region", "without a cloud that has prices here")
    disk = draft.take_count("resources.disk_size")
    if disk is not None:
        draft.state("disk_gb", disk, "resources.disk_size")
    run = "\n".join([*list_variables(draft, "envs"), draft.take_script("run")])
    read_commands(draft, run, "run", draft.take_script("workdir").removeprefix("./"))
    draft.ignore(*NO_EFFECT)


def _read_accelerators(draft: ConfigDraft) -> tuple[str | None, int | None]:
    """Return the GPU and how many of it a node has: `H100:8`, {H100: 8}, or a name alone, which is one."""
    accelerators = draft.take("resources.accelerators")
    if isinstance(accelerators, dict) and len(accelerators) == 1:
        gpu, count = next(iter(accelerators.items()))
        return str(gpu), _read_count(draft, 1 if count is None else count)
    if isinstance(accelerators, list) and len(accelerators) == 1:
        accelerators = accelerators[0]
    if isinstance(accelerators, str):
        gpu, _, counted = accelerators.partition(":")
        return gpu, _read_count(draft, counted or 1)
    if accelerators is not None:
        draft.leave("resources.accelerators", "several kinds of GPUs: state one with --on GPU:COUNT")
    return None, None


def _read_count(draft: ConfigDraft, count: object) -> int | None:
    """Return the GPUs of a node; None for a part of one, which is said."""
    if FRACTION.fullmatch(str(count).strip()):
        draft.leave("resources.accelerators", f"{count} is not a whole number of GPUs")
        return None
    return draft.read_count(count, "resources.accelerators")
