"""JSON schemas of requests and responses for `/openapi.json`.

`agents/messages.py` validates agents' messages.
"""

from __future__ import annotations

from typing import Any

from costguard.agents.messages import (
    ASKS_MOST,
    DROPPED_MOST,
    FIRST_MS,
    ID_MOST,
    LAST_MS,
    OVER_MOST_S,
    RECORDS_MOST,
    REFUSALS,
    REQUEST_KINDS,
    SIGNAL_BOUNDS,
    TEXT_MOST,
    TROUBLES_MOST,
    VERSION_MOST,
)

Schema = dict[str, Any]


def _build_object(required: tuple[str, ...], **properties: Schema) -> Schema:
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": properties}


def _build_text(most: int, **more: object) -> Schema:
    return {"type": "string", "maxLength": most, **more}


def _build_list(items: Schema, most: int) -> Schema:
    return {"type": "array", "items": items, "maxItems": most}


JOINING = _build_object(
    ("code", "public_key", "version"),
    code=_build_text(ID_MOST),
    public_key=_build_text(ID_MOST, pattern="^[A-Za-z0-9+/]{43}=$"),
    version=_build_text(VERSION_MOST),
)
JOINED = _build_object(
    ("agent", "guard_key", "every_s", "name"),
    agent={"type": "string"},
    guard_key={"type": "string"},
    every_s={"type": "integer"},
    name={"type": "string"},
)
HELLO = _build_object(("guard_key",), guard_key={"type": "string"})
NONCE: Schema = {
    "name": "nonce",
    "in": "query",
    "required": True,
    "schema": {"type": "string", "pattern": "^[A-Za-z0-9_-]{16,64}$"},
}
_SIGNALS = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        name: {"type": "number", "minimum": least, "maximum": most} for name, (least, most) in SIGNAL_BOUNDS.items()
    },
}
BEAT = _build_object(
    ("agent", "records"),
    agent=_build_object(
        ("version",), version=_build_text(VERSION_MOST), python=_build_text(VERSION_MOST), boot_id=_build_text(VERSION_MOST)
    ),
    records=_build_list(
        _build_object(
            ("at", "over_s", "signals"),
            at={"type": "integer", "minimum": FIRST_MS, "maximum": LAST_MS},
            over_s={"type": "number", "minimum": 0, "maximum": OVER_MOST_S},
            signals=_SIGNALS,
        ),
        RECORDS_MOST,
    ),
    troubles=_build_list(_build_text(TEXT_MOST), TROUBLES_MOST),
    dropped={"type": "integer", "minimum": 0, "maximum": DROPPED_MOST},
    ask=_build_list(
        _build_object(
            ("id", "what", "for_s"),
            id=_build_text(ID_MOST, pattern="^[A-Za-z0-9_-]{1,64}$"),
            what={"enum": list(REQUEST_KINDS)},
            name=_build_text(TEXT_MOST),
            for_s={"type": "number", "minimum": 0, "maximum": 1e9},
            why=_build_text(TEXT_MOST),
        ),
        ASKS_MOST,
    ),
)
ANSWER = _build_object(
    ("seq", "every_s", "guard_at", "state", "notices", "kept_until", "protected", "asked"),
    seq={"type": "integer"},
    every_s={"type": "integer"},
    guard_at={"type": "integer"},
    state={"type": "string"},
    notices={"type": "array", "items": {"type": "string"}},
    kept_until={"type": ["integer", "null"]},
    protected={"type": ["boolean", "null"]},
    asked={"type": "object", "additionalProperties": {"type": "string"}},
)
HEALTH = _build_object(
    ("state", "guard_age_s"), state={"enum": ["ok", "late", "never"]}, guard_age_s={"type": ["number", "null"]}
)
REFUSED = _build_object(("error", "says"), error={"enum": list(REFUSALS)}, says={"type": "string"})
_TEXT: Schema = {"type": "string"}
ADMISSION: Schema = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "job": {"type": "object"},
        "labels": {"type": "object", "additionalProperties": _TEXT},
        "usd": {"type": ["string", "integer"]},
        "for_s": {"type": "number", "minimum": 1},
        **{name: {"type": "number", "minimum": 0} for name in ("count", "hours", "machines")},
        **dict.fromkeys(("currency", "on", "gpu", "provider", "region", "tier", "owner", "account", "name", "id"), _TEXT),
    },
}
ADMITTED: Schema = {
    "type": "object",
    "required": ["schema", "held", "reason", "says", "hold", "would_fit"],
    "properties": {"held": {"type": "boolean"}, "hold": {"type": ["string", "null"]}, "reason": _TEXT, "says": _TEXT},
}
HOLD_END = _build_object(("hold",), hold=_TEXT, started={"type": "boolean"})
HOLD_ENDED = _build_object(("hold", "ended_by"), hold=_TEXT, ended_by=_TEXT)
ACTIVITY: Schema = {
    "type": "object",
    "required": ["schema", "machine", "state", "active", "why"],
    "properties": {"state": {"enum": ["active", "idle", "unknown"]}, "active": {"type": "boolean"}},
}
STATUS = {"type": "object", "required": ["schema", "at", "resources"]}


def build_request_schema(schema: Schema) -> Schema:
    """Return the OpenAPI entry for a route's request."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def build_response_schemas(of: dict[int, Schema | str]) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI entries for a route's responses, including all refusals.

    `of`: status -> schema, or the media type of a non-JSON body.
    """
    responses: dict[int | str, dict[str, Any]] = {}
    for name, one in REFUSALS.items():
        description = f"{responses[one.status]['description']}, {name}" if one.status in responses else name
        responses[one.status] = {"description": description, "content": {"application/json": {"schema": REFUSED}}}
    for status, schema in of.items():
        content = {schema: {}} if isinstance(schema, str) else {"application/json": {"schema": schema}}
        responses[status] = {"description": responses.get(status, {}).get("description", "done"), "content": content}
    return responses
