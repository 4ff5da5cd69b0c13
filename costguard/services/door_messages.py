"""The messages between the door, which speaks HTTP in its own process, and the watchdog (decision 0057).

    door -> watchdog     Pulse; BeatOffer, JoinOffer, StopOffer, AdmitOffer ...: what was verified and parsed completely
    watchdog -> door     RunNote after each run of the guard; BeatReply, JoinReply, AdmitReply ...: after the commit

A frame is four bytes of length and a MessagePack array of one of these types. What the door says is checked again by its
bounds: it could be somebody else's by then. Its signature is not: the door has verified it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Annotated

import msgspec

from costguard.agents.messages import (
    ASKS_MOST,
    DROPPED_MOST,
    FIRST_MS,
    ID_MOST,
    LAST_MS,
    OVER_MOST_S,
    RECORDS_MOST,
    REQUEST_KINDS,
    SIGNAL_BOUNDS,
    SIGNAL_NAMES,
    TEXT_MOST,
    TROUBLES_MOST,
    VERSION_MOST,
    AgentBeat,
    AgentRecord,
    AgentRequest,
)
from costguard.budgets.hold import HOLD_DURATION_MAX, HOLD_NANO_MAX, HOLD_TEXT_MAX
from costguard.runs.admission import LABELS_MAX

FILES_VARIABLE = "COSTGUARD_DOOR_FILES"
"""In the environment of the watchdog's own door: the file descriptors of the listening socket and of the channel, as `5,6`."""
FRAME_MOST = 256 * 1024
"""Bytes of a frame: a body has at most 64 KiB of JSON, which takes less here; a text may take four bytes a character."""
LENGTH = struct.Struct(">I")
FOREIGN_MOST = 64
"""Agents of one Pulse; the others follow with the next."""
HASH_LENGTH = 64
PATH_MOST = 1024
"""Characters of a machine's whole key."""
HOLD_ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"
"""Of a hold that somebody asks for over HTTP; a Kubernetes UID is one."""
HOLD_ID_MATCH = re.compile(HOLD_ID_PATTERN, re.ASCII)
_WIDEST = 4
"""Characters that `encode_plain` may make of one: an escape such as \\x1b."""

Number = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Millis = Annotated[int, msgspec.Meta(ge=FIRST_MS, le=LAST_MS)]
Id = Annotated[str, msgspec.Meta(max_length=ID_MOST)]
Text = Annotated[str, msgspec.Meta(max_length=TEXT_MOST * _WIDEST)]
Version = Annotated[str, msgspec.Meta(max_length=VERSION_MOST * _WIDEST)]

HoldId = Annotated[str, msgspec.Meta(pattern=HOLD_ID_PATTERN)]
HoldText = Annotated[str, msgspec.Meta(max_length=HOLD_TEXT_MAX)]


class WireRecord(msgspec.Struct, array_like=True, frozen=True):
    """An `AgentRecord`."""

    at_ms: Millis
    over_s: Annotated[float, msgspec.Meta(ge=0, le=OVER_MOST_S)]
    signals: Annotated[dict[Id, float], msgspec.Meta(max_length=len(SIGNAL_BOUNDS))]


class WireRequest(msgspec.Struct, array_like=True, frozen=True):
    """An `AgentRequest`."""

    id: Annotated[str, msgspec.Meta(max_length=ID_MOST, pattern="^[A-Za-z0-9_-]{1,64}$")]
    what: Id
    name: Text
    for_s: Annotated[float, msgspec.Meta(ge=0, le=1e9)]
    why: Text


class Pulse(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """The door's event loop turns. `foreign`: agents in whose name messages with foreign signatures came, and how many."""

    foreign: Annotated[list[tuple[Id, Number]], msgspec.Meta(max_length=FOREIGN_MOST)] = []


class BeatOffer(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """A beat. `number`: of the question; `sent_ms`: by the agent's clock; `came_us`: its arrival, in microseconds."""

    number: Number
    agent: Id
    seq: Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]
    sent_ms: Millis
    came_us: Annotated[int, msgspec.Meta(ge=FIRST_MS * 1000, le=LAST_MS * 1000)]
    version: Version
    python: Version
    boot_id: Version
    records: Annotated[list[WireRecord], msgspec.Meta(max_length=RECORDS_MOST)]
    troubles: Annotated[list[Text], msgspec.Meta(max_length=TROUBLES_MOST)]
    dropped: Annotated[int, msgspec.Meta(ge=0, le=DROPPED_MOST)]
    asks: Annotated[list[WireRequest], msgspec.Meta(max_length=ASKS_MOST)]


class JoinOffer(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """A request to join. `code_hash`: as stored; `public_key`: base64."""

    number: Number
    code_hash: Annotated[str, msgspec.Meta(max_length=HASH_LENGTH)]
    public_key: Id
    version: Version


class StopOffer(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """A stop that a person confirmed on a page. `session_hash`: as stored; `path`: the machine's whole key.

    `life`: the run of it that the page showed (`format_life`).
    """

    number: Number
    session_hash: Annotated[str, msgspec.Meta(max_length=HASH_LENGTH)]
    path: Annotated[str, msgspec.Meta(max_length=PATH_MOST)]
    why: Text
    life: Text = ""


class AdmitOffer(msgspec.Struct, array_like=True, frozen=True, tag=7):
    """A run that wants a hold. `token_hash`: as stored; `hold`: its id; `lasts_s`: how long it counts at most.

    The rest as in `Hold`, "" where it is not known.
    """

    number: Number
    token_hash: Annotated[str, msgspec.Meta(max_length=HASH_LENGTH)]
    hold: HoldId
    nano: Annotated[int, msgspec.Meta(ge=1, le=HOLD_NANO_MAX)]
    currency: Annotated[str, msgspec.Meta(pattern="^[A-Z]{3}$")]
    lasts_s: Annotated[float, msgspec.Meta(ge=1, le=HOLD_DURATION_MAX.total_seconds())]
    why: HoldText
    provider: HoldText
    account: HoldText
    owner: HoldText
    gpu: HoldText
    labels: Annotated[list[tuple[HoldText, HoldText]], msgspec.Meta(max_length=LABELS_MAX)]


class HoldEndOffer(msgspec.Struct, array_like=True, frozen=True, tag=8):
    """A hold that its holder ends. `started`: its run ended; else it was never launched."""

    number: Number
    token_hash: Annotated[str, msgspec.Meta(max_length=HASH_LENGTH)]
    hold: HoldId
    started: bool


class AskOffer(msgspec.Struct, array_like=True, frozen=True, tag=5):
    """An answer to a question of the guard, given with a link. `secret`: the link's, which the door has not stored."""

    number: Number
    secret: Annotated[str, msgspec.Meta(max_length=HASH_LENGTH)]
    approve: bool


class RunNote(msgspec.Struct, array_like=True, frozen=True, tag=11):
    """The guard ran, at `at_us`. `committed`: the run is in the ledger, and not a dry one."""

    at_us: int
    committed: bool


class BeatReply(msgspec.Struct, array_like=True, frozen=True, tag=12):
    """What became of a beat: `refused` is "" once it is committed, else a name of `REFUSALS`, with `says` and `wait_s`.

    The rest is what its agent is told: see `AgentVerdict`. `kept_us`: 0 for None.
    """

    number: int
    refused: str = ""
    says: str = ""
    wait_s: float | None = None
    asked: dict[str, str] = {}
    state: str = "unknown"
    notices: list[str] = []
    kept_us: int = 0
    protected: bool | None = None


class JoinReply(msgspec.Struct, array_like=True, frozen=True, tag=13):
    """What became of a request to join: `refused` is "", or a name of `REFUSALS`. `agent`: its id; `name`: its machine's."""

    number: int
    refused: str = ""
    says: str = ""
    wait_s: float | None = None
    agent: str = ""
    name: str = ""


class PersonReply(msgspec.Struct, array_like=True, frozen=True, tag=14):
    """What became of a stop or an answer: `refused` is "", or a name of `REFUSALS`.

    `done`: it is proven, or recorded; else `lines` say why not.
    """

    number: int
    refused: str = ""
    says: str = ""
    wait_s: float | None = None
    done: bool = False
    lines: list[str] = []


class AdmitReply(msgspec.Struct, array_like=True, frozen=True, tag=17):
    """What became of a run that wants a hold: `refused` is "", or a name of `REFUSALS`; else the rest is its `Admission`.

    `cap`, `left`, `left_expected`, `left_high`: nano-units of `currency`, of the budget that decided; `budget` "": none did.
    `until_us`: when the hold expires, in microseconds; 0: it was not held. `was`: what the open hold of this id had before, in
    nano-units of the same currency as the request, if it was another amount; else 0.
    """

    number: int
    refused: str = ""
    says: str = ""
    wait_s: float | None = None
    admitted: bool = False
    reason: str = ""
    budget: str = ""
    currency: str = ""
    cap: int = 0
    left: int = 0
    left_expected: int = 0
    left_high: int = 0
    until_us: int = 0
    was: int = 0


class HoldEndReply(msgspec.Struct, array_like=True, frozen=True, tag=18):
    """What became of the end of a hold: `refused` is "", or a name of `REFUSALS`. `ended_by`: how it ended."""

    number: int
    refused: str = ""
    says: str = ""
    wait_s: float | None = None
    ended_by: str = ""


PersonOffer = StopOffer | AskOffer
FromDoor = Pulse | BeatOffer | JoinOffer | PersonOffer | AdmitOffer | HoldEndOffer
FromWatchdog = RunNote | BeatReply | JoinReply | PersonReply | AdmitReply | HoldEndReply
UNDECODABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
_ENCODER = msgspec.msgpack.Encoder()
_FROM_DOOR = msgspec.msgpack.Decoder(FromDoor)
_FROM_WATCHDOG = msgspec.msgpack.Decoder(FromWatchdog)


class FrameError(Exception):
    """A frame that the other side may not send: the connection is closed, as nothing after it can be trusted."""


def encode_frame(message: FromDoor | FromWatchdog) -> bytes:
    """Return the frame of a message."""
    body = _ENCODER.encode(message)
    return LENGTH.pack(len(body)) + body


def split_frames(inbox: bytearray, most: int) -> Iterator[bytes]:
    """Take at most `most` complete frames out of `inbox`, and yield their bodies. Raises FrameError if one is too long."""
    for _ in range(most):
        if len(inbox) < LENGTH.size:
            return
        (size,) = LENGTH.unpack_from(inbox)
        if size > FRAME_MOST:
            raise FrameError(f"a frame of {size} bytes: at most {FRAME_MOST}")
        if len(inbox) < LENGTH.size + size:
            return
        body = bytes(inbox[LENGTH.size : LENGTH.size + size])
        del inbox[: LENGTH.size + size]
        yield body


def decode_from_door(body: bytes) -> FromDoor:
    """Decode what a door sent. Raises FrameError if a type or a bound does not hold."""
    try:
        message: FromDoor = _FROM_DOOR.decode(body)
    except UNDECODABLE as odd:
        raise FrameError(f"a frame of another form: {odd}") from None
    return message


def decode_from_watchdog(body: bytes) -> FromWatchdog:
    """Decode what the watchdog sent. Raises FrameError if a type does not hold."""
    try:
        message: FromWatchdog = _FROM_WATCHDOG.decode(body)
    except UNDECODABLE as odd:
        raise FrameError(f"a frame of another form: {odd}") from None
    return message


def replace_number(offer: JoinOffer, number: int) -> JoinOffer:
    """Return the offer as the question of this number."""
    return msgspec.structs.replace(offer, number=number)


def pack_beat(beat: AgentBeat, *, number: int, agent: str, seq: int, sent_ms: int, came_us: int) -> BeatOffer:
    """Return the offer of a verified beat; the rest as in `BeatOffer`."""
    return BeatOffer(
        number=number,
        agent=agent,
        seq=seq,
        sent_ms=sent_ms,
        came_us=came_us,
        version=beat.version,
        python=beat.python,
        boot_id=beat.boot_id,
        records=[WireRecord(one.at_ms, one.over_s, dict(one.signals)) for one in beat.records],
        troubles=list(beat.troubles),
        dropped=beat.dropped,
        asks=[WireRequest(one.id, one.what, one.name, one.for_s, one.why) for one in beat.asks],
    )


def unpack_beat(offer: BeatOffer) -> AgentBeat:
    """Return the beat of an offer. Raises FrameError for a signal or request that no verified message has."""
    records = []
    for one in offer.records:
        for name, value in one.signals.items():
            least, most = SIGNAL_BOUNDS.get(name, (1.0, 0.0))
            if not least <= value <= most:
                raise FrameError(f"signal {name[:40]!r} is unknown or outside its bounds")
        signals = tuple((SIGNAL_NAMES[name], value) for name, value in one.signals.items())
        records.append(AgentRecord(one.at_ms, one.over_s, signals))
    if any(one.what not in REQUEST_KINDS for one in offer.asks):
        raise FrameError("a request of another kind")
    return AgentBeat(
        version=offer.version,
        python=offer.python,
        boot_id=offer.boot_id,
        records=tuple(records),
        troubles=tuple(offer.troubles),
        dropped=offer.dropped,
        asks=tuple(AgentRequest(one.id, one.what, one.name, one.for_s, one.why) for one in offer.asks),
    )
