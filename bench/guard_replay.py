"""EC2 of `bench.ec2_replay` with GPU measures in CloudWatch: `python -m bench.guard_replay COUNT LATENCY_MS`.

Four of five machines run, all for three days, each with one GPU whose agent reports to CloudWatch; four of ten GPUs do nothing.
CloudWatch's answers are made here, in CBOR or JSON as the client's boto3 asks, 500 series a page as the real one gives them.
"""

from __future__ import annotations

import json
import math
import re
import struct
import sys
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from http.server import ThreadingHTTPServer
from itertools import chain
from typing import Any

from bench.ec2_replay import Replay, _Handler

NAMESPACE, METRIC = "CWAgent", "nvidia_smi_utilization_gpu"
GPU = {"index": "0", "name": "NVIDIA A10G"}
BUSY, QUIET = 80.0, 0.0
BUCKET_S = 300
SERIES = 500
"""In one page of ListMetrics."""
RUNS_FOR = timedelta(days=3)

_NAMED = re.compile(rb"<instanceId>(i-[0-9a-f]{17})<")
_LAUNCHED = re.compile(rb"(<launchTime>)[^<]*")
_TYPES = re.compile(rb"(<instanceType>)(?:p4d\.24xlarge|p5\.48xlarge|g4dn\.xlarge)<")
_ITEM = re.compile(rb"<instanceId>(i-[0-9a-f]{17})</instanceId>.*?<instanceState><code>(\d+)", re.DOTALL)


def idle(instance: str) -> bool:
    """Whether its GPU does nothing: four of ten, by its id."""
    return int(instance[-6:], 16) % 10 < 4


class Metered(Replay):
    """With measures. `running`: the ids of the machines that run."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        pages = self.pages["DescribeInstances"]
        self.running = [one for page in pages for one, code in _ITEM.findall(page) if code == b"16"]

    def _pages(self, action: str, count: int) -> list[bytes]:
        if action == "DescribeInstances":
            found = [one.decode() for one in dict.fromkeys(_NAMED.findall(self._ask(action, {})))]
            stopped = found[: len(found) // 5]
            self._ask("StopInstances", {f"InstanceId.{n}": one for n, one in enumerate(stopped, 1)})
        began = f"{datetime.now(UTC) - RUNS_FOR:%Y-%m-%dT%H:%M:%S.000Z}".encode()
        pages = super()._pages(action, count)
        return [_TYPES.sub(rb"\g<1>g5.xlarge<", _LAUNCHED.sub(rb"\g<1>" + began, page)) for page in pages]

    def measures(self, operation: str, body: Mapping[str, Any]) -> dict[str, object]:
        """The answer of CloudWatch to one call."""
        if operation == "ListMetrics":
            first = int(body.get("NextToken") or 0)
            mine = self.running[first : first + SERIES]
            more = {"NextToken": str(first + SERIES)} if first + SERIES < len(self.running) else {}
            series = [{"Namespace": NAMESPACE, "MetricName": METRIC, "Dimensions": _dimensions(one.decode())} for one in mine]
            return {"Metrics": series, **more}
        if operation == "GetMetricData":
            asked = [(one["Id"], one["MetricStat"]["Metric"]["Dimensions"]) for one in body["MetricDataQueries"]]
            pairs = [(query, next(d["Value"] for d in named if d["Name"] == "InstanceId")) for query, named in asked]
            times = _buckets(_at(body["StartTime"]), _at(body["EndTime"]))
            return {"MetricDataResults": [_result(*pair, times) for pair in pairs], "Messages": []}
        found = next((one["Value"] for one in body["Dimensions"] if one["Name"] == "InstanceId"), None)
        points = [] if found is None else [{"Timestamp": _at(body["StartTime"]), "Average": _value(found), "Unit": "Percent"}]
        return {"Label": METRIC, "Datapoints": points}


def _dimensions(instance: str) -> list[dict[str, str]]:
    return [{"Name": name, "Value": value} for name, value in {"InstanceId": instance, **GPU}.items()]


def _value(instance: str) -> float:
    return QUIET if idle(instance) else BUSY


def _result(query: str, instance: str, times: list[datetime]) -> dict[str, object]:
    values = [_value(instance)] * len(times)
    return {"Id": query, "Label": METRIC, "Timestamps": times, "Values": values, "StatusCode": "Complete"}


def _buckets(start_s: float, end_s: float) -> list[datetime]:
    """Those from `start_s` on and before `end_s`, as CloudWatch gives them."""
    last = min(int(time.time()), math.ceil(end_s) - 1) // BUCKET_S
    return [datetime.fromtimestamp(n * BUCKET_S, UTC) for n in range(math.ceil(start_s / BUCKET_S), last + 1)]


def _at(told: float | str) -> float:
    """A time of a request, in seconds since 1970."""
    return datetime.fromisoformat(told).timestamp() if isinstance(told, str) else float(told)


def cbor(value: object) -> bytes:
    """`value` in CBOR (RFC 8949): what CloudWatch's answers consist of, a time as a tagged number."""
    if isinstance(value, str):
        return _head(3, len(data := value.encode())) + data
    if isinstance(value, float):
        return b"\xfb" + struct.pack(">d", value)
    if isinstance(value, datetime):
        return b"\xc1" + cbor(value.timestamp())
    if isinstance(value, list):
        return _head(4, len(value)) + b"".join(map(cbor, value))
    if isinstance(value, dict):
        return _head(5, len(value)) + b"".join(map(cbor, chain.from_iterable(value.items())))
    raise TypeError(type(value).__name__)


def _head(major: int, count: int) -> bytes:
    if count < 24:
        return bytes([major << 5 | count])
    size = max(0, math.ceil(math.log2(math.ceil(count.bit_length() / 8))))
    return bytes([major << 5 | 24 + size]) + count.to_bytes(2**size, "big")


_FLOATS = {4: ">f", 8: ">d"}


def decoded(data: bytes) -> Any:  # noqa: ANN401 - whatever it says
    """The value that `data` is in CBOR."""
    return _decoded(memoryview(data), 0)[0]


def _decoded(data: memoryview, at: int) -> tuple[Any, int]:
    major, low = data[at] >> 5, data[at] & 31
    size = 2 ** (low - 24) if 24 <= low < 28 else 0
    count = int.from_bytes(data[at + 1 : at + 1 + size], "big") if size else low
    at += 1 + size
    if major in (2, 3):
        raw = bytes(data[at : at + count])
        return raw if major == 2 else raw.decode(), at + count
    if major in (4, 5):
        found = []
        for _ in range(count * (major - 3)):
            one, at = _decoded(data, at)
            found.append(one)
        return found if major == 4 else dict(zip(found[::2], found[1::2], strict=True)), at
    if major == 7 and size in _FLOATS:
        return struct.unpack(_FLOATS[size], data[at - size : at])[0], at
    return _decoded(data, at) if major == 6 else (count, at)


class _Far(_Handler):
    """With a network in between."""

    disable_nagle_algorithm = True  # an answer is two writes, and the second would wait for 40 ms
    latency_s = 0.0

    def do_POST(self) -> None:  # noqa: N802 - the base's name
        """Any AWS call."""
        time.sleep(self.latency_s)
        target = self.headers.get("X-Amz-Target", "")
        if "/operation/" not in self.path and not target.startswith("GraniteServiceVersion"):
            super().do_POST()
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        operation = target.rsplit(".", 1)[-1] or self.path.rsplit("/", 1)[-1]
        with self.replay.lock:
            self.replay.calls[operation] += 1
        assert isinstance(self.replay, Metered)  # noqa: S101 - `main` made it
        answer = self.replay.measures(operation, json.loads(body) if target else decoded(body))
        if target:
            self._send(200, "application/x-amz-json-1.0", json.dumps(answer, default=datetime.timestamp).encode())
        else:
            self._send(200, "application/cbor", cbor(answer), ("smithy-protocol", "rpc-v2-cbor"))


def main() -> None:
    """Serve until stdin ends; prints its port and how many run and idle."""
    _Far.replay = replay = Metered(int(sys.argv[1]))
    _Far.latency_s = float(sys.argv[2]) / 1e3
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Far)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], len(replay.running), sum(idle(one.decode()) for one in replay.running), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
