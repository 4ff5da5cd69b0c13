"""Notebook kernels: servers over real HTTP, with the files that Jupyter Server 2.21 and Notebook 6.5 write."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme
from costguard_agent import host
from costguard_agent import notebooks as kernels
from costguard_agent.signals import ProbeResult

from tests.agent.near import Machine, Server, answering
from tests.fakes.server import Answer, Asked, serving

TOKEN = "canary-jupyter-0123456789abcdef"  # noqa: S105 - looked for in all output
HOME = "root/.local/share/jupyter/runtime"
NOW = kernels.parse_rfc3339("2026-11-22T19:00:00Z") or 0.0


def kernel(state: str = "idle", last: str = "2026-11-22T18:30:00.250000Z", connections: int = 1) -> dict[str, object]:
    """As jupyter_server 2.21 lists it (services/kernels/kernelmanager.py, kernel_model)."""
    id_ = "c17c3ed6-4a4b-4a0c-a3e5-b34e3c9dbd6b"
    return {"id": id_, "name": "python3", "last_activity": last, "execution_state": state, "connections": connections}


def listed(*which: dict[str, object]) -> object:
    def answer(asked: Asked) -> Answer:
        right = asked.headers.get("authorization") == f"token {TOKEN}"
        return Answer.of(list(which)) if right else Answer.of({"message": "Forbidden", "reason": None}, 403)

    return answer


def runs(machine: Machine, port: int, *, name: str = "jpserver-{}.json", folder: str = HOME, **more: object) -> None:
    """The file of a server that runs (jupyter_server/serverapp.py, server_info)."""
    machine.env.setdefault("HOME", "/root")
    where = {
        "base_url": "/", "hostname": "localhost", "port": port, "secure": False, "sock": "",
        "url": f"http://localhost:{port}/",
    }  # fmt: skip
    said = {**where, "password": False, "pid": os.getpid(), "root_dir": "/root", "token": TOKEN, "version": "2.21.1", **more}
    machine.file(f"{folder}/{name.format(os.getpid())}", json.dumps(said))


@contextmanager
def notebooks(machine: Machine, *which: dict[str, object], path: str = "/api/kernels", **more: object) -> Iterator[Server]:
    with answering({f"GET {path}": listed(*which)}) as (server, port):  # type: ignore[dict-item]
        runs(machine, port, **more)  # type: ignore[arg-type]
        yield server


def test_an_idle_kernel_tells_when_its_last_cell_ended(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    with notebooks(machine, kernel(), kernel(last="2026-11-22T18:00:00Z", connections=0)):
        assert kernels.probe_notebooks(machine.around, NOW) == ProbeResult({"connections": 1.0, "input_age_s": 1799.75})


def test_a_busy_kernel_is_work_now(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    with notebooks(machine, kernel(), kernel("busy", last="2026-11-22T16:00:00Z")):
        seen = kernels.probe_notebooks(machine.around, NOW)
    assert seen.signals == {"connections": 2.0, "input_age_s": 0.0}
    assert seen.troubles == ()


def test_a_server_without_kernels_says_nothing_of_input(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    with notebooks(machine):
        assert kernels.probe_notebooks(machine.around, NOW) == ProbeResult({})


def test_a_classic_notebook_below_a_path_of_its_own_is_found_by_the_variable(tmp_path: Path) -> None:
    machine = Machine(tmp_path, JUPYTER_RUNTIME_DIR="/work/run", HOME="/nobody")
    more = {"name": "nbserver-{}.json", "folder": "work/run", "base_url": "/user/anna/"}
    with notebooks(machine, kernel("busy"), path="/user/anna/api/kernels", **more):
        assert kernels.probe_notebooks(machine.around, NOW).signals["input_age_s"] == 0.0


def test_a_server_with_a_runtime_folder_of_its_own_is_found_by_its_own_variable(tmp_path: Path) -> None:
    machine = Machine(tmp_path, HOME="/var/lib/agent")
    machine.process(4242, "jupyter-lab", words=("/opt/venv/bin/python3.11", "/opt/venv/bin/jupyter-lab"))
    machine.file("proc/4242/environ", "HOME=/nowhere\0JUPYTER_RUNTIME_DIR=/scratch/run\0")
    with notebooks(machine, kernel("busy"), folder="scratch/run", name="jpserver-4242.json", pid=4242):
        assert kernels.probe_notebooks(machine.around, NOW) == ProbeResult({"connections": 1.0, "input_age_s": 0.0})


def test_a_server_whose_file_cannot_be_read_makes_the_age_unknown(tmp_path: Path) -> None:
    machine = Machine(tmp_path, HOME="/var/lib/agent")
    machine.process(4242, "jupyter-lab", words=("/opt/venv/bin/python3.11", "/opt/venv/bin/jupyter-lab", "--no-browser"))
    machine.process(4243, "python3.11", words=("python", "-m", "ipykernel_launcher", "-f", "/root/kernel-1.json"))
    seen = kernels.probe_notebooks(machine.around, NOW)
    assert seen == ProbeResult({}, ("connections", "input_age_s"), ("1 notebook servers run whose files cannot be read",))


def test_the_file_of_a_server_that_ended_is_passed_over(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    runs(machine, 1, pid=4_000_000)
    assert kernels.probe_notebooks(machine.around, NOW) == ProbeResult({})


def test_a_server_with_a_certificate_of_its_own_is_asked_on_loopback(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("somewhere.example").configure_cert(context)
    server = Server({"GET /api/kernels": listed(kernel("busy"))})  # type: ignore[dict-item]
    with serving(server, context) as base:
        runs(machine, int(base.rpartition(":")[2]), secure=True)
        assert kernels.probe_notebooks(machine.around, NOW).signals["input_age_s"] == 0.0


@pytest.mark.parametrize(
    ("change", "fault", "why"),
    [
        ({"token": ""}, None, "it needs a password or a token other than the one in its file"),
        ({"token": "another"}, None, "it needs a password or a token other than the one in its file"),
        ({"hostname": "10.0.0.7"}, None, "it does not listen on loopback"),
        ({}, {"kind": "html"}, "without a list of kernels"),
        ({}, {"kind": "status", "status": 500}, "it answered 500"),
        ({}, {"kind": "bomb"}, "more than 1048576 bytes"),
        ({}, {"kind": "deep"}, "without a list of kernels"),
        ({}, {"kind": "redirect"}, "without a list of kernels"),
        ({}, {"kind": "reset"}, "cannot be queried"),
        ({}, {"kind": "drip", "seconds": 60}, "no answer within"),
        ({}, {"kind": "body", "body": b'["x"]'}, "without a list of kernels"),
    ],
)
def test_a_server_that_cannot_be_asked_makes_the_age_unknown_and_keeps_its_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, object], fault: dict[str, object] | None, why: str
) -> None:
    monkeypatch.setattr(kernels, "WITHIN_S", 0.4)
    machine = Machine(tmp_path)
    with notebooks(machine, kernel("busy"), **change) as server:  # type: ignore[arg-type]
        if fault is not None:
            server.fault("kernels", **fault)  # type: ignore[arg-type]
        seen = kernels.probe_notebooks(machine.around, NOW)
    assert seen.signals == {}
    assert set(seen.unknown) == {"connections", "input_age_s"}
    assert why in seen.troubles[0]
    assert "canary" not in repr(seen)


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", '{"pid": "x", "port": 8888}', '{"pid": 1, "port": 99999}', '{"pid": 1, "port": true}',
        "[" * 100_000,
    ],
)  # fmt: skip
def test_a_file_that_is_none_of_a_server_is_passed_over(tmp_path: Path, text: str) -> None:
    machine = Machine(tmp_path, HOME="/root")
    machine.file("root/.local/share/jupyter/runtime/jpserver-1.json", text)
    assert kernels.list_servers(machine.around) == []


def test_a_base_path_cannot_carry_a_second_request(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    with notebooks(machine, kernel(), base_url="/ HTTP/1.1\r\nX: y\r\n\r\nGET /") as server:
        seen = kernels.probe_notebooks(machine.around, NOW)
    assert seen.unknown
    assert server.asked == []


def test_a_folder_of_servers_is_read_within_bounds_and_no_link_or_pipe_in_it_is_opened(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    folder = machine.file("home/ada/.local/share/jupyter/runtime/jpserver-1.json", "{}").parent
    secret = machine.file("root/secret.json", '{"pid": 1, "port": 8888, "token": "of somebody else"}')
    (folder / "jpserver-2.json").symlink_to(secret)
    os.mkfifo(folder / "jpserver-3.json")
    (folder / "jpserver-4.json").mkdir()
    with (folder / "jpserver-5.json").open("wb") as file:
        file.truncate(10 * 2**30)
    assert kernels.list_servers(machine.around) == []
    (folder / "jpserver-6.json").write_text(secret.read_text())
    assert [one.port for one in kernels.list_servers(machine.around)] == [8888]
    for number in range(host.ENTRIES_MOST + 100):
        (folder / f"nbserver-x{number}.json").touch()
    assert len(host.list_files(folder, "*.json")) == host.ENTRIES_MOST
