"""What NVML tells, and all the ways in which it does not."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from costguard_agent.nvml import GpuReader, GpuReading, GpuWatcher, import_pynvml

FAKE = Path(__file__).parent / "fake_nvml"
GPU = {
    "util": 97, "memory_util": 40, "power": 612.5, "limit": 700.0, "used": 60, "total": 80, "heat": 64, "pcie": 1200,
    "pids": [12],
}  # fmt: skip
IDLE = {**GPU, "util": 0, "power": 70.0, "pids": []}
Nvidia = Callable[..., None]


@pytest.fixture
def nvidia(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Nvidia:
    """Sets what NVML says from now on."""
    path, count = tmp_path / "nvml.json", [0]
    monkeypatch.syspath_prepend(str(FAKE))
    monkeypatch.setenv("FAKE_NVML", str(path))

    def say(*gpus: dict[str, Any], **more: object) -> None:
        count[0] += 1
        path.write_text(json.dumps({"gpus": gpus, **more}))
        os.utime(path, ns=(count[0], count[0]))

    return say


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Whatever is imported under that name in a test ends with it."""
    before = sys.modules.pop("pynvml", None)
    yield
    sys.modules.pop("pynvml", None)
    if before is not None:
        sys.modules["pynvml"] = before


def looked(*, at: float = 0.0, gpus: GpuReader | None = None) -> GpuReading:
    return (gpus or GpuReader()).look(at, full=True)


def test_a_gpu_tells_all_of_it(nvidia: Nvidia) -> None:
    nvidia(GPU, IDLE)
    found = looked()
    assert found.gpus == {
        "GPU 0": {
            "util": 97, "memory_util": 40, "power_w": 612.5, "limit_w": 700, "memory_used": 75, "temperature_c": 64,
            "pcie_bytes_s": 2_400_000,
        },
        "GPU 1": {
            "util": 0, "memory_util": 40, "power_w": 70, "limit_w": 700, "memory_used": 75, "temperature_c": 64,
            "pcie_bytes_s": 2_400_000,
        },
    }  # fmt: skip
    assert (found.pids, found.troubles) == (frozenset([12]), ())


def test_a_binding_that_was_never_compiled_is_compiled_by_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pynvml.py").write_text("VALUE = 7")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    assert import_pynvml().VALUE == 7
    assert [path.suffix for path in (tmp_path / "__pycache__").iterdir()] == [".pyc"]


def test_no_binding_and_no_driver_are_said_and_measured_as_nothing(monkeypatch: pytest.MonkeyPatch, nvidia: Nvidia) -> None:
    nvidia(init=12)
    assert looked() == GpuReading(None, None, ("GPUs are not measured: NVML Shared Library Not Found",))
    nvidia(init=9)
    assert looked() == GpuReading(None, None, ("GPUs are not measured: Driver Not Loaded",))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert looked().troubles == ("GPUs are not measured: nvidia-ml-py is not installed (pip install nvidia-ml-py)",)


def test_a_driver_without_a_gpu_says_so_and_looks_again(nvidia: Nvidia) -> None:
    gpus = GpuReader()
    nvidia()
    assert looked(gpus=gpus) == GpuReading(None, None, ("NVML finds no GPU here",))
    nvidia(GPU)
    assert looked(gpus=gpus, at=31.0).gpus is not None


def test_an_old_driver_leaves_out_what_it_does_not_know(nvidia: Nvidia) -> None:
    nvidia(
        {**GPU, "errors": {"nvmlDeviceGetPcieThroughput": 13}},
        without=["nvmlDeviceGetMigMode", "nvmlDeviceGetEnforcedPowerLimit"],
    )
    found = looked()
    assert found.gpus is not None
    assert sorted(found.gpus["GPU 0"]) == ["memory_used", "memory_util", "power_w", "temperature_c", "util"]
    assert found.troubles == ()


def test_one_error_leaves_out_one_value_and_says_so(nvidia: Nvidia) -> None:
    nvidia(GPU, {**GPU, "errors": {"nvmlDeviceGetUtilizationRates": 999}})
    found = looked()
    assert found.gpus is not None
    assert "util" not in found.gpus["GPU 1"]
    assert found.gpus["GPU 1"]["power_w"] == 612.5
    assert found.troubles == ("GPU 1 does not report util: Unknown Error",)


def test_a_lost_gpu_runs_nothing_and_the_others_are_still_read(nvidia: Nvidia) -> None:
    gpus = GpuReader()
    nvidia(GPU, IDLE)
    gpus.look(0.0, full=True)
    nvidia({**GPU, "error": 15}, IDLE)
    found = looked(gpus=gpus, at=1.0)
    assert found.gpus is not None
    assert list(found.gpus) == ["GPU 1"]
    assert found.troubles == ("GPU 0 is lost (GPU is lost): it needs a reset or a restart of the machine",)


def test_a_lost_gpu_is_back_after_its_reset(nvidia: Nvidia) -> None:
    gpus = GpuReader()
    nvidia({**GPU, "error": 15}, IDLE)
    assert len(looked(gpus=gpus).gpus or {}) == 1
    nvidia(GPU, IDLE)
    gpus.look(301.0, full=False)
    found = looked(gpus=gpus, at=302.0)
    assert (len(found.gpus or {}), found.troubles) == (2, ())


def test_nvml_is_opened_again_after_the_driver_was_reloaded(nvidia: Nvidia) -> None:
    gpus = GpuReader()
    nvidia(GPU)
    gpus.look(0.0, full=True)
    nvidia(GPU, init=1)
    assert looked(gpus=gpus, at=1.0) == GpuReading(None, None, ("GPUs are not measured: Uninitialized",))
    nvidia(GPU)
    assert looked(gpus=gpus, at=2.0).gpus is None, "not before half a minute went by"
    assert looked(gpus=gpus, at=31.5).gpus is not None


def test_a_library_older_than_the_driver_needs_a_new_process(nvidia: Nvidia) -> None:
    gpus = GpuReader()
    nvidia(GPU)
    gpus.look(0.0, full=True)
    assert not gpus.outdated
    nvidia(GPU, init=18)
    gpus.look(1.0, full=False)
    assert gpus.outdated


def test_nvml_that_answers_nothing_any_more_is_opened_again(nvidia: Nvidia) -> None:
    gpus = GpuReader()
    nvidia(GPU)
    gpus.look(0.0, full=True)
    nvidia({**GPU, "error": 999})
    for at in range(6):
        gpus.look(float(at), full=True)
    nvidia(GPU)
    assert looked(gpus=gpus, at=60.0).gpus == looked().gpus


def test_a_driver_that_hangs_is_unknown_and_said(nvidia: Nvidia, monkeypatch: pytest.MonkeyPatch) -> None:
    nvidia(GPU)
    watching = GpuWatcher(1.0)
    assert watching.take().latest.gpus is not None
    nvidia(GPU, hang=True)
    monkeypatch.setattr("costguard_agent.nvml.STALE_S", 0.0)
    taken = watching.take()
    assert (taken.looks, taken.latest) == ([], GpuReading(None, None, ()))
    assert taken.troubles[0].startswith("NVML has not answered for ")
    nvidia(GPU)
    watching.close()
    watching._thread.join()


def test_a_split_gpu_tells_no_duty_and_the_memory_of_its_fullest_part(nvidia: Nvidia) -> None:
    parts = [{"used": 2, "total": 10, "pids": [7]}, {"used": 9, "total": 10, "pids": [8]}]
    nvidia({**GPU, "parts": parts, "pids": []})
    found = looked()
    assert found.gpus is not None
    assert "util" not in found.gpus["GPU 0"]
    assert (found.gpus["GPU 0"]["memory_used"], found.gpus["GPU 0"]["power_w"]) == (90, 612.5)
    assert found.pids == frozenset([7, 8])
    assert found.troubles == ("GPU 0 is split (MIG) and reports no duty: power, memory and processes are used instead",)


def test_values_that_cannot_be_are_left_out(nvidia: Nvidia) -> None:
    nvidia({**GPU, "util": 4294967295, "power": 4294967.295, "heat": -5})
    found = looked()
    assert found.gpus is not None
    assert not {"util", "power_w", "temperature_c"} & found.gpus["GPU 0"].keys()
