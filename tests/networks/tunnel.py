"""An http proxy as companies have them: it is asked to CONNECT, and carries what it cannot read to one port of this machine."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.providers.transport.wires import raw, request_of


@contextmanager
def tunnelled(port: int) -> Iterator[tuple[str, list[bytes]]]:
    """Its address, and all that it heard; wherever somebody wants to go, he comes to `port`."""
    heard = list[bytes]()

    def carry(client: socket.socket) -> None:
        heard.append(request_of(client))
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        with socket.create_connection(("127.0.0.1", port), timeout=60) as server:
            back = threading.Thread(target=_poured, args=(server, client, []), daemon=True)
            back.start()
            _poured(client, server, heard)
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            back.join()

    with raw(carry) as place:
        yield f"http://{place}", heard


def _poured(one: socket.socket, other: socket.socket, heard: list[bytes]) -> None:
    with suppress(OSError):
        while piece := one.recv(65536):
            heard.append(piece)
            other.sendall(piece)
        other.shutdown(socket.SHUT_WR)
