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


def build_policy_change_document(before: Simulation, after: Simulation) -> Document:
    """Return the comparison. Both replay the same history."""
    figures = tuple(compare_simulations(before, after))
    table = TableView(
        title="Before and after",
        columns=("what", "as it is>", "as changed>", "difference>"),
        rows=tuple(figures),
    )
    records = tuple(one._asdict() for one in figures)
    return Document(
        data={"schema": "costguard.policy_change/1", "figures": list(records)},
        records=records,
        lead=(_format_lead(before, after),),
        tables=(table,),
        notes=tuple(_list_differences(before, after)),
    )


def compare_simulations(before: Simulation, after: Simulation) -> Iterator[ComparedFigure]:
    """Yield each figure of both."""
    yield _compare_counts("would-be stops", len(before.stops), len(after.stops))
    yield _compare_counts("machines", len(_list_machines(before)), len(_list_machines(after)))
    yield _compare_hours(_sum_rest(before), _sum_rest(after))
    for currency in sorted({one.low.currency for found in (before, after) for one in found.saved} or {"USD"}):
        yield _compare_money(_find_saved(before, currency), _find_saved(after, currency))
    yield _compare_counts("stops of machines that worked again within the hour", _count_false(before), _count_false(after))
    for name, attribute in (("notices", "notices"), ("questions", "questions")):
        counts = (sum(getattr(one, attribute) for one in found.policies) for found in (before, after))
        yield _compare_counts(name, *counts)
    yield _compare_counts("acts that were held back", *(sum(len(one.held) for one in of.policies) for of in (before, after)))


def _format_lead(before: Simulation, after: Simulation) -> str:
    gained, lost = _list_machines(after) - _list_machines(before), _list_machines(before) - _list_machines(after)
    if not before.stops and not after.stops:
        return "Neither would have stopped anything in this history."
    if not gained and not lost:
        return "Both would have stopped the same machines."
    return f"The change would have stopped {len(gained)} machines more, and {len(lost)} no longer."


def _list_differences(before: Simulation, after: Simulation) -> Iterator[str]:
    """Yield the machines that only one of them stops."""
    for found, other, told in ((after, before, "Stopped only as changed"), (before, after, "No longer stopped")):
        seen = _list_machines(other)
        only = {stop.key: stop for stop in found.stops if stop.key not in seen}
        yield from limit_lines([f"{told}: {_name_machine(stop)}" for stop in only.values()][:MACHINES_SHOWN_MAX], "machines")
    yield from (f"Not replayed: {told}." for told in dict.fromkeys((*before.not_replayed, *after.not_replayed)))


def _name_machine(stop: SimulatedStop) -> str:
    owner = f" of {stop.owner}" if stop.owner else ""
    again = ", which worked again within the hour" if stop.false_stop == YES else ""
    return f"{stop.name or stop.key.id}{owner} ({stop.gpu or 'no GPU'}){again}"


def _list_machines(found: Simulation) -> set[object]:
    return {stop.key for stop in found.stops}


def _sum_rest(found: Simulation) -> timedelta:
    return sum((stop.until - stop.at for stop in found.stops), timedelta())


def _count_false(found: Simulation) -> int:
    return sum(stop.false_stop == YES for stop in found.stops)


def _find_saved(found: Simulation, currency: str) -> MoneyInterval:
    return next((one for one in found.saved if one.low.currency == currency), make_zero_interval(currency))


def _compare_counts(name: str, before: int, after: int) -> ComparedFigure:
    return ComparedFigure(name, str(before), str(after), f"{after - before:+d}" if after != before else "")


def _compare_hours(before: timedelta, after: timedelta) -> ComparedFigure:
    hours = [one.total_seconds() / 3600 for one in (before, after)]
    more = f"{hours[1] - hours[0]:+.1f}" if before != after else ""
    return ComparedFigure("machine-hours at rest", f"{hours[0]:.1f}", f"{hours[1]:.1f}", more)


def _compare_money(before: MoneyInterval, after: MoneyInterval) -> ComparedFigure:
    """Compare savings net of what goes on at rest; the difference is that of what is expected."""
    sign = get_currency_sign(before.low.currency)
    more: Money = after.expected - before.expected
    told = f"{'+' if more.nano > 0 else '-'}{sign}{more.format(2).removeprefix('-')}" if more.nano else ""
    was, now = (f"{sign}{format_interval(one)}" for one in (before, after))
    return ComparedFigure(f"saved, {before.low.currency}", was, now, told)
