"""Parse an agent's message (a beat), checked field by field, and define the refusals.

    {"agent": {"version": "0.1.0", "python": "3.10.12", "boot_id": "6f..."}, "troubles": [], "dropped": 0, "ask": [],
     "records": [{"at": 1795219215000, "over_s": 15.0, "signals": {"gpu_util": 97.5, "cpu_cores": 3.2}}]}

A message of another shape is refused as a whole. An impossible value (140 %, a negative rate) is left out, as it is for a
provider: it is missing and never zero, and the answer says so. A signal that this watchdog does not support, from a newer
agent, is left out as well.

A refusal has a name for machines, an HTTP status, and a sentence for people:

    {"error": "replayed", "says": "its sequence number does not increase: this message or a later one already arrived"}

A refused message changes nothing. `malformed` names the field and the expected form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from costguard.values.agent import Agent
from costguard.values.checks import HUGE_NUMBER, describe_value
from costguard.values.instant import EARLIEST, LATEST, to_micros
from costguard.values.resource import Incarnation, is_same_life, make_storable
from costguard.values.sample import (
    AGENT_ALIVE,
    CONNECTIONS,
    CPU_CORES,
    CPU_UTIL,
    DISK,
    GPU_BUSY_COUNT,
    GPU_MEMORY_USED,
    GPU_MEMORY_UTIL,
    GPU_POWER,
    GPU_POWER_BUSIEST,
    GPU_POWER_LIMIT,
    GPU_TEMPERATURE,
    GPU_UTIL,
    HEARTBEAT,
    INPUT_AGE,
    LARGEST_SAMPLE,
    MEMORY_USED,
    NETWORK,
    PCIE,
    QUEUE_JOBS,
    SERVER_CORES,
    SERVER_REQUESTS,
    SERVER_TOKENS,
    SM_ACTIVE,
    STEP,
)
from costguard.values.text_format import encode_plain

RECORDS_MOST, TROUBLES_MOST, ASKS_MOST, TEXT_MOST = 240, 16, 8, 300
VERSION_MOST, ID_MOST = 64, 64
DROPPED_MOST = 2**53
OVER_MOST_S = 600.0
"""What one record may cover: forty of the usual 15 s."""
FIRST_MS, LAST_MS = to_micros(EARLIEST) // 1000, to_micros(LATEST) // 1000
REQUEST_ID_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
PHASE, BUSY, KEEP = "phase", "busy", "keep"
REQUEST_KINDS = (PHASE, BUSY, KEEP)

_PERCENT, _WATTS, _RATE = (0.0, 100.0), (0.0, 2e6), (0.0, 1e13)
SIGNAL_BOUNDS: Mapping[str, tuple[float, float]] = {
    GPU_UTIL: _PERCENT,
    GPU_MEMORY_UTIL: _PERCENT,
    GPU_MEMORY_USED: _PERCENT,
    GPU_POWER: _WATTS,
    GPU_POWER_BUSIEST: _WATTS,
    GPU_POWER_LIMIT: _WATTS,
    GPU_BUSY_COUNT: (0.0, 1e3),
    GPU_TEMPERATURE: (-50.0, 200.0),
    CPU_UTIL: _PERCENT,
    CPU_CORES: (0.0, 1e5),
    MEMORY_USED: _PERCENT,
    NETWORK: _RATE,
    DISK: _RATE,
    PCIE: _RATE,
    SM_ACTIVE: _PERCENT,
    STEP: (-LARGEST_SAMPLE, LARGEST_SAMPLE),
    HEARTBEAT: (-LARGEST_SAMPLE, LARGEST_SAMPLE),
    QUEUE_JOBS: (0.0, 1e9),
    INPUT_AGE: (0.0, 1e9),
    CONNECTIONS: (0.0, 1e6),
    AGENT_ALIVE: (0.0, 1.0),
    SERVER_REQUESTS: (0.0, 1e7),
    SERVER_TOKENS: (0.0, 1e16),
    SERVER_CORES: (0.0, 1e5),
}
"""Signal -> the least and the most that one machine can come to. What lies outside is a wrong unit."""
SIGNAL_NAMES = {name: name for name in SIGNAL_BOUNDS}
"""Each name once: those of every message would be kept as long as its records."""


class AgentRecord(NamedTuple):
    """The measurements of the `over_s` seconds that end at `at_ms`, by the agent's clock."""

    at_ms: int
    over_s: float
    signals: tuple[tuple[str, float], ...]


class AgentRequest(NamedTuple):
    """A request of an agent for its machine.

    `id`: the same for every retry of one request.
    """

    id: str
    what: str
    name: str
    for_s: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentBeat:
    """A valid beat.

    `dropped`: records that the agent could not keep. `odd`: the values that were left out, in words.
    """

    version: str
    python: str
    boot_id: str
    records: tuple[AgentRecord, ...] = ()
    troubles: tuple[str, ...] = ()
    dropped: int = 0
    asks: tuple[AgentRequest, ...] = ()
    odd: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A request to join.

    `public_key`: base64, of 32 bytes.
    """

    code: str
    public_key: str
    version: str


def parse_beat(body: object) -> AgentBeat:
    """Return the beat in `body` (parsed JSON).

    Raises MessageRefusedError, which names the field, if it is none.
    """
    beat = _require_table(body, "", ("agent", "records", "troubles", "dropped", "ask"), optional=("troubles", "dropped", "ask"))
    agent = _require_table(beat["agent"], "agent", ("version", "python", "boot_id"), optional=("python", "boot_id"))
    odd: list[str] = []
    records = tuple(
        _parse_record(one, f"records[{number}]", odd)
        for number, one in enumerate(_require_list(beat["records"], "records", RECORDS_MOST))
    )
    troubles = _require_list(beat.get("troubles", ()), "troubles", TROUBLES_MOST)
    return AgentBeat(
        version=_require_text(agent["version"], "agent.version", VERSION_MOST),
        python=_require_text(agent.get("python", ""), "agent.python", VERSION_MOST),
        boot_id=_require_text(agent.get("boot_id", ""), "agent.boot_id", VERSION_MOST),
        records=records,
        troubles=tuple(_require_text(one, f"troubles[{number}]", TEXT_MOST) for number, one in enumerate(troubles)),
        dropped=round(_require_number(beat.get("dropped", 0), "dropped", 0, DROPPED_MOST)),
        asks=tuple(
            _parse_request(one, f"ask[{n}]") for n, one in enumerate(_require_list(beat.get("ask", ()), "ask", ASKS_MOST))
        ),
        odd=tuple(dict.fromkeys(odd)),
    )


def parse_join_request(body: object) -> JoinRequest:
    """Return the join request in `body` (parsed JSON).

    Raises MessageRefusedError, which names the field, if it is none.
    """
    table = _require_table(body, "", ("code", "public_key", "version"))
    return JoinRequest(
        code=_require_text(table["code"], "code", ID_MOST),
        public_key=_require_text(table["public_key"], "public_key", ID_MOST),
        version=_require_text(table["version"], "version", VERSION_MOST),
    )


def _parse_record(entry: object, field: str, odd: list[str]) -> AgentRecord:
    table = _require_table(entry, field, ("at", "over_s", "signals"))
    signals = table["signals"]
    if not isinstance(signals, Mapping):
        raise _build_refusal(
            f"{field}.signals", f"must be an object, not {describe_value(signals)}", 'write {"gpu_util": 97.5}'
        )
    readings = []
    for name, value in signals.items():
        signal = SIGNAL_NAMES.get(name)
        if signal is None:
            odd.append(encode_plain(f"{describe_value(name)} was left out: unknown signal: update the watchdog"))
            continue
        least, most = SIGNAL_BOUNDS[signal]
        number = _require_number(value, f"{field}.signals.{name}", -HUGE_NUMBER, HUGE_NUMBER)
        if least <= number <= most:
            readings.append((signal, number))
        else:
            odd.append(f"{name} was left out: {describe_value(value)} is not between {least:g} and {most:g}")
    return AgentRecord(
        round(_require_number(table["at"], f"{field}.at", FIRST_MS, LAST_MS)),
        _require_number(table["over_s"], f"{field}.over_s", 0, OVER_MOST_S),
        tuple(readings),
    )


def _parse_request(value: object, field: str) -> AgentRequest:
    table = _require_table(value, field, ("id", "what", "name", "for_s", "why"), optional=("name", "why"))
    ask_id = _require_text(table["id"], f"{field}.id", ID_MOST)
    if not REQUEST_ID_PATTERN.fullmatch(ask_id):
        raise _build_refusal(f"{field}.id", f"is not an id: {describe_value(ask_id)}", "write letters, digits, - and _")
    what = table["what"]
    if what not in REQUEST_KINDS:
        raise _build_refusal(
            f"{field}.what",
            f"is not a request that an agent may make: {describe_value(what)}",
            f"one of {', '.join(REQUEST_KINDS)}",
        )
    return AgentRequest(
        ask_id,
        str(what),
        _require_text(table.get("name", ""), f"{field}.name", TEXT_MOST),
        _require_number(table["for_s"], f"{field}.for_s", 0, 1e9),
        _require_text(table.get("why", ""), f"{field}.why", TEXT_MOST),
    )


def _require_table(value: object, field: str, keys: Sequence[str], *, optional: Sequence[str] = ()) -> Mapping[str, object]:
    called = field or "the message"
    if not isinstance(value, Mapping):
        raise _build_refusal(called, f"must be an object, not {_describe_kind(value)}", f"with {', '.join(keys)}")
    for key in value:
        if key not in keys:
            raise _build_refusal(called, f"has an unknown key: {describe_value(key)}", f"known: {', '.join(keys)}")
    for key in keys:
        if key not in value and key not in optional:
            raise _build_refusal(f"{field}.{key}" if field else key, "is missing", f"known: {', '.join(keys)}")
    return value


def _require_list(value: object, field: str, most: int) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise _build_refusal(field, f"must be a list, not {_describe_kind(value)}", "write []")
    if len(value) > most:
        raise _build_refusal(field, f"has {len(value)} entries", f"at most {most}")
    return value


def _require_text(value: object, field: str, most: int) -> str:
    if not isinstance(value, str):
        raise _build_refusal(field, f"must be a text, not {_describe_kind(value)}", 'write it in "quotes"')
    if len(value) > most:
        raise _build_refusal(field, f"has {len(value)} characters", f"at most {most}")
    return encode_plain(make_storable(value))


def _require_number(value: object, field: str, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -HUGE_NUMBER < value < HUGE_NUMBER:
        raise _build_refusal(field, f"must be a number, not {_describe_kind(value)}", f"write one from {least:g} to {most:g}")
    if not least <= value <= most:
        raise _build_refusal(field, f"must be between {least:g} and {most:g}, not {describe_value(value)}", "check the unit")
    return float(value)


def _describe_kind(value: object) -> str:
    """Return a description of a value without its content."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    return "nothing" if value is None else encode_plain(describe_value(value))


def _build_refusal(field: str, what: str, hint: str) -> MessageRefusedError:
    return MessageRefusedError(MALFORMED, encode_plain(f"{field} {what}: {hint}"))


MALFORMED, UNSIGNED, UNKNOWN_AGENT, FOREIGN = "malformed", "unsigned", "unknown_agent", "foreign"
STALE, REPLAYED, DOUBLED = "stale", "replayed", "doubled"
REVOKED, ANOTHER_LIFE, GONE = "revoked", "another_life", "gone"
BAD_CODE, EXPIRED_CODE, USED_CODE = "bad_code", "expired_code", "used_code"
TOO_LARGE, TOO_SLOW, TOO_OFTEN, ENCODED, WRONG_HOST = "too_large", "too_slow", "too_often", "encoded", "wrong_host"
NO_TOKEN, NOT_ALLOWED, NOT_FOUND, NO_METHOD = "no_token", "not_allowed", "not_found", "no_method"
UNWRITABLE, NOT_READY, BROKEN, NO_WATCHDOG = "unwritable", "not_ready", "broken", "no_watchdog"


class MessageRefusal(NamedTuple):
    """The HTTP status of a refusal, and its sentence for people."""

    status: int
    says: str


REFUSALS: Mapping[str, MessageRefusal] = {
    MALFORMED: MessageRefusal(400, "the message has an invalid form"),
    UNSIGNED: MessageRefusal(
        401, "the message carries no signature: headers Costguard-Seq, Costguard-At and Costguard-Signature"
    ),
    UNKNOWN_AGENT: MessageRefusal(401, "no agent has this name: enrol it with costguard agent enrol ID"),
    NO_TOKEN: MessageRefusal(
        401, "no valid token: make one with costguard web token NAME, and send Authorization: Bearer TOKEN"
    ),
    FOREIGN: MessageRefusal(403, "the signature is not this agent's: an agent may only report its own machine"),
    BAD_CODE: MessageRefusal(403, "unknown code: costguard agent enrol ID makes one, which is valid for ten minutes"),
    NOT_ALLOWED: MessageRefusal(403, "this token may not do that"),
    NOT_FOUND: MessageRefusal(404, "not found"),
    NO_METHOD: MessageRefusal(405, "the method is not allowed here"),
    TOO_SLOW: MessageRefusal(408, "the message did not arrive in time"),
    STALE: MessageRefusal(409, "the sending time differs too much from this clock: set the machine's clock (chrony)"),
    REPLAYED: MessageRefusal(409, "its sequence number does not increase: this message or a later one already arrived"),
    DOUBLED: MessageRefusal(409, "two machines use this key (a copied disk?), and both are refused: enrol each of them again"),
    REVOKED: MessageRefusal(410, "this agent was revoked: enrol another one with costguard agent enrol ID"),
    ANOTHER_LIFE: MessageRefusal(
        410, "the machine was restarted since it joined: enrol it again, optionally with --through-restarts"
    ),
    GONE: MessageRefusal(410, "the machine is not listed by its provider any more"),
    EXPIRED_CODE: MessageRefusal(410, "the code has expired: costguard agent enrol ID makes a new one"),
    USED_CODE: MessageRefusal(410, "the code was already used: costguard agent enrol ID makes a new one"),
    TOO_LARGE: MessageRefusal(413, "the message is larger than 64 KiB: send fewer records at a time"),
    ENCODED: MessageRefusal(415, "the message is compressed or not JSON: send uncompressed application/json"),
    WRONG_HOST: MessageRefusal(421, "unknown host: add it to [web] hosts or url"),
    TOO_OFTEN: MessageRefusal(429, "too many messages: wait for the time in Retry-After"),
    BROKEN: MessageRefusal(500, "internal error: see the watchdog's log"),
    UNWRITABLE: MessageRefusal(503, "the ledger cannot be written: nothing was stored, send it again"),
    NO_WATCHDOG: MessageRefusal(503, "no watchdog accepts messages now: nothing was stored, send it again"),
    NOT_READY: MessageRefusal(503, "not ready yet: try again after the next guard run"),
}


class MessageRefusedError(Exception):
    """A refused message.

    `name`: a key of `REFUSALS`. `says`: used instead of its usual sentence, if not "". `wait_s`: seconds to wait before a
    retry, None: not stated.
    """

    def __init__(self, name: str, says: str = "", *, wait_s: float | None = None) -> None:
        super().__init__(name)
        self.name, self.wait_s = name, wait_s
        self.status, usual = REFUSALS[name]
        self.says = says or usual


def explain_unbound(agent: Agent, present: Incarnation | None) -> str:
    """Return the refusal of a message of `agent` on a machine in the incarnation `present`; "" for none.

    `present` None: the machine is not listed.
    """
    if agent.revoked_at is not None:
        return REVOKED
    if present is None:
        return GONE
    return "" if agent.life is None or is_same_life(agent.life, present) else ANOTHER_LIFE
