"""The HTTP client of all providers, bounded in time, bytes and rate; it never shows a secret.

    Transport         one httpx2 client of the process: one try at one request, within a deadline and a cap of bytes
    ProviderChannel   one account's requests to its provider: rate limits, retries of reads, circuit breaker, errors in words
    ProviderContext   what a provider is handed when it is opened

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
