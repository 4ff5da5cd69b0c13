"""The listening socket, and the files that a server needs: checked at the start of the watchdog."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from costguard.errors import InputError
from costguard.settings import WebSettings, expand_path
from costguard.settings.web import parse_listen_address
from costguard.system.file_security import describe_exposure
from costguard.system.input_file import require_input_file

BACKLOG = 512
ANY_PORT = "127.0.0.1:0"


def bind_listener(web: WebSettings) -> socket.socket:
    """Return a socket that listens at the address of the settings. Raises InputError if it cannot."""
    listen = parse_listen_address(web.listen or ANY_PORT, "web.listen")
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio sets TCP_NODELAY on such alone
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((listen.host, listen.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        hint = "stop the other watchdog, or set another port"
        raise InputError(f"cannot listen: {error.strerror}", field=f"web.listen {listen.shown}", hint=hint) from None
    listener.setblocking(False)  # noqa: FBT003 - the socket's own word
    return listener


def check_web_files(web: WebSettings, key_file: Path) -> None:
    """Raise InputError if TLS or answers cannot be signed with the files of the settings; a missing key is created."""
    from costguard.web.signing import open_seal

    open_seal(key_file)
    if web.oidc is not None:
        from costguard.settings.web import read_client_secret

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
        message = f"TLS cannot be used with these files: {error.strerror or error if isinstance(error, OSError) else error}"
        hint = "set a PEM certificate chain and its key"
        raise InputError(message, field="web.tls_cert, web.tls_key", hint=hint) from None
