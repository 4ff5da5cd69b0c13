"""What the watchdog answers over HTTP, put together: the desk where agents report, the board that readers read, who may read.

The rooms above hand in `serve`: this room knows no HTTP, and whoever serves knows no ledger.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from hashlib import sha256
from pathlib import Path

from costguard.agents.refusals import NO_TOKEN, NOT_READY, MessageRefusedError
from costguard.errors import LedgerError
from costguard.guard.action_intents import OPEN_STATES
from costguard.guard.context import GuardSnapshot
from costguard.guard.facts import compute_burn_rate
from costguard.guard.overrides import Override
from costguard.guard.owning import explain_untouchable, find_lease, find_owner
from costguard.guard.policy_evaluation import matches_target
from costguard.ledger.agents.store import AgentStore
from costguard.ledger.db.address import parse_ledger_address
from costguard.metering.observation import identify_incarnation
from costguard.metering.spending import LiveResource
from costguard.reporting.beside import annotate_resources
from costguard.services.agent_gateway import Desk
from costguard.services.agent_writer import Commits
from costguard.services.agents import AgentMachine, AgentVerdict, Seal
from costguard.services.guard import Guarded
from costguard.services.heard import KEPT
from costguard.services.one_time import token_hash
from costguard.services.status import status
from costguard.services.watchdog_context import Room
from costguard.settings import Settings, WebSettings, get_data_path, resolve_ledger_url
from costguard.values.agent import WebToken, is_token_valid
from costguard.values.resource import ENDED, ResourceKey
from costguard.views.status import build_status_document

LATE_RUNS = 3
"""A guard whose last run is older than so many intervals is late."""
NOTICES_MOST = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What is served. `desk`: made with whoever signs. `health`: seconds since the last committed run, and if that is late."""

    web: WebSettings
    key_file: Path
    desk: Callable[[Seal], Desk]
    board: Board
    reader: Callable[[str], WebToken]
    health: Callable[[], tuple[float | None, bool]]


Serve = Callable[[Parts], AbstractContextManager[object]]


class Board:
    """The status of the last run of the guard as one text, worked out once a run for all readers.

    While somebody reads it is made at the end of a run, and whoever asks meanwhile has the one before; else when it is asked.
    """

    def __init__(self, room: Room) -> None:
        self._room, self._lock = room, threading.Lock()
        self._latest: Guarded | None = None
        self._made: tuple[Guarded, bytes, str] | None = None
        self._read = self._making = False

    def judged(self, guarded: Guarded) -> None:
        """Go on with what the guard has just found."""
        self._making, self._read = self._read and self._made is not None, False
        self._latest = guarded
        if self._making:
            with suppress(LedgerError):  # then whoever asks next is told
                self._make()
            self._making = False

    def read(self) -> tuple[bytes, str]:
        """The status as `costguard status --json` prints it, and a mark of it. RefusedError before the first run."""
        self._read, made = True, self._made
        if made is None or not (self._making or made[0] is self._latest):
            made = self._make()
        return made[1], made[2]

    def _make(self) -> tuple[Guarded, bytes, str]:
        with self._lock:
            latest = self._latest
            if latest is None or latest.sight is None or latest.survey is None:
                raise MessageRefusedError(NOT_READY, wait_s=5)
            if self._made is None or self._made[0] is not latest:
                text = _status_text(self._room, latest)
                self._made = latest, text, sha256(text).hexdigest()[:32]
            return self._made


@dataclass(slots=True)
class Machines:
    """The machines as last listed, by key: what agents are held against. Before the first run, as the ledger has them."""

    room: Room
    _live: Mapping[ResourceKey, LiveResource] = field(default_factory=dict)

    def judged(self, live: tuple[LiveResource, ...]) -> None:
        """Go on with what the guard has just read."""
        self._live = {one.observation.key: one for one in live}

    def of(self, key: ResourceKey) -> AgentMachine | None:
        """The machine of this key; None where it is not there."""
        live, listed = self._live.get(key), self.room.listed(key)
        seen = listed or (live.observation if live else None)
        if seen is None or seen.state == ENDED or (live is not None and live.absent_at is not None and listed is None):
            return None
        rules = self.room.guard.rules
        owner = find_owner(seen, rules.owner_from)
        return AgentMachine(
            life=identify_incarnation(seen),
            name=seen.name,
            first_seen_at=live.first_seen_at if live else self.room.clock.now(),
            policies=[policy for policy in rules.policies if matches_target(policy.target, seen, owner)],
            rate=compute_burn_rate(live, self.room.clock.now()) if live else None,
        )


@contextmanager
def serving(room: Room, serve: Serve | None) -> Iterator[None]:
    """Answer agents and readers for as long as the block runs, where the settings say at which address."""
    if serve is None or room.settings.web.listen is None:
        yield
        return
    with AgentStore(resolve_ledger_url(room.settings)) as book:
        with room.guard.books() as books:
            machines, board = Machines(room), Board(room)
            machines.judged(tuple(books.load_live(room.clock.now())))
        commits = Commits(book=book, heard=room.heard, clock=room.clock, interval=room.guard.rules.interval)
        desks = list[Desk]()

        def desk(seal: Seal) -> Desk:
            made = Desk(book=book, seal=seal, clock=room.clock, machine=machines.of, heard=room.heard, commits=commits)
            desks.append(made)
            return made

        def judged(guarded: Guarded) -> None:
            commits.interval = room.guard.rules.interval
            room.heard.kept = max(KEPT, 2 * commits.interval)
            room.heard.forget(guarded.at)
            if guarded.sight is None:
                return
            machines.judged(guarded.sight.live)
            board.judged(guarded)
            for one in desks:
                one.judged(_judged(guarded, room.guard.rules.protect), guarded.at + LATE_RUNS * room.guard.rules.interval)

        parts = Parts(
            web=room.settings.web,
            key_file=key_file(room.settings),
            desk=desk,
            board=board,
            reader=partial(_reader, book, room),
            health=partial(_health, room),
        )
        commits.start()
        room.after_run = judged
        try:
            with serve(parts):
                yield
        finally:
            room.after_run = None
            commits.end()


def key_file(settings: Settings) -> Path:
    """Where the key is kept that answers to agents are signed with: as stated, or beside the ledger."""
    if settings.web.key_file is not None:
        return Path(settings.web.key_file)
    where = parse_ledger_address(resolve_ledger_url(settings))
    server = get_data_path(f"web-{sha256(where.shown.encode()).hexdigest()[:16]}.key")
    return Path(server) if where.path is None else where.make_sibling_path(".web-key")


def _reader(book: AgentStore, room: Room, token: str) -> WebToken:
    """Whose `token` is; RefusedError where it lets nobody in."""
    found = book.load_token(token_hash(token)) if token else None
    if found is None or not is_token_valid(found, room.clock.now()):
        raise MessageRefusedError(NO_TOKEN)
    return found


def _health(room: Room) -> tuple[float | None, bool]:
    if room.committed_at is None:
        return None, True
    age_s = max(0.0, (room.clock.now() - room.committed_at).total_seconds())
    return age_s, age_s > LATE_RUNS * room.guard.rules.interval.total_seconds()


def _judged(guarded: Guarded, protect: Sequence[str]) -> dict[ResourceKey, AgentVerdict]:
    """What each machine's agent is told."""
    sight, survey = guarded.sight, guarded.survey
    if sight is None or survey is None:
        return {}
    told = dict[str, list[str]]()
    for notice in guarded.notices:
        told.setdefault(notice.subject, []).append(notice.what)
    return {
        key: AgentVerdict(
            state=survey.works[key].state if key in survey.works else "unknown",
            notices=tuple(told.get("/".join(key), ())[:NOTICES_MOST]),
            kept_until=_kept_until(one, guarded.at, sight.wishes),
            protected=_untouchable(one, guarded.at, sight, protect),
        )
        for one in sight.live
        for key in (one.observation.key,)
    }


def _untouchable(live: LiveResource, now: datetime, sight: GuardSnapshot, protect: Sequence[str]) -> bool:
    """Whether only a person may end it."""
    before = sight.protections.get(live.observation.key)
    return bool(explain_untouchable(live.observation, sight.wishes, protect, before.at if before else None, now))


def _kept_until(live: LiveResource, now: datetime, wishes: tuple[Override, ...]) -> datetime | None:
    lease = find_lease(identify_incarnation(live.observation), wishes, now)
    return lease.until if lease else None


def _status_text(room: Room, guarded: Guarded) -> bytes:
    from costguard.providers.plugins import load_renderer

    sight, survey, settings = guarded.sight, guarded.survey, room.settings
    assert sight is not None  # noqa: S101 - asked by the caller
    assert survey is not None  # noqa: S101 - asked by the caller
    rules = room.guard.rules
    with room.guard.books() as books:
        found = status(
            books=books,
            budgets=rules.budgets,
            holds=room.guard.holds(guarded.at),
            now=guarded.at,
            zone=rules.zone,
            intents=[one for one in guarded.intents if one.state in OPEN_STATES],
            balances=sight.balances,
            live=sight.live,
            beside=lambda _: annotate_resources(rules, sight, survey.works),
            overshoots=lambda *_: {one.standing.budget.name: one.overshoot for one in survey.foresights},
        )
    document = build_status_document(found, (), room.audit_head(), settings.display.find_exchange(guarded.at))
    return load_renderer("json")(document).encode()
