"""Spot notices: a provider announces on the machine that it will reclaim the machine.

The plug-in defines where, and how long before (`MachineTraits`, `fetch_spot_notice`): AWS two minutes, GCP about 30 s, both on
their metadata service. This module asks every five seconds, with a limit on time and bytes.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

EVERY_S, WITHIN_S = 5.0, 2.0
MOST_ANSWER_BYTES = 4096
"""Bytes of an answer that are read."""


@dataclass(frozen=True, slots=True)
class SpotNotice:
    """`cloud` will reclaim the machine.

    `text`: the notice as sent. `within_s`: the usual number of seconds left.
    """

    cloud: str
    text: str
    within_s: float


@dataclass(slots=True)
class MetadataService:
    """The metadata service at `base`, requested without proxy and redirects.

    `token`: of its session, if any.
    """

    base: str
    token: str = ""

    def send(self, path: str, headers: Mapping[str, str], method: str = "GET") -> tuple[int, str]:
        """Return the status and the start of the body (at most 4096 bytes).

        Raises OSError or HTTPException if there is no answer within two seconds.
        """
        parts = urlsplit(self.base)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=WITHIN_S)
        try:
            connection.request(method, parts.path.rstrip("/") + path, headers=dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.read(MOST_ANSWER_BYTES).decode("utf-8", errors="replace")
        finally:
            connection.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotNoticeSource:
    """A source of notices.

    `fetch`: returns the notice's text, None while there is none. `within_s`: as in SpotNotice.
    """

    cloud: str
    base: str
    within_s: float
    fetch: Callable[[MetadataService], str | None]


@dataclass(slots=True)
class SpotNoticeWatcher:
    """Polls `source` in a separate thread until a notice arrives or `end` is called; no answer means no notice.

    `source`: None for no polling. `notice`: the one received; its reader sets it to None.
    """

    source: SpotNoticeSource | None
    every_s: float = EVERY_S
    notice: SpotNotice | None = None
    _over: threading.Event = field(default_factory=threading.Event)

    def begin(self) -> None:
        """Start polling."""
        if self.source is not None:
            threading.Thread(target=self._run, args=(self.source,), daemon=True, name="spot-notices").start()

    def end(self) -> None:
        """Stop polling."""
        self._over.set()

    def _run(self, source: SpotNoticeSource) -> None:
        service = MetadataService(source.base)
        while not self._over.is_set():
            with suppress(OSError, http.client.HTTPException, ValueError, RecursionError):
                text = source.fetch(service)
                if text is not None:  # once: whoever reads it takes it away
                    self.notice = SpotNotice(source.cloud, text, source.within_s)
                    return
            self._over.wait(self.every_s)
