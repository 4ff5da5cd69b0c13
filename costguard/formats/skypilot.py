"""SkyPilot: a task's YAML (docs.skypilot.co, YAML spec, read 2026-11).

resources: {accelerators: H100:8, use_spot: true, cloud: aws, region: us-east-1}
num_nodes: 2
run: torchrun ... train.py --model_name_or_path meta-llama/Llama-3.1-8B
"""

from __future__ import annotations

from costguard.formats.commands import read_commands
from costguard.formats.launch import SMALLER_A100, state_cloud
from costguard.formats.loading import ConfigFile
from costguard.formats.reading import ConfigDraft, LaunchHardware

LABEL = "SkyPilot"
KINDS = ("yaml",)

NO_EFFECT = (
    *("name", "setup", "envs", "secrets", "file_mounts", "volumes", "service", "config", "experimental", "pool"),
    *("resources.ports", "resources.image_id", "resources.disk_tier", "resources.network_tier", "resources.labels"),
    *(
        "resources.job_recovery",
        "resources.spot_recovery",
        "resources.autostop",
        "resources.accelerator_args",
        "event_callback",
    ),
    *("resources.cpus", "resources.memory", "resources.priority", "resources._cluster_config_overrides"),
)


def recognise(file: ConfigFile) -> bool:
    """Return whether the keys are those of a task."""
    keys = file.table.keys()
    resources = file.table.get("resources")
    return isinstance(resources, dict) and "type" not in keys and bool({"run", "setup", "num_nodes"} & keys)


def read(draft: ConfigDraft) -> None:
    """Take the GPUs, nodes, cloud and tier, and the training command."""
    if len(draft.file.documents) > 1:
        draft.notes.append(f"the file has {len(draft.file.documents)} documents (a pipeline or a name before the task)")
    gpu, count = _read_accelerators(draft)
    nodes = draft.take_count("num_nodes") or 1
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
    read_commands(draft, draft.take_script("run"), "run", draft.take_script("workdir").removeprefix("./"))
    draft.ignore(*NO_EFFECT)


def _read_accelerators(draft: ConfigDraft) -> tuple[str | None, int | None]:
    """Return the GPU and how many of it a node has: `H100:8`, {H100: 8}, or a name alone, which is one."""
    stated = draft.take("resources.accelerators")
    if isinstance(stated, dict) and len(stated) == 1:
        gpu, count = next(iter(stated.items()))
        return str(gpu), count if isinstance(count, int) else 1
    if isinstance(stated, list) and len(stated) == 1:
        stated = stated[0]
    if isinstance(stated, str):
        gpu, _, counted = stated.partition(":")
        if counted and not counted.isdigit():
            draft.leave("resources.accelerators", f"{counted} is no whole number of GPUs")
            return gpu, None
        return gpu, int(counted or 1)
    if stated is not None:
        draft.leave("resources.accelerators", "several kinds of GPUs: state one with --on GPU:COUNT")
    return None, None
