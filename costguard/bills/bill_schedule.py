"""Choose when a watchdog asks for a bill, and of which time.

Example: a RunPod pod was found at 18:20, and may have run since noon. RunPod states its bill by the hour, and an hour is final
an hour later. So the bill is asked for at once, which settles the hours until 17:00, and again at 20:00, when the last hour is
final. Without charges in doubt nothing is asked.

Where estimated lines are evidence, a doubt longer than their lag is asked about at once as well: Vast's day is final a day
after its end, but states by noon what the morning cost.

A longer doubt is asked about in stretches, the oldest one first: an account of Vast answers one day a question.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from costguard.metering.billing import BillTerms
from costguard.values.calendar import Period
from costguard.values.instant import MICROSECOND, SECOND_US, from_micros, to_micros

ASKED_BACK_MAX = timedelta(days=31)
"""How far back a bill is asked for: a month."""
STRETCH_MAX = timedelta(days=14)
"""The longest time to ask for at once: 14 days of Vast take 14 to 28 s (`DAY_S` of its plug-in) of the 45 s that a run has."""
DAILY_AFTER = timedelta(hours=20)
"""Between two daily questions, which are never of one day: see `price_refresh.REFRESH_AFTER`."""
RESTATED_FOR = timedelta(days=3)
"""A daily bill is asked for since the beginning of the month in which so long ago lies: lines are restated for some days."""
ASKED_AGAIN_AFTER = timedelta(hours=1)
"""The least time between two questions about doubt, whatever happens: one of RunPod's hours is final in each."""


class DoubtfulCharge(NamedTuple):
    """A closed span with an amount in doubt. `id`: its row. Times are microseconds."""

    id: int
    start_us: int
    end_us: int


class Occasion(NamedTuple):
    """A reason to ask: the lines of the span `span_id` until `until_us`. `early`: they are estimated."""

    span_id: int
    until_us: int
    early: bool = False


class BillQuestion(NamedTuple):
    """A period to ask for, and the occasions that this settles.

    `more`: whether other occasions are due as well, which lie outside of the period.
    """

    period: Period
    occasions: frozenset[Occasion]
    more: bool = False


def find_occasions(doubts: Iterable[DoubtfulCharge], terms: BillTerms, now: datetime) -> dict[Occasion, int]:
    """Return the occasions for which the bill has lines at `now`, each with the time from which to ask, in microseconds.

    Of each stretch of a span they are its first line, and all of its lines, once these are final; and of the last stretch its
    estimated lines. No stretch is longer than STRETCH_MAX, and none begins earlier than ASKED_BACK_MAX before `now`.
    """
    lag_s = terms.estimated_lag_s
    step_us, now_us = terms.step_s * SECOND_US, to_micros(now)
    final_us, oldest_us = now_us - terms.settles_s * SECOND_US, (now_us - ASKED_BACK_MAX // MICROSECOND) // step_us * step_us
    stretch_us, occasions = _compute_stretch_us(terms), dict[Occasion, int]()
    for one in doubts:
        begin_us, end_us = one.start_us // step_us * step_us, -(-one.end_us // step_us) * step_us
        cuts = [*range(begin_us, end_us, stretch_us), end_us]
        for since_us, last_us in pairwise(cuts):
            for until_us in (since_us + step_us, last_us):
                if oldest_us < until_us <= final_us:
                    occasions[Occasion(one.id, until_us)] = max(since_us, oldest_us)
        if lag_s is not None and one.end_us - one.start_us > lag_s * SECOND_US and oldest_us < one.end_us <= now_us:
            occasions[Occasion(one.id, one.end_us, early=True)] = max(cuts[-2], oldest_us)
    return occasions


def choose_question(
    doubts: Iterable[DoubtfulCharge],
    terms: BillTerms,
    *,
    now: datetime,
    asked_at: datetime | None,
    settled: AbstractSet[Occasion] = frozenset(),
) -> BillQuestion | None:
    """Return the question that is due about doubtful charges, the oldest of them first; None if there is none.

    `asked_at`: when the source was last asked for its bill. `settled`: the occasions that were asked about before.
    """
    if asked_at is not None and now - ASKED_AGAIN_AFTER < asked_at <= now:
        return None
    occasions = find_occasions(doubts, terms, now)
    new = {occasion: since_us for occasion, since_us in occasions.items() if occasion not in settled}
    if not new:
        return None
    start_us = min(new.values())
    end_us = min(start_us + _compute_stretch_us(terms), to_micros(now))
    answered = frozenset(occasion for occasion in new if occasion.until_us <= end_us)
    return BillQuestion(Period(start=from_micros(start_us), end=from_micros(end_us)), answered, more=len(answered) < len(new))


def _compute_stretch_us(terms: BillTerms) -> int:
    """Return STRETCH_MAX as whole lines: one of them at least."""
    step_us = terms.step_s * SECOND_US
    return max(STRETCH_MAX // MICROSECOND // step_us, 1) * step_us


def choose_daily_question(*, now: datetime, asked_at: datetime | None) -> Period | None:
    """Return the period of a bill that is asked for once a day; None if it was read today or less than 20 hours ago."""
    if asked_at is not None and asked_at <= now and (asked_at.date() == now.date() or now - asked_at < DAILY_AFTER):
        return None
    start = (now - RESTATED_FOR).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return Period(start=start, end=now)
