"""All open connections of the server: how many, of which addresses, and how many bytes they hold that no request used yet.

When there are too many, or too many bytes, room is made: of the address that has the most, the connection is closed that was
quiet for the longest, and that no request is being answered on. So 4,000 connections of one address lose their oldest when
anybody else connects, and whoever else stands behind the same address gets in too.

A connection counts from its acceptance on, before TLS. A request counts as being answered once its body is complete.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from socket import SHUT_RDWR, socket
from typing import Protocol

CONNECTIONS = 4000
"""Connections at once."""
SHARE_OF_ADDRESS = 0.5
"""Of the connections, what one address may have: a fleet may stand behind one, of a thousand agents that keep theirs."""
BYTES_MOST = 32 * 2**20
"""Bytes of heads and bodies that all connections together may hold while their requests are incomplete."""
IPV6_SITE_BITS = 64
"""RFC 6177: a site has at least this prefix, so that its host part can be chosen freely."""
LOOPBACK = "loopback"


@lru_cache(maxsize=4096)
def name_client(address: str) -> str:
    """Return the name under which the limits count an address: all of loopback is one, and so is an IPv6 /64."""
    try:
        found = parse_address(address)
    except ValueError:  # a Unix-domain socket, or what a proxy stated
        return address[:64]
    if found.is_loopback:
        return LOOPBACK
    if isinstance(found, IPv6Address):
        return str(ipaddress.ip_network((int(found) >> IPV6_SITE_BITS << IPV6_SITE_BITS, IPV6_SITE_BITS)))
    return str(found)


def parse_address(address: str) -> IPv4Address | IPv6Address:
    """Parse an address without its zone, and an IPv4-mapped IPv6 address as IPv4. Raises ValueError."""
    found = ipaddress.ip_address(address.partition("%")[0])
    return getattr(found, "ipv4_mapped", None) or found


class HttpState(Protocol):
    """What the table asks of the protocol of a connection."""

    def is_busy(self) -> bool:
        """Return whether a complete request is being answered."""

    def count_held(self) -> int:
        """Return the bytes that it holds: received for no complete request yet, or written and not sent."""


@dataclass(slots=True, eq=False)
class Connection:
    """One open connection. `address`: as `name_client` names it. `held`: its bytes as last counted.

    `http`: its protocol; None before TLS is agreed on. `leaving`: it was evicted, and its close is not noticed yet.
    """

    wire: socket
    address: str
    held: int = 0
    http: HttpState | None = None
    leaving: bool = False


@dataclass(slots=True)
class _Address:
    """What one address has. `quiet`: its connections, the longest quiet first."""

    quiet: OrderedDict[int, Connection] = field(default_factory=OrderedDict)
    held: int = 0


@dataclass(slots=True)
class ConnectionTable:
    """The open connections; used by one thread. `most`: of all. `exempt`: the address of a proxy, behind which is everybody."""

    most: int = CONNECTIONS
    bytes_most: int = BYTES_MOST
    exempt: str = ""
    held: int = 0
    evicted: int = 0
    _open: dict[int, Connection] = field(default_factory=dict)
    _addresses: dict[str, _Address] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, address: str) -> bool:
        """Return whether one more connection of `address` may be open, after making room for it."""
        own = self._addresses.get(address)
        share = max(1, int(self.most * SHARE_OF_ADDRESS))
        if own is not None and address != self.exempt and len(own.quiet) >= share:
            return self._evict(own)
        if len(self._open) >= self.most:
            return self._evict(max(self._addresses.values(), key=lambda one: len(one.quiet)))
        return True

    def add(self, wire: socket, address: str) -> None:
        """Count a connection that was accepted."""
        made = Connection(wire, address)
        self._open[wire.fileno()] = made
        self._addresses.setdefault(address, _Address()).quiet[wire.fileno()] = made

    def find(self, number: int) -> Connection | None:
        """Return the connection with this file descriptor; None if it is not counted, as where a test made it."""
        return self._open.get(number)

    def remove(self, number: int) -> None:
        """Count a connection no longer: it is closed."""
        gone = self._open.pop(number, None)
        if gone is None:
            return
        own = self._addresses[gone.address]
        self._set_held(own, gone, 0)
        own.quiet.pop(number, None)
        if not own.quiet:
            del self._addresses[gone.address]

    def count(self, connection: Connection, held: int) -> None:
        """Record that a connection was active and holds so many bytes now; make room if all hold too many."""
        number = connection.wire.fileno()
        own = self._addresses.get(connection.address)
        if own is None or number not in own.quiet or connection.leaving:
            return
        own.quiet.move_to_end(number)
        self._set_held(own, connection, held)
        while self.held > self.bytes_most:
            if not self._evict(max(self._addresses.values(), key=lambda one: one.held), holding=True):
                return

    def _set_held(self, own: _Address, connection: Connection, held: int) -> None:
        more, connection.held = held - connection.held, held
        own.held += more
        self.held += more

    def _evict(self, own: _Address, *, holding: bool = False) -> bool:
        """Close the longest quiet connection of an address; return False if it has none that may be closed.

        `holding`: only one that holds bytes still; what was sent meanwhile is counted no longer.
        """
        for number, one in list(own.quiet.items()):
            if one.leaving or (one.http is not None and one.http.is_busy()):
                continue
            if holding:
                before = one.held
                self._set_held(own, one, one.http.count_held() if one.http is not None and before else before)
                if not one.held:
                    if before and self.held <= self.bytes_most:
                        return True
                    continue
            self._set_held(own, one, 0)
            one.leaving = True  # it counts until its close is noticed
            own.quiet.move_to_end(number)
            self.evicted += 1
            with suppress(OSError):
                one.wire.shutdown(SHUT_RDWR)
            return True
        return False
