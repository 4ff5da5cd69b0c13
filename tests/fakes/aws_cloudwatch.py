"""CloudWatch as it answers, in JSON and in CBOR: exact sets of dimensions, at most 500 queries, newest first unless asked.

Which of the two is spoken is botocore's choice: 1.43 took CBOR, 1.44 takes JSON. A series that does not exist is an empty one.
Machines of a simulated world have a CPU series while they run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from zlib import crc32

from costguard_sim.view import find_last_run, find_state
from costguard_sim.world import SIM_INSTANCE, Resource, to_us

from tests.fakes.aws_wire import amz_json, amz_json_error, cbor, cbor_error, cbor_operation, read_cbor, target_of
from tests.fakes.server import Answer, Asked

Points = Callable[[datetime], float | None]
Key = tuple[str, str, frozenset[tuple[str, str]]]
TARGET = "GraniteServiceVersion20100801"
LISTED = 500
"""Metrics a page of ListMetrics."""


@dataclass(slots=True)
class FakeCloudWatch:
    """`series`: what each (namespace, metric, dimensions) has in the bucket that begins at an instant. `most_points` a page."""

    series: dict[Key, Points] = field(default_factory=dict)
    most_points: int = 100_800
    listed: int = LISTED

    @classmethod
    def of(cls, resources: Iterable[Resource], wire_id: Callable[[str], str] = lambda id: id) -> FakeCloudWatch:  # noqa: A006 - the ledger's word
        """A CPU series of every machine. `wire_id`: its id as EC2 says it."""
        made = cls()
        for resource in resources:
            if resource.kind == SIM_INSTANCE:
                made.put("AWS/EC2", "CPUUtilization", _cpu(resource), InstanceId=wire_id(resource.id))
        return made

    def put(self, namespace: str, metric: str, points: Points, **dimensions: str) -> None:
        """Let there be a series."""
        self.series[namespace, metric, frozenset(dimensions.items())] = points

    def gpu(self, instance: str, index: int, points: Points, *, metric: str = "utilization_gpu", **more: str) -> None:
        """What the agent reports of one GPU of a machine whose configuration appends InstanceId."""
        told = {"index": str(index), "name": "NVIDIA A10G", "arch": "Ampere", "host": f"ip-10-0-0-{index}", **more}
        named = {"InstanceId": instance} if instance else {}
        self.put("CWAgent", f"nvidia_smi_{metric}", points, **told, **named)

    def answer(self, asked: Asked, now: datetime) -> Answer | None:
        """The answer to a request for CloudWatch; None for any other."""
        packed, (prefix, operation) = cbor_operation(asked), target_of(asked)
        if not packed and prefix != TARGET:
            return None
        body = read_cbor(asked.body) if packed else _read_json(asked)
        found = self._found(packed or operation, body, now)
        if isinstance(found, str):
            return (cbor_error if packed else amz_json_error)(found, "the fake refuses")
        return cbor("cloudwatch", packed, found) if packed else amz_json(_as_json(found))

    def _found(self, operation: str, body: Mapping[str, Any], now: datetime) -> Mapping[str, Any] | str:
        """The answer, or the code of the refusal."""
        if operation == "ListMetrics":
            return self._listed(body, now)
        return self._data(body) if operation == "GetMetricData" else "UnknownOperationException"

    def _listed(self, body: Mapping[str, Any], now: datetime) -> Mapping[str, Any]:
        """The series that had a point within three hours, by pages."""
        found = [
            {"Namespace": space, "MetricName": name, "Dimensions": [{"Name": k, "Value": v} for k, v in sorted(dimensions)]}
            for (space, name, dimensions), points in self.series.items()
            if body.get("Namespace") in (None, space) and body.get("MetricName") in (None, name) and _recent(points, now)
        ]
        first = int(body.get("NextToken") or 0)
        more = {"NextToken": str(first + self.listed)} if first + self.listed < len(found) else {}
        return {"Metrics": found[first : first + self.listed], **more}

    def _data(self, body: Mapping[str, Any]) -> Mapping[str, Any] | str:
        queries = body.get("MetricDataQueries") or []
        ids = [query["Id"] for query in queries]
        if len(queries) > 500 or len(set(ids)) < len(ids) or not all(re.fullmatch(r"[a-z]\w*", one) for one in ids):
            return "ValidationError"
        wanted = [(query["Id"], *self._points(query["MetricStat"], body)) for query in queries]
        if body.get("ScanBy") != "TimestampAscending":
            wanted = [(one, times[::-1], values[::-1]) for one, times, values in wanted]
        return self._page(wanted, int(body.get("NextToken") or 0), int(body.get("MaxDatapoints") or 100_800))

    def _points(self, stat: Mapping[str, Any], body: Mapping[str, Any]) -> tuple[list[datetime], list[float]]:
        metric, step = stat["Metric"], timedelta(seconds=stat["Period"])
        dimensions = frozenset((one["Name"], one["Value"]) for one in metric.get("Dimensions") or ())
        points = self.series.get((metric["Namespace"], metric["MetricName"], dimensions))
        at, end = body["StartTime"].astimezone(UTC), body["EndTime"].astimezone(UTC)
        times, values = list[datetime](), list[float]()
        while points is not None and at < end:
            value = points(at)
            if value is not None:
                times.append(at)
                values.append(value)
            at += step
        return times, values

    def _page(self, wanted: list[tuple[str, list[datetime], list[float]]], first: int, asked: int) -> Mapping[str, Any]:
        """Points `first` and following of all series laid end to end; a series that is cut is PartialData."""
        size, passed, left = min(self.most_points, asked), 0, min(self.most_points, asked)
        results = list[dict[str, Any]]()
        for one, times, values in wanted:
            begin = max(0, first - passed)
            passed += len(times)
            here = times[begin : begin + left], values[begin : begin + left]
            if here[0] or (not times and not first):
                left -= len(here[0])
                cut = begin + len(here[0]) < len(times)
                told = {"Timestamps": here[0], "Values": here[1], "StatusCode": "PartialData" if cut else "Complete"}
                results.append({"Id": one, "Label": one, **told})
        more = {"NextToken": str(first + size)} if first + size < passed else {}
        return {"MetricDataResults": results, "Messages": [], **more}


def _read_json(asked: Asked) -> Mapping[str, Any]:
    """A request in JSON 1.0, whose times are seconds since 1970."""
    body: dict[str, Any] = asked.json()
    times: dict[str, Any] = {
        name: datetime.fromtimestamp(body[name], tz=UTC) for name in ("StartTime", "EndTime") if name in body
    }
    return {**body, **times}


def _as_json(value: Any) -> Any:  # noqa: ANN401 - any shape
    """Times as JSON 1.0 writes them."""
    if isinstance(value, Mapping):
        return {k: _as_json(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_as_json(one) for one in value]
    return value.timestamp() if isinstance(value, datetime) else value


def _recent(points: Points, now: datetime) -> bool:
    at = datetime.fromtimestamp(int(now.timestamp()) // 300 * 300, tz=UTC)
    return any(points(at - n * timedelta(minutes=5)) is not None for n in range(36))


def _cpu(resource: Resource) -> Points:
    """Some figure that hangs on the machine and the hour, in every bucket that it runs through."""

    def points(at: datetime) -> float | None:
        us = to_us(at)
        run = find_last_run(resource, us) if find_state(resource, us) == "running" else None
        return None if run is None else crc32(f"{resource.id}{us // 3_600_000_000}".encode()) % 1000 / 10

    return points
