"""How costguard speaks HTTP: one client for every provider, bounded in time, bytes and haste, that never shows a secret.

    Transport      the one httpx2 client of the process: one try at one request, within a deadline and a cap of bytes
    Channel        one account's way to its provider: rate buckets, retries of reads, a circuit per scope, errors in words
    Surroundings   what a provider is handed when it is opened

A provider's SDK is given this transport in place of its own HTTP, so that the same bounds hold for it.
"""

from __future__ import annotations

from costguard.providers.context import ProviderContext, ProviderPlugin
from costguard.providers.transport.channel import ProviderChannel, make_status_fault_reader
from costguard.providers.transport.client import MOST_BYTES, Deadline, HttpRequest, HttpResponse, Transport, check_url
from costguard.providers.transport.rate_limit import TokenBucket
from costguard.system.process import pause_gc
from costguard.system.secret import Secret

__all__ = [
    "MOST_BYTES",
    "Deadline",
    "HttpRequest",
    "HttpResponse",
    "ProviderChannel",
    "ProviderContext",
    "ProviderPlugin",
    "Secret",
    "TokenBucket",
    "Transport",
    "check_url",
    "make_status_fault_reader",
    "pause_gc",
]
