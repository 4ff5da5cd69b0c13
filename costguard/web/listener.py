"""The socket that is listened at: whom it lets in at all, how many at once, and how long one may take to agree on TLS.

What is refused here is closed before a byte was read, so that who connects and never says anything, not even a word of TLS,
takes no more than its share of the files that this process may have open.
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
    """A connection that counts for as long as it is open. `gone`: told once, when it is closed."""

    gone: Callable[[], None] | None = None

    def close(self) -> None:
        """Close it."""
        super().close()
        gone, self.gone = self.gone, None
        if gone is not None:
            gone()


class LimitedListener(socket.socket):
    """A socket that takes at most so many connections at once. `only`: the one address beside this machine's, "" for any."""

    most = 4000
    only = ""
    open = 0

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection that may be; BlockingIOError where there is none."""
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
    """An event loop that does not wait for TLS as long as it takes."""

    async def create_server(self, *named: Any, ssl: Any = None, **more: Any) -> Any:  # noqa: ANN401 - as asyncio has it
        """As asyncio's own, with a limit on the handshake."""
        limit = {"ssl_handshake_timeout": HEAD_S} if ssl else {}
        return await super().create_server(*named, ssl=ssl, **{**limit, **more})


def _parse_address(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address without a zone, and as IPv4 where IPv6 only carries one."""
    found = ipaddress.ip_address(address.partition("%")[0])
    return getattr(found, "ipv4_mapped", None) or found
