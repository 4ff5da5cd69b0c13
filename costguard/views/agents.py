"""Documents about agents and tokens: `costguard.enrol/1`, `costguard.agents/1`, `costguard.tokens/1`.

A secret is shown only once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from costguard.errors import shorten
from costguard.guard.alerts.blind import get_agent_state
from costguard.metering.spending import LiveResource
from costguard.values.agent import Agent, EnrollmentCode, WebToken, is_token_valid
from costguard.values.resource import ResourceKey
from costguard.values.text_format import format_instant, format_length, format_local_time
from costguard.views.document import Column, Document, PastedLine, build_record, build_table

LONGEST = 60
REVOKED = "revoked"


def build_enrolment_document(
    code: EnrollmentCode,
    shown: str,
    *,
    join: str,
    script: str,
    agent_sha256: str,
    called: str,
    address: str,
    notes: Sequence[str],
) -> Document:
    """Return the document of a new enrolment code, which is shown only once.

    `shown`: the code with the fingerprint of the watchdog's key. `join`: the command that joins. `script`: the commands for the
    machine, that one included. `agent_sha256`: of the agent's file, in hexadecimal. `address`: the watchdog's URL as the
    machine reaches it.
    """
    data = {
        "schema": "costguard.enrol/1",
        **_build_key_data(code.key),
        "through_restarts": code.life is None,
        "code": shown,
        "expires_at": format_instant(code.expires_at),
        "url": address,
        "join": join,
        "agent_sha256": agent_sha256,
        "script": script,
        "notes": list(notes),
    }
    bound = "across its restarts" if code.life is None else "for its current run"
    lead = (
        f"An agent may join for {called}, {bound}, until {format_local_time(code.expires_at)}. On the machine, as root,",
        "in sh, bash or zsh (it checks the agent's SHA-256, and the agent checks the watchdog's key):",
        "",
        *(PastedLine(f"  {part}") for part in script.splitlines()),
        "",
    )
    return Document(
        data=data,
        records=({key: data[key] for key in ("resource", "code", "expires_at", "join")},),
        lead=lead,
        notes=tuple(notes),
    )


def build_agents_document(
    agents: Sequence[Agent], live: Mapping[ResourceKey, LiveResource], now: datetime, *, did: str = ""
) -> Document:
    """Return every agent, revoked ones last.

    `did`: a sentence about the change that was just made.
    """
    listed = sorted(agents, key=lambda one: one.revoked_at is not None)
    columns = _list_agent_columns(live, now)
    rows = [build_record(columns, one) for one in listed]
    data = {"schema": "costguard.agents/1", "at": format_instant(now), "agents": rows}
    table = build_table(columns, listed, ("agent", "machine", "state", "heard", "version", "troubles"))
    lead = (did,) if did else () if agents else ("No agent has joined: enrol one with costguard agent enrol ID.",)
    return Document(data=data, records=tuple(rows), lead=lead, tables=(table,) if agents else ())


def build_tokens_document(tokens: Sequence[WebToken], now: datetime, *, shown: str = "", did: str = "") -> Document:
    """Return every token by name.

    `shown`: the token that was just created, which is shown only once.
    """
    columns = _list_token_columns(now)
    rows = [build_record(columns, one) for one in tokens]
    data: dict[str, object] = {"schema": "costguard.tokens/1", "at": format_instant(now), "tokens": rows}
    if shown:
        data["token"] = shown
    table = build_table(columns, tokens, ("name", "role", "state", "expires", "made by"))
    lead = [did] if did else [] if tokens else ["There is no token: create one with costguard web token NAME."]
    if shown:
        lead += ["", PastedLine(f"  {shown}"), "", "It is shown only once: store it in the reader's configuration."]
    return Document(data=data, records=tuple(rows), lead=tuple(lead), tables=(table,) if tokens and not shown else ())


def _list_agent_columns(live: Mapping[ResourceKey, LiveResource], now: datetime) -> tuple[Column[Agent], ...]:
    def get_name(one: Agent) -> str:
        return live[one.key].observation.name if one.key in live else ""

    def get_state(one: Agent) -> str:
        return REVOKED if one.revoked_at is not None else get_agent_state(one, live.get(one.key), now)

    return (
        Column("agent", "agent", lambda one: one.id),
        Column("provider", "", lambda one: one.key.provider),
        Column("account", "", lambda one: one.key.account),
        Column("region", "", lambda one: one.key.region),
        Column("resource", "", lambda one: one.key.id),
        Column("name", "machine", get_name, lambda one: shorten(get_name(one) or one.key.id, LONGEST)),
        Column("state", "state", get_state),
        Column("through_restarts", "", lambda one: one.life is None),
        Column("joined_at", "", lambda one: format_instant(one.joined_at)),
        Column(
            "heard_at",
            "heard",
            lambda one: format_instant(one.heard_at),
            lambda one: f"{format_length(now - one.heard_at)} ago",
        ),
        Column("version", "version", lambda one: one.version, lambda one: one.version or "-"),
        Column("troubles", "troubles", _join_troubles, lambda one: shorten(_join_troubles(one) or "-", LONGEST)),
        Column("revoked_at", "", lambda one: format_instant(one.revoked_at) if one.revoked_at else None),
        Column("revoked_by", "", lambda one: one.revoked_by or None),
    )


def _join_troubles(one: Agent) -> str:
    return "; ".join(one.troubles)


def _list_token_columns(now: datetime) -> tuple[Column[WebToken], ...]:
    def get_state(one: WebToken) -> str:
        return REVOKED if one.revoked_at is not None else "counts" if is_token_valid(one, now) else "run out"

    return (
        Column("name", "name", lambda one: one.name),
        Column("role", "role", lambda one: one.role),
        Column("state", "state", get_state),
        Column("made_by", "made by", lambda one: one.who),
        Column("made_at", "", lambda one: format_instant(one.at)),
        Column(
            "expires_at", "expires", lambda one: format_instant(one.expires_at), lambda one: format_local_time(one.expires_at)
        ),
        Column("revoked_at", "", lambda one: format_instant(one.revoked_at) if one.revoked_at else None),
    )


def _build_key_data(key: ResourceKey) -> dict[str, object]:
    return {"provider": key.provider, "account": key.account, "region": key.region, "resource": key.id}
