"""Utilisation from Cloud Monitoring: one request per metric and project, never one per machine.

Scales differ: CPU and SM utilisation are fractions, the Ops Agent's GPU utilisation is percent. Without data there is no
sample. Google charges each read: metrics that cannot add a sample are not read, and a poll leaves out those that lately had
no data (`metric_memory`). Points end at whole minutes, so that two polls read the same samples and not new ones beside them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode

from costguard.errors import InvalidAnswerError, MissingError, ProviderError, to_one_line
from costguard.metering.observation import Observation
from costguard.providers.ports import Cache
from costguard.providers.transport import Deadline
from costguard.system.clock import Clock
from costguard.values.calendar import Period
from costguard.values.instant import parse_instant
from costguard.values.resource import INSTANCE, RUNNING, ResourceKey
from costguard.values.sample import (
    CPU_UTIL,
    DISK,
    GPU_MEMORY_USED,
    GPU_POWER,
    GPU_UTIL,
    NETWORK,
    SM_ACTIVE,
    Sample,
    UtilizationSamples,
)
from costguard_gcp.api import MONITORING, GoogleApi
from costguard_gcp.machine_types import LIVE_SM
from costguard_gcp.metric_memory import AbsentMetric, MetricMemory
from costguard_gcp.wire import Point, Series, SeriesPage, parse_whole_number

ALIGN_S = 60
"""Samples come once a minute, and are to be seen up to 240 s later (gcp.md, section 4)."""
MOST_PAGES = 50
LARGEST_FRACTION = 1.05
"""A CPU fraction may pass 1 slightly."""

PERCENT, FRACTION, PLAIN = "percent", "fraction", "plain"
MEMORY_STATE, GPU_NUMBER = "metric.label.memory_state", "metric.label.gpu_number"


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoredMetric:
    """A metric to request.

    `align` and `reduce`: how the points of a minute, and those of a machine's GPUs, are merged. `gpu`: only GPU machines have
    it. `rank`: of several metrics for one signal, the lowest that has data is used.
    """

    type: str
    signal: str
    scale: str
    align: str = "ALIGN_MEAN"
    reduce: str = "REDUCE_MAX"
    gpu: bool = False
    rank: int = 0
    group: tuple[str, ...] = ()


DCGM_SM = "workload.googleapis.com/dcgm.gpu.profiling.sm_utilization"
"""Stands for GPU duty where that is missing, and is a signal of its own: the share of multiprocessors that had work."""
METRICS = (
    MonitoredMetric(type="compute.googleapis.com/instance/cpu/utilization", signal=CPU_UTIL, scale=FRACTION),
    MonitoredMetric(type="agent.googleapis.com/gpu/utilization", signal=GPU_UTIL, scale=PERCENT, gpu=True),
    MonitoredMetric(type=DCGM_SM, signal=GPU_UTIL, scale=FRACTION, gpu=True, rank=1),
    MonitoredMetric(
        type="compute.googleapis.com/instance/gpu/sm_utilization", signal=GPU_UTIL, scale=FRACTION, gpu=True, rank=2
    ),
    MonitoredMetric(
        type="agent.googleapis.com/gpu/memory/bytes_used",
        signal=GPU_MEMORY_USED,
        scale=PLAIN,
        gpu=True,
        group=(GPU_NUMBER, MEMORY_STATE),
    ),
    MonitoredMetric(
        type="compute.googleapis.com/instance/gpu/power_consumption",
        signal=GPU_POWER,
        scale=PLAIN,
        reduce="REDUCE_SUM",
        gpu=True,
    ),
    *(
        MonitoredMetric(
            type=f"compute.googleapis.com/instance/{name}", signal=signal, scale=PLAIN, align="ALIGN_RATE", reduce="REDUCE_SUM"
        )
        for name, signal in (
            ("network/received_bytes_count", NETWORK),
            ("network/sent_bytes_count", NETWORK),
            ("disk/read_bytes_count", DISK),
            ("disk/write_bytes_count", DISK),
        )
    ),
)
"""gcp.md, section 4, 2026-11. `instance/gpu/utilization` is all over public samples and in no official list: not asked for.
The scale of the host's SM metric is not documented; as a fraction it can make a machine look busier, and never idler."""

ADDED_UP = frozenset((NETWORK, DISK))
"""Signals of two metrics that count together: a minute in which one is missing has no sample."""

AGENT = "no GPU measure: install the Ops Agent (2.38 or newer) with the NVIDIA driver"
NOTHING = "Cloud Monitoring has no data of it"

Points = dict[tuple[str, datetime], float]
"""(instance id, instant) -> value."""


class UtilizationReader:
    """Cloud Monitoring of the projects of one login. `timeout_s`: for one project."""

    def __init__(self, google: GoogleApi, clock: Clock, timeout_s: float, cache: Cache | None = None) -> None:
        self._google, self._clock, self._timeout_s, self._cache = google, clock, timeout_s, cache
        self._memories: dict[str, MetricMemory] = {}

    def fetch_utilization(self, observations: Sequence[Observation], period: Period) -> UtilizationSamples:
        """Return samples of the running machines among `observations`, by project; and a reason for each without."""
        return self._measure(observations, period, lambda _: MetricMemory())

    def poll_utilization(self, observations: Sequence[Observation], period: Period) -> UtilizationSamples:
        """Return the same, without reading what lately had no data. `observations`: all of the projects."""
        return self._measure(observations, period, self._find_memory)

    def _find_memory(self, project: str) -> MetricMemory:
        return self._memories.setdefault(project, MetricMemory(self._cache, f"gcp-metrics-{project}"))

    def _measure(
        self, observations: Sequence[Observation], period: Period, memory: Callable[[str], MetricMemory]
    ) -> UtilizationSamples:
        samples, blind = list[Sample](), list[tuple[ResourceKey, str]]()
        running = [one for one in observations if one.kind == INSTANCE and one.state == RUNNING and one.key.provider == "gcp"]
        for project in dict.fromkeys(one.key.account for one in running):
            own = [one for one in running if one.key.account == project]
            project_samples, why = self._measure_project(project, own, period, memory(project))
            samples += project_samples
            blind += _explain_blindness(own, project_samples, why)
        return UtilizationSamples(samples=tuple(samples), blind=tuple(blind))

    def _measure_project(
        self, project: str, own: Sequence[Observation], period: Period, memory: MetricMemory
    ) -> tuple[list[Sample], str]:
        """Return the samples of one project, and why a metric could not be read."""
        metric_series, why, now = list[tuple[MonitoredMetric, list[Series]]](), "", self._clock.now()
        deadline, absent = Deadline(self._timeout_s), dict[MonitoredMetric, str]()
        for metric in METRICS:
            ids = _select_ids(metric, own)
            if not ids or not _may_add_samples(metric, ids, metric_series):
                continue
            if remembered := memory.find_absent(metric.type, ids, now):
                why = why or remembered.why
                metric_series.append((metric, []))
                continue
            series, missing = list[Series](), ""
            try:
                series = _fetch_series(self._google, project, metric, period, deadline)
            except MissingError as error:  # a metric that nobody ever wrote is not there
                missing = "" if metric.gpu else to_one_line(error.what)
            except ProviderError as broken:
                why = why or to_one_line(broken.what)
                continue
            why = why or missing
            metric_series.append((metric, series))
            if not series:
                absent[metric] = missing
        samples = build_samples(metric_series, {one.key.id: one.key for one in own}, period)
        sampled = {(one.signal, one.key.id) for one in samples}
        noted = dict[str, AbsentMetric]()
        for metric, missing in absent.items():
            ids = _select_ids(metric, own)
            lacks = any((metric.signal, number) not in sampled for number in ids)
            noted[metric.type] = AbsentMetric(at=now, ids=ids, lacks=lacks, why=missing)
        memory.record_reads({metric.type for metric, series in metric_series if series}, noted)
        return samples, why


def _select_ids(metric: MonitoredMetric, own: Iterable[Observation]) -> frozenset[str]:
    """Return the numbers of the machines that may have the metric.

    GPU metrics need a machine with GPUs, and the host's GPU metric needs a type that has it.
    """
    if metric.gpu and metric.type.startswith("compute."):
        return frozenset(one.key.id for one in own if one.instance_type.startswith(LIVE_SM))
    return frozenset(one.key.id for one in own if one.gpu_count or not metric.gpu)


def _may_add_samples(
    metric: MonitoredMetric, ids: frozenset[str], metric_series: Iterable[tuple[MonitoredMetric, Sequence[Series]]]
) -> bool:
    """Return whether reading the metric can add a sample to those of `metric_series`.

    It cannot where each machine has its signal from a metric of a better rank, or where one of two that count together is
    empty.
    """
    earlier = [(one, series) for one, series in metric_series if one.signal == metric.signal]
    if metric.signal in ADDED_UP:
        return all(series for _, series in earlier)
    return not earlier or not ids <= {number for one, series in earlier for number, _ in _read_values(one, series)}


def _fetch_series(google: GoogleApi, project: str, metric: MonitoredMetric, period: Period, deadline: Deadline) -> list[Series]:
    series, token = list[Series](), ""
    for _ in range(MOST_PAGES):
        params = [*_build_params(metric, period), *([("pageToken", token)] if token else [])]
        reply = google.read(MONITORING, project, f"/v3/projects/{project}/timeSeries?{urlencode(params)}", deadline=deadline)
        page = google.decode(MONITORING, project, reply, SeriesPage, "the time series")
        series += page.time_series or ()
        token = page.next_page_token or ""
        if not token:
            return series
    raise InvalidAnswerError("the pages of time series do not end", provider="gcp", account=project)


def _build_params(metric: MonitoredMetric, period: Period) -> list[tuple[str, str]]:
    """Return the request's parameters; a repeated field appears several times, as Google's REST requires."""
    groups = ("resource.label.instance_id", *metric.group)
    plain = {
        "filter": f'metric.type="{metric.type}" AND resource.type="gce_instance"',
        "interval.startTime": _format_instant(period.start),
        "interval.endTime": _format_instant(max(period.end.replace(second=0), period.start + timedelta(seconds=1))),
        "aggregation.alignmentPeriod": f"{ALIGN_S}s",
        "aggregation.perSeriesAligner": metric.align,
        "aggregation.crossSeriesReducer": metric.reduce,
        "pageSize": "100000",
    }
    return [*plain.items(), *(("aggregation.groupByFields", group) for group in groups)]


def _format_instant(at: datetime) -> str:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


def build_samples(
    metric_series: Sequence[tuple[MonitoredMetric, Sequence[Series]]], keys: Mapping[str, ResourceKey], period: Period
) -> list[Sample]:
    """Return the samples of the machines in `keys` (by number) within `period`; pure."""
    by_signal: dict[str, list[tuple[int, Points]]] = {}
    for metric, series in metric_series:
        points = _compute_memory_use(series) if metric.signal == GPU_MEMORY_USED else _read_values(metric, series)
        by_signal.setdefault(metric.signal, []).append((metric.rank, points))
        if metric.type == DCGM_SM:
            by_signal[SM_ACTIVE] = [(0, points)]
    samples = list[Sample]()
    for signal, ranked_points in by_signal.items():
        points = _sum_points([p for _, p in ranked_points]) if signal in ADDED_UP else _choose_first(ranked_points)
        for (number, at), value in sorted(points.items()):
            if number in keys and period.holds(at):
                samples.append(Sample(key=keys[number], signal=signal, at=at, value=value))
    return samples


def _read_values(metric: MonitoredMetric, series: Sequence[Series]) -> Points:
    points: Points = {}
    for one in series:
        number = (one.resource.labels or {}).get("instance_id") if one.resource else None
        for at, value in _list_points(one.points or ()):
            scaled = _scale(value, metric.scale)
            if number and scaled is not None:
                points[number, at] = max(scaled, points.get((number, at), 0.0))
    return points


def _compute_memory_use(series: Sequence[Series]) -> Points:
    """Return used / (used + free) of the fullest GPU in percent; no sample if one of the two is missing."""
    states_by_gpu: dict[tuple[str, str, datetime], dict[str, float]] = {}
    for one in series:
        number = (one.resource.labels or {}).get("instance_id") if one.resource else None
        labels = (one.metric.labels or {}) if one.metric else {}
        for at, value in _list_points(one.points or ()):
            if number and value >= 0:
                states_by_gpu.setdefault((number, labels.get("gpu_number", ""), at), {})[labels.get("memory_state", "")] = value
    points: Points = {}
    for (number, _, at), states in states_by_gpu.items():
        used, free = states.get("used"), states.get("free")
        if used is not None and free is not None and used + free > 0:
            points[number, at] = max(100 * (used / (used + free)), points.get((number, at), 0.0))
    return points


def _list_points(points: Iterable[Point]) -> Iterable[tuple[datetime, float]]:
    """Yield (end of the interval, value) of every readable point."""
    for point in points:
        at = parse_instant(point.interval.end_time) if point.interval else None
        reading = point.value
        if at is None or reading is None:
            continue
        value = reading.double_value if reading.double_value is not None else parse_whole_number(reading.int64_value)
        if value is not None and math.isfinite(value):
            yield at, float(value)


def _scale(value: float, scale: str) -> float | None:
    """Return percent from 0 to 100, or the plain value; None for an impossible value."""
    if value < 0 or value > LARGEST_PLAIN:
        return None
    if scale == PLAIN:
        return value
    if scale == FRACTION:
        return min(100.0, 100 * value) if value <= LARGEST_FRACTION else None
    return value if value <= HUNDRED else None


LARGEST_PLAIN, HUNDRED = 1e15, 100.0


def _sum_points(parts: Sequence[Points]) -> Points:
    if len(parts) < 2:  # noqa: PLR2004 - half of what counts together is not the whole
        return {}
    return {key: sum(one[key] for one in parts) for key in parts[0] if all(key in one for one in parts)}


def _choose_first(ranked_points: Sequence[tuple[int, Points]]) -> Points:
    """Return for each machine the points of the first metric that has any."""
    chosen: Points = {}
    for _, points in sorted(ranked_points, key=lambda one: one[0]):
        chosen_numbers = {number for number, _ in chosen}
        chosen |= {key: value for key, value in points.items() if key[0] not in chosen_numbers}
    return chosen


def _explain_blindness(own: Sequence[Observation], samples: Sequence[Sample], why: str) -> list[tuple[ResourceKey, str]]:
    """Return a reason for every machine without a sample, and every GPU machine without a GPU sample."""
    any_of = {one.key for one in samples}
    gpu_of = {one.key for one in samples if one.signal == GPU_UTIL}
    blind = list[tuple[ResourceKey, str]]()
    for one in own:
        if one.key not in any_of:
            blind.append((one.key, why or NOTHING))
        elif one.gpu_count and one.key not in gpu_of:
            blind.append((one.key, why or AGENT))
    return blind
