"""An identity provider over loopback HTTP: discovery, a page that logs in at once, signed tokens, and what a bad one does."""

from __future__ import annotations

import json
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import Message
from functools import cache
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

CLIENT, SECRET = "costguard", "s3cret-of-the-client"
Key = RSAKey | ECKey


@cache
def rsa_key(name: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": name})


@cache
def ec_key(name: str) -> ECKey:
    return ECKey.generate_key("P-256", {"kid": name})


@dataclass
class Identity:
    """The provider. A test changes what it says. `sign`: replaces the ID token; `answers`: nothing is answered before it."""

    issuer: str = ""
    key: Key = field(default_factory=lambda: rsa_key("one"))
    published: list[dict[str, Any]] | None = None
    claims: dict[str, Any] = field(default_factory=dict)
    discovery: dict[str, Any] = field(default_factory=dict)
    sign: Callable[[dict[str, Any]], str] | None = None
    nonce: str | None = None
    answers: threading.Event = field(default_factory=threading.Event)
    issued: dict[str, dict[str, str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def authorize(self, url: str, **more: str) -> str:
        """What a person's browser does there: return the address that it is sent back to."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        code = f"code-{len(self.issued)}"
        self.issued[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state'], **more})}"

    def make_token(self, query: dict[str, str]) -> str:
        now = int(time.time())
        said = {
            "iss": self.issuer,
            "sub": "2481",
            "aud": CLIENT,
            "iat": now,
            "exp": now + 300,
            "nonce": self.nonce or query["nonce"],
            "groups": ["leads"],
            **self.claims,
        }
        if self.sign is not None:
            return self.sign(said)
        return jwt.encode({"alg": "ES256" if isinstance(self.key, ECKey) else "RS256", "kid": self.key.kid}, said, self.key)

    def answer(self, method: str, path: str, headers: Message, body: bytes) -> tuple[int, object]:
        self.asked.append(path)
        if path.endswith("/openid-configuration"):
            places = {name: f"{self.issuer}/{name}" for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")}
            return 200, {"issuer": self.issuer, **places, "end_session_endpoint": f"{self.issuer}/end", **self.discovery}
        if path == "/jwks_uri":
            return 200, {"keys": self.published if self.published is not None else [self.key.as_dict(private=False)]}
        if path == "/token_endpoint" and method == "POST":
            form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
            query = self.issued.pop(form.get("code", ""), None)
            verifier = urlsafe_b64encode(sha256(form.get("code_verifier", "").encode()).digest()).rstrip(b"=").decode()
            if query is None or query["code_challenge"] != verifier or query["redirect_uri"] != form["redirect_uri"]:
                return 400, {"error": "invalid_grant"}
            if not headers.get("Authorization", "").startswith("Basic "):
                self.wrong.append("the client did not name itself")
            return 200, {"id_token": self.make_token(query), "access_token": "a" * 20, "token_type": "Bearer"}
        return 404, {}


@contextmanager
def identity_provider() -> Iterator[Identity]:
    """A provider that answers while the block runs."""
    made = Identity()
    made.answers.set()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            if self.path.startswith("/authorization_endpoint?"):  # a person's browser
                self.send_response(302)
                self.send_header("Location", made.authorize(self.path))
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, said = made.answer(self.command, urlsplit(self.path).path, self.headers, body)
            made.answers.wait(300)
            text = json.dumps(said).encode()
            with suppress(OSError):  # whoever asked may be gone
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

        do_GET = do_POST = answer  # noqa: N815 - the names of http.server

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made.issuer = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
