"""Two simulations of one policy, as it is and as changed, compared: what would be stopped, for how long, for what money."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

from costguard.guard.replay.simulation import YES, SimulatedStop, Simulation
from costguard.values.money import Money, MoneyInterval, make_zero_interval
from costguard.values.text_format import format_interval, get_currency_sign, limit_lines
from costguard.views.document import Document, TableView

MACHINES_SHOWN_MAX = 20


class ComparedFigure(NamedTuple):
    """One figure of both, in words. `difference`: "" where there is none."""

    name: str
    before: str
    after: str
    difference: str


def build_policy_change_document(old: Simulation, new: Simulation) -> Document:
    """Return the comparison. Both replay the same history."""
    figures = tuple(compare_simulations(old, new))
    table = TableView(
        title="Before and after",
        columns=("what", "before>", "after>", "difference>"),
        rows=tuple(figures),
    )
    records = tuple(one._asdict() for one in figures)
    return Document(
        data={"schema": "costguard.policy_change/1", "figures": list(records)},
        records=records,
        lead=(_format_lead(old, new),),
        tables=(table,),
        notes=tuple(_list_differences(old, new)),
    )


def compare_simulations(old: Simulation, new: Simulation) -> Iterator[ComparedFigure]:
    """Yield each figure of both."""
    yield _compare_counts("would-be stops", len(old.stops), len(new.stops))
    yield _compare_counts("machines", len(_list_machines(old)), len(_list_machines(new)))
    yield _compare_hours(_sum_rest(old), _sum_rest(new))
    for currency in sorted({one.low.currency for simulation in (old, new) for one in simulation.saved} or {"USD"}):
        yield _compare_money(_find_saved(old, currency), _find_saved(new, currency))
    yield _compare_counts("stops of machines that were active again within the hour", _count_false(old), _count_false(new))
    for name, attribute in (("notices", "notices"), ("questions", "questions")):
        counts = (sum(getattr(one, attribute) for one in simulation.policies) for simulation in (old, new))
        yield _compare_counts(name, *counts)
    yield _compare_counts("acts that were held back", *(sum(len(one.held) for one in of.policies) for of in (old, new)))


def _format_lead(old: Simulation, new: Simulation) -> str:
    gained, lost = _list_machines(new) - _list_machines(old), _list_machines(old) - _list_machines(new)
    if not old.stops and not new.stops:
        return "Neither version would have stopped a machine in this history."
    if not gained and not lost:
        return "Both versions would have stopped the same machines."
    return f"The change would have stopped {len(gained)} more and {len(lost)} fewer machines."


def _list_differences(old: Simulation, new: Simulation) -> Iterator[str]:
    """Yield the machines that only one of them stops."""
    for simulation, other, label in ((new, old, "Stopped only after the change"), (old, new, "Stopped only before the change")):
        other_machines = _list_machines(other)
        only = {stop.key: stop for stop in simulation.stops if stop.key not in other_machines}
        yield from limit_lines([f"{label}: {_name_machine(stop)}" for stop in only.values()][:MACHINES_SHOWN_MAX], "machines")
    yield from (f"Not replayed: {label}." for label in dict.fromkeys((*old.not_replayed, *new.not_replayed)))


def _name_machine(stop: SimulatedStop) -> str:
    owner = f" of {stop.owner}" if stop.owner else ""
    again = ", which was active again within the hour" if stop.false_stop == YES else ""
    return f"{stop.name or stop.key.id}{owner} ({stop.gpu or 'no GPU'}){again}"


def _list_machines(simulation: Simulation) -> set[object]:
    return {stop.key for stop in simulation.stops}


def _sum_rest(simulation: Simulation) -> timedelta:
    return sum((stop.until - stop.at for stop in simulation.stops), timedelta())


def _count_false(simulation: Simulation) -> int:
    return sum(stop.false_stop == YES for stop in simulation.stops)


def _find_saved(simulation: Simulation, currency: str) -> MoneyInterval:
    return next((one for one in simulation.saved if one.low.currency == currency), make_zero_interval(currency))


def _compare_counts(name: str, old: int, new: int) -> ComparedFigure:
    return ComparedFigure(name, str(old), str(new), f"{new - old:+d}" if new != old else "")


def _compare_hours(old: timedelta, new: timedelta) -> ComparedFigure:
    hours = [one.total_seconds() / 3600 for one in (old, new)]
    more = f"{hours[1] - hours[0]:+.1f}" if old != new else ""
    return ComparedFigure("machine-hours stopped", f"{hours[0]:.1f}", f"{hours[1]:.1f}", more)


def _compare_money(old: MoneyInterval, new: MoneyInterval) -> ComparedFigure:
    """Compare savings net of what goes on at rest; the difference is that of what is expected."""
    sign = get_currency_sign(old.low.currency)
    more: Money = new.expected - old.expected
    difference = f"{'+' if more.nano > 0 else '-'}{sign}{more.format(2).removeprefix('-')}" if more.nano else ""
    was, now = (f"{sign}{format_interval(one)}" for one in (old, new))
    return ComparedFigure(f"saved, {old.low.currency}", was, now, difference)
