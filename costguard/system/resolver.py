"""The addresses of a name, within a time: the system's resolver knows no deadline, and may hang for half a minute."""

from __future__ import annotations

import socket
import threading
from ipaddress import ip_address


def resolve_addresses(host: str, port: int, seconds: float | None) -> list[str]:
    """The IP addresses of `host`, each once. TimeoutError after `seconds`, any other OSError where there are none.

    It is asked in a thread of its own, which ends by itself when the resolver gives up.
    """
    try:
        return [str(ip_address(host))]
    except ValueError:
        found: list[str] | OSError = []

    def ask() -> None:
        nonlocal found
        try:
            answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found = list(dict.fromkeys(str(answer[4][0]) for answer in answers))
        except (OSError, UnicodeError) as why:
            found = OSError(type(why).__name__)

    thread = threading.Thread(target=ask, name="costguard-resolver", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError("the name was not resolved in time")
    if isinstance(found, OSError):
        raise found
    return found
