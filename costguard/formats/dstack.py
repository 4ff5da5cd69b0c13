"""dstack: the YAML of a task, service, dev environment or fleet (dstack.ai/docs/reference, read 2026-11).

type: task
nodes: 2
resources: {gpu: H100:80GB:8}      # name, memory and count in any order; each may be left out
max_duration: 12h
"""

from __future__ import annotations

from dataclasses import replace

from costguard.formats.commands import read_commands
from costguard.formats.launch import parse_memory, parse_span, state_cloud
from costguard.formats.loading import ConfigFile
from costguard.formats.reading import ConfigDraft, LaunchHardware

LABEL = "dstack"
KINDS = ("yaml",)

TYPES = ("task", "service", "dev-environment", "fleet")
NO_EFFECT = (
    *("type", "name", "image", "python", "env", "ports", "port", "model", "ide", "init", "volumes", "files", "repos", "docker"),
    *(
        "nvcc",
        "privileged",
        "setup",
        "working_dir",
        "idle_duration",
        "creation_policy",
        "retry",
        "auth",
        "gateway",
        "placement",
    ),
    *(
        "resources.shm_size",
        "resources.cpu",
        "resources.memory",
        "home_dir",
        "entrypoint",
        "user",
        "startup_order",
        "stop_criteria",
    ),
    *(
        "utilization_policy",
        "probes",
        "tags",
        "fleets",
        "schedule",
        "single_branch",
        "priority",
        "scaling",
        "availability_zones",
    ),
)


def recognise(file: ConfigFile) -> bool:
    """Return whether it is one of dstack's types."""
    return file.table.get("type") in TYPES


def read(draft: ConfigDraft) -> None:
    """Take the GPUs, nodes, limits and the training command."""
    found = _read_gpu(draft)
    nodes = draft.take("nodes")
    counted = nodes if isinstance(nodes, int) and nodes > 0 else 1
    if nodes is not None and not isinstance(nodes, int):
        draft.leave("nodes", "no single number")
    limit = draft.take("max_duration")
    hours = parse_span(str(limit)) if limit not in (None, "off", False) else None
    if found is not None:
        draft.hardware = replace(found, nodes=counted, hours=hours)
    policy = draft.take_text("spot_policy")
    if policy in ("spot", "on-demand"):
        draft.state("limits.tiers", ["spot"] if policy == "spot" else ["on-demand"], "spot_policy")
    state_cloud(draft, "backends")
    if draft.take("regions") is not None:
        draft.leave("regions", "the whole market is quoted")
    if draft.take("max_price") is not None:
        draft.leave("max_price", "dollars an hour; --max-usd caps the whole run")
    if draft.take("replicas") not in (None, 1):
        draft.leave("replicas", "one replica is quoted")
    if draft.take("resources.disk") is not None:
        draft.leave("resources.disk", "the disk is computed")
    commands = draft.take("commands")
    lines = [str(line) for line in commands] if isinstance(commands, list) else []
    read_commands(draft, "\n".join(lines), "commands")
    draft.ignore(*NO_EFFECT)


def _read_gpu(draft: ConfigDraft) -> LaunchHardware | None:
    stated = draft.take("resources.gpu")
    if isinstance(stated, int) and not isinstance(stated, bool):
        return LaunchHardware(gpu_count=stated) if stated > 0 else None
    if isinstance(stated, dict):
        names = stated.get("name")
        parts = [names] if isinstance(names, str) else [",".join(map(str, names))] if isinstance(names, list) else []
        parts += [str(stated[key]) for key in ("memory", "count") if stated.get(key) is not None]
        stated = ":".join(parts)
    if not isinstance(stated, str):
        return None
    hardware = LaunchHardware(gpu_count=1)
    for part in stated.split(":"):
        if part.isdigit():
            hardware = replace(hardware, gpu_count=int(part))
        elif parse_memory(part) is not None:
            hardware = replace(hardware, memory_gb=parse_memory(part))
        elif ".." in part:
            hardware = replace(hardware, gpu_count=None)
            draft.leave("resources.gpu", f"{part} is a range of counts")
        elif "," in part:
            draft.leave("resources.gpu", f"{part}: several kinds of GPUs; state one with --on GPU:COUNT")
        elif part not in ("nvidia", "amd", "google", "intel"):
            hardware = replace(hardware, gpu=part)
    return hardware
