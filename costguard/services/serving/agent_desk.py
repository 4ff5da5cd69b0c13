"""The watchdog's side of agents: what the door verified is checked against the machines and committed.

    bounds (`door_messages`) -> agent of this ledger -> within the time window -> machine still in the same run
    -> committed with others (`agent_writer`: number rises, not revoked) -> answered with what the guard found last

Nothing here waits: commits are made by the writer's thread, and joins by one of their own.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from secrets import token_hex

from costguard_agent.protocol import WINDOW_MS

from costguard.agents.messages import BROKEN, STALE, TOO_OFTEN, UNKNOWN_AGENT, UNWRITABLE, MessageRefusedError, explain_unbound
from costguard.agents.requests import AgentMachine, AgentVerdict
from costguard.errors import LedgerError
from costguard.guard.context import GuardSnapshot
from costguard.guard.overrides import Override, explain_untouchable, find_lease, find_owner
from costguard.guard.policy_evaluation import compute_burn_rate, matches_target
from costguard.guard.run_facts import LATE_AFTER_RUNS
from costguard.ledger.agents.store import AgentStore
from costguard.metering.observation import identify_incarnation
from costguard.metering.spending import LiveResource
from costguard.services.guarding.guard import GuardRunResult
from costguard.services.guarding.sample_cache import SAMPLES_KEPT_FOR
from costguard.services.guarding.watchdog_context import WatchdogContext
from costguard.services.serving.admission_desk import AdmissionDesk
from costguard.services.serving.agent_writer import AgentBatchWriter, CheckedMessage
from costguard.services.serving.door_messages import (
    AdmitOffer,
    AdmitReply,
    BeatOffer,
    BeatReply,
    HoldEndOffer,
    HoldEndReply,
    JoinOffer,
    JoinReply,
    PersonOffer,
    PersonReply,
    Pulse,
    RunNote,
    unpack_beat,
)
from costguard.services.serving.login_key import open_login_key
from costguard.services.serving.person_acts import PersonActs
from costguard.settings import resolve_ledger_url
from costguard.system.clock import Clock
from costguard.values.agent import Agent
from costguard.values.instant import EPOCH, from_micros, to_micros
from costguard.values.resource import ENDED, ResourceKey

NOTICES_MAX = 4
NO_VERDICT = AgentVerdict()
JOINS_WAIT_MOST = 64
"""Requests to join that may wait for their turn to be written."""
WAITED_MOST = timedelta(seconds=60)
"""How long a message may have been on its way through the door."""
FOREIGN_COUNT_MOST = 10_000
"""Foreign messages of one agent that one Pulse may state."""
END_WAIT_S = 5.0


@dataclass(slots=True, kw_only=True)
class AgentDesk:
    """Takes what the door offers. `machine`: returns the agent's machine; None: it is not listed. `commits`: the writer.

    `acts`: does what people confirmed on a page. `admissions`: takes the holds of runs. `last_run`: of the guard.
    """

    book: AgentStore
    clock: Clock
    machine: Callable[[ResourceKey], AgentMachine | None]
    commits: AgentBatchWriter
    acts: PersonActs
    admissions: AdmissionDesk
    last_run: RunNote = field(default_factory=RunNote)
    _judged: Mapping[ResourceKey, AgentVerdict] = field(default_factory=dict)
    _judged_until: datetime = EPOCH
    _agents: dict[str, Agent] = field(default_factory=dict)
    _joins: queue.Queue[tuple[JoinOffer, Callable[[JoinReply], object]] | None] = field(
        default_factory=lambda: queue.Queue(maxsize=JOINS_WAIT_MOST)
    )
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the threads that let agents join, do what people confirmed, and take holds."""
        self.acts.start()
        self.admissions.start()
        self._thread = threading.Thread(target=self._write_joins, name="joins", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Let no more agents join, do nothing more for people, and take no more holds."""
        self.acts.end()
        self.admissions.end()
        self._joins.put(None)
        if self._thread is not None:
            self._thread.join(END_WAIT_S)

    def update_verdicts(self, judged: Mapping[ResourceKey, AgentVerdict], until: datetime) -> None:
        """Use the results of the last guard run until `until`, when the next one is overdue; then the verdict is unknown.

        Otherwise a dead-man switch would use results of a guard that hangs for a machine that has been protected since.
        """
        self._judged, self._judged_until = judged, until

    def take_pulse(self, pulse: Pulse) -> RunNote:
        """Count messages with foreign signatures for the audit, and return the last run."""
        for agent_id, count in pulse.foreign:
            agent = self._find_agent(agent_id)
            if agent is not None:
                self.commits.count_foreign(agent, min(count, FOREIGN_COUNT_MOST))
        return self.last_run

    def take_beat(self, offer: BeatOffer, answer: Callable[[BeatReply], object]) -> None:
        """Have a beat committed, and call `answer` with what became of it: at once if it is refused, else after the commit."""
        try:
            checked = self.check_beat(offer)
            commit = self.commits.submit(checked)
        except MessageRefusedError as refused:
            answer(BeatReply(refused.name, refused.says, refused.wait_s))
        except LedgerError:
            answer(BeatReply(UNWRITABLE, wait_s=5))
        else:
            commit.add_done_callback(lambda future: answer(self._build_reply(checked, future)))

    def check_beat(self, offer: BeatOffer) -> CheckedMessage:
        """Return the message of an offer, not committed yet. Raises MessageRefusedError if its agent may not send it now."""
        agent = self._find_agent(offer.agent)
        if agent is None:
            raise MessageRefusedError(UNKNOWN_AGENT)
        now = self.clock.now()
        came_at = from_micros(offer.came_us)
        came_at = came_at if now - WAITED_MOST <= came_at <= now else now
        if abs(offer.sent_ms - to_micros(came_at) // 1000) > WINDOW_MS:
            raise MessageRefusedError(STALE)
        machine = self.machine(agent.key)
        refused = explain_unbound(agent, machine.life if machine else None)
        if refused or machine is None:
            self._forget(agent.id)
            raise MessageRefusedError(refused)
        beat = unpack_beat(offer)
        return CheckedMessage(agent=agent, machine=machine, seq=offer.seq, sent_ms=offer.sent_ms, came_at=came_at, beat=beat)

    def take_join(self, offer: JoinOffer, answer: Callable[[JoinReply], object]) -> None:
        """Let an agent join when its turn comes, and call `answer` with what became of it."""
        try:
            self._joins.put_nowait((offer, answer))
        except queue.Full:
            answer(JoinReply(TOO_OFTEN, "too many agents are joining: try again in a few seconds", 5))

    def take_act(self, offer: PersonOffer, answer: Callable[[PersonReply], object]) -> None:
        """Have a stop or an answer done when its turn comes, and call `answer` with what became of it."""
        self.acts.take(offer, answer)

    def take_admission(self, offer: AdmitOffer | HoldEndOffer, answer: Callable[[AdmitReply | HoldEndReply], object]) -> None:
        """Take a hold, or end one, when its turn comes, and call `answer` with what became of it."""
        self.admissions.take(offer, answer)

    def join(self, offer: JoinOffer) -> JoinReply:
        """Let an agent join; the reply follows the commit."""
        none = ResourceKey("", "", "", "")
        agent = Agent(id=token_hex(8), key=none, public_key=offer.public_key, joined_at=self.clock.now(), version=offer.version)
        try:
            result = self.book.join(offer.code_hash, agent)
        except LedgerError:
            return JoinReply(UNWRITABLE, wait_s=5)
        except Exception as error:  # noqa: BLE001 - whatever it is, who waits for an answer gets one, and the thread goes on
            self.commits.broke = f"{type(error).__name__}: {error}"
            return JoinReply(BROKEN)
        if isinstance(result, str):
            return JoinReply(result)
        with self._lock:
            self._agents = {name: one for name, one in self._agents.items() if one.key != result.key} | {result.id: result}
        machine = self.machine(result.key)
        return JoinReply(agent=result.id, name=(machine.name if machine else "") or result.key.id)

    def _write_joins(self) -> None:
        while (one := self._joins.get()) is not None:
            offer, answer = one
            answer(self.join(offer))

    def _build_reply(self, checked: CheckedMessage, future: Future[Mapping[str, str]]) -> BeatReply:
        failed = future.exception()
        if isinstance(failed, MessageRefusedError):
            self._forget(checked.agent.id)
            return BeatReply(failed.name, failed.says, failed.wait_s)
        if failed is not None:
            return BeatReply(BROKEN)
        verdict = self._judged.get(checked.agent.key, NO_VERDICT) if self.clock.now() <= self._judged_until else NO_VERDICT
        return BeatReply(
            asked=dict(future.result()),
            state=verdict.state,
            notices=list(verdict.notices),
            kept_us=0 if verdict.kept_until is None else to_micros(verdict.kept_until),
            protected=verdict.protected,
        )

    def _find_agent(self, agent_id: str) -> Agent | None:
        with self._lock:
            cached_agent = self._agents.get(agent_id)
        agent = cached_agent or self.book.load_agent(agent_id)
        if cached_agent is None and agent is not None:
            with self._lock:
                self._agents[agent_id] = agent
        return agent

    def _forget(self, agent_id: str) -> None:
        """Drop this agent from the cache: it may be revoked."""
        with self._lock:
            self._agents.pop(agent_id, None)


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
        observation = listed or (live.observation if live else None)
        if (
            observation is None
            or observation.state == ENDED
            or (live is not None and live.absent_at is not None and listed is None)
        ):
            return None
        rules = self.room.guard.rules
        owner = find_owner(observation, rules.owner_from)
        return AgentMachine(
            life=identify_incarnation(observation),
            name=observation.name,
            first_seen_at=live.first_seen_at if live else self.room.clock.now(),
            policies=[policy for policy in rules.policies if matches_target(policy.target, observation, owner)],
            rate=compute_burn_rate(live, self.room.clock.now()) if live else None,
        )


OpenDoor = Callable[[WatchdogContext, AgentDesk], AbstractContextManager[object]]
"""Opens what speaks HTTP, and hands over what it takes to the desk."""


@contextmanager
def serve_while_watching(room: WatchdogContext, open_door: OpenDoor | None, *, config: str | None = None) -> Iterator[None]:
    """Take agents' messages and people's stops from the door while the block runs, if the settings state an address.

    `config`: the settings file as it was stated.
    """
    if open_door is None or room.settings.web.listen is None:
        yield
        return
    with AgentStore(resolve_ledger_url(room.settings)) as book:
        with room.guard.books() as books:
            machines = ListedMachines(room)
            machines.update(tuple(books.load_live(room.clock.now())))
        commits = AgentBatchWriter(book=book, heard=room.heard, clock=room.clock, interval=room.guard.rules.interval)
        acts = PersonActs(url=resolve_ledger_url(room.settings), config=config, key_file=room.settings.web.key_file)
        admissions = AdmissionDesk(settings=lambda: room.settings)
        open_login_key(acts.url, acts.key_file)  # made now, while only people have written tokens
        desk = AgentDesk(
            book=book,
            clock=room.clock,
            machine=machines.find_machine,
            commits=commits,
            acts=acts,
            admissions=admissions,
        )
        commits.start()
        desk.start()
        room.after_run = partial(_spread_run, room, machines, desk)
        try:
            with open_door(room, desk):
                yield
        finally:
            room.after_run = None
            desk.end()
            commits.end()


def _spread_run(room: WatchdogContext, machines: ListedMachines, desk: AgentDesk, guarded: GuardRunResult) -> None:
    """Tell the desk of a run."""
    interval = room.guard.rules.interval
    desk.commits.interval = interval
    room.heard.kept = max(SAMPLES_KEPT_FOR, 2 * interval)
    room.heard.forget(guarded.at)
    if guarded.sight is None:
        return
    machines.update(guarded.sight.live)
    desk.update_verdicts(_build_agent_verdicts(guarded, room.guard.rules.protect), guarded.at + LATE_AFTER_RUNS * interval)
    desk.last_run = RunNote(to_micros(guarded.at), guarded.committed)


def _build_agent_verdicts(guarded: GuardRunResult, protect: Sequence[str]) -> dict[ResourceKey, AgentVerdict]:
    """Return the data sent to each machine's agent."""
    snapshot, survey = guarded.sight, guarded.survey
    if snapshot is None or survey is None:
        return {}
    alerts = dict[str, list[str]]()
    for notice in guarded.notices:
        alerts.setdefault(notice.subject, []).append(notice.what)
    return {
        key: AgentVerdict(
            state=survey.works[key].state if key in survey.works else "unknown",
            notices=tuple(alerts.get("/".join(key), ())[:NOTICES_MAX]),
            kept_until=_find_lease_end(one, guarded.at, snapshot.wishes),
            protected=_is_untouchable(one, guarded.at, snapshot, protect),
        )
        for one in snapshot.live
        for key in (one.observation.key,)
    }


def _is_untouchable(live: LiveResource, now: datetime, snapshot: GuardSnapshot, protect: Sequence[str]) -> bool:
    """Return whether only a person may stop it."""
    sighting = snapshot.protections.get(live.observation.key)
    return bool(explain_untouchable(live.observation, snapshot.wishes, protect, sighting.at if sighting else None, now))


def _find_lease_end(live: LiveResource, now: datetime, overrides: tuple[Override, ...]) -> datetime | None:
    lease = find_lease(identify_incarnation(live.observation), overrides, now)
    return lease.until if lease else None
