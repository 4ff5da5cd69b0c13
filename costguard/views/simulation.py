"""A simulation as a document: `costguard.simulate/1`: each would-be stop, the totals by policy, and what could not be said.

One record a would-be stop. Money is an interval a currency: what computing was not paid, less what goes on at rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from costguard.errors import shorten
from costguard.guard.replay.engine import REST_ENDINGS
from costguard.guard.replay.simulation import (
    FALSE_STOP_ANSWERS,
    NOT_KNOWN,
    YES,
    PolicySimulation,
    SimulatedHold,
    SimulatedStop,
    Simulation,
)
from costguard.values.money import MoneyInterval
from costguard.values.text_format import (
    format_instant,
    format_interval,
    format_interval_exact,
    format_length,
    format_local_time,
    get_currency_sign,
    limit_lines,
)
from costguard.views.document import Document, TableView

SCHEMA = "costguard.simulate/1"
LONGEST_NAME = 48
MOST_REASONS = 5
"""Of why nothing could be said, that people are shown."""
POLICY_COLUMNS = (
    "policy", "armed", "stops>", "machines>", "saved>", "false>", "unknown>", "held>", "notices>", "asks>", "blind h>",
)  # fmt: skip
STOP_COLUMNS = ("machine", "owner", "policy", "since", "noticed", "stopped", "until", "because", "saved>", "false stop")
HELD_COLUMNS = ("machine", "owner", "policy", "act", "from", "until", "held back by")
FALSE_STOP_TEXTS = {YES: "yes", "no": "no", NOT_KNOWN: "not known"}


def build_simulation_document(found: Simulation) -> Document:
    """The whole simulation."""
    stops = found.stops
    data = {
        "schema": SCHEMA,
        "at": format_instant(found.at),
        "period": {"start": format_instant(found.period.start), "end": format_instant(found.period.end)},
        "interval_s": int(found.interval.total_seconds()),
        "resources": found.resources,
        "hourly_until": format_instant(found.hourly_until) if found.hourly_until else None,
        "policies": [_build_policy_data(one) for one in found.policies],
        "totals": {
            "stops": len(stops),
            "machines": len({stop.key for stop in stops}),
            "suspected_false_stops": sum(stop.false_stop == YES for stop in stops),
            "saved": _build_money_data(found.saved),
        },
        "stops": [_build_stop_data(stop) for stop in stops],
        "held": [_build_held_data(one) for one in _list_held_actions(found)],
        "not_replayed": list(found.not_replayed),
    }
    return Document(
        data=data,
        records=tuple(_build_stop_record(stop) for stop in stops),
        lead=(_format_summary(found, stops),),
        tables=tuple(_list_tables(found, stops)),
        notes=tuple(_list_notes(found, stops)),
    )


def list_simulation_warnings(found: Simulation) -> tuple[str, ...]:
    """What whoever reads figures alone should know."""
    false = sum(stop.false_stop == YES for stop in found.stops)
    return (f"{false} of {len(found.stops)} would-be stops are suspected false stops",) if false else ()


def _build_policy_data(one: PolicySimulation) -> dict[str, object]:
    stops = len(one.stops)
    return {
        "name": one.name,
        "armed_today": one.level,
        "stops": stops,
        "machines": one.machines,
        "saved": _build_money_data(one.saved),
        "suspected_false_stops": one.count_false_stops(),
        "suspected_false_share": round(one.count_false_stops() / stops, 4) if stops else None,
        "false_stops_not_known": one.count_false_stops(NOT_KNOWN),
        "held_back": len(one.held),
        "notices": one.notices,
        "questions": one.questions,
        "blind_hours": _to_hours(one.blind.total),
        "blind": [{"reason": reason, "hours": _to_hours(length)} for reason, length in one.blind.reasons],
    }


def _build_stop_data(stop: SimulatedStop) -> dict[str, object]:
    key = stop.key
    return {
        "provider": key.provider,
        "account": key.account,
        "region": key.region,
        "id": key.id,
        "name": stop.name,
        "owner": stop.owner or None,
        "gpu": stop.gpu or None,
        "life_started_at": format_instant(stop.life.started_at) if stop.life.started_at else None,
        "policy": stop.policy,
        "act": stop.act,
        "work": {"state": stop.work.state, "confidence": stop.work.confidence, "reasons": list(stop.work.reasons)},
        "since": format_instant(stop.since) if stop.since else None,
        "noticed_at": format_instant(stop.told_at) if stop.told_at else None,
        "wanted_at": format_instant(stop.wanted_at),
        "at": format_instant(stop.at),
        "held_by": [{"reason": reason, "says": says} for reason, says in stop.held_by],
        "until": format_instant(stop.until),
        "because": stop.because,
        "false_stop": stop.false_stop,
        "worked_at": format_instant(stop.worked_at) if stop.worked_at else None,
        "avoided": _build_money_data(stop.avoided),
        "at_rest": _build_money_data(stop.at_rest),
        "saved": _build_money_data(stop.saved),
    }


def _build_held_data(one: SimulatedHold) -> dict[str, object]:
    key = one.life.key
    return {
        "provider": key.provider,
        "account": key.account,
        "region": key.region,
        "id": key.id,
        "name": one.name,
        "owner": one.owner or None,
        "policy": one.policy,
        "act": one.act,
        "since": format_instant(one.since),
        "until": format_instant(one.until),
        "by_rails": one.rails,
        "held_by": [{"reason": reason, "says": says} for reason, says in one.reasons],
    }


def _build_stop_record(stop: SimulatedStop) -> Mapping[str, object]:
    whole = _build_stop_data(stop)
    names = ("provider", "account", "region", "id", "name", "owner", "policy", "act", "since", "noticed_at", "wanted_at", "at")
    flat = {name: whole[name] for name in (*names, "until", "because", "false_stop", "worked_at")}
    saved = next(iter(stop.saved), None)
    money = {f"saved_{end}": text for end, text in format_interval_exact(saved).items()} if saved else dict.fromkeys(_ENDS)
    return flat | {"held_by": " ".join(reason for reason, _ in stop.held_by)} | money | _build_currency_data(saved)


_ENDS = ("saved_low", "saved_expected", "saved_high")


def _build_currency_data(saved: MoneyInterval | None) -> dict[str, object]:
    return {"currency": saved.low.currency if saved else None}


def _build_money_data(money: Sequence[MoneyInterval]) -> list[dict[str, str]]:
    return [{"currency": one.low.currency} | format_interval_exact(one) for one in money]


def _to_hours(length: timedelta) -> float:
    return round(length.total_seconds() / 3600, 4)


def _list_held_actions(found: Simulation) -> list[SimulatedHold]:
    return sorted((h for one in found.policies for h in one.held), key=lambda h: (h.since, h.life.key, h.policy))


def _format_summary(found: Simulation, stops: Sequence[SimulatedStop]) -> str:
    span = f"{format_local_time(found.period.start)} to {format_local_time(found.period.end)}"
    machines, false = len({stop.key for stop in stops}), sum(stop.false_stop == YES for stop in stops)
    if not stops:
        return f"{span}: of {found.resources} resources none would have been stopped."
    saved = _format_money(found.saved)
    told = f"{len(stops)} would-be stops of {machines} machines, {saved} saved net of what goes on at rest"
    return f"{span}: {told}; {false} of them worked again within the hour."


def _format_money(money: Sequence[MoneyInterval]) -> str:
    return ", ".join(f"{get_currency_sign(one.low.currency)}{format_interval(one)}" for one in money) or "nothing"


def _list_tables(found: Simulation, stops: Sequence[SimulatedStop]) -> Iterator[TableView]:
    yield TableView(title="By policy", columns=POLICY_COLUMNS, rows=tuple(_build_policy_row(one) for one in found.policies))
    if stops:
        yield TableView(
            title="Machines that would have been stopped",
            columns=STOP_COLUMNS,
            rows=tuple(_build_stop_row(stop) for stop in stops),
        )
    held = _list_held_actions(found)
    if held:
        yield TableView(title="Held back", columns=HELD_COLUMNS, rows=tuple(_build_held_row(one) for one in held))


def _build_policy_row(one: PolicySimulation) -> tuple[str, ...]:
    counts = (one.count_false_stops(), one.count_false_stops(NOT_KNOWN), len(one.held), one.notices, one.questions)
    head = (one.name, one.level, str(len(one.stops)), str(one.machines), _format_money(one.saved) if one.stops else "-")
    return (*head, *map(str, counts), f"{one.blind.total.total_seconds() / 3600:.1f}")


def _build_stop_row(stop: SimulatedStop) -> tuple[str, ...]:
    late = f" (wanted {format_local_time(stop.wanted_at)})" if stop.at > stop.wanted_at else ""
    false = FALSE_STOP_TEXTS[stop.false_stop]
    if stop.worked_at is not None and stop.false_stop == YES:
        false = f"yes: worked after {format_length(stop.worked_at - stop.at)}"
    return (
        _format_machine_name(stop.key.provider, stop.name, stop.key.id),
        shorten(stop.owner or "-", LONGEST_NAME),
        stop.policy,
        format_local_time(stop.since) if stop.since else "-",
        format_local_time(stop.told_at) if stop.told_at else "-",
        f"{format_local_time(stop.at)}{late}",
        format_local_time(stop.until),
        REST_ENDINGS[stop.because],
        _format_money(stop.saved),
        false,
    )


def _build_held_row(one: SimulatedHold) -> tuple[str, ...]:
    by = "; ".join(dict.fromkeys(says for _, says in one.reasons)) or "-"
    who = (_format_machine_name(one.life.key.provider, one.name, one.life.key.id), shorten(one.owner or "-", LONGEST_NAME))
    return (*who, one.policy, one.act, format_local_time(one.since), format_local_time(one.until), by)


def _format_machine_name(provider: str, name: str, id_: str) -> str:
    told = f"{name} ({id_})" if name and name != id_ else id_
    return f"{provider} {shorten(told, LONGEST_NAME)}"


def _list_notes(found: Simulation, stops: Sequence[SimulatedStop]) -> Iterator[str]:
    if any(stop.false_stop == NOT_KNOWN for stop in stops):
        yield f"Not known: {FALSE_STOP_ANSWERS[NOT_KNOWN]}."
    if found.hourly_until is not None:
        until = format_local_time(found.hourly_until)
        yield f"Until {until} samples are kept by the hour: an hour with any work in it counts as work all through."
    for one in found.policies:
        why = [f"{reason} ({_to_hours(length):.1f} h)" for reason, length in one.blind.reasons[:MOST_REASONS]]
        if why:
            yield f"{one.name} could not judge: {'; '.join(why)}."
    yield from limit_lines((f"Not replayed: {told}." for told in found.not_replayed), "lines")
