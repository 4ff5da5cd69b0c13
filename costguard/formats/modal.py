"""Modal: the literal `gpu=` and `timeout=` of functions in a Python file (modal.com/docs/guide/gpu, read 2026-11).

    @app.function(gpu="H100:8", timeout=24 * 60 * 60)
    def train(): ...

`gpu=modal.gpu.A100(count=2, size="80GB")` is the older form. The file is parsed, never imported.
"""

from __future__ import annotations

from dataclasses import replace

from costguard.formats.launch import SMALLER_A100, parse_memory
from costguard.formats.literals import COMPUTED, PythonSource
from costguard.formats.loading import ConfigFile
from costguard.formats.reading import ConfigDraft, LaunchHardware

LABEL = "Modal"
KINDS = ("python",)

NO_EFFECT = frozenset(
    "0 image secrets secret volumes mounts mount name serialized network_file_systems cpu memory ephemeral_disk "  # noqa: SIM905
    "enable_memory_snapshot startup_timeout include_source env max_containers".split()
)
DECORATORS = ("app.function", "app.cls", "stub.function", "stub.cls")


def recognise(file: ConfigFile) -> bool:
    """Return whether the source has functions of Modal with a GPU."""
    return (
        "modal" in file.text and "gpu=" in file.text and any(f".{name.partition('.')[2]}(" in file.text for name in DECORATORS)
    )


def read(draft: ConfigDraft) -> None:
    """Take the GPU of the one kind of function that has one, and its time limit."""
    calls = [one for one in PythonSource(draft.file).list_full_calls(".function", ".cls") if one.get("gpu") is not None]
    gpus = {str(one["gpu"]) for one in calls}
    if not calls:
        raise draft.refuse("gpu", "no function asks for a GPU")
    if COMPUTED in gpus:
        raise draft.refuse("gpu", "is computed when the program runs")
    if len(calls) > 1:
        kinds = "different GPUs" if len(gpus) > 1 else "GPUs"
        draft.leave("gpu", f"{len(calls)} functions ask for {kinds}: the first is quoted")
    for key in sorted(calls[0].keys() - NO_EFFECT - {"gpu", "timeout"}):
        draft.leave(key, "of the function: one container is quoted")
    draft.hardware = _read_gpu(draft, calls[0]["gpu"], calls[0].get("timeout"))
    nodes = next((one.get("size", one.get("0")) for one in PythonSource(draft.file).list_calls("clustered")), None)
    if nodes == COMPUTED:
        draft.leave("clustered", "computed when the program runs: one machine is quoted")
    elif nodes is not None:
        draft.hardware = replace(draft.hardware, nodes=draft.read_count(nodes, "clustered"))


def _read_gpu(draft: ConfigDraft, gpu_value: object, timeout: object) -> LaunchHardware:
    if timeout == COMPUTED:
        draft.leave("timeout", "computed when the program runs")
    hours = None if timeout in (None, COMPUTED) else draft.read_hours(timeout, "timeout")
    if isinstance(gpu_value, list) and gpu_value:
        draft.leave("gpu", f"{len(gpu_value)} kinds of GPUs: the first is quoted")
        gpu_value = gpu_value[0]
    if isinstance(gpu_value, dict) and ".gpu." in str(gpu_value.get("@", "")):
        count, size = gpu_value.get("count", 1), gpu_value.get("size", gpu_value.get("memory"))
        name = str(gpu_value.get("@", "")).rpartition(".")[2]
        if COMPUTED in (count, size):
            raise draft.refuse("gpu", "is computed when the program runs")
        memory = parse_memory(size if isinstance(size, str) else f"{size}GB") if size is not None else None
        gpu = f"{name}-{memory[0]:g}GB" if memory is not None and name == "A100" else name
        return LaunchHardware(gpu=SMALLER_A100.get(gpu, gpu), gpu_count=draft.read_count(count, "gpu count"), hours=hours)
    if not isinstance(gpu_value, str):
        raise draft.refuse("gpu", "is computed when the program runs")
    gpu, colon, counted = gpu_value.removeprefix("@modal.gpu.").partition(":")
    gpu = SMALLER_A100.get(gpu.rstrip("!").upper(), gpu.rstrip("!"))
    return LaunchHardware(gpu=gpu, gpu_count=draft.read_count(counted, "gpu") if colon else 1, hours=hours)
