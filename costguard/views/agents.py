"""Agents and tokens as documents: `costguard.enrol/1`, `costguard.agents/1`, `costguard.tokens/1`. Secrets are shown once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from costguard.errors import shorten
from costguard.guard.alerts.rules import get_agent_state
from costguard.metering.spending import LiveResource
from costguard.values.agent import Agent, EnrollmentCode, WebToken, is_token_valid
from costguard.values.resource import ResourceKey
from costguard.values.text_format import format_instant, format_length, format_local_time
from costguard.views.document import Document, TableView

LONGEST = 60
REVOKED = "revoked"


def build_enrolment_document(code: EnrollmentCode, shown: str, *, called: str, address: str, notes: Sequence[str]) -> Document:
    """A code that was just made, which nobody is shown again. `address`: of the watchdog, as the machine calls it."""
    line = f"python3 costguard-agent.pyz join {address} {shown}"
    fetch = f"curl -fsSO {address}/costguard-agent.pyz && {line} && python3 costguard-agent.pyz install"
    data = {
        "schema": "costguard.enrol/1",
        **_build_key_data(code.key),
        "through_restarts": code.life is None,
        "code": shown,
        "expires_at": format_instant(code.expires_at),
        "url": address,
        "join": line,
        "notes": list(notes),
    }
    bound = "through all its restarts" if code.life is None else "in the run that it is in now"
    lead = (
        f"An agent may join for {called}, {bound}, until {format_local_time(code.expires_at)}. On the machine, as root:",
        "",
        f"  {fetch}",
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
    """Every agent, those that were revoked last. `did`: what was just done, in words."""
    rows = [
        _build_agent_data(one, live.get(one.key), now) for one in sorted(agents, key=lambda one: one.revoked_at is not None)
    ]
    data = {"schema": "costguard.agents/1", "at": format_instant(now), "agents": rows}
    table = TableView(
        title="",
        columns=("agent", "machine", "state", "heard", "version", "troubles"),
        rows=tuple(
            (
                str(row["agent"]),
                shorten(str(row["name"] or row["resource"]), LONGEST),
                str(row["state"]),
                f"{format_length(now - one.heard_at)} ago",
                one.version or "-",
                shorten("; ".join(one.troubles) or "-", LONGEST),
            )
            for row, one in zip(rows, sorted(agents, key=lambda one: one.revoked_at is not None), strict=True)
        ),
    )
    lead = (did,) if did else () if agents else ("No agent has joined: enrol one with costguard agent enrol ID.",)
    return Document(data=data, records=tuple(rows), lead=lead, tables=(table,) if agents else ())


def build_tokens_document(tokens: Sequence[WebToken], now: datetime, *, shown: str = "", did: str = "") -> Document:
    """Every token by its name. `shown`: the one that was just made, which nobody is shown again."""
    rows = [_build_token_data(one, now) for one in tokens]
    data: dict[str, object] = {"schema": "costguard.tokens/1", "at": format_instant(now), "tokens": rows}
    if shown:
        data["token"] = shown
    table = TableView(
        title="",
        columns=("name", "role", "state", "expires", "made by"),
        rows=tuple(
            (one.name, one.role, str(row["state"]), format_local_time(one.expires_at), one.who)
            for row, one in zip(rows, tokens, strict=True)
        ),
    )
    lead = [did] if did else [] if tokens else ["There is no token: create one with costguard web token NAME."]
    if shown:
        lead += ["", f"  {shown}", "", "It is shown only once: store it in the reader's configuration."]
    return Document(data=data, records=tuple(rows), lead=tuple(lead), tables=(table,) if tokens and not shown else ())


def _build_agent_data(one: Agent, live: LiveResource | None, now: datetime) -> dict[str, object]:
    return {
        "agent": one.id,
        **_build_key_data(one.key),
        "name": live.observation.name if live else "",
        "state": REVOKED if one.revoked_at is not None else get_agent_state(one, live, now),
        "through_restarts": one.life is None,
        "joined_at": format_instant(one.joined_at),
        "heard_at": format_instant(one.heard_at),
        "version": one.version,
        "troubles": "; ".join(one.troubles),
        "revoked_at": format_instant(one.revoked_at) if one.revoked_at else None,
        "revoked_by": one.revoked_by or None,
    }


def _build_token_data(one: WebToken, now: datetime) -> dict[str, object]:
    state = REVOKED if one.revoked_at is not None else "counts" if is_token_valid(one, now) else "run out"
    return {
        "name": one.name,
        "role": one.role,
        "state": state,
        "made_by": one.who,
        "made_at": format_instant(one.at),
        "expires_at": format_instant(one.expires_at),
        "revoked_at": format_instant(one.revoked_at) if one.revoked_at else None,
    }


def _build_key_data(key: ResourceKey) -> dict[str, object]:
    return {"provider": key.provider, "account": key.account, "region": key.region, "resource": key.id}
