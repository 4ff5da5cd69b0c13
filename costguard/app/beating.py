"""The address of `[watch] heartbeat_url`, asked: somebody outside listens there, and says so when nobody asks any more."""

from __future__ import annotations

from collections.abc import Callable

from costguard.app.clouds import transport_of
from costguard.errors import InputError, ProviderError
from costguard.settings import Settings
from costguard.settings.addresses import revealed

WITHIN_S = 10.0
"""How long one may take. Its thread holds back nothing but the next one."""
MOST_BYTES = 64 * 1024
OK, REDIRECT = 200, 300


def beat(settings: Callable[[], Settings]) -> str:
    """Ask once: "" where it was answered with a 2xx, or the settings name nobody; else why not, without the address."""
    from costguard.transport import Deadline
    from costguard.transport.wire import Request

    now = settings()
    if now.watch.heartbeat_url is None:
        return ""
    transport = transport_of(now)
    try:
        url = revealed(now.watch.heartbeat_url, "watch.heartbeat_url")
        reply = transport.exchange(
            Request(method="GET", url=url), provider="heartbeat", deadline=Deadline(WITHIN_S), most_bytes=MOST_BYTES
        )
    except InputError as error:
        return str(error)
    except ProviderError as error:  # its words hold the address, which may be a secret
        return f"no answer ({type(error).__name__})"
    finally:
        transport.close()
    return "" if OK <= reply.status < REDIRECT else f"it answered {reply.status}"
