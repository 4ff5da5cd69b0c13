"""A stand-in for nvidia-ml-py: the GPUs that the JSON file named by FAKE_NVML describes, read anew whenever it changed.

    {"init": 0, "gpus": [{"util": 97, "memory_util": 40, "power": 612.0, "limit": 700.0, "used": 70, "total": 80, "heat": 64,
     "pcie": 1200, "pids": [12], "error": 0, "errors": {"nvmlDeviceGetPowerUsage": 999}, "parts": [{"used", "total", "pids"}]}],
     "without": ["nvmlDeviceGetMigMode"], "renewed": false}

`init`, `error`, `errors`: numbers of NVML's errors, for opening it, for whatever is asked of that GPU, for one function.
`hang`: whatever is asked of a GPU does not come back while it is so.
`renewed`: the driver was, when this was written: processes that are older cannot read it any more.
`without`: functions that this binding does not have. Units as a person writes them: percent, W, kB/s.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TEXTS = {
    1: "Uninitialized",
    3: "Not Supported",
    6: "Not Found",
    9: "Driver Not Loaded",
    12: "NVML Shared Library Not Found",
    13: "Function Not Found",
    15: "GPU is lost",
    18: "RM has detected an NVML/RM version mismatch.",
    999: "Unknown Error",
}
NVML_TEMPERATURE_GPU = 0


class NVMLError(Exception):
    """As the binding raises it."""

    def __init__(self, value: int) -> None:
        super().__init__(TEXTS.get(value, f"error {value}"))
        self.value = value


class _Answer:
    def __init__(self, **values: float) -> None:
        self.__dict__.update(values)


_kept: dict[str, Any] = {"at": None, "said": {}, "open": False, "born": time.time_ns()}


def _said() -> dict[str, Any]:
    path = Path(os.environ["FAKE_NVML"])
    at = path.stat().st_mtime_ns
    if at != _kept["at"]:
        said = json.loads(path.read_text())
        if said.get("renewed") and at > _kept["born"]:
            said["init"] = 18
        _kept.update(at=at, said=said)
    return dict(_kept["said"])


def _gpu(name: str, handle: tuple[int, ...]) -> dict[str, Any]:
    said = _said()
    if said.get("init", 0) in {1, 9, 18}:
        _kept["open"] = False
    if not _kept["open"]:
        raise NVMLError(said.get("init") or 1)
    if handle[0] >= len(said["gpus"]):
        raise NVMLError(15)
    gpu = said["gpus"][handle[0]]
    while _said().get("hang"):
        time.sleep(0.05)
    error = gpu.get("error") or gpu.get("errors", {}).get(name)
    if error:
        raise NVMLError(error)
    return dict(gpu["parts"][handle[1]]) if len(handle) > 1 else dict(gpu)


def _init() -> None:
    said = _said()
    if said.get("init"):
        raise NVMLError(said["init"])
    _kept["open"] = True


def _asked(name: str, key: str, scale: float = 1) -> Callable[..., Any]:
    def ask(handle: tuple[int, ...], *_: object) -> int:
        gpu = _gpu(name, handle)
        if key not in gpu:
            raise NVMLError(3)
        return int(gpu[key] * scale)

    return ask


def _utilization(handle: tuple[int, ...]) -> _Answer:
    gpu = _gpu("nvmlDeviceGetUtilizationRates", handle)
    if "util" not in gpu or "parts" in gpu:
        raise NVMLError(3)
    return _Answer(gpu=gpu["util"], memory=gpu.get("memory_util", 0))


def _memory(handle: tuple[int, ...]) -> _Answer:
    gpu = _gpu("nvmlDeviceGetMemoryInfo", handle)
    return _Answer(total=gpu.get("total", 80), used=gpu.get("used", 0))


def _mig(handle: tuple[int, ...]) -> list[int]:
    gpu = _gpu("nvmlDeviceGetMigMode", handle)
    return [1, 1] if "parts" in gpu else [0, 0]


def _part(handle: tuple[int, ...], index: int) -> tuple[int, ...]:
    if index >= len(_gpu("nvmlDeviceGetMigDeviceHandleByIndex", handle)["parts"]):
        raise NVMLError(6)
    return (*handle, index)


def _processes(handle: tuple[int, ...]) -> list[_Answer]:
    gpu = _gpu("nvmlDeviceGetComputeRunningProcesses", handle)
    return [_Answer(pid=pid) for pid in gpu.get("pids", [])]


def _handle(index: int) -> tuple[int]:
    _gpu("nvmlDeviceGetHandleByIndex", (index,))
    return (index,)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "nvmlInit": _init,
    "nvmlShutdown": lambda: _kept.update(open=False),
    "nvmlDeviceGetCount": lambda: len(_said()["gpus"]),
    "nvmlDeviceGetHandleByIndex": _handle,
    "nvmlDeviceGetUtilizationRates": _utilization,
    "nvmlDeviceGetPowerUsage": _asked("nvmlDeviceGetPowerUsage", "power", 1000),
    "nvmlDeviceGetEnforcedPowerLimit": _asked("nvmlDeviceGetEnforcedPowerLimit", "limit", 1000),
    "nvmlDeviceGetTemperature": _asked("nvmlDeviceGetTemperature", "heat"),
    "nvmlDeviceGetMemoryInfo": _memory,
    "nvmlDeviceGetPcieThroughput": _asked("nvmlDeviceGetPcieThroughput", "pcie"),
    "nvmlDeviceGetMigMode": _mig,
    "nvmlDeviceGetMaxMigDeviceCount": lambda _: 7,
    "nvmlDeviceGetMigDeviceHandleByIndex": _part,
    "nvmlDeviceGetComputeRunningProcesses": _processes,
    "nvmlDeviceGetGraphicsRunningProcesses": lambda _: [],
}


def __getattr__(name: str) -> Callable[..., Any]:
    if name in _FUNCTIONS and name not in _said().get("without", []):
        return _FUNCTIONS[name]
    raise AttributeError(name)
