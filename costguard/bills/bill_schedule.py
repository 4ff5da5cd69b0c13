"""Choose when a watchdog asks for a bill, and of which time.

Example: a RunPod pod was found at 18:20, and may have run since noon. RunPod states its bill by the hour, and an hour is final
an hour later. So the bill is asked for at once, which settles the hours until 17:00, and again at 20:00, when the last hour is
final. Without charges in doubt nothing is asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from typing import NamedTuple

from costguard.metering.billing import BillTerms
from costguard.values.calendar import Period
from costguard.values.instant import SECOND_US, from_micros, to_micros

ASKED_BACK_MAX = timedelta(days=31)
"""How far back a bill is asked for: a month of Vast is 31 questions, one a second."""
DAILY_AFTER = timedelta(hours=20)
"""Between two daily questions, which are never of one day: see `price_refresh.REFRESH_AFTER`."""
RESTATED_FOR = timedelta(days=3)
"""A daily bill is asked for since the beginning of the month in which so long ago lies: lines are restated for some days."""
ASKED_AGAIN_AFTER = timedelta(hours=1)
"""The least time between two questions about doubt, whatever happens: one of RunPod's hours is final in each."""

FIRST, LAST = "first", "last"


class DoubtfulCharge(NamedTuple):
    """A closed span with an amount in doubt. `id`: its row. Times are microseconds."""

    id: int
    start_us: int
    end_us: int


class BillQuestion(NamedTuple):
    """A period to ask for, and the occasions that this settles: (span, FIRST or LAST)."""

    period: Period
    occasions: frozenset[tuple[int, str]]


def find_occasions(doubts: Iterable[DoubtfulCharge], terms: BillTerms, now: datetime) -> dict[tuple[int, str], int]:
    """Return the occasions for which the bill has final lines at `now`, each with the start of its span.

    FIRST: the first line that touches the span is final. LAST: all of them are.
    """
    step_us, final_us = terms.step_s * SECOND_US, to_micros(now) - terms.settles_s * SECOND_US
    found = dict[tuple[int, str], int]()
    for one in doubts:
        for occasion, at_us in ((FIRST, one.start_us + 1), (LAST, one.end_us)):
            if -(-at_us // step_us) * step_us <= final_us:
                found[one.id, occasion] = one.start_us
    return found


def choose_question(
    doubts: Iterable[DoubtfulCharge],
    terms: BillTerms,
    *,
    now: datetime,
    asked_at: datetime | None,
    settled: AbstractSet[tuple[int, str]] = frozenset(),
) -> BillQuestion | None:
    """Return the question that is due about doubtful charges; None if there is none.

    `asked_at`: when the bill was last read, by anybody. `settled`: the occasions that were asked about before.
    """
    if asked_at is not None and now - ASKED_AGAIN_AFTER < asked_at <= now:
        return None
    found = find_occasions(doubts, terms, now)
    new = {occasion: start_us for occasion, start_us in found.items() if occasion not in settled}
    if not new:
        return None
    step_us = terms.step_s * SECOND_US
    start = from_micros(max(min(new.values()), to_micros(now - ASKED_BACK_MAX)) // step_us * step_us)
    return BillQuestion(Period(start=start, end=now), frozenset(found))


def choose_daily_question(*, now: datetime, asked_at: datetime | None) -> Period | None:
    """Return the period of a bill that is asked for once a day; None if it was read today or less than 20 hours ago."""
    if asked_at is not None and asked_at <= now and (asked_at.date() == now.date() or now - asked_at < DAILY_AFTER):
        return None
    start = (now - RESTATED_FOR).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return Period(start=start, end=now)
