"""The gateway where agents join and report, in the process of the HTTP server. Each refusal has a name and changes nothing.

    here           signed by its own key -> within the time window -> number rises -> each field checked
    the watchdog   machine still in the same run -> committed with others -> cached for rechecks (`agent_desk`, `agent_writer`)
    here           answered, signed

An agent can affect its own machine only: its samples, and bounded overrides. Tokens are created here, shown once and stored as
hashes, so that reading the ledger reveals none. cg_4vZ... is a token: 256 bits. Codes are made in `agent_enrolment`.
"""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from costguard_agent.protocol import BODY_MOST, EVERY_S, SEQ_MOST, WINDOW_MS, build_signed_request

from costguard import __version__
from costguard.agents.messages import (
    BROKEN,
    FOREIGN,
    MALFORMED,
    REFUSALS,
    REPLAYED,
    STALE,
    TOO_LARGE,
    UNKNOWN_AGENT,
    UNSIGNED,
    AgentBeat,
    MessageRefusedError,
    parse_beat,
    parse_join_request,
)
from costguard.services.poll.ports import Seal
from costguard.services.serving.agent_enrolment import JoinProof, check_join_proof, hash_code
from costguard.services.serving.door_messages import FOREIGN_MOST, BeatOffer, BeatReply, JoinOffer, JoinReply, pack_beat
from costguard.system.clock import Clock
from costguard.values.agent import Agent
from costguard.values.instant import to_micros

if TYPE_CHECKING:  # types and no more
    from costguard.ledger.agents.directory import AgentDirectory

JOIN_MOST = 2048
"""Bytes of a request to join: a code, a key and a version have 200."""
NUMBER_DIGITS = 16
NO_PROOF = JoinProof()


class AgentEnvelope(NamedTuple):
    """A message as received. `seq`, `at`, `signature`: its headers, "" if missing."""

    method: str
    path: str
    agent: str
    seq: str
    at: str
    signature: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedMessage:
    """A message that its agent signed. `sent_ms`: by the agent's clock; `came_at`: its arrival, by ours."""

    agent: Agent
    seq: int
    sent_ms: int
    came_at: datetime
    beat: AgentBeat

    def pack(self) -> BeatOffer:
        """Return what the watchdog is offered."""
        return pack_beat(
            self.beat,
            agent=self.agent.id,
            seq=self.seq,
            sent_ms=self.sent_ms,
            came_us=to_micros(self.came_at),
        )


@dataclass(slots=True, kw_only=True)
class AgentGateway:
    """Verifies and parses what agents send, and words what they are answered. `book`: the ledger, read only."""

    book: AgentDirectory
    seal: Seal
    clock: Clock
    every_s: int = EVERY_S
    _agents: dict[str, Agent] = field(default_factory=dict)
    _foreign: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def check_join(self, body: bytes, proof: JoinProof = NO_PROOF) -> JoinOffer:
        """Return what the watchdog is offered, if the code exists and the key can be used. Raises MessageRefusedError.

        The code is looked up before the key is looked at: who has none costs a parse of 2 KiB and one look into the ledger.
        """
        joining = parse_join_request(parse_join_json(body))
        code_hash = hash_code(joining.code)
        refused = self.book.explain_code(code_hash, joining.public_key, self.clock.now())
        if refused:
            raise MessageRefusedError(refused)
        check_join_proof(joining, body, proof, self.seal)
        if not self.seal.is_key(joining.public_key):
            raise MessageRefusedError(MALFORMED, "public_key is not an Ed25519 key: send 32 bytes as base64")
        return JoinOffer(code_hash=code_hash, public_key=joining.public_key, version=joining.version)

    def build_join_answer(self, reply: JoinReply) -> dict[str, object]:
        """Return the answer to an agent that joined. Raises MessageRefusedError if the watchdog refused it."""
        _require_accepted(reply)
        return {"agent": reply.agent, "guard_key": self.seal.public_key, "every_s": self.every_s, "name": reply.name}

    def check_message(self, envelope: AgentEnvelope) -> VerifiedMessage:
        """Return the message in `envelope`, verified and parsed. Raises MessageRefusedError if it is not allowed."""
        if len(envelope.body) > BODY_MOST:
            raise MessageRefusedError(TOO_LARGE)
        seq, at_ms = _parse_number(envelope.seq), _parse_number(envelope.at)
        if not 0 < seq <= SEQ_MOST or at_ms <= 0 or not envelope.signature:
            raise MessageRefusedError(UNSIGNED)
        agent = self._find_agent(envelope.agent)
        message = build_signed_request(envelope.method, envelope.path, agent=agent.id, seq=seq, at_ms=at_ms, body=envelope.body)
        if not self.seal.verify(agent.public_key, message, envelope.signature):
            with self._lock:
                self._foreign[agent.id] = self._foreign.get(agent.id, 0) + 1
            raise MessageRefusedError(FOREIGN)
        now = self.clock.now()
        if abs(at_ms - to_micros(now) // 1000) > WINDOW_MS:
            raise MessageRefusedError(STALE)
        if seq <= agent.seq:
            raise MessageRefusedError(REPLAYED)
        beat = parse_beat(parse_message_json(envelope.body))
        return VerifiedMessage(agent=agent, seq=seq, sent_ms=at_ms, came_at=now, beat=beat)

    def build_answer(self, message: VerifiedMessage, reply: BeatReply) -> dict[str, object]:
        """Return the answer to a message that was committed. Raises MessageRefusedError if the watchdog refused it."""
        if reply.refused:
            self.forget(message.agent.id)
        _require_accepted(reply)
        with self._lock:
            agent = self._agents.get(message.agent.id, message.agent)
            self._agents[agent.id] = replace(agent, seq=max(agent.seq, message.seq))
        return {
            "seq": message.seq,
            "every_s": self.every_s,
            "guard_at": to_micros(self.clock.now()) // 1000,
            "state": reply.state,
            "notices": [*reply.notices, *_list_remarks(message.beat)],
            "kept_until": reply.kept_us // 1000 or None,
            "protected": reply.protected,
            "asked": reply.asked,
        }

    def take_foreign(self) -> list[tuple[str, int]]:
        """Return agents in whose name messages with foreign signatures came since the last call, and how many."""
        with self._lock:
            entries = list(self._foreign.items())[:FOREIGN_MOST]
            for name, _ in entries:
                del self._foreign[name]
        return entries

    def forget(self, agent_id: str) -> None:
        """Drop this agent from the cache: it may be revoked, or have reported through another process."""
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
            cached_agent = self._agents.get(agent_id)
        agent = cached_agent or self.book.load_agent(agent_id)
        if agent is None:
            raise MessageRefusedError(UNKNOWN_AGENT)
        if cached_agent is None:
            with self._lock:
                self._agents[agent_id] = agent
        return agent


def _require_accepted(reply: BeatReply | JoinReply) -> None:
    if reply.refused:
        name = reply.refused if reply.refused in REFUSALS else BROKEN
        raise MessageRefusedError(name, reply.says, wait_s=reply.wait_s)


def parse_message_json(body: bytes) -> object:
    """Parse `body` as JSON, each key once, without NaN. Raises MessageRefusedError.

    Only of a verified agent: its depth is bounded by the types of a beat, and its cost by its length (64 KiB: 15 ms at worst).
    """
    try:
        return json.loads(body.decode("utf-8"), object_pairs_hook=_reject_repeated_keys, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        raise MessageRefusedError(MALFORMED, "the message is not JSON (UTF-8, each key once, no NaN)") from None


def parse_join_json(body: bytes) -> object:
    """Parse the small JSON of a join request, which anybody may send. Raises MessageRefusedError."""
    if len(body) > JOIN_MOST:
        raise MessageRefusedError(MALFORMED, f"a request to join has at most {JOIN_MOST} bytes")
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise MessageRefusedError(MALFORMED, "the message is not JSON (UTF-8, no NaN)") from None


def _reject_repeated_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key appears twice")
    return table


def _reject_constant(_: str) -> object:
    raise ValueError("NaN and Infinity are not numbers")


def _parse_number(text: str) -> int:
    """Parse a header as a whole number; -1 if it is none."""
    return int(text) if len(text) <= NUMBER_DIGITS and text.isascii() and text.isdigit() else -1


def _list_remarks(beat: AgentBeat) -> list[str]:
    """Return remarks for the agent on its own message."""
    other = f"this agent is version {beat.version}, the watchdog {__version__}: /costguard-agent.pyz has the matching version"
    return [*beat.odd[:4], *([other] if beat.version not in ("", __version__) else [])]


def hash_token(token: str) -> str:
    """Return the stored form of a token."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
