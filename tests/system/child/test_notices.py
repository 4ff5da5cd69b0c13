"""Spot notices over loopback, as AWS and GCP answer them; and hints of a program by datagram."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from costguard.services.run_jobs.machine_provider import find_spot_notice_source, guess_provider
from costguard.system.child.hints import HintReceiver
from costguard.system.child.spot_notices import MetadataService, SpotNotice, SpotNoticeWatcher

PATIENCE_S = 120.0
ACTION = "/latest/meta-data/spot/instance-action"


class Metadata(BaseHTTPRequestHandler):
    """Both services. `said`: path -> what it answers now; a path that is not there is not found."""

    said: dict[str, str]

    def _answer(self, status: int, text: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_PUT(self) -> None:
        asked = self.path == "/latest/api/token" and self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
        self._answer(200 if asked else 400, "a-token")

    def do_GET(self) -> None:
        if self.path.startswith("/latest/") and self.headers.get("X-aws-ec2-metadata-token") != "a-token":
            return self._answer(401)
        if self.path.startswith("/computeMetadata/") and self.headers.get("Metadata-Flavor") != "Google":
            return self._answer(403)
        text = self.said.get(self.path)
        return self._answer(404) if text is None else self._answer(200, text)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def metadata(said: dict[str, str]) -> Iterator[str]:
    """The address of a service that answers so."""
    served = ThreadingHTTPServer(("127.0.0.1", 0), type("Served", (Metadata,), {"said": said}))
    threading.Thread(target=served.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{served.server_address[1]}"
    finally:
        served.shutdown()
        served.server_close()


def watcher(name: str, base: str) -> SpotNoticeWatcher:
    """One that asks the service at `base` as the plug-in of provider `name` does."""
    source = find_spot_notice_source(name)
    assert source is not None
    return SpotNoticeWatcher(replace(source, base=base), every_s=0.01)


def fetch(name: str, base: str) -> str | None:
    """What the plug-in of provider `name` makes of one question."""
    source = find_spot_notice_source(name)
    assert source is not None
    return source.fetch(MetadataService(base))


def test_aws_says_when_with_a_token_and_until_then_nothing() -> None:
    said: dict[str, str] = {}
    with metadata(said) as base:
        assert fetch("aws", base) is None
        said[ACTION] = json.dumps({"action": "terminate", "time": "2026-11-22T19:02:00Z"})
        watch = watcher("aws", base)
        watch.begin()
        while watch.notice is None:
            time.sleep(0.01)
    assert watch.notice == SpotNotice("aws", "terminate at 2026-11-22T19:02:00Z", 110.0)


@pytest.mark.parametrize("odd", ["", "[]", "null", '{"action": 3}', "<html>", "{" * 5000])
def test_an_odd_answer_is_no_notice(odd: str) -> None:
    with metadata({ACTION: odd}) as base:
        watch = watcher("aws", base)
        watch.begin()
        time.sleep(0.1)
        watch.end()
        assert watch.notice is None


def test_which_provider_is_asked_its_firmware_says_or_a_variable_of_its_tools(tmp_path: Path) -> None:
    def detected(environ: dict[str, str]) -> str | None:
        source = find_spot_notice_source("auto", environ, tmp_path)
        return source.cloud if source else None

    assert detected({}) is None
    (tmp_path / "sys_vendor").write_text("Google\n")
    assert detected({}) == "gcp"
    (tmp_path / "sys_vendor").write_text("Amazon EC2\n")
    assert detected({}) == "aws"
    assert detected({"GCE_METADATA_HOST": "127.0.0.1:8080"}) == "gcp"


@pytest.mark.parametrize(
    ("environ", "vendor", "provider"),
    [
        ({"RUNPOD_POD_ID": "k3v9", "CONTAINER_ID": "1"}, "Amazon EC2", "runpod"),
        ({"VAST_CONTAINERLABEL": "C.1"}, "Google", "vast"),
        ({"CONTAINER_ID": "1"}, "", "vast"),
        ({}, "Google", "gcp"),
        ({}, "QEMU", None),
    ],
)
def test_whose_machine_this_is_a_variable_says_before_the_firmware(
    tmp_path: Path, environ: dict[str, str], vendor: str, provider: str | None
) -> None:
    (tmp_path / "sys_vendor").write_text(vendor)
    assert guess_provider(environ, tmp_path) == provider


def test_hints_are_read_as_they_come_and_handed_on_to_an_agent(tmp_path: Path) -> None:
    agent = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    agent.bind(str(tmp_path / "agent.sock"))
    agent.setblocking(False)  # noqa: FBT003 - its own name for it
    hints = HintReceiver([str(tmp_path / "none"), str(tmp_path / "agent.sock")])
    hints.begin()
    job = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    told = (
        b'{"hint": "progress", "step": 1}', b'{"hint": "beat"}', b"odd", b"", b'{"hint": "progress", "step": "2"}',
        b'{"hint": "progress", "step": NaN}', b"[" * 2048, b"x" * 4000, b'{"hint": "progress", "step": true}',
        b'{"hint": "progress", "step": 7.0}',
    )  # fmt: skip
    try:
        for data in told:
            job.sendto(data, hints.path)
        folder = Path(hints.path).parent
        assert oct(folder.stat().st_mode & 0o777) == "0o700"
        found: list[int] = []
        while 7 not in found:
            found += hints.take_steps()
        hints.close()
        assert (found[0], hints.take_steps()) == (1, [])
        assert agent.recv(4096) == told[0]
    finally:
        hints.close()
        agent.close()
        job.close()
    assert not folder.exists()


def test_a_job_that_tells_more_than_anybody_looks_at_is_not_held_up() -> None:
    hints = HintReceiver()
    hints.begin()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as job:
        job.settimeout(PATIENCE_S / 2)  # where nobody reads, the kernel takes ten and then makes it wait
        for step in range(2000):
            job.sendto(json.dumps({"hint": "progress", "step": step}).encode(), hints.path)
    hints.close()
    assert hints.take_steps() == [0, 1999]


def test_a_notice_is_told_once_and_an_answer_too_deep_ends_nothing() -> None:
    said = {ACTION: "[" * 4096}
    with metadata(said) as base:
        watch = watcher("aws", base)
        watch.begin()
        time.sleep(0.1)
        said[ACTION] = json.dumps({"action": "stop", "time": "2026-11-22T19:02:00Z"})
        while watch.notice is None:
            time.sleep(0.01)
        watch.notice = None  # as whoever attends takes it
        time.sleep(0.1)
        assert watch.notice is None
