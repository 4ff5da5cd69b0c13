"""dstack: the YAML of a task, service, dev environment or fleet (dstack.ai/docs/reference, read 2026-11).

type: task
nodes: 2
resources: {gpu: H100:80GB:8}      # name, memory and count in any order; each may be left out
max_duration: 12h
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from costguard.formats.commands import read_commands
from costguard.formats.launch import list_variables, parse_memory, parse_span, state_cloud
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

VENDORS = ("", "nvidia", "amd", "google", "intel")
RANGE = re.compile(r"[0-9]*(?:\.\.|-)[0-9]*")


def recognise(file: ConfigFile) -> bool:
    """Return whether it is one of dstack's types."""
    return file.table.get("type") in TYPES


def read(draft: ConfigDraft) -> None:
    """Take the GPUs, nodes, limits and the training command."""
    hardware = _read_gpu(draft)
    nodes = draft.take("nodes")
    several = isinstance(nodes, dict) or (isinstance(nodes, str) and RANGE.fullmatch(nodes) is not None)
    counted = 1 if nodes is None or several else draft.read_count(nodes, "nodes")
    if several:
        draft.leave("nodes", "is not a single number")
    limit = draft.take("max_duration")
    hours = (parse_span(str(limit)) if limit not in (None, "off", False) else None) or None
    if hours is None and limit not in (None, "off", False):
        draft.leave("max_duration", f"{limit} is not a duration")
    if hardware is not None:
        draft.hardware = replace(hardware, nodes=counted, hours=hours)
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
    read_commands(draft, "\n".join([*list_variables(draft, "env"), *lines]), "commands")
    draft.ignore(*NO_EFFECT)


def _read_gpu(draft: ConfigDraft) -> LaunchHardware | None:
    """Return the GPUs of a machine: a count, a table, or parts between colons."""
    gpu = draft.take("resources.gpu")
    if isinstance(gpu, dict):
        gpu = _join_parts(draft, gpu)
    if gpu is None or (gpu == 0 and not isinstance(gpu, bool)):
        return None
    if not isinstance(gpu, str):
        return LaunchHardware(gpu_count=draft.read_count(gpu, "resources.gpu"))
    hardware = LaunchHardware(gpu_count=1)
    for part in gpu.split(":"):
        hardware = _read_part(draft, part.strip(), hardware)
    return hardware


def _join_parts(draft: ConfigDraft, table: Mapping[str, object]) -> str:
    """Return a table of a GPU as the text that says the same."""
    names = table.get("name")
    parts = [names] if isinstance(names, str) else [",".join(map(str, names))] if isinstance(names, list) else []
    parts += [str(table[key]) for key in ("memory", "count") if table.get(key) is not None]
    for key in sorted(table.keys() - {"name", "memory", "count", "vendor"}):
        draft.leave(f"resources.gpu.{key}", "it does not select the kind of GPU")
    return ":".join(parts)


def _read_part(draft: ConfigDraft, part: str, hardware: LaunchHardware) -> LaunchHardware:
    """Return `hardware` with what one part of a GPU's text says."""
    memory = parse_memory(part)
    if memory is not None:
        return replace(hardware, memory_gb=memory)
    if ".." in part:
        draft.leave("resources.gpu", f"{part} is a range of counts")
        return replace(hardware, gpu_count=None)
    if "," in part:
        draft.leave("resources.gpu", f"{part}: several kinds of GPUs; state one with --on GPU:COUNT")
        return hardware
    if part and not part[0].isalpha():
        return replace(hardware, gpu_count=draft.read_count(part, "resources.gpu"))
    return hardware if part in VENDORS else replace(hardware, gpu=part)
