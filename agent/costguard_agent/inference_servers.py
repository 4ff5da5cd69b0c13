"""Inference servers on this machine: requests and tokens, from their own /metrics on loopback.

    {"server_requests": 0.0, "server_tokens": 812345.0}

A server is found by its command line, and asked only at the port that its command line states (or its program's default) and
that this process itself listens at: other programs' ports stay untouched, since a stray request can break a training.
What it answers is another program's text: at most 1 MiB within 2 s, without redirects or proxy. A value that is no count, or
more tokens a second than any server writes, makes the answer unreadable; so does a text without the program's own names.

A server that cannot be read shows work no less than one that can, so then the token counter is left out, and of the requests
only more than none are reported. Ollama has no /metrics (github.com/ollama/ollama/pull/18508, open on 2026-09-19); it frees the
GPU's memory by itself after five minutes. A server in a container with a network of its own is not seen from outside.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from costguard_agent.host import HostView, list_command_lines, read_text
from costguard_agent.http_client import UnansweredError, send_request
from costguard_agent.signals import SERVER_REQUESTS, SERVER_TOKENS, ProbeResult

WITHIN_S, SERVERS_MOST, FILES_MOST, TABLE_MOST = 2.0, 8, 4096, 2**20
LINES_MOST = 20_000
COUNT_MOST, REQUESTS_MOST, TOKENS_PER_S_MOST = 1e15, 1e6, 1e7
"""Tokens a second: 8 H200 read prompts at some 10^5 a second."""
PORT_MOST, OK = 65535, 200
LISTENING = "0A"
"""TCP_LISTEN in /proc/net/tcp (include/net/tcp_states.h, 6.12)."""
LOCAL_HEX = ("00000000", "0100007F", "0" * 32, "0" * 24 + "01000000")
"""0.0.0.0, 127.0.0.1, :: and ::1 as /proc/net/tcp and tcp6 write them on little-endian machines."""


class ServerProgram(NamedTuple):
    """An inference server's program. `words`: one of the first words of its command line; `port`: its default.

    `requests`: gauges of requests that run or wait; `tokens`: counters that grow with each answer.
    """

    words: tuple[str, ...]
    port: int
    requests: tuple[str, ...]
    tokens: tuple[str, ...]


PROGRAMS: Mapping[str, ServerProgram] = {
    # docs.vllm.ai/en/v0.9.1/usage/metrics.html and main/docs/design/metrics.md, read on 2026-11-29
    "vLLM": ServerProgram(
        ("vllm", "vllm.entrypoints.openai.api_server"),
        8000,
        ("vllm:num_requests_running", "vllm:num_requests_waiting"),
        ("vllm:prompt_tokens_total", "vllm:generation_tokens_total"),
    ),
    # docs.sglang.io/references/production_metrics.html, read on 2026-11-29; only with --enable-metrics
    "SGLang": ServerProgram(
        ("sglang", "sglang.launch_server"),
        30000,
        ("sglang:num_running_reqs", "sglang:num_queue_reqs"),
        ("sglang:prompt_tokens_total", "sglang:generation_tokens_total"),
    ),
    # huggingface.co/docs/text-generation-inference/reference/metrics, read on 2026-11-29; its launcher passes --port on
    "TGI": ServerProgram(
        ("text-generation-router",),
        3000,
        ("tgi_queue_size", "tgi_batch_current_size"),
        ("tgi_request_count", "tgi_request_generated_tokens_sum"),
    ),
}


class InferenceServer(NamedTuple):
    """A running server that listens at `port` of this machine."""

    pid: int
    port: int
    program: ServerProgram


class ServerMetrics(NamedTuple):
    """Requests that run or wait now, and the tokens since the server began."""

    requests: float
    tokens: float


class ServerProbe:
    """Asks the servers of this machine, again and again, and keeps the last count of each. `pids`: of those that answered."""

    def __init__(self, around: HostView) -> None:
        self._around = around
        self._counts: dict[tuple[int, int], tuple[float, float]] = {}
        self.pids: tuple[int, ...] = ()

    def probe(self) -> ProbeResult:
        """Return the signals of all servers; none if none runs or can be read."""
        servers = list_servers(self._around)
        read = [(one, metrics) for one in servers for metrics in [self._read_metrics(one)] if metrics is not None]
        self._counts = {key: count for key, count in self._counts.items() if key in {(one.pid, one.port) for one in servers}}
        self.pids = tuple(one.pid for one, _ in read)
        requests = sum(metrics.requests for _, metrics in read)
        if len(read) < len(servers):
            return ProbeResult({SERVER_REQUESTS: requests} if requests > 0 else {})
        return ProbeResult({SERVER_REQUESTS: requests, SERVER_TOKENS: sum(m.tokens for _, m in read)} if read else {})

    def _read_metrics(self, server: InferenceServer) -> ServerMetrics | None:
        """Return what `server` says now; None if it cannot be read, or its tokens grow faster than tokens can."""
        try:
            reply = send_request(f"http://127.0.0.1:{server.port}/metrics", headers={"Accept": "text/plain"}, within_s=WITHIN_S)
        except UnansweredError:
            return None
        metrics = parse_metrics(reply.body.decode("utf-8", "replace"), server.program) if reply.status == OK else None
        if metrics is None:
            return None
        key, now_s = (server.pid, server.port), time.monotonic()
        last_s, last = self._counts.get(key, (now_s, metrics.tokens))
        self._counts[key] = (now_s, metrics.tokens)
        return None if metrics.tokens - last > TOKENS_PER_S_MOST * (now_s - last_s) else metrics


def parse_metrics(text: str, program: ServerProgram) -> ServerMetrics | None:
    """Return the sums of the metrics of `program` in Prometheus' text format; None if one is missing or is no count.

    `tgi_request_count{method="x"} 7` adds 7. Lines beyond LINES_MOST are not read. Pure.
    """
    names = (*program.requests, *program.tokens)
    sums = dict[str, float]()
    for line in text.split("\n", LINES_MOST)[:LINES_MOST]:
        name = line[: min((at for at in (line.find("{"), line.find(" ")) if at >= 0), default=0)]
        if name not in names:
            continue
        try:
            value = float(line[max(line.rfind("}"), len(name) - 1) + 1 :].split()[0])
        except (ValueError, IndexError):
            return None
        if not math.isfinite(value) or not 0 <= value <= COUNT_MOST:
            return None
        sums[name] = sums.get(name, 0.0) + value
    requests = sum(sums.get(name, 0.0) for name in program.requests)
    if not all(name in sums for name in program.requests) or not any(name in sums for name in program.tokens):
        return None
    return ServerMetrics(requests, sum(sums.get(name, 0.0) for name in program.tokens)) if requests <= REQUESTS_MOST else None


def list_servers(around: HostView) -> list[InferenceServer]:
    """Return the servers that listen on loopback or everywhere; at most eight."""
    servers: dict[int, InferenceServer] = {}
    inodes: dict[str, int] | None = None
    for pid, words in sorted(list_command_lines(around)):
        program = _find_program(words)
        port = _find_port(words, program) if program is not None else 0
        if program is None or not port or len(servers) >= SERVERS_MOST:
            continue
        inodes = dict(_list_listeners(around)) if inodes is None else inodes
        if any(inodes.get(inode) == port for inode in _list_sockets(around, pid)):
            servers.setdefault(port, InferenceServer(pid, port, program))
    return list(servers.values())


def _find_program(words: Sequence[str]) -> ServerProgram | None:
    names = {word.rpartition("/")[2] for word in words[:4]}
    return next((one for one in PROGRAMS.values() if not names.isdisjoint(one.words)), None)


def _find_port(words: Sequence[str], program: ServerProgram) -> int:
    """Return the port that the command line states, or the default; 0 if it states none that is a port."""
    ports = [word[7:] for word in words if word.startswith("--port=")]
    ports += [value for word, value in zip(words, words[1:]) if word in ("--port", "-p")]
    port = ports[-1] if ports else str(program.port)
    return int(port) if port.isascii() and port.isdigit() and len(port) <= len(str(PORT_MOST)) and int(port) <= PORT_MOST else 0


def _list_listeners(around: HostView) -> Iterator[tuple[str, int]]:
    """Yield inode and port of each socket of this network that listens on loopback or everywhere (proc(5))."""
    for name in ("tcp", "tcp6"):
        for line in (read_text(around.build_path("proc", "net", name), most=TABLE_MOST) or "").splitlines()[1:]:
            fields = line.split()
            address, _, port = fields[1].partition(":") if len(fields) > 9 else ("", "", "")  # noqa: PLR2004 - up to the inode
            if address in LOCAL_HEX and fields[3] == LISTENING:
                yield fields[9], int(port, 16)


def _list_sockets(around: HostView, pid: int) -> Iterator[str]:
    """Yield the inodes of the sockets that a process has open; none if it may not be inspected."""
    folder = around.build_path("proc", str(pid), "fd")
    try:
        names = os.listdir(folder)[:FILES_MOST]  # noqa: PTH208 - thousands of names: no objects for them
    except OSError:
        return
    for name in names:
        try:
            link = os.readlink(folder / name)  # noqa: PTH115 - "socket:[1]" is no path
        except OSError:
            continue
        if link.startswith("socket:["):
            yield link[8:-1]
