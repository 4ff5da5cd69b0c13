"""The time axis of a machine's page: GPU use, power and cost an hour, drawn one below the other over one length of time.

Bands show since when it is idle or hung, and when it was stopped; marks show when somebody was told, what was done, and what is
due. Example: idle since 18:00, told at 18:45, a stop due at 19:15: a band from 18:00 on, and two marks.

A drawing is WIDTH wide and 100 high; a page stretches it. Of the samples in one WIDTH-th of the time the highest is drawn: a
short peak is work. Where samples are missing nothing is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import accumulate, pairwise
from typing import NamedTuple

from costguard.guard.replay.history import ResourceHistory
from costguard.guard.signals import HUNG, IDLE, Activity
from costguard.metering.burn import compute_hourly_price
from costguard.metering.span import Span
from costguard.values.instant import to_micros
from costguard.values.money import Money, MoneyInterval
from costguard.values.resource import RUNNING
from costguard.values.sample import GPU_POWER, GPU_POWER_BUSIEST, GPU_UTIL
from costguard.values.text_format import format_amount, get_currency_sign

WIDTH = 240
LENGTHS = {"6h": timedelta(hours=6), "2d": timedelta(days=2), "14d": timedelta(days=14)}
"""Lengths of time that a page offers."""
AHEAD_SHARE_MAX = 4
"""A step that is due within a fourth of the drawn time is drawn too."""
GAP_STEPS = 3
"""Samples that are further apart than so many usual steps are not joined."""
TITLES = {GPU_UTIL: "GPU use", GPU_POWER: "Power", GPU_POWER_BUSIEST: "Power, busiest GPU"}
UNITS = {GPU_UTIL: " %", GPU_POWER: " W", GPU_POWER_BUSIEST: " W"}


class Lane(NamedTuple):
    """One value over time. `top`: the value at the upper edge; `last`: the newest one. `main`: one of the three shown first."""

    title: str
    path: str
    top: str
    last: str
    main: bool


class Band(NamedTuple):
    """A time in which the machine was `state`, from `left`, in units of WIDTH."""

    state: str
    left: float
    width: float


class Mark(NamedTuple):
    """Something that happened or is due at `at`, `left` in units of WIDTH."""

    text: str
    at: datetime
    left: float
    due: bool


class Timeline(NamedTuple):
    """See the module."""

    start: datetime
    end: datetime
    lanes: tuple[Lane, ...]
    bands: tuple[Band, ...]
    marks: tuple[Mark, ...]


def build_timeline(
    *,
    past: ResourceHistory,
    work: Activity | None,
    costs: Iterable[tuple[Span, MoneyInterval]],
    events: Iterable[tuple[datetime, str]],
    now: datetime,
    length: timedelta,
) -> Timeline:
    """Build the axis of the last `length` before `now`.

    `work`: its activity now, None: it is not listed. `costs`: of its spans. `events`: what was told, done and is due.
    """
    events, start = sorted(events), now - length
    due = [at for at, _ in events if now < at <= now + length / AHEAD_SHARE_MAX]
    end = max([now, *(at + length / WIDTH for at in due)])

    def place(at: datetime) -> float:
        return round(WIDTH * ((min(max(at, start), end) - start) / (end - start)), 1)

    return Timeline(
        start=start,
        end=end,
        lanes=(*_draw_signals(past, start, end), *_draw_costs(costs, start, now, place)),
        bands=tuple(
            Band(state, place(a), round(place(b) - place(a), 1))
            for state, a, b in _list_states(past, work, now)
            if b > start and b > a
        ),
        marks=tuple(Mark(text, at, place(at), at > now) for at, text in events if start <= at <= end),
    )


def _draw_signals(past: ResourceHistory, start: datetime, end: datetime) -> Iterator[Lane]:
    """Yield GPU use and power first, then each other signal that has samples in this time."""
    power = GPU_POWER if past.samples.get(GPU_POWER, ((),))[0] else GPU_POWER_BUSIEST
    first = (GPU_UTIL, power)
    for signal in (*first, *sorted(past.samples.keys() - {*first})):
        ats, values = past.samples.get(signal, ((), ()))
        inside = [(at, value) for at, value in zip(ats, values, strict=True) if to_micros(start) <= at]
        if inside:
            highest = max(value for _, value in inside)
            top = 100.0 if signal == GPU_UTIL else highest or 1.0
            unit = UNITS.get(signal, "")
            path = _draw_samples(inside, to_micros(start), to_micros(end), top)
            yield Lane(TITLES.get(signal, signal), path, f"{top:.4g}{unit}", f"{inside[-1][1]:.4g}{unit}", main=signal in first)


def _draw_samples(samples: Sequence[tuple[int, float]], start_us: int, end_us: int, top: float) -> str:
    """Return the line through the highest sample of each slot, with gaps where samples are missing."""
    slots = dict[int, float]()
    for at_us, value in samples:
        slot = (at_us - start_us) * WIDTH // (end_us - start_us)
        slots[slot] = max(value, slots.get(slot, value))
    steps = sorted(b[0] - a[0] for a, b in pairwise(samples))
    usual = steps[len(steps) // 2] if steps else 0
    reach = max(1, GAP_STEPS * usual * WIDTH // (end_us - start_us))
    parts, last = list[str](), -WIDTH
    for slot in sorted(slots):
        height = round(100 - 96 * max(0.0, slots[slot]) / top, 1)
        parts.append(f"L{slot} {height}" if slot - last <= reach else f"M{slot} {height}h.5")
        last = slot
    return "".join(parts)


def _draw_costs(
    costs: Iterable[tuple[Span, MoneyInterval]], start: datetime, now: datetime, place: Callable[[datetime], float]
) -> Iterator[Lane]:
    """Yield what an hour cost: the expected cost of each span, at its expected price, in the currency of the first."""
    changes, currency = dict[datetime, int](), ""
    for span, money in costs:
        begin, finish, price = max(span.start, start), span.end or now, span.meter.price
        currency = currency or price.currency
        if finish > begin and money.expected.nano and price.currency == currency:
            rate = compute_hourly_price(span.meter, price.expected, begin)
            changes[begin] = changes.get(begin, 0) + rate
            changes[finish] = changes.get(finish, 0) - rate
    if not changes:
        return
    ats = sorted(changes)
    rates = [*accumulate(changes[at] for at in ats)]
    top = max(*rates, 1)
    path = "M0 100" + "".join(f"H{place(at)}V{round(100 - 96 * rate / top, 1)}" for at, rate in zip(ats, rates, strict=True))
    last = rates[-1] if ats[-1] < now else rates[-2]
    texts = [get_currency_sign(currency) + format_amount(Money(nano=rate, currency=currency)) for rate in (top, last)]
    yield Lane("Cost an hour", path, texts[0], texts[1], main=True)


def _list_states(past: ResourceHistory, work: Activity | None, now: datetime) -> Iterator[tuple[str, datetime, datetime]]:
    """Yield when it did not run, and since when it is idle or hung."""
    ends = [*(one.at for one in past.said[1:]), now]
    for one, end in zip(past.said, ends, strict=True):
        if one.seen is None or one.seen.state != RUNNING:
            yield ("absent" if one.seen is None else one.seen.state), one.at, end
    if work is not None and work.state in (IDLE, HUNG) and work.since is not None:
        yield work.state, work.since, now
