"""Everything that watching needs, opened once: accounts, the ledger, the guard, the postman; and its jobs for the watchdog."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from costguard.app.clouds import Now, opened, sources_of
from costguard.app.polling import ceilings
from costguard.app.ruling import rules_of
from costguard.app.telling import console, postman, routes_of
from costguard.core.guard.alarms import ledger_unwritable
from costguard.core.guard.notice import FIRST, Message
from costguard.core.guard.sight import Rules
from costguard.core.hold import Hold
from costguard.core.metering.accrued import Accrued
from costguard.core.metering.inventory import Failed, Poll
from costguard.core.metering.observation import Handling
from costguard.core.metering.resource import ResourceKey, ScopeKey
from costguard.core.sample import Sample
from costguard.data import Facts
from costguard.errors import InputError
from costguard.flows.guard import Guard, Guarded, Latest
from costguard.flows.measured import measure
from costguard.flows.poll import ROUND_S, poll
from costguard.flows.round import Polled, Seen
from costguard.flows.tell import Postman
from costguard.ledger.guardbook import GuardBook
from costguard.ledger.holds import open_holds
from costguard.ledger.reader import Reader
from costguard.ledger.reading import Books
from costguard.ledger.writing import Ledger
from costguard.ports import InstanceSource
from costguard.settings import Settings, ledger_url

REPEATED = timedelta(hours=1)
"""How often it is said again that the ledger cannot be written."""


class OneAtATime:
    """The ledger, for jobs that poll side by side."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._lock = ledger, threading.Lock()

    def record(self, polls: Sequence[Poll]) -> Sequence[Accrued]:
        """As the ledger's own."""
        with self._lock:
            return self._ledger.record(polls)

    def suspects(self, poll: Poll) -> Sequence[ResourceKey]:
        """As the ledger's own."""
        with self._lock:
            return self._ledger.suspects(poll)

    def scopes_of(self, provider: str) -> Sequence[ScopeKey]:
        """As the ledger's own."""
        with self._lock:
            return self._ledger.scopes_of(provider)

    def record_samples(self, samples: Sequence[Sample]) -> frozenset[ResourceKey]:
        """As the ledger's own."""
        with self._lock:
            return self._ledger.record_samples(samples)


@dataclass(slots=True, kw_only=True)
class Room:
    """What was opened. `unwritable_since`: since when the guard could not write the ledger, None: it can."""

    settings: Settings
    sources: tuple[InstanceSource, ...]
    ledger: OneAtATime
    guard: Guard
    book: GuardBook
    postman: Postman
    clock: Now
    _handling: dict[ScopeKey, dict[ResourceKey, Handling]] = field(default_factory=dict)
    _sources: dict[ScopeKey, InstanceSource] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _broken_since: datetime | None = None
    _said_at: datetime | None = None

    def poll(self, sources: Sequence[InstanceSource] | None = None) -> Polled:
        """One round over `sources`, None: all, and measures of what runs there. InputError where two accounts are one."""
        limit = min(ROUND_S, max(self.guard.rules.interval.total_seconds(), 10.0))
        polled = poll(self.sources if sources is None else sources, self.ledger, self.clock, limit_s=limit)
        if polled.twins:
            hint = "take one of the two out of the settings: both would be charged"
            raise InputError("; ".join(polled.twins), field="providers", hint=hint)
        with self._lock:
            for one in polled.seen:
                self._remember(one)
        measure(polled.seen, self.ledger, self.clock.now(), limit_s=limit)
        return polled

    def adopt(self, settings: Settings, rules: Rules) -> None:
        """Go on with other settings, of the same accounts and ledger."""
        self.settings, self.guard.rules, self.guard.routes = settings, rules, routes_of(settings)
        self.book.adopt(rules.rails)
        self.postman = postman(settings, self.book, self.clock)

    def latest(self) -> Latest:
        """What the last listings told."""
        with self._lock:
            handling = {key: value for scope in self._handling.values() for key, value in scope.items()}
            return Latest(handling=handling, sources=dict(self._sources))

    def judge(self) -> Guarded:
        """One guard run. That the ledger cannot be written is said on the console, at once and then every hour."""
        guarded = self.guard.run()
        if not guarded.broken:
            self._broken_since = self._said_at = None
            return guarded
        self._broken_since = self._broken_since or guarded.at
        if self._said_at is None or guarded.at - self._said_at >= REPEATED:
            self._said_at = guarded.at
            notice = ledger_unwritable(why=guarded.broken, at=guarded.at, since=self._broken_since)
            console(self.clock)(
                Message(
                    id=f"ledger {guarded.at.isoformat()}",
                    channel="console",
                    why_now=FIRST,
                    severity=notice.severity,
                    title=notice.what,
                    notices=(notice,),
                    at=guarded.at,
                )
            )
        return guarded

    def _remember(self, seen: Seen) -> None:
        self._sources[seen.poll.scope] = seen.source
        if not isinstance(seen.poll.inventory, Failed):
            self._handling[seen.poll.scope] = {item.key: item.handling for item in seen.poll.inventory.items}


@contextmanager
def room(
    settings: Settings,
    *,
    interval: timedelta | None = None,
    dry_run: bool = False,
    resident: bool = False,
    offline: bool = False,
) -> Iterator[Room]:
    """Everything opened, and closed when the block ends. `offline`: no account is asked."""
    url, clock, billing = ledger_url(settings), Now(), Facts().billing_rules()
    rules = rules_of(settings, interval)
    with (
        opened(settings, only=() if offline else None) as clouds,
        Ledger(url, rules=billing, ceilings=ceilings(settings)) as ledger,
        GuardBook(url, rails=rules.rails, rules=billing) as book,
    ):
        made = Room(
            settings=settings,
            sources=sources_of(clouds),
            ledger=OneAtATime(ledger),
            guard=Guard(
                book=book,
                books=partial(Books, url, rules=billing),
                rules=rules,
                latest=Latest,
                clock=clock,
                holder=f"{socket.gethostname()}:{os.getpid()}",
                holds=partial(_holds, url),
                routes=routes_of(settings),
                dry_run=dry_run,
                resident=resident,
            ),
            book=book,
            postman=postman(settings, book, clock),
            clock=clock,
        )
        made.guard.latest = made.latest
        yield made


def _holds(url: str, now: datetime) -> list[Hold]:
    with Reader(url) as reader, reader.snapshot() as ask:
        return open_holds(ask, now)
