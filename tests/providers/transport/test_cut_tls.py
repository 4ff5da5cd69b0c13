"""An answer over TLS that ends without TLS saying so was cut by somebody, however whole it looks (no close_notify)."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from costguard.errors import ProviderError, UnreachableError
from costguard.providers.transport import Deadline, HttpRequest, HttpResponse, Transport
from tests.providers.transport.wires import authority_of, https, raw, request_of

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/csv\r\n"
ROWS = b"id,usd\r\na,1\r\n"
ANSWERS = {
    "to the end of the line": HEAD + b"Connection: close\r\n\r\n" + ROWS,
    "by length": HEAD + b"Content-Length: 100\r\n\r\n" + ROWS,
    "in chunks": HEAD + b"Transfer-Encoding: chunked\r\n\r\nd\r\n" + ROWS + b"\r\n",
    "in its head": HEAD,
    "before its head": b"",
}


def asked(folder: Path, answer: bytes, end: Callable[[socket.socket], object]) -> HttpResponse:
    """What comes of an answer that ends so."""
    authority, file = authority_of(folder)
    context = https(authority)

    def serve(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as line:
            request_of(line)
            line.sendall(answer)
            end(line)

    transport = Transport(ca_file=file)
    try:
        with raw(serve) as place:
            request = HttpRequest(method="GET", url=f"https://{place}/x")
            return transport.exchange(request, provider="cloud", deadline=Deadline(20))
    finally:
        transport.close()


def cut(line: socket.socket) -> None:
    """FIN, and no word of TLS before it."""
    line.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("how", ANSWERS)
def test_an_answer_that_is_cut_is_none(how: str, tmp_path: Path) -> None:
    with pytest.raises(UnreachableError) as told:
        asked(tmp_path, ANSWERS[how], cut)
    assert "the TLS connection was closed" in str(told.value)


def test_an_answer_that_tls_ends_is_whole(tmp_path: Path) -> None:
    """The control: the same bytes, and the end that TLS announces."""
    assert asked(tmp_path, ANSWERS["to the end of the line"], lambda line: line.unwrap()).body == ROWS  # type: ignore[attr-defined]


@pytest.mark.parametrize("how", ["by length", "in chunks"])
def test_an_answer_that_is_shorter_than_it_says_broke_off_and_may_be_asked_for_again(how: str, tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match="closed the connection in the middle of its answer") as told:
        asked(tmp_path, ANSWERS[how], lambda line: line.unwrap())  # type: ignore[attr-defined]
    assert isinstance(told.value, UnreachableError)
