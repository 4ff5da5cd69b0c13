"""Inference servers: small servers that answer as the real ones do, and texts that no server should be believed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from costguard_agent import inference_servers
from costguard_agent.host import HostView
from costguard_agent.inference_servers import PROGRAMS, ServerMetrics, ServerProbe, parse_metrics
from costguard_agent.signals import ProbeResult

from tests.agent.near import Machine, answering
from tests.fakes.server import Answer

VLLM = """# HELP vllm:num_requests_running Number of requests currently running on GPU.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="meta/Llama {8B}"} 2.0
vllm:num_requests_waiting{engine="0",model_name="meta/Llama {8B}"} 1.0
vllm:prompt_tokens_total{model_name="a"} 1.5e+03
vllm:generation_tokens_total{model_name="a"} 500 1795219215000
vllm:generation_tokens_total{model_name="b"} 12
vllm:generation_tokens_created{model_name="a"} 1.7e+09
"""
SGLANG = """sglang:num_running_reqs{model_name="m"} 0
sglang:num_queue_reqs{model_name="m"} 0
sglang:prompt_tokens_total{model_name="m"} 8.128902e+06
sglang:generation_tokens_total{model_name="m"} 7.557572e+06
"""
TGI = """tgi_queue_size 1
tgi_batch_current_size 4
tgi_request_count 9
tgi_request_generated_tokens_sum 230
"""


@pytest.mark.parametrize(
    ("program", "text", "metrics"),
    [
        ("vLLM", VLLM, ServerMetrics(3, 2012)),
        ("SGLang", SGLANG, ServerMetrics(0, 8.128902e6 + 7.557572e6)),
        ("TGI", TGI, ServerMetrics(5, 239)),
        ("vLLM", VLLM.replace(" 2.0", " NaN"), None),
        ("vLLM", VLLM.replace(" 2.0", " -1"), None),
        ("vLLM", VLLM.replace(" 2.0", " 1e9"), None),
        ("vLLM", VLLM.replace(" 500", " 1e300"), None),
        ("vLLM", VLLM.replace(" 500 1795219215000", ""), None),
        ("vLLM", VLLM.replace("vllm:num_requests_waiting", "vllm:num_requests_swapped"), None),
        ("vLLM", SGLANG, None),
        ("vLLM", '{"python_gc_objects_collected_total": 12}', None),
        ("vLLM", "<html>\n" * 50_000 + VLLM, None),
        ("vLLM", "", None),
    ],
)
def test_a_text_is_read_by_its_programs_own_names_or_not_at_all(program: str, text: str, metrics: ServerMetrics | None) -> None:
    assert parse_metrics(text, PROGRAMS[program]) == metrics


class Rack(Machine):
    """A machine whose processes listen at real ports of loopback."""

    def listen(self, pid: int, port: int, *words: str, owner: int | None = None, address: str = "0100007F") -> None:
        self.process(pid, "python", words=words)
        table = self.root / "proc" / "net" / "tcp"
        old = table.read_text() if table.exists() else "  sl  local_address rem_address   st ...\n"
        self.file("proc/net/tcp", f"{old}   0: {address}:{port:04X} 00000000:0000 0A 0:0 00:0 0 0 0 {9000 + pid} 1\n")
        files = self.root / "proc" / str(owner or pid) / "fd"
        files.mkdir(parents=True, exist_ok=True)
        (files / str(pid)).symlink_to(f"socket:[{9000 + pid}]")


def says(text: str) -> dict[str, Answer]:
    return {"GET /metrics": Answer(body=text.encode())}


def test_servers_that_answer_are_added_up(tmp_path: Path) -> None:
    rack = Rack(tmp_path)
    with answering(says(VLLM)) as (_, one), answering(says(SGLANG)) as (_, other):
        rack.listen(50, one, "/usr/bin/python3", "/opt/bin/vllm", "serve", "m", f"--port={one}")
        rack.listen(60, other, "python3", "-m", "sglang.launch_server", "--port", str(other), address="00000000")
        probe = ServerProbe(rack.around)
        assert probe.probe() == ProbeResult({"server_requests": 3.0, "server_tokens": 2012 + 8.128902e6 + 7.557572e6})
        assert probe.pids == (50, 60)


@pytest.mark.parametrize(
    ("running", "signals"), [(" 2.0", {"server_requests": 2.0}), (" 0", {})], ids=["one works", "one is at rest"]
)
def test_beside_a_server_that_cannot_be_read_only_work_is_reported(
    tmp_path: Path, running: str, signals: dict[str, float]
) -> None:
    rack = Rack(tmp_path)
    text = VLLM.replace(" 2.0", running).replace('B}"} 1.0', 'B}"} 0')
    with answering(says(text)) as (_, one), answering({}) as (_, other):
        rack.listen(50, one, "python3", "vllm", "serve", "--port", str(one))
        rack.listen(60, other, "python3", "-m", "sglang.launch_server", "--port", str(other))
        assert ServerProbe(rack.around).probe().signals == signals


@pytest.mark.parametrize(
    ("words", "owner", "address"),
    [
        (("python3", "train.py", "--port", "{port}"), None, "0100007F"),
        (("python3", "vllm", "serve", "--port", "{port}"), 70, "0100007F"),
        (("python3", "vllm", "serve", "--port", "{port}"), None, "0501A8C0"),
        (("python3", "vllm", "serve", "--port", "99999"), None, "0100007F"),
        (("python3", "vllm", "serve"), None, "0100007F"),
    ],
    ids=["a training", "another process listens there", "not on loopback", "no port", "at another port than its default"],
)
def test_no_other_port_is_asked(tmp_path: Path, words: tuple[str, ...], owner: int | None, address: str) -> None:
    rack = Rack(tmp_path)
    with answering(says(VLLM)) as (server, port):
        rack.listen(50, port, *(word.format(port=port) for word in words), owner=owner, address=address)
        assert ServerProbe(rack.around).probe() == ProbeResult()
        assert not server.asked


def test_a_redirect_is_not_followed_and_a_long_answer_is_cut_off(tmp_path: Path) -> None:
    for number, answer in enumerate((Answer(status=302, headers={"Location": "/other"}), Answer(body=b"x" * (2**20 + 1)))):
        rack = Rack(tmp_path / str(number))
        with answering({"GET /metrics": answer, "GET /other": Answer(body=VLLM.encode())}) as (server, port):
            rack.listen(50, port, "python3", "vllm", "serve", "--port", str(port))
            assert ServerProbe(rack.around).probe() == ProbeResult()
            assert len(server.asked) == 1


def test_tokens_that_grow_faster_than_tokens_can_are_not_believed(tmp_path: Path) -> None:
    rack = Rack(tmp_path)
    with answering(says(VLLM)) as (server, port):
        rack.listen(50, port, "python3", "vllm", "serve", "--port", str(port))
        probe = ServerProbe(rack.around)
        probe.probe()
        server.answers.update(says(VLLM.replace(" 500 ", " 900000000 ")))
        assert probe.probe() == ProbeResult()
        server.answers.update(says(VLLM))
        assert probe.probe().signals["server_tokens"] == 2012, "a counter that falls is a server that began again"


ENDLESS = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    wire, _ = server.accept()
    wire.sendall(b"HTTP/1.1 200 OK\\r\\n\\r\\n")
    try:
        while True: wire.sendall(b"vllm:num_requests_running 0\\n" * 1000)
    except OSError: pass
    sys.stdin.read()
"""


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="no /proc here")
def test_a_real_process_is_found_by_its_socket_and_an_endless_answer_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "vllm"
    script.write_text(ENDLESS, "utf-8")
    with subprocess.Popen(
        [sys.executable, "-S", str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        program = PROGRAMS["vLLM"]._replace(port=port)
        monkeypatch.setattr(inference_servers, "PROGRAMS", {"vLLM": program})
        around = HostView.real()
        servers = [one for one in inference_servers.list_servers(around) if one.pid == process.pid]
        assert servers == [inference_servers.InferenceServer(process.pid, port, program)]
        assert ServerProbe(around).probe() == ProbeResult()
        process.communicate()
