"""What the guard writes, made by hand: lives, wishes and intents, and a row of each table that keeps its rows for ever."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, insert

from costguard.guard.action_intents import PLANNED, READY, Intent
from costguard.guard.overrides import LEASE, Override
from costguard.guard.policy import Rails
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.tables import load_metadata
from costguard.values.resource import Incarnation, ResourceKey

METADATA = load_metadata()
AGENT = METADATA.tables["agent"]
AGENT_CODE = METADATA.tables["agent_code"]
WEB_INVITE = METADATA.tables["web_invite"]
WEB_SESSION = METADATA.tables["web_session"]
WEB_TOKEN = METADATA.tables["web_token"]
ASK_LINK = METADATA.tables["ask_link"]
GUARD_RUN = METADATA.tables["guard_run"]
HOOK_RUN = METADATA.tables["hook_run"]
INTENT = METADATA.tables["intent"]
INTENT_EVENT = METADATA.tables["intent_event"]
MESSAGE_COUNT = METADATA.tables["message_count"]
TURN = METADATA.tables["turn"]
WISH = METADATA.tables["wish"]
ACCOUNT_STATE = METADATA.tables["account_state"]

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SECOND, MINUTE, HOUR, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
WIDE = Rails(acts_per_run=10**6, acts_per_10m=10**6, irreversible_per_h=10**6)
FLEET = 10**9
"""So large that its shares hold nothing back."""


def key(name: str = "i-1") -> ResourceKey:
    return ResourceKey("aws", "123", "us-east-1", name)


def life(name: str = "i-1", started_at: datetime | None = NOON - DAY) -> Incarnation:
    return Incarnation(key(name), started_at, NOON - 2 * DAY)


def wish(wish_id: str = "w1", **change: Any) -> Override:  # noqa: ANN401 - any field
    plain = Override(id=wish_id, what=LEASE, who="ada", why="a run", at=NOON, until=NOON + HOUR, key=key(), life=life())
    return replace(plain, **change)


def intent(name: str = "i-1", **change: Any) -> Intent:  # noqa: ANN401 - any field
    """An intent to stop `name` that is due."""
    plain = Intent(
        id=f"stop {name}",
        life=life(name),
        act="stop",
        policy="idle-gpu",
        rule="idle",
        why="idle since 11:00",
        evidence='{"state":"idle"}',
        state=READY,
        created_at=NOON,
        moved_at=NOON,
        epoch=1,
    )
    return replace(plain, **change)


def planned(book: GuardStore, name: str = "i-1", **change: Any) -> Intent:  # noqa: ANN401 - any field
    """One that the book holds."""
    made = intent(name, **change)
    assert book.plan_intent(made)
    return made


def write_all(connection: Connection) -> None:
    """A row of each table of the guard that keeps them."""
    of = {"provider": "aws", "account": "123", "region": "us-east-1", "external_id": "i-1", "life": "-/-"}
    said = {"id": "w", "what": "lease", "who": "ada", "why": "", "at_us": 1, "subject": "", "value": ""}
    connection.execute(insert(WISH), [of | said])
    words = {"id": "i", "act": "stop", "policy": "p", "rule": "idle", "why": "", "evidence": "", "state": PLANNED}
    numbers = {"created_us": 1, "moved_us": 1, "epoch": 1, "lose": "[]", "irreversible": 0, "sends": 0, "outcome": ""}
    connection.execute(insert(INTENT), [of | words | numbers])
    moved = {"id": 1, "intent_id": "i", "at_us": 1, "moved_from": "", "moved_to": PLANNED, "why": "", "epoch": 1, "run": ""}
    connection.execute(insert(INTENT_EVENT), [moved])
    hook = {"id": "h", "policy": "p", "rule": "idle", "number": 1, "hook": "save", "began_us": 1, "until_us": 2, "epoch": 1}
    connection.execute(insert(HOOK_RUN), [of | hook | {"state": "begun", "why": "", "output": ""}])
    connection.execute(insert(TURN), [{"id": 1, "epoch": 2, "rounds": 1, "holder": "a", "until_us": 1}])
    run = {"id": 1, "run_id": "r", "at_us": 1, "epoch": 1, "interval_us": 1, "skew_us": 0}
    connection.execute(insert(GUARD_RUN), [run | {"outcome": "", "notes": "[]", "facts": "[]"}])
    spoke = {"id": "a", "public_key": "k", "joined_us": 1, "seq": 1, "record_ms": 0, "version": "", "troubles": "[]"}
    connection.execute(insert(AGENT), [of | spoke])
    connection.execute(insert(AGENT_CODE), [of | {"hash": "h", "who": "ada", "at_us": 1, "expires_us": 2}])
    token = {"hash": "h", "name": "n", "role": "viewer", "who": "ada", "made_us": 1, "expires_us": 2}
    connection.execute(insert(WEB_TOKEN), [token])
    connection.execute(insert(WEB_INVITE), [token])
    login = {"hash": "h", "name": "n", "role": "viewer", "invite": "h", "made_us": 1, "expires_us": 2}
    connection.execute(insert(WEB_SESSION), [login])
    place = {name: of[name] for name in ("provider", "account", "region", "external_id")}
    asked = {"hash": "h", "addressee": "env:CHAT", "policy": "p", "act": "stop", "episode": "e", "made_us": 1, "expires_us": 2}
    connection.execute(insert(ASK_LINK), [place | asked])
    connection.execute(insert(MESSAGE_COUNT), [{"id": 1, "channel": "console", "sent": 2, "gave_up": 1, "tries_failed": 1}])
    connection.execute(insert(ACCOUNT_STATE), [{"id": 1, "provider": "aws", "account": "1", "revision": 1}])
