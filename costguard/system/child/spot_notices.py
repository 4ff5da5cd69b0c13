"""Spot notices: a provider states on the machine itself that it is about to take the machine away.

Where it says so, and how early, stands in the plug-in (`MachineTraits`, `fetch_spot_notice`): AWS two minutes ahead, GCP about
30 s, both on their metadata service. This module asks every five seconds, with a bound on time and bytes.
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
    """`cloud` will take the machine away. `text`: its words. `within_s`: seconds that are left, as a rule."""

    cloud: str
    text: str
    within_s: float


@dataclass(slots=True)
class MetadataService:
    """The metadata service at `base`, asked without a proxy and without redirects. `token`: of its session, if any."""

    base: str
    token: str = ""

    def send(self, path: str, headers: Mapping[str, str], method: str = "GET") -> tuple[int, str]:
        """The status and the first bytes of the body; OSError or HTTPException where there is no answer within two seconds."""
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
    """Who is asked for notices. `fetch`: the notice's text, None while there is none. `within_s`: as in SpotNotice."""

    cloud: str
    base: str
    within_s: float
    fetch: Callable[[MetadataService], str | None]


@dataclass(slots=True)
class SpotNoticeWatcher:
    """Asks `source` in a thread of its own, until there is a notice or `end` is called. No answer means no notice.

    `source`: None asks nobody. `notice`: the one that came; whoever reads it sets it to None.
    """

    source: SpotNoticeSource | None
    every_s: float = EVERY_S
    notice: SpotNotice | None = None
    _over: threading.Event = field(default_factory=threading.Event)

    def begin(self) -> None:
        """Ask from now on."""
        if self.source is not None:
            threading.Thread(target=self._run, args=(self.source,), daemon=True, name="spot-notices").start()

    def end(self) -> None:
        """Ask no more."""
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
