"""A mail server on this machine, over a real socket: it takes letters, or says no in one of the ways in which servers do."""

from __future__ import annotations

import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage

PASSWORD = "canary-password-0123456789"  # noqa: S105 - looked for where it must not stand
SAYS = {b"EHLO": "250-test\r\n250 AUTH PLAIN LOGIN", b"DATA": "354 go on", b"QUIT": "221 bye", b"STAR": "220 now"}
IMPLICIT, STARTTLS = "ssl", "starttls"
ASKED, TAKEN = "asked", "taken"
"""Where a server breaks off: when it is asked to take a letter, and when it has it."""


@dataclass(slots=True)
class Post:
    """What came in. `no`: the answer to a letter, "" takes it. `silent`: it has the letter, and does not say so until set.

    `refuses`: the answer to a recipient, by its address. `tls`: IMPLICIT or STARTTLS, with a `context` (none: STARTTLS is not
    offered). `login`: the answer to a password. `breaks`: where it breaks off. `heard`: what was said to it in the open.
    """

    port: int = 0
    no: str = ""
    refuses: dict[str, str] = field(default_factory=dict)
    silent: threading.Event | None = None
    tls: str = ""
    context: ssl.SSLContext | None = None
    login: str = "235 yes"
    breaks: str = ""
    heard: list[bytes] = field(default_factory=list)
    letters: list[tuple[tuple[str, ...], bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Its address, as `[notify] mail` names one; it says whom the letters are from and, if nobody else is, to."""
        scheme, mode = ("mailtos", self.tls) if self.tls else ("mailto", "insecure")
        return f"{scheme}://user:{PASSWORD}@127.0.0.1:{self.port}?from=costguard@lab.org&to=everybody@lab.org&mode={mode}"

    @property
    def read(self) -> list[tuple[tuple[str, ...], EmailMessage]]:
        """The letters, with whom they were for."""
        return [(whom, message_from_bytes(text, policy=policy.default)) for whom, text in self.letters]


class Talk(socketserver.StreamRequestHandler):
    """One connection. `post`: of the server."""

    post: Post
    secret: bool

    def setup(self) -> None:
        """Over TLS from the start, where that is spoken."""
        self.secret = False
        if self.post.tls == IMPLICIT:
            self._wrap()
        super().setup()

    def finish(self) -> None:
        """Close what was wrapped: the server knows the plain one alone."""
        super().finish()
        if self.secret:
            self.request.close()

    def _wrap(self) -> None:
        assert self.post.context is not None
        self.request, self.secret = self.post.context.wrap_socket(self.request, server_side=True), True

    def handle(self) -> None:
        """Answer line by line, until it is over."""
        whom, word = list[str](), b""
        self._say("220 test")
        while word != b"QUIT" and (line := self.rfile.readline()):
            word = line[:4].upper()
            if not self.secret:
                self.post.heard.append(line)
            name = line.decode(errors="replace").partition("<")[2].partition(">")[0] if word == b"RCPT" else ""
            no = self.post.refuses.get(name, "")
            whom = [] if word in (b"MAIL", b"RSET") else [*whom, *([name] if name and not no else [])]
            if word == b"DATA" and self.post.breaks == ASKED:
                return
            self._say(no or self._answer(word))
            if word == b"STAR":
                self._wrap()
                super().setup()
            if word == b"DATA":
                self._take(tuple(whom))
            if word == b"DATA" and self.post.breaks:
                return

    def _answer(self, word: bytes) -> str:
        if word == b"EHLO" and self.post.context is not None and not self.secret:
            return "250-test\r\n250-STARTTLS\r\n250 AUTH PLAIN LOGIN"
        return self.post.login if word == b"AUTH" else SAYS.get(word, "250 yes")

    def _take(self, whom: tuple[str, ...]) -> None:
        lines = list[bytes]()
        while (line := self.rfile.readline()) not in (b".\r\n", b""):
            lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
        if not self.post.no:
            self.post.letters.append((whom, b"".join(lines)))
        if self.post.silent is not None:
            self.post.silent.wait(60)
        if not self.post.breaks:
            self._say(self.post.no or "250 taken")

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


class Office(socketserver.ThreadingTCPServer):
    """The server. A talk that goes wrong, because its other end is gone, is nothing to tell of."""

    daemon_threads, allow_reuse_address = True, True

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing."""


@contextmanager
def post_office(post: Post) -> Iterator[Post]:
    """`post`, served in a thread until the block ends; at the same port as before where it was served before."""
    with Office(("127.0.0.1", post.port), type("Served", (Talk,), {"post": post})) as server:
        post.port = int(server.server_address[1])
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        serving.start()
        try:
            yield post
        finally:
            server.shutdown()
            serving.join()
