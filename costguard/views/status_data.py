"""Parts of the status as data: scopes, other currencies, leases, intents, and how long balances last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from costguard.budgets.runway import Runway
from costguard.errors import shorten
from costguard.guard.action_intents import Intent
from costguard.guard.alerts.silence import get_agent_state
from costguard.guard.overrides import Override
from costguard.metering.spending import LiveResource
from costguard.reporting.status import CurrencyOutlook, FleetStatus, ScopeStatus
from costguard.values.agent import Agent
from costguard.values.text_format import (
    RATE_PLACES,
    format_exact,
    format_instant,
    format_interval_exact,
    format_length,
    format_local_time,
    get_currency_sign,
)

LONGEST_NAME = 60


def _build_currency_data(outlook: CurrencyOutlook) -> dict[str, object]:
    """What one currency but the dollar comes to."""
    return {
        "currency": outlook.currency,
        "burn_per_hour": format_exact(outlook.burn.stated, RATE_PLACES),
        "month_to_date": format_interval_exact(outlook.to_date),
        "forecast_month": format_interval_exact(outlook.forecast),
    }


def _build_scope_data(scope: ScopeStatus) -> dict[str, object]:
    """`at`: the last listing, whatever it said."""
    now = scope.now
    return {
        "provider": now.scope.provider,
        "account": now.scope.account,
        "scope": now.scope.name,
        "state": scope.state,
        "last_complete_at": format_instant(now.last_complete_at) if now.last_complete_at else None,
        "why": now.why,
        "at": format_instant(now.at),
    }


def _build_lease_data(lease: Override | None) -> Mapping[str, object] | None:
    """Who keeps it, why, and until when."""
    until = format_instant(lease.until) if lease and lease.until else None
    return {"who": lease.who, "why": lease.why, "until": until} if lease else None


def _build_agent_data(agent: Agent | None, live: LiveResource, at: datetime) -> Mapping[str, object] | None:
    """How the agent of a machine stands: silent is blind, and no word about work."""
    if agent is None:
        return None
    return {
        "id": agent.id,
        "state": get_agent_state(agent, live, at),
        "heard_at": format_instant(agent.heard_at),
        "version": agent.version,
        "troubles": list(agent.troubles),
    }


def _build_intent_data(intent: Intent) -> Mapping[str, object]:
    """An act that was planned or may have been sent, and is not settled."""
    key = intent.life.key
    return {
        "id": intent.id,
        "provider": key.provider,
        "account": key.account,
        "region": key.region,
        "resource": key.id,
        "act": intent.act,
        "state": intent.state,
        "policy": intent.policy,
        "why": intent.why,
        "since": format_instant(intent.moved_at),
        "sends": intent.sends,
    }


def _build_runway_data(runway: Runway, status: FleetStatus) -> Mapping[str, object]:
    """An account that is paid in advance. `balance` None: unknown, see `why`; `hours_left` None: nothing burns, or unknown."""
    balance = runway.balance
    return {
        "provider": balance.provider,
        "account": balance.account,
        "at": format_instant(balance.at),
        "currency": balance.amount.currency if balance.amount else None,
        "balance": format_exact(balance.amount) if balance.amount else None,
        "burn_per_hour": format_exact(runway.hourly, RATE_PLACES) if runway.hourly else None,
        "hours_left": None if runway.left is None else round(runway.left.total_seconds() / 3600, 4),
        "empty_at": None if runway.left is None else format_instant(status.at + runway.left),
        "why": runway.why,
        "loses": [{"region": key.region, "id": key.id, "name": name, "what": list(lost)} for key, name, lost in runway.loses],
    }


def list_runway_lines(status: FleetStatus) -> Iterator[str]:
    """How long each prepaid balance lasts, a sentence each."""
    for runway in status.runways or ():
        balance = runway.balance
        who = f"{balance.provider}/{shorten(balance.account, LONGEST_NAME)}"
        if balance.amount is None:
            yield f"{who} is paid in advance, and its balance is not known: {runway.why}."
            continue
        code = get_currency_sign(balance.amount.currency)
        left = f"{who}: {code}{balance.amount.format()} left"
        if runway.left is None:
            yield f"{left}; {runway.why}."
        else:
            doubt = f"; {runway.why}" if runway.why else ""
            yield f"{left}, {format_length(runway.left)} at what burns now, until {format_local_time(status.at + runway.left)}{doubt}."
