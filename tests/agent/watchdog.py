"""A small real watchdog over HTTP: it verifies every beat with the library `cryptography`, and can be told to misbehave."""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from costguard_agent import protocol
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

AGENT = "a-1"
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
CODE = f"code-1.{protocol.compute_fingerprint(KEY.public_key().public_bytes_raw())}"
Misbehaviour = Callable[["Asked"], None]


class Watchdog:
    """`beats`: what was accepted, in order. `records`: each by its moment, as often as it was told."""

    def __init__(self, *, every_s: float = 1.0, context: ssl.SSLContext | None = None, port: int = 0) -> None:
        self.key = KEY
        self.public: Ed25519PublicKey | None = None
        self.every_s = every_s
        self.beats: list[dict[str, Any]] = []
        self.seqs: list[int] = []
        self.tries = 0
        self.refused: list[str] = []
        self.records: dict[int, list[dict[str, Any]]] = {}
        self.answer: dict[str, Any] = {}
        self.why_not = ""
        self.ahead_ms = 0
        self.misbehave: Misbehaviour | None = None
        self.paths: list[str] = []
        self._lock = threading.Lock()
        watchdog = self

        class Answering(Asked):
            def do_POST(self) -> None:
                self.watchdog = watchdog
                with watchdog._lock:
                    watchdog.paths.append(self.path)
                self.serve()

            def do_GET(self) -> None:
                self.do_POST()

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Answering)
        self.server.daemon_threads = True
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = int(self.server.server_address[1])
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms

    def told(self) -> list[dict[str, Any]]:
        """All records in the order of their moments, each once."""
        return [self.records[at][0] for at in sorted(self.records)]

    def until(self, ready: Callable[[], object], within_s: float = 120.0) -> None:
        """Wait until something is so; fail where it does not come."""
        end = time.monotonic() + within_s
        while not ready():
            if time.monotonic() > end:
                raise AssertionError(
                    f"did not happen within {within_s} s; {len(self.beats)} beats, refused {self.refused[-3:]}"
                )
            time.sleep(0.02)


class Asked(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    watchdog: Watchdog

    def log_message(self, *_: object) -> None:
        pass

    def serve(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.watchdog._lock:
            self.watchdog.tries += 1
            misbehave = self.watchdog.misbehave
        if misbehave is not None:
            misbehave(self)
        elif self.path.startswith(protocol.HELLO_PATH):
            self.hello()
        elif self.path == protocol.JOIN_PATH:
            self.join()
        else:
            with self.watchdog._lock:
                self.beat()

    def hello(self) -> None:
        nonce = self.path.partition("?nonce=")[2]
        body = json.dumps({"guard_key": self.guard_key()}).encode()
        self.send_signed(f"costguard-hello-1\n{nonce}\n{hashlib.sha256(body).hexdigest()}", body)

    def guard_key(self) -> str:
        return base64.b64encode(self.watchdog.key.public_key().public_bytes_raw()).decode()

    def send_signed(self, text: str, body: bytes) -> None:
        signature = base64.b64encode(self.watchdog.key.sign(text.encode())).decode()
        self.send(200, body, {protocol.SIGNATURE_HEADER: signature})

    def join(self) -> None:
        asked, dog = json.loads(self.body), self.watchdog
        secret = hashlib.sha256(b"costguard-code-1\nCODE1").digest()
        code_key, digest = Ed25519PrivateKey.from_private_bytes(secret).public_key(), hashlib.sha256(self.body).hexdigest()
        nonce = self.headers[protocol.NONCE_HEADER]
        if asked["code"] != base64.b64encode(code_key.public_bytes_raw()).decode():
            self.refuse(403, "bad_code")
            return
        proof = base64.b64decode(self.headers[protocol.SIGNATURE_HEADER])
        code_key.verify(proof, f"costguard-join-1\n{self.guard_key()}\n{nonce}\n{digest}".encode())
        dog.public = Ed25519PublicKey.from_public_bytes(base64.b64decode(asked["public_key"]))
        said = {"agent": AGENT, "guard_key": self.guard_key(), "every_s": dog.every_s, "name": "train-1"}
        body = json.dumps(said).encode()
        self.send_signed(f"costguard-joined-1\n{nonce}\n{digest}\n{hashlib.sha256(body).hexdigest()}", body)

    def beat(self) -> None:
        dog = self.watchdog
        seq, at = int(self.headers[protocol.SEQ_HEADER]), int(self.headers[protocol.AT_HEADER])
        text = "\n".join(
            [
                "costguard-agent-1", "POST", f"/v1/agents/{AGENT}/beats", AGENT, str(seq), str(at),
                hashlib.sha256(self.body).hexdigest(),
            ]
        )  # fmt: skip
        try:
            assert dog.public is not None
            dog.public.verify(base64.b64decode(self.headers[protocol.SIGNATURE_HEADER]), text.encode())
        except InvalidSignature:
            self.refuse(403, "foreign")
            return
        if abs(at - dog.now_ms()) > protocol.WINDOW_MS:
            self.refuse(409, "stale")
            return
        if dog.seqs and seq <= dog.seqs[-1]:
            self.refuse(409, "replayed")
            return
        beat = json.loads(self.body)
        dog.seqs.append(seq)
        dog.beats.append(beat)
        for record in beat["records"]:
            dog.records.setdefault(record["at"], []).append(record)
        self.answer_signed(seq)

    def answer_signed(self, seq: int, key: Ed25519PrivateKey | None = None) -> None:
        dog = self.watchdog
        asked = {ask["id"]: dog.why_not for ask in json.loads(self.body)["ask"]}
        said = {"seq": seq, "every_s": dog.every_s, "guard_at": dog.now_ms(), "state": "active", "asked": asked, **dog.answer}
        body, at = json.dumps({"notices": [], "kept_until": None, **said}).encode(), dog.now_ms()
        text = f"costguard-guard-1\n{AGENT}\n{seq}\n{at}\n{hashlib.sha256(body).hexdigest()}".encode()
        signature = base64.b64encode((key or dog.key).sign(text)).decode()
        self.send(200, body, {protocol.AT_HEADER: str(at), protocol.SIGNATURE_HEADER: signature})

    def refuse(self, status: int, name: str, headers: dict[str, str] | None = None) -> None:
        self.watchdog.refused.append(name)
        body = json.dumps({"error": name, "says": f"it is {name}"}).encode()
        self.send(status, body, {protocol.AT_HEADER: str(self.watchdog.now_ms()), **(headers or {})})

    def send(self, status: int, body: bytes, headers: dict[str, str], kind: str = "application/json") -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
