"""The messages between the web, which speaks HTTP in its own process, and the watchdog (decision 0091).

    web -> watchdog     a POST for each of PATHS: what was verified and parsed completely, as JSON
    watchdog -> web     the reply, after the commit

What the web says is checked again by its bounds: it could be somebody else's by then. Its signature is not: the web has
verified it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, TypeVar

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

BODY_MOST = 8 * 2**20
"""Bytes of a message, which may be BEATS_MOST beats of 64 KiB each."""
BEATS_MOST = 64
"""Beats that are handed over together."""
FOREIGN_MOST = 64
"""Agents of one Pulse; the others follow with the next."""
HASH_LENGTH = 64
SECRET_MOST = 256
"""Characters of a session's cookie, of the code of a link, or of a token."""
HEAD_MOST = 16 * 1024
"""Bytes of a request's head, and so of what a browser brings back from an identity provider."""
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

SecretText = Annotated[str, msgspec.Meta(max_length=SECRET_MOST)]
HoldId = Annotated[str, msgspec.Meta(pattern=HOLD_ID_PATTERN)]
HoldText = Annotated[str, msgspec.Meta(max_length=HOLD_TEXT_MAX)]


class WireRecord(msgspec.Struct, frozen=True):
    """An `AgentRecord`."""

    at_ms: Millis
    over_s: Annotated[float, msgspec.Meta(ge=0, le=OVER_MOST_S)]
    signals: Annotated[dict[Id, float], msgspec.Meta(max_length=len(SIGNAL_BOUNDS))]


class WireRequest(msgspec.Struct, frozen=True):
    """An `AgentRequest`."""

    id: Annotated[str, msgspec.Meta(max_length=ID_MOST, pattern="^[A-Za-z0-9_-]{1,64}$")]
    what: Id
    name: Text
    for_s: Annotated[float, msgspec.Meta(ge=0, le=1e9)]
    why: Text


class Pulse(msgspec.Struct, frozen=True):
    """The web asks for the last run. `foreign`: agents in whose name messages with foreign signatures came, and how many."""

    foreign: Annotated[list[tuple[Id, Number]], msgspec.Meta(max_length=FOREIGN_MOST)] = []


class BeatOffer(msgspec.Struct, frozen=True):
    """A beat. `sent_ms`: by the agent's clock; `came_us`: its arrival, in microseconds."""

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


class JoinOffer(msgspec.Struct, frozen=True):
    """A request to join. `code_hash`: as stored; `public_key`: base64."""

    code_hash: Annotated[str, msgspec.Meta(max_length=HASH_LENGTH)]
    public_key: Id
    version: Version


class ActOffer(msgspec.Struct, frozen=True):
    """What a person confirmed on a page. `secret`: of the session, as its cookie has it. `act`: a name of `person_acts`.

    `subject`: the machine's whole key, or a policy. `value`: a length of time, or a level. `life`: the run of the machine that
    the page showed (`format_life`).
    """

    secret: SecretText
    act: Id
    subject: Annotated[str, msgspec.Meta(max_length=PATH_MOST)] = ""
    value: Text = ""
    why: Text = ""
    life: Text = ""


class LoginOffer(msgspec.Struct, frozen=True):
    """The click on a login link. `code`: of the link."""

    code: SecretText


class OidcOffer(msgspec.Struct, frozen=True):
    """What a browser brought back from the identity provider: the cookie of its login, and the answer's parameters."""

    cookie: Annotated[str, msgspec.Meta(max_length=HEAD_MOST)]
    query: Annotated[dict[Id, Annotated[str, msgspec.Meta(max_length=HEAD_MOST)]], msgspec.Meta(max_length=ID_MOST)]


class AdmitOffer(msgspec.Struct, frozen=True):
    """A run that wants a hold. `token`: as its launcher sent it; `hold`: its id; `lasts_s`: how long it counts at most.

    The rest as in `Hold`, "" where it is not known.
    """

    token: SecretText
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
    hourly: Annotated[int, msgspec.Meta(ge=0, le=HOLD_NANO_MAX)] | None = None


class HoldEndOffer(msgspec.Struct, frozen=True):
    """A hold that its holder ends. `started`: its run ended; else it was never launched."""

    token: SecretText
    hold: HoldId
    started: bool


class AskOffer(msgspec.Struct, frozen=True):
    """An answer to a question of the guard, given with a link. `secret`: the link's, which the door has not stored."""

    secret: Annotated[str, msgspec.Meta(max_length=HASH_LENGTH)]
    approve: bool


class RunNote(msgspec.Struct, frozen=True):
    """The guard ran, at `at_us`; 0: it has not. `committed`: the run is in the ledger, and not a dry one."""

    at_us: int = 0
    committed: bool = False


class BeatReply(msgspec.Struct, frozen=True):
    """What became of a beat: `refused` is "" once it is committed, else a name of `REFUSALS`, with `says` and `wait_s`.

    The rest is what its agent is told: see `AgentVerdict`. `kept_us`: 0 for None.
    """

    refused: str = ""
    says: str = ""
    wait_s: float | None = None
    asked: dict[str, str] = {}
    state: str = "unknown"
    notices: list[str] = []
    kept_us: int = 0
    protected: bool | None = None


class JoinReply(msgspec.Struct, frozen=True):
    """What became of a request to join: `refused` is "", or a name of `REFUSALS`. `agent`: its id; `name`: its machine's."""

    refused: str = ""
    says: str = ""
    wait_s: float | None = None
    agent: str = ""
    name: str = ""


class PersonReply(msgspec.Struct, frozen=True):
    """What became of an act, a login or an answer: `refused` is "", or a name of `REFUSALS`.

    `done`: it is proven, or recorded; else `lines` say why not. `secret`: of the session that a login opened; `back`: the page
    that it was begun from.
    """

    refused: str = ""
    says: str = ""
    wait_s: float | None = None
    done: bool = False
    lines: list[str] = []
    secret: str = ""
    back: str = "/"


class AdmitReply(msgspec.Struct, frozen=True):
    """What became of a run that wants a hold: `refused` is "", or a name of `REFUSALS`; else the rest is its `Admission`.

    `cap`, `left`, `left_expected`, `left_high`: nano-units of `currency`, of the budget that decided; `budget` "": none did.
    `until_us`: when the hold expires, in microseconds; 0: it was not held. `was`: what the open hold of this id had before, in
    nano-units of the same currency as the request, if it was another amount; else 0.
    """

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


class HoldEndReply(msgspec.Struct, frozen=True):
    """What became of the end of a hold: `refused` is "", or a name of `REFUSALS`. `ended_by`: how it ended."""

    refused: str = ""
    says: str = ""
    wait_s: float | None = None
    ended_by: str = ""


PersonOffer = ActOffer | LoginOffer | OidcOffer | AskOffer
FromDoor = Pulse | BeatOffer | JoinOffer | PersonOffer | AdmitOffer | HoldEndOffer
FromWatchdog = RunNote | BeatReply | JoinReply | PersonReply | AdmitReply | HoldEndReply
UNDECODABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)
PATHS: dict[type[FromDoor], str] = {
    Pulse: "/pulse",
    BeatOffer: "/beats",
    JoinOffer: "/joins",
    ActOffer: "/acts",
    LoginOffer: "/logins",
    OidcOffer: "/oidc-logins",
    AskOffer: "/answers",
    AdmitOffer: "/admissions",
    HoldEndOffer: "/hold-ends",
}
_ENCODER = msgspec.json.Encoder()
_DECODERS = {kind: msgspec.json.Decoder(kind) for kind in PATHS}
_SPLITTER = msgspec.json.Decoder(Annotated[list[msgspec.Raw], msgspec.Meta(max_length=BEATS_MOST)])
_Reply = TypeVar("_Reply")


class OfferError(Exception):
    """A message that the other side may not send."""


def encode_message(message: FromDoor | FromWatchdog) -> bytes:
    """Return the JSON of a message."""
    return _ENCODER.encode(message)


def decode_offer(kind: type[FromDoor], body: bytes) -> FromDoor:
    """Decode what the web sent. Raises OfferError if a type or a bound does not hold."""
    try:
        return _DECODERS[kind].decode(body)
    except UNDECODABLE as odd:
        raise OfferError(f"a message with an invalid form: {odd}") from None


def encode_beats(offers: Sequence[BeatOffer]) -> bytes:
    """Return the JSON of beats that are handed over together."""
    return _ENCODER.encode(offers)


def encode_replies(replies: Sequence[BeatReply]) -> bytes:
    """Return the JSON of the replies, in the order of their beats."""
    return _ENCODER.encode(replies)


def split_beats(body: bytes) -> list[bytes]:
    """Return the JSON of each beat, not decoded yet. Raises OfferError for another form, or more than BEATS_MOST."""
    try:
        return [bytes(one) for one in _SPLITTER.decode(body)]
    except UNDECODABLE as odd:
        raise OfferError(f"a message with an invalid form: {odd}") from None


def decode_reply(kind: type[_Reply], body: bytes) -> _Reply:
    """Decode what the watchdog replied. Raises OfferError if a type does not hold."""
    try:
        return msgspec.json.decode(body, type=kind)
    except UNDECODABLE as odd:
        raise OfferError(f"a reply with an invalid form: {odd}") from None


def pack_beat(beat: AgentBeat, *, agent: str, seq: int, sent_ms: int, came_us: int) -> BeatOffer:
    """Return the offer of a verified beat; the rest as in `BeatOffer`."""
    return BeatOffer(
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
    """Return the beat of an offer. Raises OfferError for a signal or request that no verified message has."""
    records = []
    for one in offer.records:
        for name, value in one.signals.items():
            least, most = SIGNAL_BOUNDS.get(name, (1.0, 0.0))
            if not least <= value <= most:
                raise OfferError(f"signal {name[:40]!r} is unknown or outside its bounds")
        signals = tuple((SIGNAL_NAMES[name], value) for name, value in one.signals.items())
        records.append(AgentRecord(one.at_ms, one.over_s, signals))
    if any(one.what not in REQUEST_KINDS for one in offer.asks):
        raise OfferError("a request of an unknown kind")
    return AgentBeat(
        version=offer.version,
        python=offer.python,
        boot_id=offer.boot_id,
        records=tuple(records),
        troubles=tuple(offer.troubles),
        dropped=offer.dropped,
        asks=tuple(AgentRequest(one.id, one.what, one.name, one.for_s, one.why) for one in offer.asks),
    )
