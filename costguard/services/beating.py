"""The address of `[watch] heartbeat_url`, asked: somebody outside listens there, and says so when nobody asks any more.

The audit's head goes along as `User-Agent: costguard audit/1234:9f86d081884c7d65`. Most listeners keep that line of a request,
and so heads are noted where nobody on this machine can change them (decision 0025).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from costguard.errors import InputError, LedgerError, ProviderError
from costguard.services.configured_providers import transport_of
from costguard.settings import Settings, resolve_ledger_url
from costguard.settings.addresses import resolve_address

WITHIN_S = 10.0
"""How long one may take. Its thread holds back nothing but the next one."""
MOST_BYTES = 64 * 1024
OK, REDIRECT = 200, 300


def beat(settings: Callable[[], Settings]) -> str:
    """Ask once: "" where it was answered with a 2xx, or the settings name nobody; else why not, without the address."""
    from costguard.providers.transport import Deadline
    from costguard.providers.transport.client import HttpRequest

    now = settings()
    if now.watch.heartbeat_url is None:
        return ""
    transport = transport_of(now)
    try:
        url = resolve_address(now.watch.heartbeat_url, "watch.heartbeat_url")
        reply = transport.exchange(
            HttpRequest(method="GET", url=url, headers=_headers(now), called="its address"),
            provider="heartbeat",
            deadline=Deadline(WITHIN_S),
            most_bytes=MOST_BYTES,
        )
    except InputError as error:
        return str(error)
    except ProviderError as error:
        return "; ".join(filter(None, (error.what, error.hint)))
    finally:
        transport.close()
    return "" if OK <= reply.status < REDIRECT else f"it answered {reply.status}"


def _headers(settings: Settings) -> Mapping[str, str]:
    """What names costguard and its audit's head; where that cannot be read, costguard alone: the beat tells of the run."""
    from costguard.ledger.db.reader import LedgerReader
    from costguard.ledger.guard.audit_log import read_head_text

    try:
        with LedgerReader(resolve_ledger_url(settings)) as reader, reader.snapshot() as ask:
            head = read_head_text(ask)
    except (InputError, LedgerError):
        head = ""
    return {"User-Agent": f"costguard audit/{head}" if head else "costguard"}
