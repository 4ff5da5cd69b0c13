"""Ray: literal GPU requests of a Python file (docs.ray.io, Ray Train and core, read 2026-11).

    ScalingConfig(num_workers=8, use_gpu=True, accelerator_type="H100", resources_per_worker={"GPU": 1})
    @ray.remote(num_gpus=1, accelerator_type="A100")

The file is parsed, never imported. `ray.util.accelerators.NVIDIA_TESLA_A100` is the A100.
"""

from __future__ import annotations

from costguard.formats.launch import split_machines
from costguard.formats.literals import COMPUTED, PythonSource
from costguard.formats.loading import ConfigFile
from costguard.formats.reading import ConfigDraft

LABEL = "Ray"
KINDS = ("python",)


def recognise(file: ConfigFile) -> bool:
    """Return whether the source asks Ray for GPUs."""
    return "ray" in file.text and ("ScalingConfig(" in file.text or "num_gpus=" in file.text)


def read(draft: ConfigDraft) -> None:
    """Take the workers of a ScalingConfig, else the GPUs of one remote function."""
    source = PythonSource(draft.file)
    scaling = next(iter(source.list_calls("ScalingConfig")), None)
    remotes = [one for one in source.list_full_calls("ray.remote", ".options") if one.get("num_gpus")]
    remote = remotes[0] if remotes else None
    request = scaling if scaling is not None else remote
    if request is None:
        raise draft.refuse("num_gpus", "no request for GPUs was found")
    others = [one for one in (*source.list_calls("ScalingConfig"), *remotes) if one is not request][scaling is not None :]
    if others:
        counts = ", ".join(str(one.get("num_gpus", one.get("num_workers"))) for one in others)
        draft.leave("num_gpus", f"{len(others)} further requests for GPUs ({counts}): the first is quoted")
    elif scaling is None:
        draft.leave("num_gpus", "how many actors or tasks the program starts: one is quoted")
    if next(iter(source.list_calls("placement_group")), None) is not None:
        draft.leave("placement_group", "its bundles are not counted")
    per_worker = request.get("resources_per_worker")
    each = per_worker.get("GPU", 1) if isinstance(per_worker, dict) else 1
    workers = request.get("num_workers", 1) if scaling is not None else request.get("num_gpus")
    if scaling is not None and request.get("use_gpu") in (None, False):
        raise draft.refuse("use_gpu", "is not true: the workers have no GPU")
    for key, value in (("num_workers" if scaling is not None else "num_gpus", workers), ("resources_per_worker", each)):
        if value == COMPUTED or not isinstance(value, int) or isinstance(value, bool):
            raise draft.refuse(key, "is computed when the program runs, or is not a whole number")
        draft.read_count(value, key)
    kind = request.get("accelerator_type")
    if kind == COMPUTED:
        draft.leave("accelerator_type", "computed when the program runs")
    gpu = (
        None
        if kind in (None, COMPUTED)
        else str(kind).rpartition(".")[2].lstrip("@").replace("NVIDIA_TESLA_", "").replace("NVIDIA_", "")
    )
    draft.hardware = split_machines(draft, int(str(workers)) * int(str(each)), gpu)
