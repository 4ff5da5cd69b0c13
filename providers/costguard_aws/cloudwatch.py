"""CloudWatch's metrics of running machines: GPU where the CloudWatch agent reports it, CPU otherwise.

CloudWatch matches exact sets of dimensions: a request for a GPU by InstanceId alone returns an empty series, which looks idle
but contains no data. So the series are discovered first and requested by all their dimensions. Without data there is no sample:
such a machine is reported as blind, never as idle.

Requests for one region: 1 to discover (more if over 500 GPUs report), then 1 for each 500 series. 4,000 machines without the
agent: 1 + 8. CloudWatch charges about $0.01 for 1,000 requested series (2026-11), so one fallback signal is requested unless
the settings name more. A poll asks only for what it does not know yet (`metric_memory`); before an act all is asked for.

GPU metrics of the agent: one series for each GPU, merged into one value for the machine by pure functions. Example: two GPUs
report 3 % and 97 % at 12:00: the machine's GPU utilisation is 97 %, because a machine is idle only when all its GPUs are. At
12:05 only one of them reports: there is no sample, because the other may be busy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from costguard.errors import ProviderError
from costguard.metering.observation import Observation
from costguard.providers.ports import Cache
from costguard.system.clock import Clock
from costguard.values.calendar import Period
from costguard.values.checks import require_one_of
from costguard.values.instant import EPOCH, MICROSECOND
from costguard.values.resource import INSTANCE, RUNNING, ResourceKey
from costguard.values.sample import (
    CPU_UTIL,
    DISK,
    GPU_MEMORY_UTIL,
    GPU_POWER,
    GPU_TEMPERATURE,
    GPU_UTIL,
    NETWORK,
    Sample,
    UtilizationSamples,
)
from costguard_aws.errors import AwsClients, read_pages
from costguard_aws.metric_memory import BUCKET, NEVER, GpuSeries, RegionMetrics, SeriesList, keep_pairs_once

DELAY = timedelta(minutes=5)
"""CloudWatch is asked up to so long ago: what is younger comes in late and changes."""

QUERIES = 500
"""In one GetMetricData: botocore's model, 2026-11."""
POINTS = 100_800
"""In one answer of GetMetricData; more come by pages."""

DEFAULT_SIGNALS = (GPU_UTIL, GPU_POWER, CPU_UTIL)
FALLBACKS: Mapping[str, tuple[tuple[str, str, float], ...]] = {
    CPU_UTIL: (("CPUUtilization", "Average", 1.0),),
    NETWORK: (("NetworkIn", "Sum", 1 / 300), ("NetworkOut", "Sum", 1 / 300)),
    DISK: (("EBSReadBytes", "Sum", 1 / 300), ("EBSWriteBytes", "Sum", 1 / 300)),
}
"""Signal -> the metrics of AWS/EC2 whose sum it is: name, statistic, factor to the signal's unit (300 s in a bucket)."""

MOST: Mapping[str, float] = {CPU_UTIL: 100.01, NETWORK: 1e12, DISK: 1e12}
"""What can be believed of each: percent, and a terabyte a second."""

SIGNALS = (GPU_UTIL, GPU_POWER, GPU_MEMORY_UTIL, GPU_TEMPERATURE, *FALLBACKS)
"""What can be asked for. GPU memory held is left out: the agent states MiB, and its total apart."""


@dataclass(frozen=True, slots=True)
class _Query:
    """One series, and the machine and signal for which it is requested."""

    key: ResourceKey
    signal: str
    series: GpuSeries
    factor: float = 1.0


class CloudWatchMetrics:
    """The metrics of one account.

    `signals`: the SIGNALS to request. `namespace`: the agent's, if it was renamed.
    """

    def __init__(
        self,
        aws: AwsClients,
        clock: Clock,
        signals: Collection[str] = DEFAULT_SIGNALS,
        namespace: str = "CWAgent",
        cache: Cache | None = None,
    ) -> None:
        self._signals = tuple(require_one_of(signal, SIGNALS, "providers.aws.signals") for signal in signals)
        self._aws, self._clock, self._namespace, self._cache = aws, clock, namespace, cache
        self._regions: dict[str, RegionMetrics] = {}

    def fetch_utilization(self, observations: Sequence[Observation], period: Period) -> UtilizationSamples:
        """Return samples of the running instances among `observations`; if one region fails, only its machines are blind."""
        return self._measure(observations, period, lambda _: RegionMetrics())

    def poll_utilization(self, observations: Sequence[Observation], period: Period) -> UtilizationSamples:
        """Return the same, asking only for what an earlier poll lacks (`metric_memory`). `observations`: of the account."""
        return self._measure(observations, period, self._find_memory)

    def _find_memory(self, region: str) -> RegionMetrics:
        name = f"aws-series-{self._aws.account}-{region}-{self._namespace}"
        return self._regions.setdefault(region, RegionMetrics(self._cache, name))

    def _measure(
        self, observations: Sequence[Observation], period: Period, memory: Callable[[str], RegionMetrics]
    ) -> UtilizationSamples:
        running = [one for one in observations if one.kind == INSTANCE and one.state == RUNNING]
        window = align_window(period, self._clock.now())
        samples, blind = list[Sample](), list[tuple[ResourceKey, str]]()
        for region in dict.fromkeys(one.key.region for one in running):
            region_observations = [one for one in running if one.key.region == region]
            if window is None:
                blind += [(one.key, "CloudWatch data ends 5 minutes ago; the period is later") for one in region_observations]
                continue
            measured = self._measure_region(region, region_observations, window, memory(region))
            samples += measured.samples
            blind += measured.blind
        return UtilizationSamples(samples=tuple(samples), blind=tuple(blind))

    def _measure_region(
        self, region: str, observations: Sequence[Observation], window: Period, memory: RegionMetrics
    ) -> UtilizationSamples:
        ids, now = frozenset(one.key.id for one in observations), self._clock.now()
        asks_gpu = any(signal in GPU_METRICS for signal in self._signals)
        counted = all(one.gpu_count or one.vcpus for one in observations)  # else its series alone say how many GPUs it has
        series_list = (memory.find_series(ids, now) if counted else None) or self._discover(region, ids, now)
        queries, settled = list[_Query](), dict[ResourceKey, tuple[Sample, ...]]()
        for one in observations:
            unsure = series_list.why and not (one.gpu_count or one.vcpus)  # its GPUs cannot be counted by an incomplete list
            machine_queries = tuple(self._build_queries(one, () if unsure else series_list.series.get(one.key.id, ())))
            settled_samples = memory.find_settled(one.key, {query.signal for query in machine_queries}, window)
            if settled_samples is None:
                queries += machine_queries
            else:
                settled[one.key] = settled_samples
        values, lost = self._fetch_values(region, queries, window)
        samples, blind, lacks = list[Sample](), list[tuple[ResourceKey, str]](), False
        for one in observations:
            query_points = values.get(one.key, [])
            machine_samples = settled.get(one.key) or (
                *build_gpu_samples(one, _group_by_signal(query_points), window),
                *_build_fallback_samples(one.key, query_points),
            )
            samples += machine_samples
            has_gpu_samples = any(sample.signal in GPU_METRICS for sample in machine_samples)
            if not machine_samples or (one.gpu_count and not has_gpu_samples and asks_gpu):
                gpus = series_list.series.get(one.key.id, ())
                lacks = lacks or bool(one.gpu_count or gpus)
                why = lost.get(one.key) or series_list.why
                blind.append((one.key, self._explain_blindness(one, gpus, why, machine_samples)))
        memory.keep_samples(samples)
        if counted and (series_list.at == now or (series_list.at != NEVER and lacks != series_list.lacks)):
            memory.keep_series(replace(series_list, lacks=lacks))
        return UtilizationSamples(samples=tuple(samples), blind=tuple(blind))

    def _discover(self, region: str, ids: frozenset[str], now: datetime) -> SeriesList:
        """Return the GPU series of each instance, and why some may be missing.

        Only one metric is listed: the others have the same dimensions. The next poll lists again what a failure left out.
        """
        if not any(signal in GPU_METRICS for signal in self._signals):
            return SeriesList(at=NEVER, ids=ids, series={})
        params: dict[str, Any] = {
            "Namespace": self._namespace,
            "MetricName": GPU_METRICS[GPU_UTIL].name,
            "RecentlyActive": "PT3H",
        }
        metrics = list[Mapping[str, Any]]()
        try:
            for page in read_pages(self._aws, "cloudwatch", region, "list_metrics", **params):
                metrics += page.get("Metrics") or ()
        except ProviderError as broken:
            why = f"GPU metrics could not be listed: {broken.what}"
            return SeriesList(at=NEVER, ids=ids, series=group_series(metrics, ids)[0], why=why)
        series, why = group_series(metrics, ids)
        return SeriesList(at=now, ids=ids, series=series, why=why)

    def _build_queries(self, one: Observation, gpus: tuple[GpuSeries, ...]) -> Iterable[_Query]:
        """Yield the queries for one machine: its GPUs if they report, else the fallbacks."""
        for signal in self._signals:
            if signal in GPU_METRICS:
                able = (series for series in gpus if can_tell(series, signal))
                yield from (_Query(one.key, signal, derive_series(series, signal)) for series in able)
            elif not gpus or signal != CPU_UTIL:
                dimensions = (("InstanceId", one.key.id),)
                for name, statistic, factor in FALLBACKS[signal]:
                    yield _Query(one.key, signal, GpuSeries("AWS/EC2", name, dimensions, statistic), factor)

    def _fetch_values(
        self, region: str, queries: Sequence[_Query], window: Period
    ) -> tuple[Mapping[ResourceKey, list[tuple[_Query, dict[datetime, float]]]], Mapping[ResourceKey, str]]:
        """Return the points of every query by machine, and why a machine's could not be fetched.

        A series without points is there, too: it counts as a GPU that says nothing. Of a machine of which a part could not be
        fetched nothing is returned.
        """
        values: dict[ResourceKey, list[tuple[_Query, dict[datetime, float]]]] = {}
        lost: dict[ResourceKey, str] = {}
        for first in range(0, len(queries), QUERIES):
            batch = queries[first : first + QUERIES]
            points: list[dict[datetime, float]] = [{} for _ in batch]
            try:
                self._fetch_batch(region, batch, window, points)
            except ProviderError as broken:
                lost |= {query.key: f"CloudWatch could not be queried: {broken.what}" for query in batch}
            for query, at in zip(batch, points, strict=True):
                values.setdefault(query.key, []).append((query, at))
        return {key: query_points for key, query_points in values.items() if key not in lost}, lost

    def _fetch_batch(self, region: str, batch: Sequence[_Query], window: Period, points: list[dict[datetime, float]]) -> None:
        """Fetch one batch into `points`; a series may be spread over several pages."""
        params: dict[str, Any] = {
            "MetricDataQueries": [_build_query(number, query.series) for number, query in enumerate(batch)],
            "StartTime": window.start,
            "EndTime": window.end,
            "ScanBy": "TimestampAscending",
            "MaxDatapoints": POINTS,
        }
        for page in read_pages(self._aws, "cloudwatch", region, "get_metric_data", **params):
            for result in page.get("MetricDataResults") or ():
                number = _parse_query_number(result.get("Id"), len(batch)) if isinstance(result, Mapping) else None
                if number is not None:
                    points[number].update(_parse_points(result, window))

    def _explain_blindness(self, one: Observation, gpus: tuple[GpuSeries, ...], why: str, samples: Sequence[Sample]) -> str:
        """Return why a machine is blind."""
        if why:
            return why
        if gpus:
            return f"the CloudWatch agent reported {len(gpus)} GPU series within 3 h, but not every GPU has data for the period"
        if one.gpu_count:
            agent = f"no GPU metrics in {self._namespace}: the CloudWatch agent with nvidia_gpu and InstanceId is not on it"
            return f"{agent}; {'its CPU alone is known' if samples else 'and CloudWatch has no other data of it'}"
        return "CloudWatch has no data of it in the period"


def align_window(period: Period, now: datetime) -> Period | None:
    """Return the whole buckets of `period` for which CloudWatch has data; None if there are none."""
    start, end = _floor_to_bucket(period.start + BUCKET - MICROSECOND), _floor_to_bucket(min(period.end, now - DELAY))
    return Period(start=start, end=end) if start < end else None


def _floor_to_bucket(at: datetime) -> datetime:
    return EPOCH + (at - EPOCH) // BUCKET * BUCKET


def _build_query(number: int, series: GpuSeries) -> dict[str, Any]:
    """Return one query.

    Its id begins with a letter and is unique in the request.
    """
    metric = {
        "Namespace": series.namespace,
        "MetricName": series.name,
        "Dimensions": [{"Name": name, "Value": value} for name, value in series.dimensions],
    }
    stat = {"Metric": metric, "Period": int(BUCKET.total_seconds()), "Stat": series.statistic}
    return {"Id": f"q{number}", "MetricStat": stat, "ReturnData": True}


def _parse_query_number(query_id: object, count: int) -> int | None:
    text = str(query_id)[1:]
    return int(text) if text.isascii() and text.isdigit() and len(text) < 5 and int(text) < count else None  # noqa: PLR2004 - q0 to q499


def _parse_points(result: Mapping[str, Any], window: Period) -> Iterable[tuple[datetime, float]]:
    """Yield the values of one part within the window; an invalid time or value is left out."""
    times, values = result.get("Timestamps"), result.get("Values")
    if (
        result.get("StatusCode") in ("InternalError", "Forbidden")
        or not isinstance(times, list)
        or not isinstance(values, list)
    ):
        return
    for at, value in zip(times, values, strict=False):
        if isinstance(at, datetime) and at.tzinfo and type(value) in (int, float) and abs(value) < 1e18:  # noqa: PLR2004 - Sample's own bound
            at_utc = at.astimezone(UTC)
            if window.holds(at_utc):
                yield at_utc, float(value)


def _group_by_signal(
    query_points: Iterable[tuple[_Query, dict[datetime, float]]],
) -> Mapping[str, list[tuple[GpuSeries, dict[datetime, float]]]]:
    by_signal: dict[str, list[tuple[GpuSeries, dict[datetime, float]]]] = {}
    for query, points in query_points:
        if query.signal in GPU_METRICS:
            by_signal.setdefault(query.signal, []).append((query.series, points))
    return by_signal


def _build_fallback_samples(key: ResourceKey, query_points: Iterable[tuple[_Query, dict[datetime, float]]]) -> Iterable[Sample]:
    """Yield samples of AWS/EC2; for a signal of two metrics only where both have a value."""
    parts: dict[str, list[dict[datetime, float]]] = {}
    for query, points in query_points:
        if query.signal in FALLBACKS:
            parts.setdefault(query.signal, []).append({at: value * query.factor for at, value in points.items()})
    for signal, series in parts.items():
        if len(series) == len(FALLBACKS[signal]):
            for at in sorted(set(series[0]).intersection(*series[1:])):
                value = sum(one[at] for one in series)
                if 0 <= value <= MOST[signal]:
                    yield Sample(key=key, signal=signal, at=at, value=value)


class _Metric(NamedTuple):
    """`name`: the agent's.

    `least`, `most`: the plausible range. `together`: how the values of a machine's GPUs are combined.
    """

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


def can_tell(series: GpuSeries, signal: str) -> bool:
    """Return whether `series` can supply `signal`: a rolled-up series has the GPUs' maximum, not their sum."""
    return not series.rolled or GPU_METRICS[signal].together == "max"


def derive_series(series: GpuSeries, signal: str) -> GpuSeries:
    """Return the series of another metric of the same GPU."""
    return replace(series, name=GPU_METRICS[signal].name)


def group_series(metrics: Iterable[Mapping[str, Any]], ids: Collection[str]) -> tuple[dict[str, tuple[GpuSeries, ...]], str]:
    """Return the series of each of `ids`: one for each GPU, or the roll-up of all if there is nothing else.

    Also returns why there may be more: the series of an agent that does not append InstanceId belong to an unknown instance.
    """
    single, rolled, nameless = dict[str, list[GpuSeries]](), dict[str, list[GpuSeries]](), 0
    for metric in metrics:
        if not isinstance(metric, Mapping):
            continue
        dimensions = _parse_dimensions(metric.get("Dimensions"))
        value_by_name = dict(dimensions)
        instance = value_by_name.get("InstanceId", "")
        nameless += not instance
        if instance not in ids:
            continue
        series = GpuSeries(str(metric.get("Namespace") or ""), str(metric.get("MetricName") or ""), dimensions)
        if "index" in value_by_name:
            single.setdefault(instance, []).append(series)
        elif set(value_by_name) == {"InstanceId"}:
            rolled.setdefault(instance, []).append(replace(series, statistic="Maximum", rolled=True))
    why = "CloudWatch agents report GPUs without InstanceId: set append_dimensions in their configuration" if nameless else ""
    return {instance: tuple(single.get(instance) or rolled[instance]) for instance in {**single, **rolled}}, why


def build_gpu_samples(
    one: Observation, by_signal: Mapping[str, Sequence[tuple[GpuSeries, Mapping[datetime, float]]]], window: Period
) -> Iterable[Sample]:
    """Yield one sample for each time at which every GPU of the machine has a value."""
    for signal, series in by_signal.items():
        by_gpu: dict[str, dict[datetime, float]] = {}
        for which, points in series:
            gpu = by_gpu.setdefault("" if which.rolled else which.index, {})
            for at, value in points.items():
                if GPU_METRICS[signal].least <= value <= GPU_METRICS[signal].most and window.holds(at):
                    gpu[at] = max(value, gpu.get(at, value))
        rolled = any(which.rolled for which, _ in series)
        yield from _combine_gpus(one, signal, by_gpu, 1 if rolled else math.ceil(one.gpu_count) or len(by_gpu))


def _combine_gpus(one: Observation, signal: str, by_gpu: Mapping[str, Mapping[datetime, float]], gpus: int) -> Iterable[Sample]:
    """Yield the machine's value for each time at which `gpus` of its GPUs have one."""
    for at in sorted(set[datetime]().union(*by_gpu.values())):
        values = [points[at] for points in by_gpu.values() if at in points]
        if len(values) >= gpus:
            value = sum(values) if GPU_METRICS[signal].together == "sum" else max(values)
            yield Sample(key=one.key, signal=signal, at=at, value=value)


def _parse_dimensions(dimensions: object) -> tuple[tuple[str, str], ...]:
    pairs = dimensions if isinstance(dimensions, list) else []
    return keep_pairs_once((str(pair.get("Name")), str(pair.get("Value"))) for pair in pairs if isinstance(pair, Mapping))
