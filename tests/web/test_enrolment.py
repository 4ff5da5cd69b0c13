"""The printed line, run in a shell against a real `costguard watch`, and against a program that took its port."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from costguard_agent import ed25519, installation, protocol

from costguard.agents.messages import BAD_CODE, MALFORMED, MessageRefusedError
from costguard.services.serving.agent_enrolment import JoinProof
from tests.web.desks import CODE, SECRET, keys, ledger_at, rig
from tests.web.stations import Reply
from tests.web.test_watch import ROOT, asked, free_port, waited

NEEDED = ("mktemp", "head", "rm", "ls")


@dataclass
class Impostor:
    """A program on the port. `agent`: what it serves as the agent. `upstream`: where it passes the rest on; None: it lies."""

    agent: bytes
    upstream: int | None = None
    key: bytes = bytes(32)
    seen: list[tuple[str, bytes]] = field(default_factory=list)
    port: int = 0

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        path = handler.path
        self.seen.append((f"{handler.command} {path}", body))
        if path == "/costguard-agent.pyz":
            self.send(handler, 200, self.agent, {})
        elif self.upstream is not None:
            kept = {name: value for name, value in handler.headers.items() if name.startswith(("Costguard", "Content-Type"))}
            came = pass_on(self.upstream, handler.command, path, body, kept)
            self.send(handler, came.status, came.body, {n: v for n, v in came.headers.items() if n.startswith("costguard")})
        elif path.startswith(protocol.HELLO_PATH):
            nonce, said = (
                path.partition("nonce=")[2],
                {"guard_key": protocol.encode_base64(ed25519.derive_public_key(self.key))},
            )
            raw = json.dumps(said).encode()
            signature = ed25519.sign(self.key, protocol.build_signed_hello(nonce=nonce, body=raw))
            self.send(handler, 200, raw, {protocol.SIGNATURE_HEADER: protocol.encode_base64(signature)})
        else:
            self.send(handler, 200, b'{"agent": "mine"}', {})

    @staticmethod
    def send(handler: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str]) -> None:
        handler.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            handler.send_header(name, value)
        handler.end_headers()
        with suppress(OSError):
            handler.wfile.write(body)


def pass_on(port: int, method: str, path: str, body: bytes, headers: dict[str, str]) -> Reply:
    wire = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        wire.request(method, path, body if method == "POST" else None, headers)
        came = wire.getresponse()
        return Reply(came.status, {name.lower(): value for name, value in came.getheaders()}, came.read())
    finally:
        wire.close()


@contextmanager
def listening(impostor: Impostor) -> Iterator[Impostor]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            impostor.answer(self)

        def do_POST(self) -> None:
            impostor.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    impostor.port = int(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield impostor
    finally:
        server.shutdown()
        server.server_close()


@dataclass(frozen=True)
class Guard:
    """A real watchdog in a process of its own, over the simulated cloud."""

    folder: Path
    environ: dict[str, str]
    port: int
    machine: str = ""

    def costguard(self, *words: str) -> dict[str, object]:
        command = [sys.executable, "-m", "costguard", *words, "--json"]
        ran = subprocess.run(command, cwd=self.folder, env=self.environ, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return dict(json.loads(ran.stdout))

    def enrol(self) -> dict[str, object]:
        return self.costguard("agent", "enrol", self.machine)


def running(status: dict[str, object]) -> str:
    resources = status["resources"]
    assert isinstance(resources, list)
    return next(str(one["id"]) for one in resources if one["kind"] == "instance" and one["state"] == "running")


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guard]:
    folder, port = tmp_path_factory.mktemp("guard"), free_port()
    (folder / "costguard.toml").write_text(
        f'[ledger]\nurl = "sqlite:///{folder}/ledger.db"\n[watch]\ninterval = "2s"\n[web]\nlisten = "127.0.0.1:{port}"\n'
        "[providers.sim]\nseed = 1\n"
    )
    path = f"{ROOT}:{ROOT / 'agent'}:{ROOT / 'providers'}"
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": path}
    with (folder / "log").open("wb") as log:
        command = [sys.executable, "-m", "costguard", "--json-log", "watch"]
        process = subprocess.Popen(command, cwd=folder, env=environ, stderr=log, stdout=subprocess.DEVNULL)
    try:
        assert waited(port, process)["state"] == "ok", (folder / "log").read_text()
        made = Guard(folder, environ, port)
        yield replace(made, machine=running(made.costguard("status")))
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@dataclass
class Machine:
    """A rented machine with these commands and no others. `python3` notes its arguments and installs nothing."""

    folder: Path
    tools: tuple[str, ...]

    def __post_init__(self) -> None:
        commands = self.folder / "bin"
        commands.mkdir(parents=True)
        (self.folder / "tmp").mkdir()
        for name in (*NEEDED, *self.tools):
            found = shutil.which(name)
            if found is None:
                pytest.skip(f"{name} is not installed")
            (commands / name).symlink_to(found)
        wrapper = commands / "python3"
        wrapper.write_text(
            f'#!/bin/sh\necho "$*" >>{self.folder}/argv\nls -ld . >>{self.folder}/modes\n'
            f'[ "$2" = install ] && exit 0\nexec {sys.executable} -I "$@"\n'
        )
        wrapper.chmod(0o755)

    def run(self, script: str, shell: str = "sh") -> subprocess.CompletedProcess[str]:
        environ = {
            "PATH": f"{self.folder}/bin",
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder / "tmp"),
            "COSTGUARD_AGENT_DIR": str(self.folder / "agent"),
        }
        found = shutil.which(shell)
        if found is None:
            pytest.skip(f"{shell} is not installed")
        return subprocess.run(
            [found], input=script + "\n", env=environ, cwd=self.folder, capture_output=True, text=True, check=False, timeout=120
        )

    def argv(self) -> list[str]:
        path = self.folder / "argv"
        return path.read_text().splitlines() if path.exists() else []


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("tools", "shell"),
    [(("curl", "sha256sum"), "dash"), (("wget", "shasum", "perl"), "dash"), (("curl", "shasum", "perl"), "bash")],
)
def test_the_printed_line_joins_and_its_code_is_in_no_argument(
    guard: Guard, tmp_path: Path, tools: tuple[str, ...], shell: str
) -> None:
    machine, enrolled = Machine(tmp_path, tools), guard.enrol()
    ran = machine.run(str(enrolled["script"]), shell)
    assert ran.returncode == 0, ran.stderr
    assert "joined http://127.0.0.1" in ran.stdout
    assert [words.split()[1] for words in machine.argv()] == ["join", "install"]
    assert machine.argv()[0].endswith(" -"), "the code comes on standard input"
    assert all(mode.startswith("drwx------") for mode in (tmp_path / "modes").read_text().splitlines())
    assert list((tmp_path / "tmp").iterdir()) == [], "nothing is left behind"
    assert json.loads((tmp_path / "agent" / "config.json").read_text())["url"] == f"http://127.0.0.1:{guard.port}"


def test_an_impostor_runs_nothing_of_its_own_gets_no_code_and_leaves_it_to_the_watchdog(guard: Guard, tmp_path: Path) -> None:
    machine, enrolled = Machine(tmp_path, ("curl", "sha256sum")), guard.enrol()
    script = str(enrolled["script"])
    with listening(Impostor(b"print('I am root')")) as impostor:
        ran = machine.run(script.replace(str(guard.port), str(impostor.port)))
    assert (ran.returncode, machine.argv()) == (1, [])
    assert "serves another agent than enrol named, or none: nothing was run" in ran.stderr
    assert [path for path, _ in impostor.seen] == ["GET /costguard-agent.pyz"]
    with listening(Impostor(installation.build_archive())) as impostor:
        ran = machine.run(script.replace(str(guard.port), str(impostor.port)))
    assert ran.returncode == 1
    assert "has a different key from the watchdog that made the code: nothing was sent to it" in ran.stderr
    assert [path.partition("?")[0] for path, _ in impostor.seen] == ["GET /costguard-agent.pyz", f"GET {protocol.HELLO_PATH}"]
    assert not any("install" in words for words in machine.argv())
    again = machine.run(script)
    assert again.returncode == 0, again.stderr


def test_who_relays_a_join_learns_no_code_and_cannot_join_in_its_place(guard: Guard, tmp_path: Path) -> None:
    machine, enrolled = Machine(tmp_path, ("curl", "sha256sum")), guard.enrol()
    with listening(Impostor(installation.build_archive(), upstream=guard.port)) as relay:
        ran = machine.run(str(enrolled["script"]).replace(str(guard.port), str(relay.port)))
    assert ran.returncode == 0, ran.stderr
    code = protocol.split_code(str(enrolled["code"]))[0].encode()
    assert not any(code in (path.encode() + body).upper().replace(b"-", b"") for path, body in relay.seen)
    (joined,) = [body for path, body in relay.seen if path.startswith("POST")]
    mine = protocol.encode_base64(ed25519.derive_public_key(SECRET))
    forged = json.dumps({**json.loads(joined), "public_key": mine}).encode()
    status, said = asked(guard.port, "POST", protocol.JOIN_PATH, forged, **{"Content-Type": "application/json"})
    assert (status, json.loads(said)["error"]) == (410, "used_code"), "who joined was first"


def test_a_join_with_the_key_of_a_code_needs_its_signature_for_this_watchdog_and_this_body(tmp_path: Path) -> None:
    with rig(ledger_at(tmp_path)) as desk:
        desk.enrol(keys()[0])
        secret, nonce = protocol.derive_code_secret(CODE), "A" * 32
        code_key = protocol.encode_base64(ed25519.derive_public_key(secret))
        own = protocol.encode_base64(ed25519.derive_public_key(SECRET))
        body = json.dumps({"code": code_key, "public_key": own, "version": "0.1.0"}).encode()

        def prove(guard_key: str, of: bytes, by: bytes = secret) -> JoinProof:
            message = protocol.build_signed_join(guard_key=guard_key, nonce=nonce, body=of)
            return JoinProof(nonce, protocol.encode_base64(ed25519.sign(by, message)))

        ours = desk.desk.seal.public_key
        wrong = [
            prove(own, body),
            prove(ours, body + b" "),
            prove(ours, body, SECRET),
            JoinProof(nonce, ""),
            JoinProof(nonce, "x"),
        ]
        for proof in wrong:
            before = desk.state()
            with pytest.raises(MessageRefusedError) as refused:
                desk.take_join(body, proof)
            assert (refused.value.name, desk.state()) == (BAD_CODE, before)
        for proof in (JoinProof(), JoinProof("short", "x"), JoinProof("A" * 16 + "\n", "x")):
            with pytest.raises(MessageRefusedError) as refused:
                desk.take_join(body, proof)
            assert refused.value.name == MALFORMED
        first = desk.take_join(body, prove(ours, body))
        assert desk.take_join(body, prove(ours, body)) == first, "who lost the answer asks again"


def test_nothing_but_a_nonce_is_signed_for_a_stranger(guard: Guard) -> None:
    for nonce in ("", "short", "A" * 65, "A" * 20 + "%0Ax", "costguard-guard-1%0Aa"):
        status, body = asked(guard.port, "GET", f"{protocol.HELLO_PATH}?nonce={nonce}")
        assert (status, json.loads(body)["error"]) == (400, "malformed")
    assert asked(guard.port, "GET", f"{protocol.HELLO_PATH}?nonce={'A' * 32}")[0] == 200
