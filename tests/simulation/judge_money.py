"""Whether what costguard says of costs holds what it did cost, worked out from the clouds' own log in fractions (I1, I3, I9).

A machine that costs 2.99 dollars an hour and ran for 90 s cost 2,990,000,000 x 90 / 3600 = 74,750,000 nano-dollars. Whatever is
said of it must lie around that, at every step.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from itertools import pairwise

from tests.simulation.reading import Entry, Record, micros

BILLS = ("running", "stopping")
LIES = ("empty", "hides", "stale")
HOUR_US = 3600 * 10**6
ROUNDED = 2
"""Nano-units that a span may be off by: each of its ends is rounded to a whole one."""


@dataclass(slots=True)
class Life:
    """What one machine was and cost. `turns`: (since, state, started); `prices`: (since, nano-units an hour).

    `heard`: the same prices, each since somebody could hear of it who believes what clouds tell. `known_us`: the start of the
    run in which it was first told of; runs that were over before anybody was told are not looked for, as reports say.
    """

    name: str
    cloud: str
    turns: Sequence[Sequence[int | str | None]]
    prices: Sequence[tuple[int, int]]
    heard: Life | None = None
    known_us: int = 0
    _bends: list[tuple[int, Fraction]] | None = None

    def spent(self, until_us: int) -> Fraction:
        """In nano-units, from its beginning until then."""
        if self._bends is None:
            self._bends = list(self._summed())
        number = bisect_right(self._bends, (until_us, Fraction(10**30)))
        if number == 0:
            return Fraction(0)
        since, before = self._bends[number - 1]
        return before + self._rate(since) * Fraction(until_us - since, HOUR_US)

    def range(self, until_us: int) -> tuple[Fraction, Fraction]:
        """The least and the most of what it cost and of what could be heard."""
        truly = self.spent(until_us) - self.spent(min(self.known_us, until_us))
        heard = self.heard.range(until_us)[0] if self.heard else truly
        return min(truly, heard), max(truly, heard)

    def runs(self) -> Iterator[tuple[int, int]]:
        """From when to when each of its runs billed, one that goes on until the end of time."""
        starts = sorted({int(started) for _, _, started in self.turns if started is not None})
        for start, following in pairwise([*starts, 10**18]):
            ends = [int(at or 0) for at, state, _ in self.turns if state not in BILLS and start <= int(at or 0) <= following]
            yield start, min([*ends, following])

    def _summed(self) -> Iterator[tuple[int, Fraction]]:
        """(instant at which its rate may change, what it had cost by then)."""
        cuts = sorted({int(at or 0) for at, *_ in self.turns} | {at for at, _ in self.prices})
        total = Fraction(0)
        for at, following in pairwise([*cuts, cuts[-1]]):
            yield at, total
            total += self._rate(at) * Fraction(following - at, HOUR_US)

    def _rate(self, at: int) -> int:
        state = next((state for since, state, _ in reversed(self.turns) if int(since or 0) <= at), "")
        rate = next((nano for since, nano in reversed(self.prices) if since <= at), self.prices[0][1])
        return rate if state in BILLS else 0


def lives(record: Record) -> dict[str, Life]:
    """Every machine that ever was, by its name."""
    found = {one["name"]: Life(one["name"], one["cloud"], (), [(one["at"], one["nano"])]) for one in record.of("machine")}
    for one in record.of("turns"):
        found[one["name"]].turns = one["turns"]
    heard: dict[str, list[tuple[int, int]]] = {}
    for one in record.of("price"):
        life = found[one["name"]]
        if not one["said"]:
            heard.setdefault(one["name"], list(life.prices)).append((_repeated(record, life.cloud, one["at"]), one["nano"]))
        life.prices = [*life.prices, (one["at"], one["nano"])]
    for name, prices in heard.items():
        found[name].heard = Life(name, found[name].cloud, found[name].turns, prices)
    for told in reversed(record.told):
        for one_life in (found[told.name], found[told.name].heard):
            if one_life is not None:
                one_life.known_us = micros(told.started_at) if told.started_at else 0
    return found


def _repeated(record: Record, cloud: str, at: int) -> int:
    """When a cloud told of what happened at `at` and has no date: later, where it repeated an old listing first."""
    stale = {one["at"] for one in record.of("fault") if one["name"] == cloud and one["what"] == "stale"}
    told = [one["at"] for one in record.of("listed") if one["cloud"] == cloud and one["at"] >= at]
    if not stale & set(told):
        return at
    return next((one for one in told if one not in stale), at)


def violations(record: Record) -> list[str]:
    """What was said of money and does not hold."""
    found = lives(record)
    return [*_around(record, found), *_runs(record, found), *_spans(record), *_days(record), *_cap(record, found)]


def _around(record: Record, found: dict[str, Life]) -> Iterator[str]:
    """`low <= truth <= high` of each machine and of all together, at every step.

    What nobody could know is not asked: while a cloud tells nothing, or leaves out or repeats what it told, a machine that
    comes to run or changes its price is held by what it cost until the cloud last told of it truly. Its low must hold even so,
    but after an old listing that said that it still runs.
    """
    sight = _Sight(record)
    for one in record.entries:
        sight.takes(one)
        if one["e"] != "said":
            continue
        lowest, highest, now, as_of = Fraction(0), Fraction(0), one["at"], one["as_of"]
        for name, low, high in one["money"]:
            life = found[name]
            most, least = life.range(max(now, as_of))[1], life.range(min(sight.until(life, as_of), as_of))[0]
            most = max(most, Fraction(low)) if life.cloud in sight.stale else most
            lowest, highest = lowest + most, highest + least
            if not low - ROUNDED <= most or not least <= high + ROUNDED:
                yield _said(record, now, name, most, (low, high))
        low, high = sum(low for _, low, _ in one["money"]), sum(high for _, _, high in one["money"])
        if not low - len(found) * ROUNDED <= lowest or not highest <= high + len(found) * ROUNDED:
            yield _said(record, now, "all", lowest, (low, high))
    last = {name for one in list(record.of("said"))[-1:] for name, *_ in one["money"]}
    told = sorted({one.name for one in record.told if one.at >= record.healed})
    yield from (f"{name} was listed in the end, and nothing is said of it" for name in told if name not in last)


class _Sight:
    """Until when each cloud was seen as it is. `stale`: those that repeated an old listing since."""

    def __init__(self, record: Record) -> None:
        self.stale: set[str] = set()
        self._lies: dict[str, int] = {}
        self._honest: dict[str, int] = {}
        self._lied: set[str] = set()
        self._start = micros(record.start)

    def takes(self, one: Entry) -> None:
        """One more line of the log."""
        if one["e"] == "fault" and one["what"] in LIES:
            self._lies[one["name"]] = one["at"]
            self._lied.add(one["name"])
            self.stale |= {one["name"]} if one["what"] == "stale" else set()
        elif one["e"] == "listed" and one["whole"] and self._lies.get(one["cloud"]) != one["at"]:
            self._honest[one["cloud"]] = one["at"]
            self._lied.discard(one["cloud"])
            self.stale.discard(one["cloud"])

    def until(self, life: Life, now: int) -> int:
        """Until when somebody who sees what was told knows what the machine costs."""
        seen = self._honest.get(life.cloud, self._start)
        turned = any(seen < int(at or 0) <= now and state in BILLS for at, state, _ in life.turns)
        dearer = any(seen < at <= now for at, _ in life.prices)
        return seen if turned or dearer or life.cloud in self._lied else now


def _runs(record: Record, found: dict[str, Life]) -> Iterator[str]:
    """The same of each run by itself, by the spans of the ledger that are closed in the end."""
    spans: dict[str, list[tuple[int, int | None, int, int]]] = {}
    for name, start, end, low, high in record.rows(_COUNTED):
        spans.setdefault(name, []).append((start, end, low or 0, high or 0))
    for name, mine in spans.items():
        for start, stop in found[name].runs():
            inside = [span for span in mine if start <= span[0] < stop]
            whole = all(end is not None and end <= stop for _, end, _, _ in inside)
            if not inside or not whole or min(one[0] for one in inside) != start or stop >= 10**18:
                continue
            if found[name].heard:
                continue
            truth = found[name].spent(stop) - found[name].spent(start)
            low, high = sum(one[2] for one in inside), sum(one[3] for one in inside)
            if max(end or 0 for _, end, _, _ in inside) == stop and not low - ROUNDED <= truth <= high + ROUNDED:
                run = f"the run of {name} since {_minute(record, start)}"
                yield f"{run} cost {_dollars(truth)}, and its spans say {_dollars(low)} to {_dollars(high)}"


def _spans(record: Record) -> Iterator[str]:
    """No negative one, none that overlaps, and each comes to its time at its price."""
    last: dict[tuple[str, ...], tuple[int, int]] = {}
    for number, *line, start, end, low, expected, high, price, quantum, quantity, presence, corrected in record.rows(_SPANS):
        if end is None:
            continue
        if not 0 <= low <= expected <= high or end < start:
            yield f"span {number} says {low}, {expected}, {high} from {start} to {end}"
        before = last.get(tuple(line))
        if before and start < before[1]:
            yield f"span {number} overlaps span {before[0]}"
        last[tuple(line)] = number, end
        due = Fraction(price * quantity * (end - start), HOUR_US)
        more = Fraction(price * quantity * quantum * 10**6, HOUR_US)
        if presence == "seen" and not corrected and not due - more - ROUNDED <= expected <= due + more + ROUNDED:
            yield f"span {number} is {end - start} us at {price} nano-units an hour, and comes to {expected}"


def _days(record: Record) -> Iterator[str]:
    """The sums by day come to the spans that are closed."""
    daily, spans = record.rows(_DAILY)[0], record.rows(_CLOSED)[0]
    if tuple(daily) != tuple(spans):
        yield f"the days come to {daily}, and the spans to {spans}"


def _cap(record: Record, found: dict[str, Life]) -> Iterator[str]:
    """No cap was passed by more than was shown."""
    if record.cap:
        midnight = micros(record.start.replace(hour=0, minute=0))
        end = micros(record.end)
        spent = sum((one.spent(end) - one.spent(midnight) for one in found.values()), Fraction(0))
        bound = Fraction(max(record.shown, default=0.0)) * 10**9
        if spent > Fraction(record.cap) * 10**9 + bound + 1000:
            yield f"{_dollars(spent)} was spent of {record.cap}, and the worst that was shown was {_dollars(bound)} over"


def _minute(record: Record, us: int) -> str:
    since = timedelta(microseconds=us - micros(record.start))
    return f"{since.total_seconds() / 60:.1f} min:"


def _said(record: Record, at: int, name: str, truth: Fraction, said: tuple[int, int]) -> str:
    low, high = said
    return f"{_minute(record, at)} {name} truly cost {_dollars(truth)}, and {_dollars(low)} to {_dollars(high)} was said"


def _dollars(nano: Fraction | int) -> str:
    return f"{float(nano) / 1e9:.6f}"


_AMOUNTS = "coalesce(c.{0}, s.{0})"
_CORRECTED = "LEFT JOIN correction AS c ON c.id = (SELECT max(l.id) FROM correction AS l WHERE l.span_id = s.id)"
_LOW, _EXPECTED, _HIGH = (_AMOUNTS.format(name) for name in ("low", "expected", "high"))
_COUNTED = f"""
SELECT r.external_id, s.start_us, s.end_us, {_LOW}, {_HIGH}
FROM span AS s JOIN resource AS r ON r.id = s.resource_id {_CORRECTED} ORDER BY s.start_us
"""  # noqa: S608 - our own names
_SPANS = f"""
SELECT s.id, r.external_id, s.charge, s.part, s.start_us, s.end_us, s.low, s.expected, s.high, s.price_expected, s.quantum_s,
    s.quantity, s.presence, c.id
FROM span AS s JOIN resource AS r ON r.id = s.resource_id {_CORRECTED} ORDER BY s.start_us, s.end_us, s.id
"""  # noqa: S608 - our own names
_DAILY = "SELECT coalesce(sum(low), 0), coalesce(sum(expected), 0), coalesce(sum(high), 0) FROM daily"
_CLOSED = f"""
SELECT coalesce(sum({_LOW}), 0), coalesce(sum({_EXPECTED}), 0), coalesce(sum({_HIGH}), 0)
FROM span AS s {_CORRECTED} WHERE s.end_us IS NOT NULL
"""  # noqa: S608 - our own names
