"""Notebook kernels on this machine: whether one is busy, and when the last cell ended.

Each running server writes a file with port and token to its user's runtime folder. It is queried on loopback with that token,
which is written nowhere else. A busy kernel counts as work now. If a server does not answer, or this user may not read its
file, the input age is unknown; the file of an ended server is ignored. Not detected: kernels that VS Code starts without a
server.

Jupyter Server 2 and Notebook 6 write these files (jupyter_server/serverapp.py `server_info`, 2.21: url, token, pid, port, sock,
base_url, secure); the answer is documented as GET /api/kernels (id, name, last_activity, execution_state, connections).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from costguard_agent.host import (
    HostView,
    is_alive,
    list_command_lines,
    list_files,
    list_home_folders,
    read_json_object,
    read_process_variables,
)
from costguard_agent.http_client import LOOPBACK_HOSTS, HttpReply, UnansweredError, send_request
from costguard_agent.signals import CONNECTIONS, INPUT_AGE, ProbeResult

FILES = ("jpserver-*.json", "nbserver-*.json")
SERVERS_MOST, KERNELS_MOST = 20, 500
PROGRAMS = frozenset(("jupyter-lab", "jupyter-notebook", "jupyter-server", "jupyter-nbclassic", "jupyterhub-singleuser"))
WITHIN_S = 3.0
WILDCARDS = ("", "*", "0.0.0.0", "::")  # noqa: S104 - recognised, not bound to
BUSY = "busy"
LONG_S = 86400.0
"""A kernel that is busy for longer than this is told as a fact: what it means, the watchdog decides by CPU and GPU."""
PORT_MOST = 65535
RFC_3339 = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?(?:Z|\+00:00)", re.ASCII)
OK = 200


class NotebookServer(NamedTuple):
    """A running server; `token` is a secret."""

    pid: int
    port: int
    base: str
    token: str
    secure: bool
    host: str


class NotebookKernel(NamedTuple):
    """One kernel as its server reports it; `active_at`: Unix seconds, None if it cannot be parsed."""

    state: str
    active_at: float | None
    connections: int


def probe_notebooks(around: HostView, now: float) -> ProbeResult:
    """Return the signals of all kernels at `now` (Unix seconds); none if no server runs."""
    kernels: list[NotebookKernel] = []
    servers = list_servers(around)
    hidden = list_server_pids(around) - {server.pid for server in servers}
    troubles = [f"{len(hidden)} notebook servers run whose files cannot be read"] if hidden else []
    for server in servers:
        try:
            kernels += _fetch_kernels(server)
        except UnansweredError as error:  # noqa: PERF203 - one that does not answer is told, and the others are asked
            troubles.append(f"the notebook server at port {server.port} cannot be queried: {error}")
    signals: dict[str, float] = {}
    if kernels:
        signals[CONNECTIONS] = float(sum(one.connections for one in kernels))
    ages = [_compute_age(one, now) for one in kernels]
    known_ages = [age for age in ages if age is not None]
    if known_ages:
        signals[INPUT_AGE] = min(known_ages)
    unknown = (CONNECTIONS, INPUT_AGE) if troubles else (INPUT_AGE,) if len(known_ages) < len(ages) else ()
    return ProbeResult(signals, unknown, (*troubles, *_find_long_cells(kernels, now)))


def list_servers(around: HostView) -> list[NotebookServer]:
    """Return the running servers found by their files; at most twenty."""
    servers: dict[int, NotebookServer] = {}
    for path in _list_server_files(around):
        server = _parse_server(read_json_object(path), around)
        if server is not None and len(servers) < SERVERS_MOST:
            servers.setdefault(server.port, server)
    return list(servers.values())


def list_server_pids(around: HostView) -> set[int]:
    """Return the pids of notebook servers, recognised by their command line."""
    return {pid for pid, words in list_command_lines(around) if any(word.rpartition("/")[2] in PROGRAMS for word in words[:3])}


def _list_server_files(around: HostView) -> Iterator[Path]:
    for folder in _list_runtime_folders(around):
        yield from list_files(folder, *FILES)


def _list_runtime_folders(around: HostView) -> Iterator[Path]:
    """Yield the folders of jupyter_core.paths.jupyter_runtime_dir.

    They come from variables (this process's and the servers'), below home folders, and for macOS.
    """
    for env in (around.env, *(read_process_variables(around, pid) for pid in list_server_pids(around))):
        runtime_dir, data = env.get("JUPYTER_RUNTIME_DIR", ""), env.get("JUPYTER_DATA_DIR", "")
        if runtime_dir.startswith("/"):
            yield around.rebase_path(runtime_dir)
        if data.startswith("/"):
            yield around.rebase_path(data) / "runtime"
    for home in list_home_folders(around):
        yield home / ".local" / "share" / "jupyter" / "runtime"
        yield home / "Library" / "Jupyter" / "runtime"


def _parse_server(fields: dict[str, Any] | None, around: HostView) -> NotebookServer | None:
    """Return the server described by a file; None if it no longer runs.

    The file is a user's, so every field is checked.
    """
    if fields is None:
        return None
    pid, port, base, token = fields.get("pid"), fields.get("port"), fields.get("base_url"), fields.get("token")
    if type(pid) is not int or type(port) is not int or not 0 < port <= PORT_MOST or is_alive(around, pid) is False:
        return None
    host = fields.get("hostname")
    return NotebookServer(
        pid=pid,
        port=port,
        base=base if isinstance(base, str) and base.startswith("/") else "/",
        token=token if isinstance(token, str) else "",
        secure=fields.get("secure") is True,
        host=host if isinstance(host, str) else "",
    )


def _fetch_kernels(server: NotebookServer) -> list[NotebookKernel]:
    """Return a server's kernels; raises UnansweredError without the token in its text."""
    if server.host not in (*WILDCARDS, *LOOPBACK_HOSTS) and not server.host.startswith("127."):
        raise UnansweredError("it does not listen on loopback")
    host = "[::1]" if server.host == "::1" else "127.0.0.1"
    reply = send_request(
        f"{'https' if server.secure else 'http'}://{host}:{server.port}{server.base.rstrip('/')}/api/kernels",
        headers={"Authorization": f"token {server.token}"} if server.token else {},
        within_s=WITHIN_S,
        own_certificate=True,
    )
    return [_parse_kernel(one) for one in _parse_list(reply)][:KERNELS_MOST]


def _parse_list(reply: HttpReply) -> list[Any]:
    if reply.status in (401, 403):
        raise UnansweredError("it needs a password or a token other than the one in its file")
    kernels = reply.parse_json()
    if reply.status != OK or not isinstance(kernels, list):
        raise UnansweredError(f"it answered {reply.status} without a list of kernels")
    return kernels


def _parse_kernel(kernel: object) -> NotebookKernel:
    if not isinstance(kernel, dict):
        raise UnansweredError("it answered without a list of kernels")
    state, count = kernel.get("execution_state"), kernel.get("connections")
    return NotebookKernel(
        state if isinstance(state, str) else "",
        parse_rfc3339(kernel.get("last_activity")),
        min(max(count, 0), 1000) if isinstance(count, int) else 0,
    )


def parse_rfc3339(value: object) -> float | None:
    """Parse RFC 3339 in UTC, with or without a fraction, to Unix seconds; None if it is malformed."""
    match = RFC_3339.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    try:
        return datetime.fromisoformat(f"{match[1]}+00:00").timestamp() + float(match[2] or 0)
    except ValueError:
        return None


def _compute_age(kernel: NotebookKernel, now: float) -> float | None:
    if kernel.state == BUSY:
        return 0.0
    return None if kernel.active_at is None else max(0.0, now - kernel.active_at)


def _find_long_cells(kernels: list[NotebookKernel], now: float) -> tuple[str, ...]:
    ages = [now - one.active_at for one in kernels if one.state == BUSY and one.active_at is not None]
    longest = max(ages, default=0.0)
    return (f"a notebook's kernel is busy and sent no message for {longest / 3600:.0f} h",) if longest > LONG_S else ()
