"""The CloudWatch agent's GPU metrics: one series for each GPU, and what they come to for the machine. Pure.

Example: two GPUs report 3 % and 97 % at 12:00: the machine's GPU utilisation is 97 %, as a machine is idle only when all its
GPUs are. At 12:05 only one of them reports: there is no sample, as the other may be busy.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from costguard.metering.observation import Observation
from costguard.values.period import Period
from costguard.values.sample import GPU_MEMORY_UTIL, GPU_POWER, GPU_TEMPERATURE, GPU_UTIL, Sample


class _Metric(NamedTuple):
    """`name`: the agent's. `least`, `most`: what can be believed. `together`: how the GPUs of a machine become one figure."""

    name: str
    least: float
    most: float
    together: str


GPU_METRICS: Mapping[str, _Metric] = {
    GPU_UTIL: _Metric("nvidia_smi_utilization_gpu", 0, 100, "max"),
    GPU_MEMORY_UTIL: _Metric("nvidia_smi_utilization_memory", 0, 100, "max"),
    GPU_POWER: _Metric("nvidia_smi_power_draw", 0, 3000, "sum"),
    GPU_TEMPERATURE: _Metric("nvidia_smi_temperature_gpu", -50, 200, "max"),
}
"""Signal -> the metric of one GPU. The bounds are far beyond any GPU (a GB300 draws 1,400 W): more is a wrong unit."""


@dataclass(frozen=True, slots=True)
class GpuSeries:
    """One series of CloudWatch, by its exact dimensions. `rolled`: one series for all GPUs of the machine."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]
    statistic: str = "Average"
    rolled: bool = False

    @property
    def index(self) -> str:
        """Which GPU of the machine it is."""
        return dict(self.dimensions).get("index", "")

    def can_tell(self, signal: str) -> bool:
        """Whether it can tell `signal`: what one series says of all GPUs is their maximum, and no sum."""
        return not self.rolled or GPU_METRICS[signal].together == "max"

    def derive_series(self, signal: str) -> GpuSeries:
        """The series of another metric of the same GPU."""
        return replace(self, name=GPU_METRICS[signal].name)


def group_series(metrics: Iterable[Mapping[str, Any]], ids: Collection[str]) -> tuple[dict[str, tuple[GpuSeries, ...]], str]:
    """The series of each of `ids`: one for each GPU, or the roll-up over all where there is nothing else.

    And why there may be more: an agent that does not append InstanceId says of no instance which one it is on.
    """
    single, rolled, nameless = dict[str, list[GpuSeries]](), dict[str, list[GpuSeries]](), 0
    for metric in metrics:
        if not isinstance(metric, Mapping):
            continue
        dimensions = _parse_dimensions(metric.get("Dimensions"))
        named = dict(dimensions)
        instance = named.get("InstanceId", "")
        nameless += not instance
        if instance not in ids:
            continue
        series = GpuSeries(str(metric.get("Namespace") or ""), str(metric.get("MetricName") or ""), dimensions)
        if "index" in named:
            single.setdefault(instance, []).append(series)
        elif set(named) == {"InstanceId"}:
            rolled.setdefault(instance, []).append(replace(series, statistic="Maximum", rolled=True))
    why = "CloudWatch agents report GPUs without InstanceId: set append_dimensions in their configuration" if nameless else ""
    return {instance: tuple(single.get(instance) or rolled[instance]) for instance in {**single, **rolled}}, why


def build_gpu_samples(
    one: Observation, told: Mapping[str, Sequence[tuple[GpuSeries, Mapping[datetime, float]]]], window: Period
) -> Iterable[Sample]:
    """One sample for each instant at which every GPU of the machine has a value."""
    for signal, series in told.items():
        by_gpu: dict[str, dict[datetime, float]] = {}
        for which, points in series:
            gpu = by_gpu.setdefault("" if which.rolled else which.index, {})
            for at, value in points.items():
                if GPU_METRICS[signal].least <= value <= GPU_METRICS[signal].most and window.holds(at):
                    gpu[at] = max(value, gpu.get(at, value))
        rolled = any(which.rolled for which, _ in series)
        yield from _combine_gpus(one, signal, by_gpu, 1 if rolled else math.ceil(one.gpu_count) or len(by_gpu))


def _combine_gpus(one: Observation, signal: str, by_gpu: Mapping[str, Mapping[datetime, float]], gpus: int) -> Iterable[Sample]:
    """The machine's figure at each instant at which `gpus` of them have one."""
    for at in sorted(set[datetime]().union(*by_gpu.values())):
        values = [points[at] for points in by_gpu.values() if at in points]
        if len(values) >= gpus:
            value = sum(values) if GPU_METRICS[signal].together == "sum" else max(values)
            yield Sample(key=one.key, signal=signal, at=at, value=value)


def _parse_dimensions(stated: object) -> tuple[tuple[str, str], ...]:
    pairs = stated if isinstance(stated, list) else []
    return tuple((str(pair.get("Name")), str(pair.get("Value"))) for pair in pairs if isinstance(pair, Mapping))
