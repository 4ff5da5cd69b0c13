"""Services of the watchdog's HTTP server: the agents' gateway, the status board, and the authorization of readers.

The `web` package passes in `serve`: services do not import HTTP, and the server does not import the ledger.
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
from typing import TYPE_CHECKING

from costguard.agents.messages import NO_TOKEN, NOT_READY, MessageRefusedError
from costguard.agents.requests import AgentMachine, AgentVerdict
from costguard.errors import LedgerError
from costguard.guard.action_intents import OPEN_STATES
from costguard.guard.context import GuardSnapshot
from costguard.guard.overrides import Override, explain_untouchable, find_lease, find_owner
from costguard.guard.policy_evaluation import compute_burn_rate, matches_target
from costguard.ledger.agents.store import AgentStore
from costguard.ledger.db.address import parse_ledger_address
from costguard.metering.observation import identify_incarnation
from costguard.metering.spending import LiveResource
from costguard.reporting.status import annotate_resources
from costguard.services.agent_gateway import AgentGateway, hash_token
from costguard.services.agent_writer import SAMPLES_KEPT_FOR, AgentBatchWriter
from costguard.services.guard import GuardRunResult
from costguard.services.ports import Seal
from costguard.services.status import build_status
from costguard.services.watchdog_context import WatchdogContext
from costguard.settings import Settings, WebSettings, get_data_path, resolve_ledger_url
from costguard.values.agent import WebToken, is_token_valid
from costguard.values.resource import ENDED, ResourceKey
from costguard.views.status import build_status_document

if TYPE_CHECKING:  # a type and no more: it imports what builds a plan
    from costguard.services.web_pages import PageServices

LATE_AFTER_RUNS = 3
"""A guard whose last run is older than so many intervals is late."""
NOTICES_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class WebServices:
    """The parts to be served. `desk`: builds the gateway for a signer.

    `health`: seconds since the last committed run, and whether it is late. `pages`: None: no pages are served.
    """

    web: WebSettings
    key_file: Path
    desk: Callable[[Seal], AgentGateway]
    board: StatusBoard
    reader: Callable[[str], WebToken]
    health: Callable[[], tuple[float | None, bool]]
    pages: PageServices | None = None


ServeWeb = Callable[[WebServices], AbstractContextManager[object]]


class StatusBoard:
    """The status after the last guard run as one text, built once a run for all readers.

    While it is read regularly it is built at the end of each run, and readers get the previous one meanwhile; else it is built
    on request.
    """

    def __init__(self, room: WatchdogContext) -> None:
        self._room, self._lock = room, threading.Lock()
        self._latest: GuardRunResult | None = None
        self._made: tuple[GuardRunResult, bytes, str] | None = None
        self._read = self._making = False

    def update(self, guarded: GuardRunResult) -> None:
        """Use the result of the latest guard run."""
        self._making, self._read = self._read and self._made is not None, False
        self._latest = guarded
        if self._making:
            with suppress(LedgerError):  # then whoever asks next is told
                self._render()
            self._making = False

    def read(self) -> tuple[bytes, str]:
        """Return the status as `costguard status --json` prints it, and its hash.

        Raises MessageRefusedError before the first run.
        """
        self._read, made = True, self._made
        if made is None or not (self._making or made[0] is self._latest):
            made = self._render()
        return made[1], made[2]

    def _render(self) -> tuple[GuardRunResult, bytes, str]:
        with self._lock:
            latest = self._latest
            if latest is None or latest.sight is None or latest.survey is None:
                raise MessageRefusedError(NOT_READY, wait_s=5)
            if self._made is None or self._made[0] is not latest:
                text = _render_status(self._room, latest)
                self._made = latest, text, sha256(text).hexdigest()[:32]
            return self._made


@dataclass(slots=True)
class ListedMachines:
    """The machines as last listed, by key, for the checks of agents; before the first run those of the ledger."""

    room: WatchdogContext
    _live: Mapping[ResourceKey, LiveResource] = field(default_factory=dict)

    def update(self, live: tuple[LiveResource, ...]) -> None:
        """Use the resources of the latest guard run."""
        self._live = {one.observation.key: one for one in live}

    def find_machine(self, key: ResourceKey) -> AgentMachine | None:
        """Return the machine of this key; None if it is not listed."""
        live, listed = self._live.get(key), self.room.find_listed(key)
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
def serve_while_watching(room: WatchdogContext, serve: ServeWeb | None, *, config: str | None = None) -> Iterator[None]:
    """Serve agents and readers while the block runs, if the settings state an address."""
    if serve is None or room.settings.web.listen is None:
        yield
        return
    with AgentStore(resolve_ledger_url(room.settings)) as book:
        with room.guard.books() as books:
            machines, board = ListedMachines(room), StatusBoard(room)
            machines.update(tuple(books.load_live(room.clock.now())))
        commits = AgentBatchWriter(book=book, heard=room.heard, clock=room.clock, interval=room.guard.rules.interval)
        desks = list[AgentGateway]()

        def desk(seal: Seal) -> AgentGateway:
            made = AgentGateway(
                book=book, seal=seal, clock=room.clock, machine=machines.find_machine, heard=room.heard, commits=commits
            )
            desks.append(made)
            return made

        def judged(guarded: GuardRunResult) -> None:
            commits.interval = room.guard.rules.interval
            room.heard.kept = max(SAMPLES_KEPT_FOR, 2 * commits.interval)
            room.heard.forget(guarded.at)
            if guarded.sight is None:
                return
            machines.update(guarded.sight.live)
            board.update(guarded)
            for one in desks:
                one.update_verdicts(
                    _build_agent_verdicts(guarded, room.guard.rules.protect),
                    guarded.at + LATE_AFTER_RUNS * room.guard.rules.interval,
                )

        parts = WebServices(
            web=room.settings.web,
            key_file=find_key_file(room.settings),
            desk=desk,
            board=board,
            reader=partial(_authorize_reader, book, room),
            health=partial(_check_health, room),
            pages=_build_pages(room, config),
        )
        commits.start()
        room.after_run = judged
        try:
            with serve(parts):
                yield
        finally:
            room.after_run = None
            commits.end()


def _build_pages(room: WatchdogContext, config: str | None) -> PageServices:
    from costguard.services.web_pages import PageServices

    web = room.settings.web
    return PageServices(config=config, secure=web.tls_cert is not None or web.behind_proxy is not None)


def find_key_file(settings: Settings) -> Path:
    """Return the file of the key that signs answers to agents: as stated, or beside the ledger."""
    if settings.web.key_file is not None:
        return Path(settings.web.key_file)
    where = parse_ledger_address(resolve_ledger_url(settings))
    server = get_data_path(f"web-{sha256(where.shown.encode()).hexdigest()[:16]}.key")
    return Path(server) if where.path is None else where.make_sibling_path(".web-key")


def _authorize_reader(book: AgentStore, room: WatchdogContext, token: str) -> WebToken:
    """Return the record of `token`. Raises MessageRefusedError if it grants no access."""
    found = book.load_token(hash_token(token)) if token else None
    if found is None or not is_token_valid(found, room.clock.now()):
        raise MessageRefusedError(NO_TOKEN)
    return found


def _check_health(room: WatchdogContext) -> tuple[float | None, bool]:
    if room.committed_at is None:
        return None, True
    age_s = max(0.0, (room.clock.now() - room.committed_at).total_seconds())
    return age_s, age_s > LATE_AFTER_RUNS * room.guard.rules.interval.total_seconds()


def _build_agent_verdicts(guarded: GuardRunResult, protect: Sequence[str]) -> dict[ResourceKey, AgentVerdict]:
    """Return the data sent to each machine's agent."""
    sight, survey = guarded.sight, guarded.survey
    if sight is None or survey is None:
        return {}
    told = dict[str, list[str]]()
    for notice in guarded.notices:
        told.setdefault(notice.subject, []).append(notice.what)
    return {
        key: AgentVerdict(
            state=survey.works[key].state if key in survey.works else "unknown",
            notices=tuple(told.get("/".join(key), ())[:NOTICES_MAX]),
            kept_until=_find_lease_end(one, guarded.at, sight.wishes),
            protected=_is_untouchable(one, guarded.at, sight, protect),
        )
        for one in sight.live
        for key in (one.observation.key,)
    }


def _is_untouchable(live: LiveResource, now: datetime, sight: GuardSnapshot, protect: Sequence[str]) -> bool:
    """Return whether only a person may stop it."""
    before = sight.protections.get(live.observation.key)
    return bool(explain_untouchable(live.observation, sight.wishes, protect, before.at if before else None, now))


def _find_lease_end(live: LiveResource, now: datetime, wishes: tuple[Override, ...]) -> datetime | None:
    lease = find_lease(identify_incarnation(live.observation), wishes, now)
    return lease.until if lease else None


def _render_status(room: WatchdogContext, guarded: GuardRunResult) -> bytes:
    from costguard.providers.plugins import load_renderer

    sight, survey, settings = guarded.sight, guarded.survey, room.settings
    assert sight is not None  # noqa: S101 - asked by the caller
    assert survey is not None  # noqa: S101 - asked by the caller
    rules = room.guard.rules
    with room.guard.books() as books:
        found = build_status(
            books=books,
            budgets=rules.budgets,
            holds=room.guard.holds(guarded.at),
            now=guarded.at,
            zone=rules.zone,
            intents=[one for one in guarded.intents if one.state in OPEN_STATES],
            balances=sight.balances,
            unreached=room.list_unreached(),
            live=sight.live,
            beside=lambda _: annotate_resources(rules, sight, survey.works),
            overshoots=lambda *_: {one.standing.budget.name: one.overshoot for one in survey.foresights},
        )
    document = build_status_document(found, (), room.audit_head(), settings.display.find_exchange(guarded.at))
    return load_renderer("json")(document).encode()
