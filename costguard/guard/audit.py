"""The tamper-evident log as values: chained rows, anchors noted elsewhere, and a description of each row.

    audit 1234:9f86d081884c7d65        row 1234, and the first 16 digits of its hash

An anchor proves rows 1 to 1234: any change of any of them changes that hash.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from costguard.errors import InputError
from costguard.guard.action_intents import DONE, EXECUTING, GRACE, READY, UNCONFIRMED, VERIFYING
from costguard.guard.overrides import OVERRIDE_VERBS
from costguard.guard.policy import START, STOP, TERMINATE
from costguard.values.instant import EARLIEST, LATEST, from_micros, to_micros
from costguard.values.text_format import encode_plain, format_local_time

BEGAN, ADOPTED, WISHED, LIFTED, MOVED, HOOKED, SETTINGS = "began", "adopted", "wished", "lifted", "moved", "hook", "settings"
ENROLLED, JOINED, REVOKED, REFUSED, TOKEN = "enrolled", "joined", "revoked", "refused", "token"
LINK = "link"
ROWS, ACCOUNTS = "rows", "accounts"
BULK_KINDS = frozenset((ROWS, ACCOUNTS))
"""The kinds that polls cause, and no person or act: an answer for people leaves them out unless it is asked for them."""

UNCOVERED: Mapping[str, tuple[str, ...]] = {
    "charges, listings and samples": (
        *("account_state", "attribution", "climb", "correction", "correction_part", "coverage", "daily", "hourly"),
        *("ledger_state", "monthly", "observation", "poll_view", "protection_seen", "resource", "sample", "sample_hour"),
        *("scope", "span"),
    ),
    "bills": ("bill_adjustment", "bill_import", "bill_import_unfinished", "bill_line", "reconciliation"),
    "holds": ("hold", "hold_budget"),
    "costs entered by hand": ("cost_entry",),
    "enrolment codes, tokens, login links, sessions and links in messages": (
        *("agent_code", "ask_link", "web_invite", "web_session", "web_token"),
    ),
    "runs of the guard, duties and messages": (
        *("duty", "guard_run", "message_count", "notice_delivery", "notice_state", "outbox", "turn"),
    ),
}
"""What no row of the log describes -> its tables. A test holds it against the ledger: a new table is one or the other."""
UNPROVEN = "who wrote a row: the log has no key, so whoever can write to the ledger can add rows that verify"

FIRST_HASH = "0" * 64
"""What the first row names as the one before it."""
HASH_DIGITS_SHOWN = 16
"""Digits of a hash that people are shown: 64 bits, which nobody meets by trying."""
ANCHOR_PATTERN = re.compile(r"(?:audit\s+)?([1-9]\d{0,17}):([0-9a-f]{16,64})")


class AuditEntry(NamedTuple):
    """A row as it is stored. `body`: JSON. `hash`: over all fields before it."""

    seq: int
    at_us: int
    kind: str
    body: str
    previous: str
    hash: str


class AuditAnchor(NamedTuple):
    """A head of the log that was noted outside of the ledger. `hash`: at least its first HASH_DIGITS_SHOWN digits."""

    seq: int
    hash: str


class AuditRecord(NamedTuple):
    """A row with its body parsed."""

    seq: int
    at_us: int
    kind: str
    body: Mapping[str, Any]
    hash: str


class AuditFinding(NamedTuple):
    """An inconsistency. `seq`: the row of the log where it shows; None if it shows in no row."""

    seq: int | None
    what: str


def format_anchor(seq: int, row_hash: str) -> str:
    """Return the short form of an anchor."""
    return f"{seq}:{row_hash[:HASH_DIGITS_SHOWN]}"


def parse_anchor(text: str) -> AuditAnchor:
    """Parse `1234:9f86d081884c7d65`, with or without `audit` before it. Raises InputError for any other text."""
    match = ANCHOR_PATTERN.fullmatch(text.strip().lower())
    if match is None:
        hint = "copy it from a message or from status --json, such as 1234:9f86d081884c7d65"
        raise InputError("is not an audit anchor", field=f"--anchor {text}", hint=hint)
    return AuditAnchor(int(match[1]), match[2])


def format_audit_time(at_us: object) -> str:
    """Format an instant; a value that is no instant (edited by somebody) is returned as text."""
    if isinstance(at_us, int) and to_micros(EARLIEST) <= at_us < to_micros(LATEST):
        return format_local_time(from_micros(at_us))
    return encode_plain(str(at_us))


def describe_audit_row(kind: str, body: Mapping[str, Any]) -> str:
    """Describe a row on one line; names in it are encoded, so that they cannot inject control characters."""
    return encode_plain(
        _DESCRIBERS[kind](body) if kind in _DESCRIBERS else f"{kind}: unknown row kind (written by a newer version)"
    )


def _describe_override(body: Mapping[str, Any]) -> str:
    until = f" until {format_audit_time(body['until_us'])}" if body.get("until_us") is not None else ""
    return f"{body.get('who')} {_format_override(body)}{until}"


_INTENT_WORDS = {
    GRACE: "waiting for the end of its grace period",
    READY: "due",
    EXECUTING: "sending the request",
    VERIFYING: "request sent, not verified yet",
    UNCONFIRMED: "not confirmed",
}
_DONE_WORDS = {STOP: "stopped", TERMINATE: "terminated", START: "started"}


def _format_override(body: Mapping[str, Any]) -> str:
    """Return what was done: `approved terminate of sim/a/r/i-1`."""
    subject, value, place = str(body.get("subject") or ""), body.get("value"), _format_place(body)
    parts = (OVERRIDE_VERBS.get(str(body.get("what")), body.get("what")), subject, value and f"({value})")
    return " ".join(str(part) for part in (*parts, subject and place and "of", place) if part)


def _describe_transition(body: Mapping[str, Any]) -> str:
    state, act, sends = str(body.get("to")), str(body.get("act")), body.get("sends")
    words = _DONE_WORDS.get(act, state) if state == DONE else _INTENT_WORDS.get(state, state)
    why = f"{body.get('policy')}, {body['why']}" if body.get("why") else body.get("policy")
    return f"{act} of {_format_place(body)}: {words} ({why}; {sends} request{'' if sends == 1 else 's'})"


_ACCESS_WORDS = {
    "invited": "{who} invited {name} to the pages ({role})",
    "logged in": "{name} logged in to the pages ({role})",
    "withdrew": "{who} withdrew a login link of {name} ({role})",
    "logged out": "{who} ended a session of {name} ({role})",
}


def _describe_access(body: Mapping[str, Any]) -> str:
    words = _ACCESS_WORDS.get(str(body.get("did")), "{who} {did} the token of {name} ({role})")
    return words.format(**{name: body.get(name) for name in ("who", "did", "name", "role")})


def _describe_link(body: Mapping[str, Any]) -> str:
    question = f"{body.get('act')} {_format_place(body)} ({body.get('policy')})"
    if body.get("did") == "sent":
        return f"a link to answer whether to {question} was sent to {body.get('addressee')}"
    return f"{body.get('addressee')} {body.get('did')} by link: {question}"


def _describe_adoption(body: Mapping[str, Any]) -> str:
    return f"{body.get('table')} {body.get('id')} of {_format_place(body) or 'no machine'} was recorded before this audit log"


def _describe_settings(body: Mapping[str, Any]) -> str:
    return f"settings {body.get('mark')} took effect" + (f" after {body['before']}" if body.get("before") else "")


def _describe_rows(body: Mapping[str, Any]) -> str:
    tables = body.get("tables")
    counts = ", ".join(f"{name} {count}" for name, count in tables.items()) if isinstance(tables, dict) else "unknown tables"
    return f"existing rows, recorded without digests: {counts}" if body.get("adopted") else f"rows written: {counts}"


def _describe_heads(body: Mapping[str, Any]) -> str:
    count = len(str(body.get("heads", "")).split())
    return f"the chain heads of {count} account{'' if count == 1 else 's'} were recorded"


def _format_place(body: Mapping[str, Any]) -> str:
    names = [str(body.get(name) or "") for name in ("provider", "account", "region", "resource")]
    return "/".join(names) if names[-1] else ""


_DESCRIBERS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    BEGAN: lambda body: f"the audit of ledger {body.get('ledger')} began",
    ADOPTED: _describe_adoption,
    WISHED: _describe_override,
    LIFTED: lambda body: f"{body.get('lifted_by')} lifted an override: {body.get('who')} {_format_override(body)}",
    MOVED: _describe_transition,
    HOOKED: lambda body: f"hook {body.get('hook')} of {body.get('policy')} on {_format_place(body)}: {body.get('state')}",
    SETTINGS: _describe_settings,
    ENROLLED: lambda body: (
        f"{body.get('who')} allowed an agent to join {_format_place(body)} until {format_audit_time(body.get('expires_us'))}"
    ),
    JOINED: lambda body: f"agent {body.get('id')} of {_format_place(body)} joined",
    REVOKED: lambda body: f"{body.get('revoked_by')} revoked agent {body.get('id')} of {_format_place(body)}",
    REFUSED: lambda body: (
        f"{body.get('count')} messages in the name of agent {body.get('id')} of {_format_place(body)} had an invalid signature"
    ),
    TOKEN: _describe_access,
    LINK: _describe_link,
    ROWS: _describe_rows,
    ACCOUNTS: _describe_heads,
}
