"""The listening socket: limits on peer addresses, on open connections, and on the time of a TLS handshake.

A refused connection is closed before a byte is read, so that a client that connects and sends nothing, not even a TLS hello,
uses no more than its share of the files that this process may have open.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from typing import Any

HEAD_S = 10.0
"""Seconds for TLS to be agreed on; asyncio would wait for 60."""


class CountedConnection(socket.socket):
    """A connection that is counted while it is open.

    `gone`: called once, when it is closed.
    """

    gone: Callable[[], None] | None = None

    def close(self) -> None:
        """Close it, and call `gone`."""
        super().close()
        gone, self.gone = self.gone, None
        if gone is not None:
            gone()


class LimitedListener(socket.socket):
    """A socket that accepts at most `most` connections at once.

    `only`: the one remote address allowed besides this machine's, "" for any.
    """

    most = 4000
    only = ""
    open = 0

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next allowed connection; raises BlockingIOError if there is none."""
        while True:
            came, address = super().accept()
            if self.open < self.most and self._may(str(address[0])):
                break
            came.close()
        self.open += 1
        taken = CountedConnection(came.family, came.type, came.proto, fileno=came.detach())
        taken.gone = self._gone
        return taken, address

    def _may(self, address: str) -> bool:
        if not self.only:
            return True
        peer = _parse_address(address)
        return peer.is_loopback or peer == _parse_address(self.only)

    def _gone(self) -> None:
        self.open -= 1


class ListenerLoop(asyncio.SelectorEventLoop):
    """An event loop with a shorter time limit for TLS handshakes."""

    async def create_server(self, *named: Any, ssl: Any = None, **more: Any) -> Any:  # noqa: ANN401 - as asyncio has it
        """As asyncio's method, with a limit on the handshake."""
        limit = {"ssl_handshake_timeout": HEAD_S} if ssl else {}
        return await super().create_server(*named, ssl=ssl, **{**limit, **more})


def _parse_address(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Parse an address without its zone, and an IPv4-mapped IPv6 address as IPv4."""
    found = ipaddress.ip_address(address.partition("%")[0])
    return getattr(found, "ipv4_mapped", None) or found
