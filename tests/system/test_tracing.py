"""Traces: what a collector decodes, what no span tells, and that a collector that hangs delays nothing."""

from __future__ import annotations

import gzip
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from costguard.errors import InputError
from costguard.metering.inventory import Complete, Poll
from costguard.services.poll.poll import _poll_scope
from costguard.settings import check_settings
from costguard.system import tracing
from costguard.system.tracing import TEXT_MAX, open_tracing, trace_span
from costguard.values.resource import ScopeKey
from tests.metering.stories import SCOPE
from tests.web.stations import station

NOW = datetime(2026, 11, 21, tzinfo=UTC)


@dataclass
class Collector:
    """An OTLP/HTTP collector on loopback. `spans`: (name, attributes, whether it failed) of all that came."""

    address: str = ""
    spans: list[tuple[str, dict[str, Any], bool]] = field(default_factory=list)

    def take(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    found = {one.key: one.value.string_value or one.value.bool_value for one in span.attributes}
                    self.spans.append((span.name, found, span.status.code == 2))
                    assert not span.events, "an exception's text may hold a secret"


@contextmanager
def collector() -> Iterator[Collector]:
    made = Collector()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            made.take(gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    made.address = f"http://127.0.0.1:{server.server_port}/v1/traces"
    try:
        yield made
    finally:
        server.shutdown()
        thread.join(30)
        server.server_close()


class Account:
    """A source whose listing is complete, or breaks with a text that nobody should read."""

    def __init__(self, *, broken: bool = False) -> None:
        self.broken = broken

    def poll(self, scope: ScopeKey) -> Poll:
        if self.broken:
            raise ConnectionError("refused: Authorization: Bearer rpa_secret")
        return Poll(scope=scope, at=NOW, asked_at=NOW, inventory=Complete(items=()))


def test_polls_and_guard_runs_arrive_as_spans(tmp_path: Path) -> None:
    with collector() as heard:
        with open_tracing(heard.address), station(tmp_path) as watchdog:
            _poll_scope(Account(), SCOPE)  # type: ignore[arg-type]
            watchdog.room.run_guard()
        spans = {name: attributes for name, attributes, _ in heard.spans}
    assert spans["costguard.poll"]["costguard.provider"] == SCOPE.provider
    assert spans["costguard.poll"]["costguard.outcome"] == "complete"
    assert spans["costguard.guard.run"]["costguard.committed"] is True


def test_a_span_that_breaks_tells_the_class_and_no_text_and_long_names_are_cut() -> None:
    with collector() as heard:
        with open_tracing(heard.address), pytest.raises(ConnectionError):
            _poll_scope(Account(broken=True), ScopeKey("aws", "x" * 5000, "a\nb"))  # type: ignore[arg-type]
        ((name, attributes, failed),) = heard.spans
    assert (name, failed, attributes["error.type"]) == ("costguard.poll", True, "ConnectionError")
    assert len(attributes["costguard.account"]) == TEXT_MAX
    assert "\n" not in attributes["costguard.scope"]
    assert "rpa_secret" not in str(attributes)


def test_a_collector_that_never_answers_delays_neither_spans_nor_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "END_LIMIT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"http://127.0.0.1:{mute.getsockname()[1]}/v1/traces"
        with open_tracing(address):
            opened = time.monotonic()
            for _ in range(3000):
                with trace_span("poll", provider="aws"):
                    pass
            spent = time.monotonic() - opened
            left = time.monotonic()
        ended = time.monotonic() - left
    assert spent < 15, "four batches more than the queue holds, and none was waited for"
    assert ended < 5


def test_without_an_address_nothing_is_imported_and_spans_do_nothing() -> None:
    program = (
        "import sys; from costguard.system.tracing import open_tracing, trace_span\n"
        "with open_tracing(None), trace_span('poll', provider='aws') as span: span.set(outcome='complete')\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("wrong", ["http://collector.example:4318/v1/traces", "https://user:pass@collector.example/", "4318"])
def test_traces_go_to_an_encrypted_address_or_to_this_machine(wrong: str) -> None:
    with pytest.raises(InputError, match=r"telemetry\.traces"):
        check_settings(f'[telemetry]\ntraces = "{wrong}"\n', "costguard.toml")
