"""Servers for the transport's tests: one that answers as it is told, and raw sockets that misbehave below HTTP."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import trustme

from tests.fakes.server import Answer, Asked, FakeCloud

CANARY = "canary-key-0123456789abcdef"


class Told(FakeCloud):
    """Answers with `right`, or with what a function of the request says."""

    def __init__(self, right: Answer | Callable[[Asked], Answer] | None = None) -> None:
        super().__init__()
        self.right = right or Answer.of({"ok": True})

    def answer(self, asked: Asked) -> Answer:
        return self.right(asked) if callable(self.right) else self.right


@contextmanager
def raw(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """A port on which each connection is handed to `serve`."""
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(0.05)
    over, open_ones, threads = threading.Event(), list[socket.socket](), list[threading.Thread]()

    def one(connection: socket.socket) -> None:
        with suppress(OSError):
            serve(connection)

    def accept() -> None:
        while not over.is_set():
            with suppress(TimeoutError):
                connection, _ = listening.accept()
                connection.settimeout(60)
                open_ones.append(connection)
                threads.append(threading.Thread(target=one, args=(connection,), daemon=True))
                threads[-1].start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield f"127.0.0.1:{listening.getsockname()[1]}"
    finally:
        over.set()
        accepting.join()
        for connection in open_ones:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        for thread in threads:
            thread.join()
        listening.close()


def request_of(connection: socket.socket) -> bytes:
    """The head of one request."""
    head = b""
    while b"\r\n\r\n" not in head:
        piece = connection.recv(65536)
        if not piece:
            break
        head += piece
    return head


def authority_of(folder: Path) -> tuple[trustme.CA, Path]:
    """An authority that no system trusts, and its file."""
    authority, file = trustme.CA(), folder / "authority.pem"
    authority.cert_pem.write_to_path(str(file))
    return authority, file


def https(authority: trustme.CA, name: str = "127.0.0.1", *, until: datetime | None = None) -> ssl.SSLContext:
    """A server's side of TLS, for `name`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name, not_after=until).configure_cert(context)
    return context
