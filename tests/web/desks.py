"""A desk where agents report, over a real ledger, with machines that a test sets; and an agent that signs as real ones do."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from costguard_agent import ed25519
from costguard_agent.protocol import BEATS_PATH, build_signed_request, decode_base64, encode_base64
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from costguard.agents.requests import AgentMachine
from costguard.guard.policy import Rails
from costguard.ledger.agents.directory import AgentDirectory
from costguard.ledger.agents.store import AgentStore
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Complete, Poll
from costguard.services.guarding.sample_cache import AgentSampleCache
from costguard.services.serving.admission_desk import AdmissionDesk
from costguard.services.serving.agent_desk import AgentDesk
from costguard.services.serving.agent_enrolment import JoinProof, hash_code
from costguard.services.serving.agent_gateway import NO_PROOF, AgentEnvelope, AgentGateway, VerifiedMessage
from costguard.services.serving.agent_writer import AgentBatchWriter, CheckedMessage
from costguard.services.serving.door_messages import BeatOffer, BeatReply, JoinOffer, Pulse, decode_offer, encode_message
from costguard.services.serving.person_acts import PersonActs
from costguard.settings import Settings
from costguard.testing.doubles import FakeClock
from costguard.values.agent import CODE_VALID_FOR, Agent, EnrollmentCode
from costguard.values.instant import to_micros
from costguard.values.resource import Incarnation, ResourceKey
from costguard.values.sample import Sample
from costguard.web.signing import WatchdogSeal
from tests.metering.stories import SCOPE, key, machine

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
S, MIN = timedelta(seconds=1), timedelta(minutes=1)
CODE = "Q7KM-2RXD-9VTP-HW4C"
SECRET = bytes(range(32))


def envelope(
    agent: str, seq: int, at: datetime, body: object, *, secret: bytes = SECRET, path: str = "", signature: str | None = None
) -> AgentEnvelope:
    """A message as an agent signs it."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    path, at_ms = path or BEATS_PATH.format(agent), to_micros(at) // 1000
    key = Ed25519PrivateKey.from_private_bytes(secret)
    made = encode_base64(key.sign(build_signed_request("POST", path, agent=agent, seq=seq, at_ms=at_ms, body=data)))
    return AgentEnvelope("POST", path, agent, str(seq), str(at_ms), made if signature is None else signature, data)


def record(at: datetime, over_s: float = 15.0, **signals: float) -> dict[str, object]:
    """A record of a beat."""
    return {"at": to_micros(at) // 1000, "over_s": over_s, "signals": signals or {"gpu_util": 50.0, "agent_alive": 1.0}}


def beat(*records: Mapping[str, object], **more: object) -> dict[str, object]:
    """A beat with `records`."""
    return {"agent": {"version": "0.1.0", "python": "3.11", "boot_id": "b"}, "records": list(records), **more}


def carried(offer: BeatOffer | JoinOffer) -> object:
    """What arrives of an offer at the other end of the channel."""
    return decode_offer(type(offer), encode_message(offer))


@dataclass
class Rig:
    """What a test holds in hand. `desk`: of the door; `guarded`: of the watchdog. `lives`: the machines that are there now."""

    url: str
    desk: AgentGateway
    guarded: AgentDesk
    book: AgentStore
    clock: FakeClock
    heard: AgentSampleCache
    commits: AgentBatchWriter
    lives: dict[ResourceKey, AgentMachine] = field(default_factory=dict)

    def enrol(self, of: ResourceKey, *, code: str = CODE, through: bool = False) -> EnrollmentCode:
        """A code for the machine `of` this key."""
        now = self.clock.now()
        life = None if through else self.lives[of].life
        made = EnrollmentCode(hash=hash_code(code), key=of, who="ada@desk", at=now, expires_at=now + CODE_VALID_FOR, life=life)
        self.book.add_code(made)
        return made

    def join(self, code: str = CODE, *, secret: bytes = SECRET) -> str:
        """The id of an agent that joined with `code`."""
        public = encode_base64(ed25519.derive_public_key(secret))
        said = self.take_join(json.dumps({"code": code, "public_key": public, "version": "0.1.0"}).encode())
        assert decode_base64(str(said["guard_key"])) is not None
        return str(said["agent"])

    def take_join(self, body: bytes, proof: JoinProof = NO_PROOF) -> Mapping[str, object]:
        """The answer to a request to join, through both processes."""
        offer = carried(self.desk.check_join(body, proof))
        assert isinstance(offer, JoinOffer)
        return self.desk.build_join_answer(self.guarded.join(offer))

    def joined(self, of: ResourceKey, *, through: bool = False, secret: bytes = SECRET, code: str = CODE) -> str:
        """Enrolled and joined."""
        self.enrol(of, code=code, through=through)
        return self.join(code, secret=secret)

    def send(self, message: AgentEnvelope) -> Mapping[str, Any]:
        """The answer to `message`, once it is committed; the RefusedError it is refused with."""
        try:
            return self.taken(self.desk.check_message(message))
        finally:
            self.guarded.take_pulse(Pulse(self.desk.take_foreign()))

    def taken(self, incoming: VerifiedMessage) -> Mapping[str, Any]:
        """The answer to a checked message, which goes to the watchdog as it does between processes."""
        offer, answer = carried(incoming.pack()), Future[BeatReply]()
        assert isinstance(offer, BeatOffer)
        self.guarded.take_beat(offer, answer.set_result)
        return self.desk.build_answer(incoming, answer.result(timeout=30))

    def checked(self, message: AgentEnvelope) -> CheckedMessage:
        """What both processes checked, and nobody has committed."""
        offer = carried(self.desk.check_message(message).pack())
        assert isinstance(offer, BeatOffer)
        return self.guarded.check_beat(offer)

    def state(self) -> tuple[object, ...]:
        """All that a message can change: the whole of it, to be compared."""
        with LedgerReader(self.url) as reader, reader.snapshot() as ask:
            tables = {
                table: ask(f"SELECT * FROM {table} ORDER BY 1, 2, 3", ())  # noqa: S608 - our own names
                for table in ("agent", "agent_code", "sample", "wish")
            }
        return (tables, {name: (one.record_ms, one.waiting) for name, one in self.commits._states.items()})

    def samples(self, of: ResourceKey) -> list[Sample]:
        """All that the ledger has `of` a machine."""
        with GuardStore(self.url, rails=Rails()) as book:
            return list(book.load_samples_since(NOON - timedelta(days=1), [of]).get(of, ()))

    def agent(self, agent_id: str) -> Agent:
        """As the ledger has it."""
        found = self.book.load_agent(agent_id)
        assert found is not None
        return found

    def restart(self, of: ResourceKey) -> None:
        """The machine was stopped and started again."""
        before = self.lives[of]
        self.lives[of] = replace(before, life=Incarnation(of, self.clock.now()))


def keys(count: int = 2) -> list[ResourceKey]:
    """Of machines."""
    return [key(f"i-{number}") for number in range(count)]


@contextmanager
def rig(url: str, *, machines: int = 2, together_s: float = 0.0, begun: bool = True) -> Iterator[Rig]:
    """A desk over the ledger at `url`, with machines that run since eleven."""
    clock, heard = FakeClock(NOON), AgentSampleCache()
    seen = [machine(one.id, started_at=NOON - timedelta(hours=1)) for one in keys(machines)]
    with LedgerWriter(url, rules={}, ceilings={}) as ledger:
        ledger.record_polls([Poll(scope=SCOPE, at=NOON - MIN, inventory=Complete(items=tuple(seen)))])
    with AgentStore(url) as book:
        lives = {
            one.key: AgentMachine(life=Incarnation(one.key, one.started_at), name=one.name, first_seen_at=NOON - MIN)
            for one in seen
        }
        commits = AgentBatchWriter(book=book, heard=heard, clock=clock, interval=MIN, together_s=together_s)
        seal = WatchdogSeal(Ed25519PrivateKey.from_private_bytes(bytes(32)))
        directory = AgentDirectory(url)
        desk = AgentGateway(book=directory, seal=seal, clock=clock)
        acts = PersonActs(url=url, config=None)
        guarded = AgentDesk(
            book=book, clock=clock, machine=lives.get, commits=commits, acts=acts, admissions=AdmissionDesk(settings=Settings)
        )
        if begun:
            commits.start()
        try:
            yield Rig(url, desk, guarded, book, clock, heard, commits, lives)
        finally:
            commits.end()
            directory.close()


def ledger_at(folder: Path) -> str:
    """The URL of a new ledger in `folder`."""
    return f"sqlite:///{folder}/ledger.db"
