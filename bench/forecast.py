"""The month's forecast against simpler ways: `python -m bench.forecast [SEEDS]` (20 seeds a lab, half a minute).

Three labs (`bench.forecast_labs`) are drawn from seeds 0 and up; the constants of `budgets.spend_forecast` were chosen on seeds
from 100 on. Looks are on days 3, 10 and 20 of three months, at 04:00, 14:00 and 20:00, with 4 to 13 weeks of history; the
machines that run then are all that a forecast knows of the future. The fourth source is a ledger: the polls of each lab are
recorded hour by hour by the product, and the forecast is the one of `costguard status`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path
from statistics import median

from bench.forecast_labs import LABS, LabMachine, draw_lab
from bench.measured import Measured, table
from costguard.budgets.spend_forecast import PastHours, forecast_spend
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.burn import AttributedBurn
from costguard.metering.inventory import Complete, Poll
from costguard.metering.observation import Observation, Price
from costguard.services.guarding.status import build_totals
from costguard.values.money import NANO, Money, MoneyInterval, Rate
from costguard.values.resource import INSTANCE, Attribution, ResourceKey, ScopeKey

BEGUN = datetime(2026, 6, 1, tzinfo=UTC)
"""A Monday, the first of a month."""
MONTHS = ((30, 31), (61, 31), (92, 30))
"""July, August and September: the days before them since `BEGUN`, and their length."""
DAYS = 122
LOOK_DAYS, LOOK_HOURS, HOUR = (3, 10, 20), (4, 14, 20), timedelta(hours=1)
LEDGER, LEDGER_SEED = "ledger", 50
SCOPE = ScopeKey("lab", "lab", "all")
WHERE = Attribution(provider="lab", account="lab", region="all", kind=INSTANCE)
TARGETS = {3: 0.35, 10: 0.11, 20: 0.08}
COVERED_MIN, COVERED_MAX = 0.76, 0.90


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look at one month, in dollars: what each way said, and what came. `total`: low, expected and high of the forecast."""

    source: str
    day: int
    actual: float
    total: tuple[float, float, float]
    simpler: dict[str, float]

    def get_error(self, way: str) -> float:
        """Return the relative error of `way`; "": of the forecast."""
        return abs((self.simpler[way] if way else self.total[1]) / self.actual - 1)


class Lab:
    """The machines of a lab, and what they cost hour by hour. `sums[h]`: in the first h hours."""

    def __init__(self, name: str, seed: int) -> None:
        self.machines = draw_lab(name, seed, DAYS)
        self.costs = _sum_by_hour(self.machines)
        self.sums = list(accumulate(self.costs, initial=0.0))

    def list_running(self, hour: int) -> list[LabMachine]:
        """Return the machines that run at `hour`."""
        return [one for one in self.machines if one.start <= hour < one.end]

    def forecast(self, hour: int, spent: float, left: int) -> tuple[tuple[float, float, float], float]:
        """Return the forecast of the product without a ledger, and the cost if what runs goes on."""
        running = self.list_running(hour)
        closed = _sum_by_hour([one for one in self.machines if one.end <= hour])[:hour]
        first, now = int(BEGUN.timestamp()) // 3600, BEGUN + hour * HOUR
        past = PastHours(first=first, costs=tuple(round(cost * NANO) for cost in closed))
        burns = [
            AttributedBurn(attribution=WHERE, hourly=_to_interval(one.rate), since=BEGUN + one.start * HOUR) for one in running
        ]
        ahead = forecast_spend(_to_interval(spent), past, burns, now=now, left=left * HOUR)
        return _to_dollars(ahead.total), _to_dollars(ahead.if_unchanged)[1]


def main(seeds: int = 20) -> int:
    """Print the table; return 1 if a target is missed."""
    looks = [look for name in LABS for seed in range(seeds) for look in look_at_lab(name, Lab(name, seed))]
    with tempfile.TemporaryDirectory() as folder:
        for name in LABS:
            looks += look_at_ledger(Path(folder) / f"{name}.db", Lab(name, LEDGER_SEED))
    ways = [*looks[0].simpler, ""]
    print(f"{len(looks)} looks; median errors in %, on days {', '.join(map(str, LOOK_DAYS))}, and of all looks")
    for source in (*LABS, LEDGER):
        for way in ways:
            of = [look for look in looks if look.source == source]
            days = [median(look.get_error(way) for look in of if look.day == day) for day in LOOK_DAYS]
            print(f"  {source:<8} {way or 'forecast':<22}", *(f"{100 * error:6.1f}" for error in days), end="")
            print(f"  {100 * median(look.get_error(way) for look in of):6.1f}")
    return bool(table(_measure(looks)))


def _measure(looks: Sequence[Look]) -> Iterator[Measured]:
    for day, target in TARGETS.items():
        of = [look for look in looks if look.day == day]
        error, now = median(look.get_error("") for look in of), median(look.get_error("if what runs goes on") for look in of)
        line = median(look.get_error("straight line") for look in of)
        reached = f"{error:.1%} (straight line {line:.1%}, if what runs goes on {now:.1%})"
        yield Measured(what=f"median error on day {day}", target=f"<= {target:.0%}", reached=reached, met=error <= target)
    for source in (*LABS, LEDGER):
        of = [look for look in looks if look.source == source]
        error, line = (median(look.get_error(way) for look in of) for way in ("", "straight line"))
        what = f"median error over all looks: {source}"
        yield Measured(what=what, target="<= line", reached=f"{error:.1%} (straight line {line:.1%})", met=error <= line)
    for source in ("", *LABS, LEDGER):
        of = [look for look in looks if source in ("", look.source)]
        share = sum(look.total[0] <= look.actual <= look.total[2] for look in of) / len(of)
        width = median((look.total[2] - look.total[0]) / look.actual for look in of)
        what, reached = f"month inside its 80 % interval: {source or 'all'}", f"{share:.0%} (median width {width:.0%})"
        is_met = COVERED_MIN <= share <= COVERED_MAX if not source else None
        yield Measured(what=what, target="" if source else "76-90 %", reached=reached, met=is_met)


def look_at_lab(name: str, lab: Lab) -> Iterator[Look]:
    """Yield every look at the lab's months."""
    for start, hour, end, day in _list_looks():
        total, unchanged = lab.forecast(hour, lab.sums[hour] - lab.sums[start], end - hour)
        yield _make_look(name, lab, (start, hour, end, day), total, unchanged)


def look_at_ledger(path: Path, lab: Lab) -> Iterator[Look]:
    """Yield the same looks at a ledger into which the lab's machines were polled, each hour and when one begins or ends."""
    url, places = f"sqlite:///{path}", {hour: place for place in _list_looks() for hour in (place[1],)}
    moments = {float(hour) for hour in range(DAYS * 24)} | {at for one in lab.machines for at in (one.start, one.end)}
    with LedgerWriter(url, rules={}, ceilings={}) as writer, SpendingReader(url, rules={}) as books:
        for moment in sorted(moments):
            at = BEGUN + moment * HOUR
            seen = [_observe(number, one) for number, one in enumerate(lab.machines) if one.start <= moment < one.end]
            writer.record_polls([Poll(scope=SCOPE, at=at, inventory=Complete(tuple(seen)))])
            if (place := places.get(int(moment)) if moment.is_integer() else None) is not None:
                usd, _ = build_totals(books=books, now=at, zone=UTC, live=books.load_live(at))
                unchanged = _to_dollars(usd.ahead.if_unchanged)[1]
                yield _make_look(LEDGER, lab, place, _to_dollars(usd.ahead.total), unchanged)


def _make_look(
    source: str, lab: Lab, place: tuple[int, int, int, int], total: tuple[float, float, float], unchanged: float
) -> Look:
    start, hour, end, day = place
    spent, month = lab.sums[hour] - lab.sums[start], end - start
    last = lab.sums[start] - lab.sums[start - 30 * 24]
    naive = sum(lab.costs[at - 168 * -((hour - at - 1) // 168)] for at in range(hour, end))
    simpler = {
        "if what runs goes on": unchanged,
        "straight line": spent * month / (hour - start),
        "last 30 days before": last * month / (30 * 24),
        "last week repeated": spent + naive,
    }
    return Look(source=source, day=day, actual=lab.sums[end] - lab.sums[start], total=total, simpler=simpler)


def _list_looks() -> list[tuple[int, int, int, int]]:
    """Return (start of the month, hour of the look, end of the month, day of the month)."""
    return [
        (start * 24, (start + day - 1) * 24 + at, (start + length) * 24, day)
        for start, length in MONTHS
        for day in LOOK_DAYS
        for at in LOOK_HOURS
    ]


def _observe(number: int, machine: LabMachine) -> Observation:
    return Observation(
        key=ResourceKey("lab", "lab", "all", f"m{number}"),
        state="running",
        started_at=BEGUN + machine.start * HOUR,
        created_at=BEGUN + machine.start * HOUR,
        prices=(Price(Rate(nano_per_hour=round(machine.rate * NANO))),),
    )


def _sum_by_hour(machines: Sequence[LabMachine]) -> list[float]:
    costs = [0.0] * (DAYS * 24)
    for one in machines:
        for hour in range(int(one.start), min(len(costs), int(one.end) + 1)):
            costs[hour] += one.rate * max(0.0, min(one.end, hour + 1) - max(one.start, hour))
    return costs


def _to_interval(dollars: float) -> MoneyInterval:
    money = Money(nano=round(dollars * NANO))
    return MoneyInterval(low=money, expected=money, high=money)


def _to_dollars(interval: MoneyInterval) -> tuple[float, float, float]:
    return interval.low.nano / NANO, interval.expected.nano / NANO, interval.high.nano / NANO


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2])))
