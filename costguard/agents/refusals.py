"""What a message that is refused is called: a name for machines, a status of HTTP, and a sentence for people.

    {"error": "replayed", "says": "its number does not rise: this message, or a later one, was here already"}

A refused message changes nothing. `malformed` names the field and says what to write instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from costguard.values.agent import Agent
from costguard.values.incarnation import Incarnation, is_same_life

MALFORMED, UNSIGNED, UNKNOWN_AGENT, FOREIGN = "malformed", "unsigned", "unknown_agent", "foreign"
STALE, REPLAYED, DOUBLED = "stale", "replayed", "doubled"
REVOKED, ANOTHER_LIFE, GONE = "revoked", "another_life", "gone"
BAD_CODE, EXPIRED_CODE, USED_CODE = "bad_code", "expired_code", "used_code"
TOO_LARGE, TOO_SLOW, TOO_OFTEN, ENCODED, WRONG_HOST = "too_large", "too_slow", "too_often", "encoded", "wrong_host"
NO_TOKEN, NOT_ALLOWED, NOT_FOUND, NO_METHOD = "no_token", "not_allowed", "not_found", "no_method"
UNWRITABLE, NOT_READY, BROKEN = "unwritable", "not_ready", "broken"


class MessageRefusal(NamedTuple):
    """`status`: of HTTP. `says`: to people."""

    status: int
    says: str


REFUSALS: Mapping[str, MessageRefusal] = {
    MALFORMED: MessageRefusal(400, "the message is not what an agent may say"),
    UNSIGNED: MessageRefusal(
        401, "the message carries no signature: headers Costguard-Seq, Costguard-At and Costguard-Signature"
    ),
    UNKNOWN_AGENT: MessageRefusal(401, "no agent of this name has joined: enrol it with costguard agent enrol ID"),
    NO_TOKEN: MessageRefusal(
        401, "no valid token: make one with costguard web token NAME, and send Authorization: Bearer TOKEN"
    ),
    FOREIGN: MessageRefusal(403, "the signature is not that of this agent: an agent speaks for its own machine alone"),
    BAD_CODE: MessageRefusal(403, "no such code: costguard agent enrol ID makes one, which counts for ten minutes"),
    NOT_ALLOWED: MessageRefusal(403, "this token may not do that"),
    NOT_FOUND: MessageRefusal(404, "there is nothing here"),
    NO_METHOD: MessageRefusal(405, "this is asked for in another way"),
    TOO_SLOW: MessageRefusal(408, "the message did not come in time"),
    STALE: MessageRefusal(409, "the moment of sending is too far from this clock: set the machine's clock (chrony)"),
    REPLAYED: MessageRefusal(409, "its number does not rise: this message, or a later one, was here already"),
    DOUBLED: MessageRefusal(
        409, "two machines speak with this key, as after a copied disk, and neither is heard: enrol each of them anew"
    ),
    REVOKED: MessageRefusal(410, "this agent was revoked: costguard agent enrol ID lets another one join"),
    ANOTHER_LIFE: MessageRefusal(
        410, "the machine was started anew since it joined: enrol it again, or with --through-restarts"
    ),
    GONE: MessageRefusal(410, "the machine is not listed by its provider any more"),
    EXPIRED_CODE: MessageRefusal(410, "the code has run out: costguard agent enrol ID makes another one"),
    USED_CODE: MessageRefusal(410, "the code was used: costguard agent enrol ID makes another one"),
    TOO_LARGE: MessageRefusal(413, "the message is larger than 64 KiB: send fewer records at a time"),
    ENCODED: MessageRefusal(415, "the message is compressed or no JSON: send application/json as it is"),
    WRONG_HOST: MessageRefusal(421, "this is not the host that was asked for: [web] hosts and url name those that are"),
    TOO_OFTEN: MessageRefusal(429, "too many messages: wait as long as Retry-After says"),
    BROKEN: MessageRefusal(500, "something broke here: the watchdog's log names it"),
    UNWRITABLE: MessageRefusal(503, "the ledger cannot be written: nothing was taken, send it again"),
    NOT_READY: MessageRefusal(503, "not ready yet: ask again after the next run of the guard"),
}


class MessageRefusedError(Exception):
    """A message that is refused. `name`: of REFUSALS. `says`: more than its usual sentence, or ""."""

    def __init__(self, name: str, says: str = "", *, wait_s: float | None = None) -> None:
        super().__init__(name)
        self.name, self.wait_s = name, wait_s
        self.status, usual = REFUSALS[name]
        self.says = says or usual


def explain_unbound(agent: Agent, present: Incarnation | None) -> str:
    """What refuses a message of `agent` on a machine whose life is `present` (None: it is not there); "" where nothing does."""
    if agent.revoked_at is not None:
        return REVOKED
    if present is None:
        return GONE
    return "" if agent.life is None or is_same_life(agent.life, present) else ANOTHER_LIFE
