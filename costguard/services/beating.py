"""The address of `[watch] heartbeat_url`, asked: somebody outside listens there, and says so when nobody asks any more.

The audit's head goes along as `User-Agent: costguard audit/1234:9f86d081884c7d65`. Most listeners keep that line of a request,
and so heads are noted where nobody on this machine can change them (decision 0025).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from costguard.errors import InputError, LedgerError, ProviderError
from costguard.services.configured_providers import open_transport
from costguard.settings import Settings, resolve_ledger_url
from costguard.settings.addresses import resolve_address

HEARTBEAT_LIMIT_S = 10.0
"""How long one may take. Its thread holds back nothing but the next one."""
HEARTBEAT_BYTES_MAX = 64 * 1024
HTTP_OK, HTTP_REDIRECT = 200, 300


def send_heartbeat(settings: Callable[[], Settings]) -> str:
    """Ask once: "" where it was answered with a 2xx, or the settings name nobody; else why not, without the address."""
    from costguard.providers.transport import Deadline
    from costguard.providers.transport.client import HttpRequest

    now = settings()
    if now.watch.heartbeat_url is None:
        return ""
    transport = open_transport(now)
    try:
        url = resolve_address(now.watch.heartbeat_url, "watch.heartbeat_url")
        reply = transport.exchange(
            HttpRequest(method="GET", url=url, headers=_build_heartbeat_headers(now), called="its address"),
            provider="heartbeat",
            deadline=Deadline(HEARTBEAT_LIMIT_S),
            most_bytes=HEARTBEAT_BYTES_MAX,
        )
    except InputError as error:
        return str(error)
    except ProviderError as error:
        return "; ".join(filter(None, (error.what, error.hint)))
    finally:
        transport.close()
    return "" if HTTP_OK <= reply.status < HTTP_REDIRECT else f"it answered {reply.status}"


def _build_heartbeat_headers(settings: Settings) -> Mapping[str, str]:
    """What names costguard and its audit's head; where that cannot be read, costguard alone: the beat tells of the run."""
    from costguard.ledger.db.reader import LedgerReader
    from costguard.ledger.guard.audit_log import read_head_text

    try:
        with LedgerReader(resolve_ledger_url(settings)) as reader, reader.snapshot() as ask:
            head = read_head_text(ask)
    except (InputError, LedgerError):
        head = ""
    return {"User-Agent": f"costguard audit/{head}" if head else "costguard"}
