"""Whether what costguard says of costs holds what it did cost, worked out from the clouds' own log in fractions (I1, I3, I9).

A machine that costs 2.99 dollars an hour and ran for 90 s cost 2,990,000,000 x 90 / 3600 = 74,750,000 nano-dollars. Whatever is
said of it must lie around that, at every step, whether its cloud can be asked or not. Nobody is held to more than the fault
model of costguard says that it assumes (decision 0014), which is all that is left out here, each in its place:

- A machine that was off is taken to be off for five minutes after a look (`_Sight.until`).
- A price on demand holds until its cloud says otherwise (`_Sight.prices`), and was what it is when a machine is found
  (`_found_late`).
- Two whole listings a minute apart that lack a few machines, and not all, are right (`_Sight.until`).
- A listing that is whole is no older than it may be: while one is repeated, nothing new is known, and what its cloud does not
  date happened when it was told, or never (`_Sight.until`, `_heard`).
- A machine found within five minutes of its beginning did not run before the start it tells of; runs that were over before
  anybody ever looked are not looked for (`_counted_since`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from itertools import pairwise

from tests.simulation.reading import Entry, Record, micros

BILLS = ("running", "stopping")
EMPTY, STALE = "empty", "stale"
MINUTE_US, HOUR_US = 60 * 10**6, 3600 * 10**6
ALLOWED_US = 5 * MINUTE_US
"""For so long after a look, what was off is taken to be off."""
FOREVER = 10**18
ROUNDED = 2
"""Nano-units that a span may be off by, as each of its ends is rounded. A machine has one span for each turn and price."""


@dataclass(slots=True)
class Life:
    """What one machine was and cost. `turns`: (since, state, started); `prices`: (since, nano-units an hour).

    `heard`: the same prices, each since somebody could hear of it who believes what clouds tell. `known_us`: what it cost
    before is not looked for.
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

    def priced(self, told_us: int) -> Life:
        """The same, as if no price had changed after `told_us`."""
        if all(at <= told_us for at, _ in self.prices):
            return self
        heard = self.heard.priced(told_us) if self.heard else None
        prices = [one for one in self.prices if one[0] <= told_us] or self.prices[:1]
        return Life(self.name, self.cloud, self.turns, prices, heard, self.known_us)

    def runs(self) -> Iterator[tuple[int, int]]:
        """From when to when each of its runs billed, one that goes on until the end of time."""
        starts = sorted({int(started) for _, _, started in self.turns if started is not None})
        for start, following in pairwise([*starts, FOREVER]):
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
    tells = {one["name"]: one for one in record.of("role")}
    prices: dict[str, list[tuple[int, int, bool]]] = {}
    for one in record.of("price"):
        prices.setdefault(one["name"], []).append((one["at"], one["nano"], one["said"]))
        found[one["name"]].prices = [*found[one["name"]].prices, (one["at"], one["nano"])]
    for name, life in found.items():
        life.heard = _heard(record, life, prices.get(name, ()), tells.get(name, {}))
    first = {told.name: told for told in reversed(record.told)}
    for name, told in first.items():
        _found_late(found[name], micros(told.at))
        since = _counted_since(record, found[name], micros(told.at), micros(told.started_at or told.at))
        for one_life in (found[name], found[name].heard):
            if one_life is not None:
                one_life.known_us = since
    return found


def _found_late(life: Life, told_us: int) -> None:
    """Let it be heard as having had, from its beginning, the price at which it was found."""
    heard = life.heard or life
    late = [nano for at, nano in heard.prices if at <= told_us]
    if len(set(late)) > 1:
        prices = [(heard.prices[0][0], late[-1]), *(one for one in heard.prices if one[0] > told_us)]
        life.heard = Life(life.name, life.cloud, heard.turns, prices)


def _counted_since(record: Record, life: Life, told_us: int, started_us: int) -> int:
    """From when on what it cost can be known, where it was first told of at `told_us`, as running since `started_us`."""
    mine = [one for one in record.entries if one["at"] < told_us and (one.get("cloud") or one.get("name")) == life.cloud]
    empty = {one["at"] for one in mine if one["e"] == "fault" and one["what"] == EMPTY}
    whole = [one for one in mine if one["e"] == "listed" and one["whole"]]
    knows = next((one["at"] for one in whole if one["items"]), FOREVER)
    looks = [one["at"] for one in whole if one["at"] not in empty or one["at"] < knows]
    began = max(life.prices[0][0], looks[-1]) if looks else FOREVER
    return started_us if started_us - began <= ALLOWED_US else 0


def _heard(record: Record, life: Life, prices: Sequence[tuple[int, int, bool]], tells: Mapping[str, bool]) -> Life | None:
    """Its life as its cloud told of it, which repeated old listings for a while; None: the same.

    Of what changed behind them, the last is told of in the end: as of its day, where the cloud says that, else as of then.
    `tells`: what the cloud dates, all where nothing is said.
    """
    stale = {one["at"] for one in record.of("fault") if one["name"] == life.cloud and one["what"] == STALE}
    if not stale:
        return None
    listed = [one for one in record.of("listed") if one["cloud"] == life.cloud]
    times = [one["at"] for one in listed]

    def told(at: int, *shown: object) -> int:
        later = listed[bisect_left(times, at) :]
        if not later or later[0]["at"] not in stale or shown in _shown(later[0], life.name):
            return at
        return next((one["at"] for one in later if one["at"] not in stale or shown in _shown(one, life.name)), at)

    costs = [life.prices[0], *((at if said else told(at), nano) for at, nano, said in prices)]
    turns = dict[int, Sequence[int | str | None]]()
    heard_at = [told(int(at or 0), state, started) for at, state, started in life.turns]
    for number, (at, state, started) in enumerate(life.turns):
        then = min(heard_at[number:])  # who hears of a later run knows that this is over
        kept = tells.get("started" if state in BILLS else "ended" if state == "ended" else "stopped", True)
        dated = then == at or (kept and not (state == "ended" and then - int(at or 0) >= HOUR_US))
        turns[then] = (at if dated else then, state, started)
    same = costs == list(life.prices) and [*turns.values()] == [tuple(one) for one in life.turns]
    return None if same else Life(life.name, life.cloud, [*turns.values()], costs)


def _shown(listing: Entry, name: str) -> Iterator[tuple[object, ...]]:
    """What a listing shows a machine to be: its state, and since when it runs."""
    return ((state, started) for one, _, started, state in listing["items"] if one == name)


def violations(record: Record) -> list[str]:
    """What was said of money and does not hold."""
    found = lives(record)
    return [*_around(record, found), *_runs(record, found), *_spans(record), *_days(record), *_cap(record, found)]


def _around(record: Record, found: dict[str, Life]) -> Iterator[str]:
    """`low <= truth <= high` of each machine and of all together, at every step.

    Of what nobody could hear of, its high need not know (`_Sight`). Its low must hold even so, but while an old listing is
    repeated that says that it still runs.
    """
    sight = _Sight(record)
    for one in record.entries:
        sight.takes(one)
        if one["e"] != "said":
            continue
        lowest, highest, now, as_of = Fraction(0), Fraction(0), one["at"], one["as_of"]
        for name, low, high in one["money"]:
            life = found[name]
            most = life.range(max(now, as_of))[1]
            least = life.priced(sight.prices(name)).range(min(sight.until(life, as_of), as_of))[0]
            least = min(least, most)
            most = max(most, Fraction(low)) if life.cloud in sight.repeats else most
            lowest, highest = lowest + most, highest + least
            rounded = ROUNDED * (len(life.turns) + len(life.prices))
            if not low - rounded <= most or not least <= high + rounded:
                yield _said(record, now, name, most, (low, high))
        low, high = sum(low for _, low, _ in one["money"]), sum(high for _, _, high in one["money"])
        rounded = ROUNDED * sum(len(life.turns) + len(life.prices) for life in found.values())
        if not low - rounded <= lowest or not highest <= high + rounded:
            yield _said(record, now, "all", lowest, (low, high))
    last = {name for one in list(record.of("said"))[-1:] for name, *_ in one["money"]}
    told = sorted({one.name for one in record.told if one.at >= record.healed})
    yield from (f"{name} was listed in the end, and nothing is said of it" for name in told if name not in last)


class _Sight:
    """What could be heard of each machine. `repeats`: clouds that told an old listing, and none that is true since."""

    def __init__(self, record: Record) -> None:
        self.repeats: set[str] = set()
        self._faults: set[tuple[str, str, int]] = set()
        self._told: dict[str, int] = {}
        self._cloud: dict[str, set[str]] = {}
        self._lacked: dict[str, list[int]] = {}
        self._start = micros(record.start)

    def takes(self, one: Entry) -> None:
        """One more line of the log."""
        if one["e"] == "fault":
            self._faults.add((one["name"], one["what"], one["at"]))
            self.repeats |= {one["name"]} if one["what"] == STALE else set()
        elif one["e"] == "listed" and (one["cloud"], EMPTY, one["at"]) not in self._faults:
            listed, mine = {name for name, *_ in one["items"]}, self._cloud.setdefault(one["cloud"], set())
            true = (one["cloud"], STALE, one["at"]) not in self._faults
            if true:
                mine |= listed
                self._told.update(dict.fromkeys(listed, one["at"]))
            for name in listed:
                self._lacked.pop(name, None)
            if one["whole"]:
                self.repeats -= {one["cloud"]} if true else set()
                for name in mine - listed:
                    self._lacked.setdefault(name, []).append(one["at"])

    def prices(self, name: str) -> int:
        """Until when its prices are known."""
        return self._told.get(name, self._start)

    def until(self, life: Life, now: int) -> int:
        """Until when somebody who sees what was told must hold what the machine costs."""
        seen, lacked = self._told.get(life.name, self._start), self._lacked.get(life.name, [])
        turned = any(seen < int(at or 0) <= now and state in BILLS for at, state, _ in life.turns)
        gone = bool(lacked) and lacked[-1] - lacked[0] >= MINUTE_US
        lately = now - seen <= ALLOWED_US
        return seen if gone or life.cloud in self.repeats or (turned and lately) else now


def _runs(record: Record, found: dict[str, Life]) -> Iterator[str]:
    """The same of each run by itself, by the spans of the ledger that are closed in the end."""
    spans: dict[str, list[tuple[int, int | None, int, int]]] = {}
    for name, start, end, low, high in record.rows(_COUNTED):
        spans.setdefault(name, []).append((start, end, low or 0, high or 0))
    for name, mine in spans.items():
        for start, stop in found[name].runs():
            inside = [span for span in mine if start <= span[0] < stop]
            whole = all(end is not None and end <= stop for _, end, _, _ in inside)
            if not inside or not whole or min(one[0] for one in inside) != start or stop >= FOREVER:
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
