"""The gateway where agents join and report. Each refusal has a name and changes nothing.

    signed by its own key -> within the time window -> number rises -> machine still in the same run -> each field checked
    -> committed with others (`agent_writer`) -> cached for rechecks -> answered, signed

An agent can affect its own machine only: its samples, and bounded overrides. Tokens are created here, shown once and stored as
hashes, so that reading the ledger reveals none. cg_4vZ... is a token: 256 bits. Codes are made in `agent_enrolment`.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from secrets import token_hex
from typing import TYPE_CHECKING, NamedTuple

from costguard_agent.protocol import BODY_MOST, EVERY_S, SEQ_MOST, WINDOW_MS, build_signed_request

from costguard import __version__
from costguard.agents.messages import (
    FOREIGN,
    MALFORMED,
    REPLAYED,
    STALE,
    TOO_LARGE,
    UNKNOWN_AGENT,
    UNSIGNED,
    AgentBeat,
    MessageRefusedError,
    explain_unbound,
    parse_beat,
    parse_join_request,
)
from costguard.agents.requests import AgentMachine, AgentVerdict
from costguard.services.agent_enrolment import JoinProof, check_join_proof, hash_code
from costguard.services.agent_writer import AgentBatchWriter, AgentSampleCache, CheckedMessage
from costguard.services.ports import Seal
from costguard.system.clock import Clock
from costguard.values.agent import Agent
from costguard.values.instant import EPOCH, to_micros
from costguard.values.resource import ResourceKey

if TYPE_CHECKING:  # types and no more
    from costguard.ledger.agents.store import AgentStore

JSON_DEPTH_MAX = 8
"""Levels of JSON that a message may have: a beat has four."""
STRINGS, BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL), re.compile(rb"[\[\]{}]")
NUMBER = re.compile(r"\d{1,16}", re.ASCII)
NO_VERDICT, NO_PROOF = AgentVerdict(), JoinProof()


class AgentEnvelope(NamedTuple):
    """A message as received. `seq`, `at`, `signature`: its headers, "" if missing."""

    method: str
    path: str
    agent: str
    seq: str
    at: str
    signature: str
    body: bytes


@dataclass(slots=True, kw_only=True)
class AgentGateway:
    """Lets agents join and handles their messages. `machine`: returns the agent's machine; None: it is not listed.

    `heard`: cache of recent samples. `commits`: the batch writer.
    """

    book: AgentStore
    seal: Seal
    clock: Clock
    machine: Callable[[ResourceKey], AgentMachine | None]
    heard: AgentSampleCache
    commits: AgentBatchWriter
    every_s: int = EVERY_S
    _judged: Mapping[ResourceKey, AgentVerdict] = field(default_factory=dict)
    _judged_until: datetime = EPOCH
    _agents: dict[str, Agent] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def update_verdicts(self, judged: Mapping[ResourceKey, AgentVerdict], until: datetime) -> None:
        """Use the results of the last guard run until `until`, when the next one is overdue; then the verdict is unknown.

        Otherwise a dead-man switch would use results of a guard that hangs for a machine that has been protected since.
        """
        self._judged, self._judged_until = judged, until

    def join(self, body: bytes, proof: JoinProof = NO_PROOF) -> dict[str, object]:
        """Let an agent join, and return the answer to it. Raises MessageRefusedError if its code is not valid."""
        joining = parse_join_request(parse_message_json(body))
        check_join_proof(joining, body, proof, self.seal)
        if not self.seal.is_key(joining.public_key):
            raise MessageRefusedError(MALFORMED, "public_key is not an Ed25519 key: send 32 bytes as base64")
        none = ResourceKey("", "", "", "")
        made = Agent(
            id=token_hex(8), key=none, public_key=joining.public_key, joined_at=self.clock.now(), version=joining.version
        )
        found = self.book.join(hash_code(joining.code), made)
        if isinstance(found, str):
            raise MessageRefusedError(found)
        with self._lock:
            self._agents = {name: one for name, one in self._agents.items() if one.key != found.key} | {found.id: found}
        machine = self.machine(found.key)
        return {
            "agent": found.id,
            "guard_key": self.seal.public_key,
            "every_s": self.every_s,
            "name": (machine.name if machine else "") or found.key.id,
        }

    def check_message(self, envelope: AgentEnvelope) -> CheckedMessage:
        """Return the checked message in `envelope`, not committed yet. Raises MessageRefusedError if it is not allowed."""
        if len(envelope.body) > BODY_MOST:
            raise MessageRefusedError(TOO_LARGE)
        seq, at_ms = _parse_number(envelope.seq), _parse_number(envelope.at)
        if not 0 < seq <= SEQ_MOST or at_ms <= 0 or not envelope.signature:
            raise MessageRefusedError(UNSIGNED)
        agent = self._find_agent(envelope.agent)
        message = build_signed_request(envelope.method, envelope.path, agent=agent.id, seq=seq, at_ms=at_ms, body=envelope.body)
        if not self.seal.verify(agent.public_key, message, envelope.signature):
            self.commits.count_foreign(agent)
            raise MessageRefusedError(FOREIGN)
        now = self.clock.now()
        if abs(at_ms - to_micros(now) // 1000) > WINDOW_MS:
            raise MessageRefusedError(STALE)
        if seq <= agent.seq:
            raise MessageRefusedError(REPLAYED)
        machine = self.machine(agent.key)
        refused = explain_unbound(agent, machine.life if machine else None)
        if refused or machine is None:
            raise MessageRefusedError(refused)
        beat = parse_beat(parse_message_json(envelope.body))
        return CheckedMessage(agent=agent, machine=machine, seq=seq, sent_ms=at_ms, came_at=now, beat=beat)

    def answer(self, incoming: CheckedMessage, asked: Mapping[str, str]) -> dict[str, object]:
        """Return the answer to a committed message. `asked`: request id -> "" or the reason of its refusal."""
        with self._lock:
            known = self._agents.get(incoming.agent.id, incoming.agent)
            self._agents[known.id] = replace(known, seq=max(known.seq, incoming.seq))
        now = self.clock.now()
        said = self._judged.get(incoming.agent.key, NO_VERDICT) if now <= self._judged_until else NO_VERDICT
        return {
            "seq": incoming.seq,
            "every_s": self.every_s,
            "guard_at": to_micros(now) // 1000,
            "state": said.state,
            "notices": [*said.notices, *_list_remarks(incoming.beat)],
            "kept_until": None if said.kept_until is None else to_micros(said.kept_until) // 1000,
            "protected": said.protected,
            "asked": dict(asked),
        }

    def forget(self, agent_id: str) -> None:
        """Drop this agent from the cache: it may be revoked, or have reported to another watchdog."""
        with self._lock:
            self._agents.pop(agent_id, None)

    def is_known(self, agent_id: str) -> bool:
        """Return whether the agent is cached, so that `check_message` needs no read of the ledger, which may be slow."""
        with self._lock:
            return agent_id in self._agents

    def load_agent(self, agent_id: str) -> None:
        """Load this agent from the ledger into the cache. Raises MessageRefusedError if there is none."""
        self._find_agent(agent_id)

    def _find_agent(self, agent_id: str) -> Agent:
        """Return the agent of this id, from the cache or the ledger."""
        with self._lock:
            known = self._agents.get(agent_id)
        found = known or self.book.load_agent(agent_id)
        if found is None:
            raise MessageRefusedError(UNKNOWN_AGENT)
        if known is None:
            with self._lock:
                self._agents[agent_id] = found
        return found


def parse_message_json(body: bytes) -> object:
    """Parse `body` as JSON of at most JSON_DEPTH_MAX levels, each key once, without NaN. Raises MessageRefusedError."""
    depth = deepest = 0
    for bracket in BRACKETS.findall(STRINGS.sub(b"", body)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    if deepest > JSON_DEPTH_MAX:
        raise MessageRefusedError(MALFORMED, f"the message is nested more than {JSON_DEPTH_MAX} levels deep")
    try:
        return json.loads(body.decode("utf-8"), object_pairs_hook=_reject_repeated_keys, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        raise MessageRefusedError(MALFORMED, "the message is not JSON (UTF-8, each key once, no NaN)") from None


def _reject_repeated_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key appears twice")
    return found


def _reject_constant(_: str) -> object:
    raise ValueError("NaN and Infinity are not numbers")


def _parse_number(text: str) -> int:
    """Parse a header as a whole number; -1 if it is none."""
    return int(text) if NUMBER.fullmatch(text) else -1


def _list_remarks(beat: AgentBeat) -> list[str]:
    """Return remarks for the agent on its own message."""
    other = f"this agent is version {beat.version}, the watchdog {__version__}: /costguard-agent.pyz has the matching version"
    return [*beat.odd[:4], *([other] if beat.version not in ("", __version__) else [])]


TOKEN_BYTES = 32


def make_token() -> str:
    """Create a token in the form that is shown."""
    return f"cg_{secrets.token_urlsafe(TOKEN_BYTES)}"


def hash_token(token: str) -> str:
    """Return the stored form of a token."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
