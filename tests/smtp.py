"""A mail server on this machine, over a real socket: it takes letters, or says no in one of the ways in which servers do."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage

PASSWORD = "canary-password-0123456789"  # noqa: S105 - looked for where it must not stand
SAYS = {b"EHLO": "250-test\r\n250 AUTH PLAIN LOGIN", b"AUTH": "235 yes", b"DATA": "354 go on", b"QUIT": "221 bye"}


@dataclass(slots=True)
class Post:
    """What came in. `no`: the answer to a letter, "" takes it. `silent`: it has the letter, and does not say so until set."""

    port: int = 0
    no: str = ""
    silent: threading.Event | None = None
    letters: list[tuple[tuple[str, ...], bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Its address, as `[notify] mail` names one; it says whom the letters are from and, if nobody else is, to."""
        return f"mailto://user:{PASSWORD}@127.0.0.1:{self.port}?from=costguard@lab.org&to=everybody@lab.org&mode=insecure"

    @property
    def read(self) -> list[tuple[tuple[str, ...], EmailMessage]]:
        """The letters, with whom they were for."""
        return [(whom, message_from_bytes(text, policy=policy.default)) for whom, text in self.letters]


class Talk(socketserver.StreamRequestHandler):
    """One connection. `post`: of the server."""

    post: Post

    def handle(self) -> None:
        """Answer line by line, until it is over."""
        whom, word = list[str](), b""
        self._say("220 test")
        while word != b"QUIT" and (line := self.rfile.readline()):
            word = line[:4].upper()
            if word == b"RCPT":
                whom.append(line.decode().partition("<")[2].partition(">")[0])
            self._say(SAYS.get(word, "250 yes"))
            if word == b"DATA":
                self._take(tuple(whom))

    def _take(self, whom: tuple[str, ...]) -> None:
        lines = list[bytes]()
        while (line := self.rfile.readline()) not in (b".\r\n", b""):
            lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
        if not self.post.no:
            self.post.letters.append((whom, b"".join(lines)))
        if self.post.silent is not None:
            self.post.silent.wait(60)
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
