"""GPU readings from NVIDIA's library NVML, through `pynvml` (nvidia-ml-py) if it can be imported.

Duty and power are read each time, slow values at full readings. A value that a GPU does not report is left out, never zero:

    no pynvml, no driver       nothing is measured; reported once, tried again every half minute
    old driver, new function   that value is left out
    MIG                        a split GPU reports no duty: power, memory and processes are used instead
    a lost GPU                 it runs nothing any more, so it is left out of the maximum; reported until it is back
    driver reloaded            NVML is opened again; if the loaded library is too old for it, the agent restarts itself

NVML is read by a separate thread, so that a driver that hangs, for example when a GPU falls off the bus, blocks nothing else.
Duty and power are read every second, slow values about once a record. A reading older than half a minute counts as unknown.

NVIDIA's binding is imported without compiling it in this process, which would keep 16 MB for good.
"""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from costguard_agent.clock import CpuThrottle, read_clock
from costguard_agent.signals import LIMIT, MEMORY_USED, MEMORY_UTIL, PCIE, POWER, TEMPERATURE, UTIL, SignalReading

AGAIN_S, LOST_AGAIN_S = 30.0, 300.0
"""When it is opened again where it could not be, and where a GPU is lost: opening may take seconds."""
FAILED_LOOKS = 5
"""Looks in a row in which no GPU answered anything, after which NVML is opened anew."""
PCIE_SHARE, PCIE_KEPT_S = 0.001, 60.0
"""Reading the throughput of PCIe waits 20 ms a GPU and direction: at most this share of a core; how long a value stands."""
UNINITIALIZED, NOT_SUPPORTED, NOT_FOUND, DRIVER_NOT_LOADED, NO_FUNCTION, LOST, RESET_REQUIRED, MISMATCH = (
    1,
    3,
    6,
    9,
    13,
    15,
    16,
    18,
)
CLOSED = frozenset((UNINITIALIZED, DRIVER_NOT_LOADED, MISMATCH))
NEVER = frozenset((NOT_SUPPORTED, NO_FUNCTION))
GONE = frozenset((LOST, RESET_REQUIRED))
PERCENT, MILLI, KILO = 100.0, 1e-3, 1e3


class GpuReading(NamedTuple):
    """One reading.

    `gpus`: the values of each GPU, None if NVML cannot be read. `pids`: all processes that hold a GPU, None if unknown.
    """

    gpus: Mapping[str, Mapping[str, float]] | None
    pids: frozenset[int] | None
    troubles: tuple[str, ...]


class NvmlCallError(Exception):
    """NVML returned an error.

    `code`: its number, -1 if the function does not exist here.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class GpuDevice:
    """One GPU, and the values that it never reports."""

    def __init__(self, name: str, handle: object) -> None:
        self.name, self.handle = name, handle
        self.never: set[str] = set()
        self.slow: dict[str, float] = {}
        self.split = False


class GpuReader:
    """NVML, opened as soon as possible and read repeatedly."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._open = self._fresh = False
        self._next_s = self._opened_s = 0.0
        self._devices: list[GpuDevice] = []
        self._lost: dict[str, str] = {}
        self._most = 0
        self._why = ""
        self._pids: frozenset[int] | None = None
        self._silent = 0
        self._pace = CpuThrottle(0.0, PCIE_SHARE)
        self._pcie: dict[str, tuple[float, float]] = {}
        self.outdated = False
        """The library in this process is older than the driver: only a new process can read it."""

    def look(self, now_s: float, *, full: bool) -> GpuReading:
        """Read all GPUs at `now_s` of a monotonic clock.

        The first reading is always a full one.
        """
        if not self._open and now_s >= self._next_s:
            self._open_library(now_s)
        if not self._open:
            return GpuReading(None, None, tuple(filter(None, [self._why])))
        full, self._fresh = full or self._fresh, False
        gpus: dict[str, dict[str, float]] = {}
        troubles: list[str] = []
        try:
            if full and self._pace.is_due(now_s):
                self._pace.run_measured(now_s, lambda: self._read_pcie(now_s))
            for device in list(self._devices):
                self._add_device(gpus, device, now_s, full=full, troubles=troubles)
        except NvmlCallError as error:
            return self._handle_closed(error, now_s)
        self._count_silent_looks(gpus, now_s)
        if full:
            self._pids = self._list_holder_pids()
        return GpuReading(gpus, self._pids, (*self._lost.values(), *self._explain_missing_gpus(), *dict.fromkeys(troubles)))

    def close(self) -> None:
        """Close NVML."""
        if self._open:
            self._open = False
            _call_or_none(self._nvml, "nvmlShutdown")

    def _open_library(self, now_s: float) -> None:
        self._next_s, self._opened_s = now_s + AGAIN_S, now_s
        self._why = "GPUs are not measured: NVML does not open"
        try:
            if self._nvml is None:
                self._nvml = import_pynvml()
            _find_function(self._nvml, "nvmlInit")
            count = int(_find_function(self._nvml, "nvmlDeviceGetCount"))
        except ImportError:
            self._why = "GPUs are not measured: nvidia-ml-py is not installed (pip install nvidia-ml-py)"
            return
        except NvmlCallError as error:
            self._handle_closed(error, now_s)
            return
        self._devices, self._lost, self.outdated = [], {}, False
        for index in range(count):
            self._open_device(index)
        self._open = self._fresh = bool(count)
        self._why = "" if count else "NVML finds no GPU here"
        self._most = max(self._most, len(self._devices) + len(self._lost))

    def _open_device(self, index: int) -> None:
        try:
            handle = _find_function(self._nvml, "nvmlDeviceGetHandleByIndex", index)
        except NvmlCallError as error:
            self._lost[f"GPU {index}"] = f"GPU {index} is lost ({error}): it needs a reset or a restart of the machine"
            return
        self._devices.append(GpuDevice(f"GPU {index}", handle))

    def _add_device(
        self, gpus: dict[str, dict[str, float]], device: GpuDevice, now_s: float, *, full: bool, troubles: list[str]
    ) -> None:
        """Add the values of `device`, or mark it as lost; raises NvmlCallError if NVML itself is closed."""
        try:
            gpus[device.name] = self._read_device(device, now_s, full=full, troubles=troubles)
        except NvmlCallError as error:
            if error.code in CLOSED:
                raise
            self._lost[device.name] = f"{device.name} is lost ({error}): it needs a reset or a restart of the machine"
            self._devices.remove(device)

    def _read_device(self, device: GpuDevice, now_s: float, *, full: bool, troubles: list[str]) -> dict[str, float]:
        """Return the values of one GPU; raises NvmlCallError if it is lost or NVML is closed."""
        if full:
            device.slow = self._read_slow_values(device, now_s, troubles)
        values = dict(device.slow)
        rates = None if device.split else self._call_first_available(device, UTIL, ("nvmlDeviceGetUtilizationRates",), troubles)
        if rates is not None:
            _put_value(values, UTIL, float(rates.gpu), most=PERCENT)
            _put_value(values, MEMORY_UTIL, float(rates.memory), most=PERCENT)
        power = self._call_first_available(device, POWER, ("nvmlDeviceGetPowerUsage",), troubles)
        if power is not None:
            _put_value(values, POWER, power * MILLI)
        return values

    def _read_slow_values(self, device: GpuDevice, now_s: float, troubles: list[str]) -> dict[str, float]:
        values: dict[str, float] = {}
        mode = self._call_first_available(device, "split", ("nvmlDeviceGetMigMode",), troubles)
        device.split = mode is not None and bool(mode[0])
        if device.split:
            troubles.append(f"{device.name} is split (MIG) and reports no duty: power, memory and processes are used instead")
        limit = self._call_first_available(
            device, LIMIT, ("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit"), troubles
        )
        if limit is not None:
            _put_value(values, LIMIT, limit * MILLI)
        heat = self._call_first_available(
            device, TEMPERATURE, ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"), troubles, 0
        )
        if heat is not None:
            _put_value(values, TEMPERATURE, float(heat))
        memory_values = [self._read_memory(part, troubles) for part in self._list_parts(device)]
        if memory_values and None not in memory_values:
            _put_value(values, MEMORY_USED, max(filter(None, memory_values), default=0.0), most=PERCENT)
        return {**values, **self._get_pcie(device, now_s)}

    def _read_memory(self, part: GpuDevice, troubles: list[str]) -> float | None:
        memory = self._call_first_available(part, MEMORY_USED, ("nvmlDeviceGetMemoryInfo",), troubles)
        return PERCENT * memory.used / memory.total if memory is not None and memory.total else None

    def _read_pcie(self, now_s: float) -> None:
        """Read the PCIe throughput of all GPUs; a value is valid for a minute, because reading is slow."""
        for device in self._devices:
            read = [
                self._read_pcie_direction(device, way) for way in (0, 1)
            ]  # NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES
            if None in read:
                self._pcie.pop(device.name, None)
            else:
                self._pcie[device.name] = (now_s, sum(filter(None, read)) * KILO)

    def _read_pcie_direction(self, device: GpuDevice, way: int) -> float | None:
        """Return one direction's throughput; None if it cannot be read, without a trouble of its own."""
        if PCIE in device.never:
            return None
        answer, error = _call(self._nvml, "nvmlDeviceGetPcieThroughput", device.handle, way)
        if error is not None and (error.code < 0 or error.code in NEVER):
            device.never.add(PCIE)
        return None if error is not None else float(answer)

    def _get_pcie(self, device: GpuDevice, now_s: float) -> dict[str, float]:
        then_s, value = self._pcie.get(device.name, (0.0, -1.0))
        return {PCIE: value} if value >= 0 and now_s - then_s <= PCIE_KEPT_S else {}

    def _list_parts(self, device: GpuDevice) -> list[GpuDevice]:
        """Return the GPU itself, or its parts if it is split."""
        if not device.split:
            return [device]
        parts = []
        for index in range(int(_call_or_none(self._nvml, "nvmlDeviceGetMaxMigDeviceCount", device.handle) or 0)):
            handle = _call_or_none(self._nvml, "nvmlDeviceGetMigDeviceHandleByIndex", device.handle, index)
            if handle is not None:
                parts.append(GpuDevice(f"{device.name}, part {index}", handle))
        return parts

    def _list_holder_pids(self) -> frozenset[int] | None:
        """Return the pids of compute and graphics processes on all GPUs; None if one GPU does not report them."""
        if not self._devices:
            return None
        pids: set[int] = set()
        for device in self._devices:
            pid_sets = [
                self._list_processes(part, kind)
                for part in (device, *self._list_parts(device))
                for kind in ("Compute", "Graphics")
            ]
            known_sets = [one for one in pid_sets if one is not None]
            if pid_sets[0] is None and not (device.split and known_sets):
                return None
            pids.update(*known_sets)
        return frozenset(pids)

    def _list_processes(self, part: GpuDevice, kind: str) -> set[int] | None:
        names = (f"nvmlDeviceGet{kind}RunningProcesses", f"nvmlDeviceGet{kind}RunningProcesses_v2")
        infos = next(
            (infos for infos in (_call_or_none(self._nvml, name, part.handle) for name in names) if infos is not None), None
        )
        return None if infos is None else {int(each.pid) for each in infos}

    def _call_first_available(
        self, device: GpuDevice, what: str, names: Sequence[str], troubles: list[str], *more: object
    ) -> Any:  # noqa: ANN401
        """Return the result of the first of `names` that this driver supports; None if none answers.

        Raises NvmlCallError if the GPU is lost or NVML is closed.
        """
        if what in device.never:
            return None
        for name in names:
            answer, error = _call(self._nvml, name, device.handle, *more)
            if error is None:
                return answer
            if error.code in CLOSED or error.code in GONE:
                raise error
            if error.code >= 0 and error.code not in NEVER:
                troubles.append(f"{device.name} does not report {what}: {error}")
                return None
        device.never.add(what)
        return None

    def _count_silent_looks(self, gpus: Mapping[str, Mapping[str, float]], now_s: float) -> None:
        self._silent = 0 if any(gpus.values()) or not self._devices else self._silent + 1
        if self._silent >= FAILED_LOOKS or (self._lost and now_s >= self._opened_s + LOST_AGAIN_S):
            self._silent = 0
            self.close()

    def _handle_closed(self, error: NvmlCallError, now_s: float) -> GpuReading:
        self.outdated = error.code == MISMATCH
        self.close()
        self._pids, self._next_s = None, max(self._next_s, now_s + AGAIN_S)
        self._why = f"GPUs are not measured: {error}"
        return GpuReading(None, None, (self._why,))

    def _explain_missing_gpus(self) -> list[str]:
        missing = self._most - len(self._devices) - len(self._lost)
        return [f"{missing} of {self._most} GPUs have disappeared since the agent started"] if missing > 0 else []


def _find_function(nvml: Any, name: str, *values: object) -> Any:  # noqa: ANN401 - whatever NVML answers
    function: Callable[..., Any] | None = getattr(nvml, name, None)
    if function is None:
        raise NvmlCallError(-1, f"{name} is missing")
    try:
        return function(*values)
    except nvml.NVMLError as error:
        code = getattr(error, "value", -1)
        raise NvmlCallError(code if isinstance(code, int) else -1, str(error)) from error
    except (AttributeError, TypeError, ValueError, OSError) as error:  # a library and a binding that do not fit
        raise NvmlCallError(-1, f"{name}: {error}") from error


def _call(nvml: Any, name: str, *values: object) -> tuple[Any, NvmlCallError | None]:  # noqa: ANN401
    """Return the result and None, or None and the error."""
    try:
        return _find_function(nvml, name, *values), None
    except NvmlCallError as error:
        return None, error


def _call_or_none(nvml: Any, name: str, *values: object) -> Any:  # noqa: ANN401
    """Return the result, None on any error."""
    return _call(nvml, name, *values)[0]


def _put_value(values: dict[str, float], name: str, value: float, *, most: float = 1e6) -> None:
    """Store a value if it is in range (drivers return 4294967295 for "unknown")."""
    if 0 <= value <= most:
        values[name] = value


LOOK_S, FIRST_S, STALE_S, LAST_S = 1.0, 5.0, 30.0, 0.1
"""Between looks; for how long a beginning waits for the first; after how long without one nothing is known; for an end."""
FULL_SHARE = 0.9
"""Of the time between records, so that each has a full look in it."""
BLIND = GpuReading(None, None, ())


class TakenReadings(NamedTuple):
    """All readings since the last call, the latest of them, and all troubles."""

    looks: list[SignalReading]
    latest: GpuReading
    troubles: tuple[str, ...]


class GpuWatcher:
    """The thread that reads GPUs, and its readings.

    `every_s`: seconds between records.
    """

    def __init__(self, every_s: float) -> None:
        self.every_s = every_s
        self._gpus = GpuReader()
        self._lock, self._first, self._ended = threading.Lock(), threading.Event(), threading.Event()
        self._looks: list[SignalReading] = []
        self._latest, self._latest_s = BLIND, time.monotonic()
        self._troubles: dict[str, None] = {}
        self._thread = threading.Thread(target=self._watch, name="gpus", daemon=True)
        self._thread.start()
        self._first.wait(FIRST_S)

    @property
    def outdated(self) -> bool:
        """Whether only a new process can read the driver."""
        return self._gpus.outdated

    def take(self) -> TakenReadings:
        """Return the readings since the last call."""
        with self._lock:
            looks, troubles, latest = self._looks, tuple(self._troubles), self._latest
            silent_s = time.monotonic() - self._latest_s
            self._looks, self._troubles = [], {}
        if silent_s > STALE_S:
            return TakenReadings([], BLIND, (f"NVML has not answered for {silent_s:.0f} s",))
        return TakenReadings(looks, latest, troubles)

    def close(self) -> None:
        """End the thread; one that hangs ends with the process."""
        self._ended.set()
        self._thread.join(LAST_S)

    def _watch(self) -> None:
        full_s = 0.0
        while not self._ended.is_set():
            moment = read_clock()
            full = moment.awake_s >= full_s
            if full:
                full_s = moment.awake_s + FULL_SHARE * self.every_s
            look = self._look(moment.awake_s, full=full)
            with self._lock:
                self._latest, self._latest_s = look, time.monotonic()
                self._troubles.update(dict.fromkeys(look.troubles))
                if look.gpus is not None:
                    self._looks.append(SignalReading(moment.boot_s, 0.0, {}, look.gpus))
            self._first.set()
            self._ended.wait(min(LOOK_S, self.every_s) if look.gpus else FULL_SHARE * self.every_s)
        self._gpus.close()

    def _look(self, at_s: float, *, full: bool) -> GpuReading:
        try:
            return self._gpus.look(at_s, full=full)
        except Exception as error:  # noqa: BLE001 - any: a binding that does not fit, a driver that answers otherwise
            return BLIND._replace(troubles=(f"GPUs cannot be measured: {type(error).__name__}: {str(error)[:100]}",))


NAME, WITHIN_S = "pynvml", 60


def import_pynvml() -> ModuleType:
    """Return the module; raises ImportError.

    If it was never compiled (uv, read-only images), a separate process compiles it first.
    """
    with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
        source = _find_source()
        if source is not None and not Path(importlib.util.cache_from_source(str(source))).exists():
            words = [sys.executable, "-m", "compileall", "-q", str(source)]
            subprocess.run(words, check=False, cwd="/", timeout=WITHIN_S, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
    return importlib.import_module(NAME)


def _find_source() -> Path | None:
    """Return the module's file; None if it is imported already, missing, or inside an archive."""
    spec = None if NAME in sys.modules else importlib.util.find_spec(NAME)
    if spec is None or not (spec.origin or "").endswith(".py"):
        return None
    path = Path(spec.origin or "")
    return path if path.is_file() else None
