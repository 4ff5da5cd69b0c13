"""A server that replays moto's own bytes of EC2, so that moto is not what is measured: `python -m bench.ec2_replay COUNT`.

moto renders a thousand instances once (its time grows worse than linearly); further pages are the same with other ids. What
is asked is counted: `GET /__calls` answers {"DescribeInstances": 5, ...}. Prices, metrics and identity are constant answers.
It prints its port and serves until its stdin is closed.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode

PAGE = 1000
TYPES = ("g5.xlarge", "p4d.24xlarge", "g4dn.xlarge", "p5.48xlarge")
SIGNED = "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/ec2/aws4_request, SignedHeaders=host, Signature=0"
FORM = "application/x-www-form-urlencoded"


class Replay:
    """Answers by action; pages of DescribeInstances and DescribeVolumes are made from moto's once."""

    def __init__(self, count: int) -> None:
        self.calls: Counter[str] = Counter()
        self.lock = threading.Lock()
        self.moto = _moto()
        for i, kind in enumerate(TYPES):
            share = PAGE // len(TYPES)
            tags = {f"TagSpecification.1.Tag.{n}.Key": key for n, (key, _) in enumerate(TAGS, 1)}
            tags |= {f"TagSpecification.1.Tag.{n}.Value": value for n, (_, value) in enumerate(TAGS, 1)}
            form = {"ImageId": "ami-12345678", "InstanceType": kind, "MinCount": share, "MaxCount": share}
            self._ask("RunInstances", {**form, "TagSpecification.1.ResourceType": "instance", **tags, "ClientToken": f"t{i}"})
        self.pages = {action: self._pages(action, count) for action in ("DescribeInstances", "DescribeVolumes")}
        self.other: dict[str, bytes] = {}

    def answer(self, form: dict[str, list[str]]) -> bytes:
        """The answer to one EC2 or STS query."""
        action = form["Action"][0]
        if action in self.pages:
            page = int(form.get("NextToken", ["0"])[0])
            return self.pages[action][page]
        key = urlencode(sorted((k, v[0]) for k, v in form.items()))
        with self.lock:
            if key not in self.other:
                self.other[key] = self._ask(action, {k: v[0] for k, v in form.items() if k not in ("Action", "Version")})
            return self.other[key]

    def _pages(self, action: str, count: int) -> list[bytes]:
        first = self._ask(action, {})
        every = max(1, count // PAGE)
        return [_renamed(first, number, last=number == every - 1) for number in range(every)]

    def _ask(self, action: str, form: dict[str, Any]) -> bytes:
        version = "2011-06-15" if action == "GetCallerIdentity" else "2016-11-15"
        scope = SIGNED.replace("/ec2/", "/sts/") if action == "GetCallerIdentity" else SIGNED
        body = urlencode({"Action": action, "Version": version, **form})
        answer = self.moto.post("/", data=body, content_type=FORM, headers={"Authorization": scope, "Host": "127.0.0.1"})
        return bytes(answer.data)


TAGS = (("Name", "train"), ("owner", "alice"), ("team", "vision"))


def _renamed(page: bytes, number: int, *, last: bool) -> bytes:
    """The page with ids of its own, and with a token unless it is the last."""
    renamed = re.sub(rb"(<(?:instanceId|volumeId|reservationId)>)(i|vol|r)-..", rb"\g<1>\g<2>-%02x" % number, page)
    renamed = re.sub(rb"<nextToken>[^<]*</nextToken>|<nextToken ?/>", b"", renamed)
    if last:
        return renamed
    end = renamed.rindex(b"</Describe")
    return renamed[:end] + b"<nextToken>%d</nextToken>" % (number + 1) + renamed[end:]


def _moto() -> Any:  # noqa: ANN401 - a client of werkzeug's
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.test import Client

    return Client(DomainDispatcherApplication(create_backend_app))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    replay: Replay

    def do_GET(self) -> None:
        """The counted calls."""
        self._send(200, "application/json", json.dumps(self.replay.calls).encode())

    def do_POST(self) -> None:
        """Any AWS call."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        target = self.headers.get("X-Amz-Target", "")
        if target:
            self.replay.calls[target.rsplit(".", 1)[-1]] += 1
            self._send(200, "application/x-amz-json-1.1", json.dumps(_priced(json.loads(body))).encode())
        elif "/operation/" in self.path:
            self.replay.calls[self.path.rsplit("/", 1)[-1]] += 1
            self._send(200, "application/cbor", _metrics(self.path), ("smithy-protocol", "rpc-v2-cbor"))
        else:
            form = parse_qs(body.decode())
            self.replay.calls[form["Action"][0]] += 1
            self._send(200, "text/xml", self.replay.answer(form))

    def _send(self, status: int, kind: str, body: bytes, *more: tuple[str, str]) -> None:
        self.send_response_only(status)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(body))), *more):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _priced(asked: dict[str, Any]) -> dict[str, Any]:
    """One on-demand SKU for whatever type was asked for."""
    said = {f["Field"]: f["Value"] for f in asked.get("Filters", [])}
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": "1.0060000000"}, "beginRange": "0", "endRange": "Inf"}
    terms = {"OnDemand": {"S.T": {"effectiveDate": "2026-11-01T00:00:00Z", "priceDimensions": {"S.T.D": dimension}}}}
    product = {"sku": "S", "productFamily": "Compute Instance", "attributes": {**said, "operation": "RunInstances"}}
    return {"FormatVersion": "aws_v1", "PriceList": [json.dumps({"product": product, "terms": terms})]}


def _metrics(path: str) -> bytes:
    """No metric at all, in CBOR: an empty list under the operation's key."""
    empty = {"ListMetrics": "oWdNZXRyaWNzgA==", "GetMetricData": "oXFNZXRyaWNEYXRhUmVzdWx0c4A="}
    return base64.b64decode(empty.get(path.rsplit("/", 1)[-1], "oA=="))


def main() -> None:
    """Serve until stdin ends."""
    logging.disable(logging.CRITICAL)
    _Handler.replay = Replay(int(sys.argv[1]))
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
