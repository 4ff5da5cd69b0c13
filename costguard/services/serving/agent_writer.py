"""Write agents' messages: one thread, and one transaction for all that arrive within some hundredths of a second.

A message is answered after its commit, so an answered message is never counted twice, even if a process dies. A message that
cannot be written is answered with an error, and nothing of it is stored. The transaction checks that the number rises and that
the agent is not revoked: two watchdogs on one ledger count a message once.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from costguard.agents.messages import BROKEN, DOUBLED, REPLAYED, REVOKED, TOO_OFTEN, UNWRITABLE, AgentBeat, MessageRefusedError
from costguard.agents.requests import AgentMachine, RequestContext, grant_requests
from costguard.agents.samples import TimedRecord, align_records, drop_contradicted_samples, merge_records
from costguard.errors import LedgerError
from costguard.services.guarding.sample_cache import AgentSampleCache
from costguard.system.clock import Clock
from costguard.values.agent import Agent
from costguard.values.instant import EPOCH

if TYPE_CHECKING:  # types and no more
    from costguard.ledger.agents.store import AgentStore, AgentTransaction

BATCH_WAIT_S = 0.06
"""How long the first message of a transaction waits for others."""
BATCH_SIZE_MAX = 500
"""Messages of one transaction; twice as many may wait."""
STARTS_MAX = 16
"""Starts of one agent that are remembered."""
AUDIT_EVERY = timedelta(hours=1)
"""How often the audit is told of messages that were not an agent's own."""
END_WAIT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedMessage:
    """A message that its agent may send. `sent_ms`: by the agent's clock; `came_at`: its arrival, by ours."""

    agent: Agent
    machine: AgentMachine
    seq: int
    sent_ms: int
    came_at: datetime
    beat: AgentBeat


@dataclass(slots=True)
class _AgentState:
    """The data of one agent that is in no sample yet. `record_ms`: the end of its last record that counted.

    `seq`: of its last message here. `starts`: boot ids of its processes in the order of their messages; one that returns after
    another shows that two machines use the same key.
    """

    record_ms: int
    seq: int = 0
    waiting: tuple[TimedRecord, ...] = ()
    fresh: tuple[TimedRecord, ...] = ()
    starts: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class AgentBatchWriter:
    """Writes messages in batches. `interval`: of the guard, the length of one sample. Call `start` first and `end` last."""

    book: AgentStore
    heard: AgentSampleCache
    clock: Clock
    interval: timedelta
    together_s: float = BATCH_WAIT_S
    committed: int = 0
    broke: str = ""
    _queue: queue.Queue[tuple[CheckedMessage, Future[Mapping[str, str]]] | None] = field(
        default_factory=lambda: queue.Queue(maxsize=2 * BATCH_SIZE_MAX)
    )
    _states: dict[str, _AgentState] = field(default_factory=dict)
    _foreign: dict[str, tuple[Agent, int]] = field(default_factory=dict)
    _told: dict[str, datetime] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _thread: threading.Thread | None = None
    _ended: bool = False

    def start(self) -> None:
        """Start the writer thread."""
        self._thread = threading.Thread(target=self._run, name="agents", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Write the waiting messages, and accept no more."""
        self._ended = True
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join(END_WAIT_S)

    def submit(self, incoming: CheckedMessage) -> Future[Mapping[str, str]]:
        """Queue `incoming`; return a future of the answers to its requests, set at commit. Raises MessageRefusedError."""
        if self._ended:
            raise MessageRefusedError(UNWRITABLE, "the watchdog is ending: send it again", wait_s=5)
        answer: Future[Mapping[str, str]] = Future()
        try:
            self._queue.put_nowait((incoming, answer))
        except queue.Full:
            raise MessageRefusedError(TOO_OFTEN, "too many messages wait to be written", wait_s=5) from None
        return answer

    def count_foreign(self, agent: Agent, more: int = 1) -> None:
        """Count messages in the name of `agent` with a foreign signature; they are logged for the audit every AUDIT_EVERY."""
        with self._lock:
            _, count = self._foreign.get(agent.id, (agent, 0))
            self._foreign[agent.id] = (agent, count + more)

    def _run(self) -> None:
        while True:
            with suppress(queue.Empty):
                first = self._queue.get(timeout=1.0)
                if first is None:
                    break
                self._write_batch(self._collect_batch(first))
                continue
            if self._list_due_refusals():
                self._write_batch([])
        left = list[tuple[CheckedMessage, Future[Mapping[str, str]]]]()
        with suppress(queue.Empty):
            while (one := self._queue.get_nowait()) is not None:
                left.append(one)
        self._write_batch(left)

    def _collect_batch(
        self, first: tuple[CheckedMessage, Future[Mapping[str, str]]]
    ) -> list[tuple[CheckedMessage, Future[Mapping[str, str]]]]:
        """Return `first` and the messages that arrive within `together_s` of it."""
        batch, until = [first], time.monotonic() + self.together_s
        with suppress(queue.Empty):
            while len(batch) < BATCH_SIZE_MAX:
                one = self._queue.get(timeout=max(0.0, until - time.monotonic()))
                if one is None:
                    self._queue.put(None)
                    break
                batch.append(one)
        return batch

    def _write_batch(self, batch: list[tuple[CheckedMessage, Future[Mapping[str, str]]]]) -> None:
        """Write one transaction, then set the answers."""
        now, staged = self.clock.now(), dict[str, _AgentState]()
        results = list[Mapping[str, str] | MessageRefusedError]()
        refusals = self._list_due_refusals()
        if not batch and not refusals:
            return
        try:
            with self.book.begin_transaction() as page:
                for incoming, _ in batch:
                    results.append(self._accept_message(page, incoming, staged, now))
                for agent, count in refusals:
                    page.log_refusals(agent, count, now)
        except LedgerError as error:
            self.broke = str(error)
            results = [MessageRefusedError(UNWRITABLE, wait_s=5) for _ in batch]
        except Exception as error:  # noqa: BLE001 - whatever it is, who waits for an answer gets one, and the thread goes on
            self.broke = f"{type(error).__name__}: {error}"
            results = [MessageRefusedError(BROKEN) for _ in batch]
        else:
            self._remember_committed(staged, refusals, now, {one.agent.id: one for one, _ in batch})
        for (_, answer), result in zip(batch, results, strict=True):
            if answer.set_running_or_notify_cancel():
                answer.set_exception(result) if isinstance(result, MessageRefusedError) else answer.set_result(result)

    def _accept_message(
        self, page: AgentTransaction, incoming: CheckedMessage, staged: dict[str, _AgentState], now: datetime
    ) -> Mapping[str, str] | MessageRefusedError:
        agent, beat = incoming.agent, incoming.beat
        state = staged.get(agent.id) or self._states.get(agent.id)
        if state is None:
            stored = page.load_agent(agent.id)
            state = _AgentState(stored.record_ms if stored else 0)
        starts = state.starts if beat.boot_id in ("", *state.starts[-1:]) else (*state.starts, beat.boot_id)[-STARTS_MAX:]
        if starts.count(beat.boot_id) > 1 and incoming.seq > state.seq:
            staged[agent.id] = replace(state, starts=starts, waiting=())
            return MessageRefusedError(DOUBLED)
        records, record_ms = align_records(
            beat.records, after_ms=state.record_ms, sent_ms=incoming.sent_ms, now=incoming.came_at, since=agent.joined_at
        )
        if not page.accept_message(agent.id, incoming.seq, now, record_ms, beat.version, beat.troubles):
            stands = page.load_agent(agent.id)
            return MessageRefusedError(REVOKED if stands is None or stands.revoked_at is not None else REPLAYED)
        merged_samples = merge_records(agent.key, (*state.waiting, *records), self.interval)
        page.record_samples(
            drop_contradicted_samples(merged_samples.samples, self.heard.get_latest_provider_samples(agent.key))
        )
        fresh = (*state.fresh, *records) if agent.id in staged else records
        staged[agent.id] = _AgentState(record_ms, incoming.seq, merged_samples.rest, fresh, starts)
        return self._grant_requests(page, incoming, now) if beat.asks else {}

    @staticmethod
    def _grant_requests(page: AgentTransaction, incoming: CheckedMessage, now: datetime) -> Mapping[str, str]:
        machine = incoming.machine
        answer = grant_requests(
            RequestContext(
                agent=incoming.agent,
                life=machine.life,
                name=machine.name or incoming.agent.key.id,
                wishes=page.load_overrides_since(machine.first_seen_at),
                policies=machine.policies,
                rate=machine.rate,
            ),
            incoming.beat.asks,
            now,
        )
        for override in answer.wishes:
            page.add_override(override)
        return answer.asked

    def _remember_committed(
        self,
        staged: Mapping[str, _AgentState],
        refusals: list[tuple[Agent, int]],
        now: datetime,
        by_id: Mapping[str, CheckedMessage],
    ) -> None:
        """Update the memory after a commit."""
        self.broke, self.committed = "", self.committed + 1
        for agent_id, state in staged.items():
            self.heard.add(by_id[agent_id].agent.key, state.fresh, now)
            state.fresh = ()
            self._states[agent_id] = state
        with self._lock:
            for agent, count in refusals:
                self._told[agent.id] = now
                _, since = self._foreign.pop(agent.id, (agent, count))
                if since > count:
                    self._foreign[agent.id] = (agent, since - count)

    def _list_due_refusals(self) -> list[tuple[Agent, int]]:
        """Return the agents whose foreign messages are due to be logged, with counts."""
        now = self.clock.now()
        with self._lock:
            return [one for name, one in self._foreign.items() if now - self._told.get(name, EPOCH) >= AUDIT_EVERY]
