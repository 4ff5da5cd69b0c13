"""The listening socket: limits on peer addresses, on open connections, and on the time of a TLS handshake.

A refused connection is closed before a byte is read, so that a client that connects and sends nothing, not even a TLS hello,
uses no more than its share of the files that this process may have open.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

from costguard.errors import InputError
from costguard.settings import WebSettings, expand_path
from costguard.settings.web import parse_listen_address
from costguard.system.file_security import describe_exposure
from costguard.system.input_file import require_input_file
from costguard.web.connections import ConnectionTable, name_client, parse_address

HEAD_S = 10.0
"""Seconds for TLS to be agreed on; asyncio would wait for 60."""


BACKLOG = 512
ANY_PORT = "127.0.0.1:0"


class CountedConnection(socket.socket):
    """A connection that `table` counts while it is open."""

    table: ConnectionTable | None = None

    def close(self) -> None:
        """Close it, and count it no longer."""
        number = self.fileno()
        super().close()
        table, self.table = self.table, None
        if table is not None:
            table.remove(number)


class LimitedListener(socket.socket):
    """A socket that accepts connections as `table` admits them.

    `only`: the one remote address allowed besides this machine's, "" for any.
    """

    table: ConnectionTable
    only = ""

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next allowed connection; raises BlockingIOError if there is none."""
        while True:
            came, address = super().accept()
            name = name_client(str(address[0]))
            if self._may(str(address[0])) and self.table.admit(name):
                break
            came.close()
        taken = CountedConnection(came.family, came.type, came.proto, fileno=came.detach())
        taken.table = self.table
        self.table.add(taken, name)
        return taken, address

    def _may(self, address: str) -> bool:
        if not self.only:
            return True
        peer = parse_address(address)
        return peer.is_loopback or peer == parse_address(self.only)


class ListenerLoop(asyncio.SelectorEventLoop):
    """An event loop with a shorter time limit for TLS handshakes."""

    async def create_server(self, *named: Any, ssl: Any = None, **more: Any) -> Any:  # noqa: ANN401 - as asyncio has it
        """As asyncio's method, with a limit on the handshake."""
        limit = {"ssl_handshake_timeout": HEAD_S} if ssl else {}
        return await super().create_server(*named, ssl=ssl, **{**limit, **more})


def bind_listener(web: WebSettings) -> LimitedListener:
    """Return a socket that listens at the address of the settings. Raises InputError if it cannot."""
    listen = parse_listen_address(web.listen or ANY_PORT, "web.listen")
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    made = LimitedListener(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio sets TCP_NODELAY on such alone
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((listen.host, listen.port))
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        hint = "stop the other watchdog, or set another port"
        raise InputError(f"cannot listen: {error.strerror}", field=f"web.listen {listen.shown}", hint=hint) from None
    made.setblocking(False)  # noqa: FBT003 - the socket's own word
    return made


def check_web_files(web: WebSettings, key_file: Path) -> None:
    """Raise InputError if TLS or answers cannot be signed with the files of the settings; a missing key is created."""
    from costguard.web.signing import open_seal

    open_seal(key_file)
    if web.oidc is not None:
        from costguard.settings.oidc import read_client_secret

        read_client_secret(web.oidc)
    if web.tls_cert is None or web.tls_key is None:
        return
    if who := describe_exposure(Path(expand_path(web.tls_key))):
        raise InputError(who, field=f"web.tls_key {web.tls_key}", hint=f"chmod 600 {web.tls_key}")
    try:
        require_input_file(expand_path(web.tls_cert))
        require_input_file(expand_path(web.tls_key))
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(expand_path(web.tls_cert), expand_path(web.tls_key))
    except (OSError, ValueError) as error:
        told = f"TLS cannot be used with these files: {error.strerror or error if isinstance(error, OSError) else error}"
        hint = "set a PEM certificate chain and its key"
        raise InputError(told, field="web.tls_cert, web.tls_key", hint=hint) from None
