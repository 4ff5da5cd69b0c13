"""Launch times of instances, from the audit log: its lines are joined by the id at the end of each resource name.

The listing states no time, so a machine that existed before costguard can only be dated by the log. It is read in sweeps: first
the last `RECENT`; if an instance stays undated, all of it; from then on only new lines. A poll in which every instance is dated
sends no request.

The names of the actions are not in Lambda's spec. A line that mentions making or launching dates the launch; without one the
earliest line of the whole log does, because the machine existed by then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from costguard.errors import ForbiddenError, ProviderError
from costguard.providers.ports import Cache
from costguard.providers.transport import Deadline
from costguard.values.instant import parse_instant
from costguard_lambda.wire import AuditEvent, ItemPage

RECENT = timedelta(days=7)
OVERLAP = timedelta(minutes=15)
"""Lines may be late: each sweep begins so long before the last one did."""
PAGES = 10
"""Of one poll, at one a second; the rest is read by the next."""
PATIENCE = timedelta(minutes=15)
"""An instance that the log has not named for so long is no longer looked for."""
FORBIDDEN_FOR = timedelta(hours=1)
LONGEST_S = 20.0
"""Seconds of a poll that the log may take: what runs is known by then, and matters more."""
KEPT = timedelta(days=90)
MADE = ("creat", "launch", "provision")
"""In the action of a line that dates a launch: an assumption, 2026-11 (the spec's example of an action is "created")."""

Ask = Callable[[datetime | None, str], ItemPage[AuditEvent]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLine:
    """One log line about one instance."""

    id: str
    at: datetime
    made: bool


@dataclass(slots=True, kw_only=True)
class _Sweep:
    """One reading of the log, over as many polls as needed.

    `start`: None for the log's beginning. `lead`: the token of the next page.
    """

    start: datetime | None
    began: datetime
    lead: str = ""


def parse_audit_lines(event: AuditEvent) -> list[AuditLine]:
    """Return the instances of `event`; none if it is about another kind of resource, or its time cannot be read."""
    at = parse_instant(event.event_time)
    if at is None or event.resource_name not in ("instance", None):
        return []
    is_launch = any(word in (event.action or "").lower() for word in MADE)
    lrns = [lrn.split(":") for lrn in event.resource_lrns or ()]
    return [AuditLine(id=parts[-1], at=at, made=is_launch) for parts in lrns if parts[-2:-1] == ["instance"] and parts[-1]]


class LaunchTimes:
    """The launch times read from the log so far.

    `name`: of the cache entry that keeps them between starts.
    """

    def __init__(self, cache: Cache, name: str) -> None:
        self._cache, self._name = cache, name
        self.dated: dict[str, datetime] | None = None
        self.owner: str | None = None
        """The account that owns what the log is about, by Lambda's name; None: not told so far."""
        self._earliest: dict[str, datetime] = {}
        self._wanted_since: dict[str, datetime] = {}
        self._sweep: _Sweep | None = None
        self._read_until: datetime | None = None
        self._whole = False
        self._forbidden_until: datetime | None = None

    def learn(self, ids: Collection[str], ask: Ask, now: datetime, deadline: Deadline) -> str:
        """Date those of `ids` that are undated; returns "" or why that failed."""
        dated = self.list_dated(now)
        dated_count = len(dated)
        undated_ids = self._list_wanted(ids, now)
        if not undated_ids:
            return ""
        try:
            self._read_log(undated_ids, ask, now, deadline)
        except ForbiddenError:
            self._forbidden_until = now + FORBIDDEN_FOR
        except ProviderError as broken:
            return f"the audit log cannot be read, so launches are not dated: {broken.what}"
        if len(dated) > dated_count:
            self._save(ids)
        if self._forbidden_until and now < self._forbidden_until:
            return "this key may not read the audit log: instances count from when they were first seen"
        return ""

    def list_dated(self, now: datetime) -> dict[str, datetime]:
        """Return the known launch times by instance id, those of earlier processes included."""
        if self.dated is None:
            self.dated = _parse_saved(self._cache.get(self._name, now - KEPT))
        return self.dated

    def _list_wanted(self, ids: Collection[str], now: datetime) -> set[str]:
        """Return the undated ids that the log may still contain."""
        undated = set(ids) - self.list_dated(now).keys()
        self._wanted_since = {id_: self._wanted_since.get(id_, now) for id_ in undated}
        if not self._whole or self._sweep:
            return undated
        return {id_ for id_ in undated if now - self._wanted_since[id_] < PATIENCE}

    def _read_log(self, undated_ids: set[str], ask: Ask, now: datetime, deadline: Deadline) -> None:
        """Read the log until all ids are dated, it is read completely, or this poll's limit is reached."""
        if self._forbidden_until and now < self._forbidden_until:
            return
        for _ in range(PAGES):
            if deadline.compute_left() <= 0:
                return
            sweep = self._sweep = self._sweep or self._find_next_sweep(now)
            page = ask(sweep.start, sweep.lead)
            self._take_page(page)
            looped, sweep.lead = page.token == sweep.lead, page.token
            if not page.token or looped:
                self._end_sweep(sweep, undated_ids)
                if self._whole or undated_ids <= self.list_dated(now).keys():
                    return

    def _find_next_sweep(self, now: datetime) -> _Sweep:
        if self._read_until is None:
            return _Sweep(start=now - RECENT, began=now)
        new_is_read = self._read_until >= now
        return _Sweep(start=None if new_is_read and not self._whole else self._read_until - OVERLAP, began=now)

    def _take_page(self, page: ItemPage[AuditEvent]) -> None:
        dated = self.dated if self.dated is not None else {}
        for event in page.items:
            if event.resource_owner_lrn and ":account:" in event.resource_owner_lrn:
                self.owner = self.owner or event.resource_owner_lrn
            for line in parse_audit_lines(event):
                self._earliest[line.id] = min(line.at, self._earliest.get(line.id, line.at))
                if line.made:
                    dated[line.id] = min(line.at, dated.get(line.id, line.at))

    def _end_sweep(self, sweep: _Sweep, undated_ids: set[str]) -> None:
        """End a sweep; one from the log's beginning dates the ids without a launch line by their earliest line."""
        self._sweep, self._read_until = None, max(sweep.began, self._read_until or sweep.began)
        self._whole = self._whole or sweep.start is None
        if self._whole and self.dated is not None:
            for id_ in undated_ids & self._earliest.keys():
                self.dated.setdefault(id_, self._earliest[id_])
        self._earliest = {} if self._whole else self._earliest

    def _save(self, ids: Collection[str]) -> None:
        """Store the launch times of the instances that exist now."""
        times = {id_: at.isoformat() for id_, at in sorted((self.dated or {}).items()) if id_ in ids}
        self._cache.put(self._name, json.dumps(times).encode())


def _parse_saved(data: bytes | None) -> dict[str, datetime]:
    """Parse the stored times; unreadable ones are left out."""
    try:
        times = json.loads(data or b"{}")
    except ValueError:
        return {}
    pairs = times.items() if isinstance(times, Mapping) else ()
    return {str(id_): at for id_, value in pairs if (at := parse_instant(value)) is not None}
