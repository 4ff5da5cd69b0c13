"""Utilisation from Azure Monitor: one request for each region of a subscription, never one per machine.

    GET /subscriptions/{id}/providers/Microsoft.Insights/metrics?region=westeurope
        &metricnamespace=microsoft.compute/virtualmachines&metricnames=Percentage CPU,...&interval=PT1M
        &aggregation=average,total&$filter=Microsoft.ResourceId eq '*'

(Metrics_ListAtSubscriptionScope, api-version 2021-05-01: learn.microsoft.com as stored, 2026-12; the filter and the shape of
its series from memory.) The host measures processors, network and disk; no GPU. Without data there is no sample, never zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from costguard.errors import ProviderError, to_one_line
from costguard.metering.observation import Observation
from costguard.providers.transport import Deadline
from costguard.values.calendar import Period
from costguard.values.instant import parse_instant
from costguard.values.resource import INSTANCE, RUNNING, ResourceKey
from costguard.values.sample import CPU_UTIL, DISK, NETWORK, Sample, UtilizationSamples
from costguard_azure.api import AzureApi
from costguard_azure.wire import Text, WireObject, parse_resource_id

MONITOR_VERSION = "2021-05-01"
PERCENT, PER_MINUTE = "percent", "total of a minute"
MINUTE_S = 60
MOST_SERIES = 10_000
LARGEST_RATE, HUNDRED = 1e15, 100.0


class MonitoredMetric(NamedTuple):
    """A metric of the host. `scale`: of its figure; two of one signal count together."""

    name: str
    signal: str
    scale: str


METRICS = (
    MonitoredMetric("Percentage CPU", CPU_UTIL, PERCENT),
    MonitoredMetric("Network In Total", NETWORK, PER_MINUTE),
    MonitoredMetric("Network Out Total", NETWORK, PER_MINUTE),
    MonitoredMetric("Disk Read Bytes", DISK, PER_MINUTE),
    MonitoredMetric("Disk Write Bytes", DISK, PER_MINUTE),
)
"""Names of the platform's metrics of virtual machines (learn.microsoft.com; from memory, 2026-12). Totals are in bytes."""
BY_NAME = {metric.name.lower(): metric for metric in METRICS}
NOTHING = "Azure Monitor has no data of it"
NO_GPU = "Azure Monitor measures no GPU: enrol costguard's agent"
MEMBER = "members of a uniform scale set are measured by costguard's agent only"


class MetricName(WireObject, frozen=True):
    """A name in Azure's form."""

    value: Text = None


class MetadataValue(WireObject, frozen=True):
    """A dimension of a series, such as Microsoft.ResourceId."""

    name: MetricName | None = None
    value: Text = None


class MetricPoint(WireObject, frozen=True):
    """A minute; `time_stamp` is its start."""

    time_stamp: object = None
    average: float | None = None
    total: float | None = None


class MetricSeries(WireObject, frozen=True):
    """The minutes of one machine."""

    metadatavalues: list[MetadataValue] | None = None
    data: list[MetricPoint] | None = None


class MonitorMetric(WireObject, frozen=True):
    """A metric of all machines of a region."""

    name: MetricName | None = None
    timeseries: list[MetricSeries] | None = None


class MetricAnswer(WireObject, frozen=True):
    """The whole answer."""

    value: list[MonitorMetric]


Values = dict[tuple[str, str, datetime], dict[str, float]]
"""(ledger's id, signal, start of a minute) -> name of the metric -> value."""


def fetch_utilization(
    api: AzureApi, observations: Sequence[Observation], period: Period, timeout_s: float
) -> UtilizationSamples:
    """Return samples of the running machines among `observations`; and a reason for each without, or without a GPU's."""
    samples, blind = list[Sample](), list[tuple[ResourceKey, str]]()
    running = [one for one in observations if one.kind == INSTANCE and one.state == RUNNING and one.key.provider == "azure"]
    places = dict.fromkeys((one.key.account, one.key.region) for one in running)
    deadline = Deadline(timeout_s)
    for account, region in places:
        own = {one.key.id: one for one in running if one.key[1:3] == (account, region)}
        why = ""
        measured = list[Sample]()
        try:
            answer = fetch_metrics(api, account, region, period, deadline)
            measured = build_samples(answer, {id_: one.key for id_, one in own.items()}, period)
        except ProviderError as broken:
            why = to_one_line(broken.what)
        samples += measured
        sampled = {one.key.id for one in measured}
        for id_, one in own.items():
            if id_ not in sampled:
                blind.append((one.key, why or (MEMBER if "/sets/" in id_ else NOTHING)))
            elif one.gpu:
                blind.append((one.key, NO_GPU))
    return UtilizationSamples(samples=tuple(samples), blind=tuple(blind))


def fetch_metrics(api: AzureApi, subscription: str, region: str, period: Period, deadline: Deadline) -> MetricAnswer:
    """Return the metrics of all machines of a region."""
    start, end = (at.strftime("%Y-%m-%dT%H:%M:%SZ") for at in (period.start, period.end))
    params = {
        "api-version": MONITOR_VERSION,
        "region": region,
        "metricnamespace": "microsoft.compute/virtualmachines",
        "metricnames": ",".join(metric.name for metric in METRICS),
        "timespan": f"{start}/{end}",
        "interval": "PT1M",
        "aggregation": "average,total",
        "top": str(MOST_SERIES),
        "$filter": "Microsoft.ResourceId eq '*'",
    }
    path = f"/subscriptions/{subscription}/providers/Microsoft.Insights/metrics"
    return api.fetch_answer(subscription, path, MetricAnswer, deadline, params)


def build_samples(answer: MetricAnswer, keys: Mapping[str, ResourceKey], period: Period) -> list[Sample]:
    """Return the samples of the machines in `keys` (by the ledger's id) within `period`; pure.

    Bytes a second count in and out together: a minute in which one is missing has no sample.
    """
    values: Values = {}
    for metric_name, id_, at, value in _list_values(answer):
        metric = BY_NAME.get(metric_name.lower())
        if metric is not None and id_ in keys and period.holds(at):
            scaled = value if metric.scale == PERCENT else value / MINUTE_S
            if 0 <= scaled <= (HUNDRED if metric.scale == PERCENT else LARGEST_RATE):
                values.setdefault((id_, metric.signal, at), {})[metric.name] = scaled
    needed = {signal: sum(metric.signal == signal for metric in METRICS) for signal in (CPU_UTIL, NETWORK, DISK)}
    return [
        Sample(key=keys[id_], signal=signal, at=at, value=sum(parts.values()))
        for (id_, signal, at), parts in sorted(values.items(), key=lambda item: item[0])
        if len(parts) == needed[signal]
    ]


def _list_values(answer: MetricAnswer) -> Iterator[tuple[str, str, datetime, float]]:
    """Yield metric, ledger's id, minute and value; the average of processors, the total of bytes."""
    for one in answer.value:
        name = (one.name and one.name.value) or ""
        metric = BY_NAME.get(name.lower())
        for series in one.timeseries or () if metric else ():
            id_ = next(
                (
                    meta.value
                    for meta in series.metadatavalues or ()
                    if meta.name and (meta.name.value or "").lower() == "microsoft.resourceid" and meta.value
                ),
                "",
            )
            for point in series.data or () if id_ else ():
                at = parse_instant(point.time_stamp)
                value = point.average if metric and metric.scale == PERCENT else point.total
                if at is not None and value is not None and math.isfinite(value):
                    yield name, parse_resource_id(id_), at, value
