"""A simulation as a document: `costguard.simulate/1`.

It contains each would-be stop, the totals by policy, and what was not replayed. There is one record per would-be stop. Savings
are intervals by currency: the avoided compute cost, less the costs at rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from costguard.errors import shorten
from costguard.guard.replay.engine import REST_ENDINGS, STARTED
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
from costguard.views.document import Column, Document, TableView, build_record, build_table

SCHEMA = "costguard.simulate/1"
LONGEST_NAME = 48
MOST_REASONS = 5
"""Of why nothing could be said, that people are shown."""
FALSE_STOP_TEXTS = {YES: "yes", "no": "no", NOT_KNOWN: "not known"}


def build_simulation_document(simulation: Simulation) -> Document:
    """Return the document of the whole simulation."""
    stops = simulation.stops
    data = {
        "schema": SCHEMA,
        "at": format_instant(simulation.at),
        "period": {"start": format_instant(simulation.period.start), "end": format_instant(simulation.period.end)},
        "interval_s": int(simulation.interval.total_seconds()),
        "resources": simulation.resources,
        "hourly_until": format_instant(simulation.hourly_until) if simulation.hourly_until else None,
        "policies": [build_record(POLICY_COLUMNS, one) for one in simulation.policies],
        "totals": {
            "stops": len(stops),
            "machines": len({stop.key for stop in stops}),
            "suspected_false_stops": sum(stop.false_stop == YES for stop in stops),
            "saved": _build_money_data(simulation.saved),
        },
        "stops": [build_record(STOP_COLUMNS, stop) for stop in stops],
        "held": [build_record(HELD_COLUMNS, one) for one in _list_held_actions(simulation)],
        "not_replayed": list(simulation.not_replayed),
    }
    return Document(
        data=data,
        records=tuple(_build_stop_record(stop) for stop in stops),
        lead=(_format_summary(simulation, stops),),
        tables=tuple(_list_tables(simulation, stops)),
        notes=tuple(_list_notes(simulation, stops)),
    )


def list_simulation_warnings(simulation: Simulation) -> tuple[str, ...]:
    """Return warnings for users who read only the figures: the number of suspected false stops."""
    false = sum(stop.false_stop == YES for stop in simulation.stops)
    return (f"{false} of {len(simulation.stops)} would-be stops are suspected false stops",) if false else ()


def _build_stop_record(stop: SimulatedStop) -> Mapping[str, object]:
    record = build_record(STOP_COLUMNS, stop)
    names = ("provider", "account", "region", "id", "name", "owner", "policy", "act", "since", "noticed_at", "wanted_at", "at")
    flat = {name: record[name] for name in (*names, "until", "because", "false_stop", "worked_at")}
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


def _list_held_actions(simulation: Simulation) -> list[SimulatedHold]:
    return sorted((h for one in simulation.policies for h in one.held), key=lambda h: (h.since, h.life.key, h.policy))


def _format_summary(simulation: Simulation, stops: Sequence[SimulatedStop]) -> str:
    span = f"{format_local_time(simulation.period.start)} to {format_local_time(simulation.period.end)}"
    machines, false = len({stop.key for stop in stops}), sum(stop.false_stop == YES for stop in stops)
    if not stops:
        return f"{span}: of {simulation.resources} resources none would have been stopped."
    saved = _format_money(simulation.saved)
    summary = f"{len(stops)} would-be stops of {machines} machines, {saved} saved, less costs while stopped"
    started = sum(stop.because == STARTED for stop in stops)
    again = f"; {started} of them started again by their schedule" if started else ""
    return f"{span}: {summary}; {false} of them were active again within the hour{again}."


def _format_money(money: Sequence[MoneyInterval]) -> str:
    return ", ".join(f"{get_currency_sign(one.low.currency)}{format_interval(one)}" for one in money) or "nothing"


def _list_tables(simulation: Simulation, stops: Sequence[SimulatedStop]) -> Iterator[TableView]:
    yield build_table(POLICY_COLUMNS, simulation.policies, title="By policy")
    if stops:
        headings = ("machine", "owner", "policy", "since", "noticed", "stopped", "until", "because", "saved>", "false stop")
        yield build_table(STOP_COLUMNS, stops, headings, title="Machines that would have been stopped")
    held_actions = _list_held_actions(simulation)
    if held_actions:
        yield build_table(HELD_COLUMNS, held_actions, title="Held back")


def _format_stop_time(stop: SimulatedStop) -> str:
    late = f" (wanted {format_local_time(stop.wanted_at)})" if stop.at > stop.wanted_at else ""
    return f"{format_local_time(stop.at)}{late}"


def _format_false_stop(stop: SimulatedStop) -> str:
    if stop.worked_at is not None and stop.false_stop == YES:
        return f"yes: active after {format_length(stop.worked_at - stop.at)}"
    return FALSE_STOP_TEXTS[stop.false_stop]


def _list_reasons(reasons: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"reason": reason, "says": says} for reason, says in reasons]


def _format_optional(at: datetime | None) -> str | None:
    return format_instant(at) if at else None


def _format_machine_name(provider: str, name: str, id_: str) -> str:
    text = f"{name} ({id_})" if name and name != id_ else id_
    return f"{provider} {shorten(text, LONGEST_NAME)}"


def _list_notes(simulation: Simulation, stops: Sequence[SimulatedStop]) -> Iterator[str]:
    if any(stop.false_stop == NOT_KNOWN for stop in stops):
        yield f"Not known: {FALSE_STOP_ANSWERS[NOT_KNOWN]}."
    if simulation.hourly_until is not None:
        until = format_local_time(simulation.hourly_until)
        yield f"Until {until} only hourly samples are kept: an hour with any activity counts as active."
    for one in simulation.policies:
        why = [f"{reason} ({_to_hours(length):.1f} h)" for reason, length in one.blind.reasons[:MOST_REASONS]]
        if why:
            yield f"{one.name} had no data: {'; '.join(why)}."
    yield from limit_lines((f"Not replayed: {description}." for description in simulation.not_replayed), "lines")


POLICY_COLUMNS: tuple[Column[PolicySimulation], ...] = (
    Column("name", "policy", lambda one: one.name),
    Column("armed_today", "armed", lambda one: one.level),
    Column("stops", "stops>", lambda one: len(one.stops)),
    Column("machines", "machines>", lambda one: one.machines),
    Column(
        "saved", "saved>", lambda one: _build_money_data(one.saved), lambda one: _format_money(one.saved) if one.stops else "-"
    ),
    Column("suspected_false_stops", "false>", lambda one: one.count_false_stops()),
    Column(
        "suspected_false_share",
        "",
        lambda one: round(one.count_false_stops() / len(one.stops), 4) if one.stops else None,
    ),
    Column("false_stops_not_known", "unknown>", lambda one: one.count_false_stops(NOT_KNOWN)),
    Column("held_back", "held>", lambda one: len(one.held)),
    Column("notices", "notices>", lambda one: one.notices),
    Column("questions", "questions>", lambda one: one.questions),
    Column(
        "blind_hours",
        "blind h>",
        lambda one: _to_hours(one.blind.total),
        lambda one: f"{one.blind.total.total_seconds() / 3600:.1f}",
    ),
    Column("blind", "", lambda one: [{"reason": reason, "hours": _to_hours(length)} for reason, length in one.blind.reasons]),
)
STOP_COLUMNS: tuple[Column[SimulatedStop], ...] = (
    Column("provider", "", lambda stop: stop.key.provider),
    Column("account", "", lambda stop: stop.key.account),
    Column("region", "", lambda stop: stop.key.region),
    Column(
        "id", "machine", lambda stop: stop.key.id, lambda stop: _format_machine_name(stop.key.provider, stop.name, stop.key.id)
    ),
    Column("name", "", lambda stop: stop.name),
    Column("owner", "owner", lambda stop: stop.owner or None, lambda stop: shorten(stop.owner or "-", LONGEST_NAME)),
    Column("gpu", "", lambda stop: stop.gpu or None),
    Column("life_started_at", "", lambda stop: _format_optional(stop.life.started_at)),
    Column("policy", "policy", lambda stop: stop.policy),
    Column("act", "", lambda stop: stop.act),
    Column(
        "work",
        "",
        lambda stop: {"state": stop.work.state, "confidence": stop.work.confidence, "reasons": list(stop.work.reasons)},
    ),
    Column(
        "since",
        "since",
        lambda stop: _format_optional(stop.since),
        lambda stop: format_local_time(stop.since) if stop.since else "-",
    ),
    Column(
        "noticed_at",
        "noticed",
        lambda stop: _format_optional(stop.told_at),
        lambda stop: format_local_time(stop.told_at) if stop.told_at else "-",
    ),
    Column("wanted_at", "", lambda stop: format_instant(stop.wanted_at)),
    Column("at", "stopped", lambda stop: format_instant(stop.at), _format_stop_time),
    Column("held_by", "", lambda stop: _list_reasons(stop.held_by)),
    Column("until", "until", lambda stop: format_instant(stop.until), lambda stop: format_local_time(stop.until)),
    Column("because", "because", lambda stop: stop.because, lambda stop: REST_ENDINGS[stop.because]),
    Column("false_stop", "false stop", lambda stop: stop.false_stop, _format_false_stop),
    Column("worked_at", "", lambda stop: _format_optional(stop.worked_at)),
    Column("avoided", "", lambda stop: _build_money_data(stop.avoided)),
    Column("at_rest", "", lambda stop: _build_money_data(stop.at_rest)),
    Column("saved", "saved>", lambda stop: _build_money_data(stop.saved), lambda stop: _format_money(stop.saved)),
)
HELD_COLUMNS: tuple[Column[SimulatedHold], ...] = (
    Column("provider", "", lambda one: one.life.key.provider),
    Column("account", "", lambda one: one.life.key.account),
    Column("region", "", lambda one: one.life.key.region),
    Column(
        "id",
        "machine",
        lambda one: one.life.key.id,
        lambda one: _format_machine_name(one.life.key.provider, one.name, one.life.key.id),
    ),
    Column("name", "", lambda one: one.name),
    Column("owner", "owner", lambda one: one.owner or None, lambda one: shorten(one.owner or "-", LONGEST_NAME)),
    Column("policy", "policy", lambda one: one.policy),
    Column("act", "act", lambda one: one.act),
    Column("since", "from", lambda one: format_instant(one.since), lambda one: format_local_time(one.since)),
    Column("until", "until", lambda one: format_instant(one.until), lambda one: format_local_time(one.until)),
    Column("by_rails", "", lambda one: one.rails),
    Column(
        "held_by",
        "held back by",
        lambda one: _list_reasons(one.reasons),
        lambda one: "; ".join(dict.fromkeys(says for _, says in one.reasons)) or "-",
    ),
)
