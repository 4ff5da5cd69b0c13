"""The current status as a document: `costguard.status/1`, one record per resource.

Amounts in the contract's fields are US dollars. Amounts in other currencies are separate and are never added to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from costguard.errors import IncompleteError, shorten
from costguard.guard.action_intents import Intent
from costguard.guard.alerts.blind import find_silent_agents, get_agent_state
from costguard.guard.overrides import Override
from costguard.guard.signals import HUNG, IDLE
from costguard.metering.burn import HourlyBurn
from costguard.metering.inventory import COMPLETE, FAILED, PARTIAL
from costguard.metering.spending import LiveResource
from costguard.reporting.status import CurrencyOutlook, FleetStatus, ResourceBurn, ScopeStatus
from costguard.values.agent import Agent
from costguard.values.money import ExchangeRate
from costguard.values.resource import INSTANCE, RUNNING, list_short_ids
from costguard.values.text_format import (
    RATE_PLACES,
    describe_misdated_scope,
    describe_unreached_scope,
    format_amount_ends,
    format_bounds,
    format_exact,
    format_instant,
    format_interval,
    format_interval_exact,
    format_length,
    format_local_time,
    format_scope,
    format_scope_reason,
    get_currency_sign,
    is_wide,
    limit_lines,
)
from costguard.views.budget_status import build_budget_data, build_budget_table, format_forecast
from costguard.views.columns import add_short_ids
from costguard.views.document import BAD, DIM, DOUBTFUL, PLAIN, Column, Document, TableView, build_table
from costguard.views.runways import build_runway_data, list_runway_lines
from costguard.views.status_rates import (
    build_price_data,
    build_rate_interval,
    build_unpriced_data,
    format_rate_bound,
    format_stated_rate,
    list_own_price_notes,
)
from costguard.views.status_summary import DueActs, format_hold, format_state, format_uptime, list_head_lines
from costguard.views.utilization import build_usage_data, format_usage, list_usage_lines
from costguard.views.watchdogs import build_share_data, format_shares, list_share_warnings

SCHEMA = "costguard.status/1"
ACTIVITY_TONES = {IDLE: DOUBTFUL, HUNG: BAD}
ROWS_MAX = 200  # machines in the table; JSON and CSV hold all of them
LONGEST_NAME = 60
"""Characters of a name in the table, so that one cannot push the others off the screen. JSON and CSV hold all of it."""
FLAT_KEYS = (
    "provider",
    "account",
    "region",
    "id",
    "name",
    "kind",
    "gpu",
    "gpu_count",
    "tier",
    "state",
    "started_at",
    "usd_per_hour",
)
"""The keys that a record has as the contract has them; what is nested there is flat in a record."""


def build_status_document(
    status: FleetStatus,
    more_warnings: Sequence[str] = (),
    audit: str = "",
    exchange: ExchangeRate | None = None,
    source: str = "",
    *,
    due: DueActs | None = None,
    shown: Sequence[ResourceBurn] | None = None,
) -> Document:
    """Return the whole status; after the headline come warnings about unreliable scopes and prices, and `more_warnings`.

    `audit`: the head of the ledger's audit log; "": none. `exchange`: a rate at which dollars are also shown to people.
    `source`: from where and how old this is, for people (`describe_status_source`); in the data each scope has its time.
    `due`: the acts of the plan; None: it was not evaluated. `shown`: the machines that were chosen; None: all of them. The sums
    stay those of the whole fleet.
    """
    due, machines = due or DueActs(by_key={}), status.resources if shown is None else tuple(shown)
    warnings = tuple(dict.fromkeys((*list_status_warnings(status), *more_warnings)))
    resources = [_build_resource_data(one, status.at) for one in machines]
    data = {
        "schema": SCHEMA,
        "at": format_instant(status.at),
        "month": {
            "start": format_instant(status.month.start),
            "end": format_instant(status.month.end),
            "zone": status.zone,
            "label": status.label,
        },
        "burn_usd_per_hour": format_exact(status.usd.burn.stated, RATE_PLACES),
        "unpriced": build_unpriced_data(status),
        "month_to_date": format_interval_exact(status.usd.to_date),
        "forecast_month": format_interval_exact(status.usd.ahead.total),
        "forecast_month_if_unchanged": format_interval_exact(status.usd.ahead.if_unchanged),
        "forecast_basis": status.usd.ahead.basis,
        "other_currencies": [_build_currency_data(other) for other in status.others],
        "scopes": [_build_scope_data(scope) for scope in status.scopes],
        "resources": resources,
        "budgets": [build_budget_data(one, status.overshoots.get(one.budget.name)) for one in status.budgets],
        "runways": None if status.runways is None else [build_runway_data(one, status.at) for one in status.runways],
        "intents": [_build_intent_data(one) for one in status.intents],
        "warnings": list(warnings),
        "audit": audit or None,
    }
    if status.watchdogs:
        data["watchdogs"] = list(map(build_share_data, status.watchdogs))
    tables = [_build_table(machines, status.at, due)] if machines else []
    tables += [build_budget_table(status.budgets, status.overshoots, status.at)] if status.budgets else []
    return Document(
        data=data,
        records=tuple(_build_record(one, row) for one, row in zip(machines, resources, strict=True)),
        lead=(
            *list_head_lines(status, due, len(warnings)),
            *(f"WARNING: {line}" for line in limit_lines(warnings, "warnings")),
        ),
        tables=tuple(tables),
        notes=(*_list_sums(status, exchange, source), *_list_notes(status, machines)),
    )


def list_status_warnings(status: FleetStatus) -> Iterator[str]:
    """Yield a sentence for each reason why the figures are uncertain: scopes not read completely, unknown prices."""
    for scope in status.scopes:
        yield from _list_scope_warnings(scope, status)
    yield from list_share_warnings(status.watchdogs)
    for outlook in (status.usd, *status.others):
        if outlook.burn.unknown:
            yield _format_unpriced(outlook, status)
    surcharged = [one.live.observation for one in status.resources if one.surcharged]
    if surcharged:
        names = ", ".join(limit_lines([one.name or one.key.id for one in surcharged], "machines"))
        yield f"{len(surcharged)} surcharged: list prices without paid software, credits or dedicated hardware: {names}"
    for one in status.resources:
        for sentence in one.live.not_counted:
            key = one.live.observation.key
            yield f"{key.provider} {_shorten_name(key.id)} is not fully counted: {sentence}"


def _list_scope_warnings(scope: ScopeStatus, status: FleetStatus) -> Iterator[str]:
    if scope.unreached:
        yield describe_unreached_scope(scope.now.scope, scope.now.why)
    elif scope.ahead:
        yield describe_misdated_scope(scope.now.scope, scope.now.at)
    elif scope.unseen is not None:
        yield _format_unseen_scope(scope, status)
    elif scope.state == FAILED:
        yield f"{format_scope(scope.now.scope)} could not be queried{format_scope_reason(scope.now.why)}"
    elif scope.state == PARTIAL:
        yield f"{format_scope(scope.now.scope)} was not read completely{format_scope_reason(scope.now.why)}"


def build_incomplete_status_error(status: FleetStatus, warnings: Sequence[str] = ()) -> IncompleteError | None:
    """Return the error with which `--strict` refuses the status; None if it is complete.

    It is incomplete if a scope was not read completely lately, or if there are further warnings `warnings`.
    """
    doubtful = [scope for scope in status.scopes if scope.state != COMPLETE]
    if not doubtful and not warnings and status.scopes:
        return None
    missing = (
        f"{len(doubtful)} of {len(status.scopes)} scopes were not read completely" if doubtful else "not all could be queried"
    )
    names = (format_scope(scope.now.scope) for scope in doubtful if not scope.unreached)  # of the others `told` tells
    return IncompleteError(missing, hint="; ".join(limit_lines((*names, *warnings), "of them")) or "costguard doctor shows why")


def _format_unseen_scope(scope: ScopeStatus, status: FleetStatus) -> str:
    """Return a sentence: `aws/123/us-east-1 not read completely for 3 h: timeout`."""
    name, age = format_scope(scope.now.scope), format_length(status.at - scope.now.at)
    why = format_scope_reason(scope.now.why) if scope.now.outcome == scope.state else f": not queried for {age}"
    length = format_length(scope.unseen or status.at - status.at)
    return f"{name} was never read completely{why}" if scope.never else f"{name} not read completely for {length}{why}"


def _format_unpriced(outlook: CurrencyOutlook, status: FleetStatus) -> str:
    burns = [one.get_burn(outlook.currency) for one in status.resources]
    count = sum(burn.unknown for burn in burns)
    most = f"{get_currency_sign(outlook.currency)}{outlook.burn.unstated.format(RATE_PLACES)}"
    return f"{count} unpriced, at most {most} an hour: no price known, so the expected cost excludes them"


def _build_resource_data(one: ResourceBurn, at: datetime) -> dict[str, object]:
    """Return the data of a resource.

    `starts_at`: when a schedule starts it again, as far as nothing lasting holds that; None: none does. `stops_at`: for when a
    person planned its stop; None: nobody did.
    `usd_per_hour`: what is expected; None if nothing is. `usd_per_hour_bounds`: between what it lies; `usd_per_hour_interval`:
    all three, None if nothing is expected. `price`: how the price of computing is known: "stated" or a step of the price
    ladder; None if it bills none. `spent`: None if it is in another currency; see `other_currency`.
    """
    observation, key, live = one.live.observation, one.live.observation.key, one.live
    dollars = live.spent.low.currency == "USD"
    burn = one.get_burn()
    others = {b.currency: format_exact(b.stated, RATE_PLACES) for b in one.burns if b.currency != "USD"}
    return {
        "provider": key.provider,
        "account": key.account,
        "region": key.region,
        "id": key.id,
        "name": observation.name,
        "kind": observation.kind,
        "gpu": observation.gpu or None,
        "gpu_count": int(observation.gpu_count)
        if observation.gpu_count == int(observation.gpu_count)
        else observation.gpu_count,
        "tier": observation.tier,
        "state": one.state,
        "started_at": format_instant(observation.started_at) if observation.started_at else None,
        "starts_at": format_instant(one.beside.starts_at) if one.beside.starts_at else None,
        "stops_at": format_instant(one.beside.stops_at) if one.beside.stops_at else None,
        "usd_per_hour": format_stated_rate(one),
        "usd_per_hour_bounds": {"low": format_exact(burn.bounds.low, RATE_PLACES), "high": format_rate_bound(one)},
        "usd_per_hour_interval": build_rate_interval(one),
        "price": build_price_data(one),
        "spent": format_interval_exact(live.spent) if dollars else None,
        "other_currency": None
        if dollars and not others
        else {"per_hour": others, "spent": None if dollars else {live.spent.low.currency: format_interval_exact(live.spent)}},
        "owner": one.owner or None,
        "gpu_use": build_usage_data(one),
        "work": {
            "state": one.work.state,
            "confidence": one.work.confidence,
            "reasons": list(one.work.reasons),
            "since": format_instant(one.work.since) if one.work.since else None,
        },
        "lease": _build_lease_data(one.beside.lease),
        "protected": one.beside.protected,
        "agent": _build_agent_data(one.beside.agent, live, at),
        "first_seen_at": format_instant(live.first_seen_at),
        "seen_at": format_instant(live.seen_at),
        "absent_since": format_instant(live.absent_at) if live.absent_at else None,
    }


def _build_record(one: ResourceBurn, row: Mapping[str, object]) -> Mapping[str, object]:
    """Return the resource as one flat row. `row`: its data."""
    bounds = {
        "usd_per_hour_low": format_exact(one.get_burn().bounds.low, RATE_PLACES),
        "usd_per_hour_high": format_rate_bound(one),
    }
    spent = {f"spent_{end}": text for end, text in format_interval_exact(one.live.spent).items()}
    currency = {"currency": one.live.spent.low.currency}
    return (
        {key: row[key] for key in FLAT_KEYS}
        | bounds
        | currency
        | spent
        | {"owner": row["owner"], "work": one.work.state}
        | {"gpu_use": None if one.beside.usage is None else round(one.beside.usage.mean, 4)}
    )


def describe_status_source(*, run_at: datetime | None, asked_because: str, at: datetime, offline: bool) -> str:
    """Describe where a status comes from: a guard run and its age, or why the clouds were asked; "" where nothing is to say.

    `run_at`: of the run that stood for a poll, None: none did. `asked_because`: why the ledger did not do.
    """
    if run_at is not None:
        more = "" if offline else "; costguard status --ask queries the clouds"
        return f"As of the guard run {format_length(at - run_at)} ago{more}."
    return f"The clouds were queried: {asked_because}." if asked_because else ""


def _list_sums(status: FleetStatus, exchange: ExchangeRate | None, source: str) -> Iterator[str]:
    usd = status.usd
    scopes_read = sum(scope.seen for scope in status.scopes)
    read = f"; {scopes_read} of {len(status.scopes)} accounts read" if status.scopes else ""
    count = sum(one.get_burn().unknown for one in status.resources)
    unpriced = f"; {count} unpriced, at most ${usd.burn.unstated.format(RATE_PLACES)} an hour" if count else ""
    yield f"{format_local_time(status.at)}: ${usd.burn.stated.format(RATE_PLACES)} an hour{unpriced}{read}."
    if source:
        yield source
    if status.watchdogs:
        yield f"Accounts: {format_shares(status.watchdogs)}."
    month = status.label if status.zone == "UTC" else f"{status.label} ({status.zone})"
    yield f"{month}: ${format_interval(usd.to_date)}; forecast {format_forecast(usd.ahead)}."
    if exchange is not None:
        rate = exchange.convert(usd.burn.stated).format(RATE_PLACES)
        spent = format_interval(exchange.convert_interval(usd.to_date))
        ahead = format_interval(exchange.convert_interval(usd.ahead.total))
        yield f"In {exchange.currency}: {rate} an hour, {spent} so far, {ahead} by its end, {exchange.label}."
    yield from list_runway_lines(status.runways or (), status.at)
    for other in status.others:
        name = get_currency_sign(other.currency)
        burn, spent = other.burn.stated.format(RATE_PLACES), format_interval(other.to_date)
        yield f"In addition: {name}{burn} an hour, {name}{spent} so far, forecast {format_forecast(other.ahead)}."


def _build_table(machines: Sequence[ResourceBurn], at: datetime, due: DueActs) -> TableView:
    held_texts = {id(one): format_hold(one, due, at) for one in machines}
    hold_column: Column[ResourceBurn] = Column("", "held", lambda one: held_texts[id(one)])
    columns: tuple[Column[ResourceBurn], ...] = (
        Column("", "provider", lambda one: _shorten_name(one.live.observation.key.provider)),
        Column("", "account", lambda one: _shorten_name(one.live.observation.key.account)),
        Column("", "region", lambda one: _shorten_name(one.live.observation.key.region or "-")),
        Column("", "resource", _format_resource),
        Column("", "GPU", _format_gpu),
        Column("", "tier", lambda one: one.live.observation.tier if one.live.observation.kind == INSTANCE else "-"),
        Column("", "state", lambda one: format_state(one, at)),
        Column("", "up>", lambda one: format_uptime(one.live, at)),
        Column("", "$/h>", _format_rate),
        Column("", "spent>", _format_spend),
        Column("", "owner", lambda one: _shorten_name(one.owner or "-")),
        Column("", "work", lambda one: one.work.state),
        Column("", "use>", lambda one: format_usage(one.beside.usage)),
        *([hold_column] if any(text != "-" for text in held_texts.values()) else []),
    )
    shown = machines[:ROWS_MAX]
    keys = [one.live.observation.key for one in shown]
    ids = list_short_ids(keys)
    names = [_shorten_name(one.live.observation.name or one.live.observation.key.id) for one in shown]
    short = {"resource": add_short_ids(names, ids), "spent": tuple(_format_short_spend(one) for one in shown)}
    tones = tuple(_choose_tone(one) for one in shown)
    return replace(build_table(columns, shown), short=short, tones=tones, ids=ids)


def _format_short_spend(one: ResourceBurn) -> str:
    """Return the amount alone, or both ends where they are far apart."""
    spent = one.live.spent
    code = get_currency_sign(spent.low.currency)
    low, expected, high = format_amount_ends(spent)
    return f"{code}{low} to {high}" if is_wide(spent) and low != high else f"{code}{expected}"


def _choose_tone(one: ResourceBurn) -> str:
    if one.absent or one.unpriced or one.live.not_counted:
        return DOUBTFUL
    if one.work.state in ACTIVITY_TONES and one.live.observation.state == RUNNING:
        return ACTIVITY_TONES[one.work.state]
    return PLAIN if one.live.observation.state == RUNNING or one.live.observation.kind != INSTANCE else DIM


def _format_resource(one: ResourceBurn) -> str:
    name, id_ = one.live.observation.name, one.live.observation.key.id
    return f"{_shorten_name(name)} ({_shorten_name(id_)})" if name and name != id_ else _shorten_name(id_)


def _format_spend(one: ResourceBurn) -> str:
    spent = one.live.spent
    return f"{get_currency_sign(spent.low.currency)}{format_interval(spent)}"


def _shorten_name(name: str) -> str:
    return shorten(name, LONGEST_NAME)


def _format_gpu(one: ResourceBurn) -> str:
    observation = one.live.observation
    return (
        f"{_shorten_name(observation.gpu)} x{observation.gpu_count:g}"
        if observation.gpu
        else observation.kind
        if observation.kind != "instance"
        else "-"
    )


def _format_rate(one: ResourceBurn) -> str:
    """Return `2.4900`, `~2.4900` for an estimate, or `unknown (0 to 16.0000)`; other currencies have their code.

    `unknown` alone: there is no bound.
    """
    if one.unpriced:
        return "unknown"
    burns = one.burns or (one.get_burn(),)
    return " + ".join(
        _format_currency_rate(burn, absent=one.absent) for burn in burns if burn.bounds.high.nano or len(burns) == 1
    )


def _format_currency_rate(burn: HourlyBurn, *, absent: bool) -> str:
    code = "" if burn.currency == "USD" else get_currency_sign(burn.currency)
    bounds = format_bounds(burn.bounds.low, burn.bounds.high, RATE_PLACES)
    if burn.unknown:
        return f"unknown ({code}{bounds})"
    mark = "~" if burn.guessed else ""
    return f"{code}{bounds}" if absent and burn.bounds.high.nano else f"{mark}{code}{burn.stated.format(RATE_PLACES)}"


def _list_notes(status: FleetStatus, machines: Sequence[ResourceBurn]) -> Iterator[str]:
    if len(machines) < len(status.resources):
        yield f"{len(machines)} of {len(status.resources)} machines are shown; the sums are those of all."
    if len(machines) > ROWS_MAX:
        yield f"The first {ROWS_MAX} of {len(machines)} machines are shown; --json and --csv list all."
    yield from _list_silent_agents(status)
    yield from list_usage_lines(status.resources)
    absent = sum(one.absent for one in status.resources)
    if absent:
        yield f"{absent} absent: complete listings do not contain them, but their end is not confirmed; the burn excludes them."
    if any(burn.guessed for one in status.resources for burn in one.burns):
        yield "~: an estimate, from the last known price or from public prices. costguard status --json shows source and day."
    if status.usd.guessed is not None:
        yield f"${format_interval(status.usd.guessed)} of this month is at estimated prices."
    yield from list_own_price_notes(status)
    yield from (f"Budget {standing.budget.name}: {note}." for standing in status.budgets for note in standing.notes)


def _list_silent_agents(status: FleetStatus) -> Iterator[str]:
    """Yield a sentence for each machine whose agent sends no data."""
    agents = [one.beside.agent for one in status.resources if one.beside.agent is not None]
    for key, says in find_silent_agents(agents, (one.live for one in status.resources), status.at).items():
        yield f"{_shorten_name(key.id)}: {says}, so its activity is not reported."


def _build_currency_data(outlook: CurrencyOutlook) -> dict[str, object]:
    """Return the amounts of one currency other than the dollar."""
    return {
        "currency": outlook.currency,
        "burn_per_hour": format_exact(outlook.burn.stated, RATE_PLACES),
        "month_to_date": format_interval_exact(outlook.to_date),
        "forecast_month": format_interval_exact(outlook.ahead.total),
        "forecast_month_if_unchanged": format_interval_exact(outlook.ahead.if_unchanged),
    }


def _build_scope_data(scope: ScopeStatus) -> dict[str, object]:
    """Return the data of a scope.

    `at`: the time of the last listing, whatever its result.
    """
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
    """Return the owner, reason and end of a lease; None if there is none."""
    until = format_instant(lease.until) if lease and lease.until else None
    return {"who": lease.who, "why": lease.why, "until": until} if lease else None


def _build_agent_data(agent: Agent | None, live: LiveResource, at: datetime) -> Mapping[str, object] | None:
    """Return the state of a machine's agent; None if there is none.

    A silent agent means that activity is unknown, not that the machine is idle.
    """
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
    """Return an act that was planned or may have been sent, and whose result is open."""
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
