"""The roll-up by day of what closed spans come to, kept in the transaction that closes them.

Example: a machine at $2 an hour from 23:30 to 01:00 adds $1 and half an hour to one day, and $2 and an hour to the next. What a
correction says of a span is the new amounts less the old ones, on the same days.
"""

from __future__ import annotations

from costguard.ledger.db.codecs import NanoAmounts, SqlRow
from costguard.metering.meter import COMPUTE
from costguard.metering.span import Span, split_by_day
from costguard.values.resource import INSTANCE

DailyPlace = tuple[int, int, str, str, int]
"""Day since 1970 in UTC, attribution, charge, currency, and 1 where the price is known."""


class DailyRollup:
    """What one transaction adds to each row of `daily`."""

    def __init__(self) -> None:
        self._sums: dict[DailyPlace, list[int]] = {}

    def add(self, span: Span, attribution_id: int) -> NanoAmounts:
        """Take down a closed span, and say what it comes to: the days of a span add up to it exactly."""
        return self._add_signed(span, attribution_id, 1)

    def replace(self, before: Span, after: Span, attribution_id: int) -> NanoAmounts:
        """`before` counts as `after` from now on, which comes to the amounts returned."""
        self._add_signed(before, attribution_id, -1)
        return self._add_signed(after, attribution_id, 1)

    def build_rows(self) -> tuple[list[SqlRow], list[SqlRow]]:
        """(place, amounts, microseconds) to be added to rows that may be new; and the same, place last, of rows that are there.

        A correction can lower one amount and leave another: no row of its own, so the one that it changes is there.
        """
        added: list[SqlRow] = []
        changed: list[SqlRow] = []
        for place, (low, expected, high, us) in sorted(self._sums.items()):
            if 0 <= low <= expected <= high and us >= 0:
                added.append((*place, low, expected, high, us))
            else:
                changed.append((low, expected, high, us, *place))
        return added, changed

    def _add_signed(self, span: Span, attribution_id: int, sign: int) -> NanoAmounts:
        meter, counts = span.meter, is_machine_time(span)
        charge, currency, known = meter.charge, meter.price.currency, int(meter.price.known)
        low = expected = high = 0
        for day, amounts, us in split_by_day(span):
            low, expected, high = low + amounts[0], expected + amounts[1], high + amounts[2]
            place = (day, attribution_id, charge, currency, known)
            sums = self._sums.get(place)
            if sums is None:
                sums = self._sums[place] = [0, 0, 0, 0]
            sums[0] += sign * amounts[0]
            sums[1] += sign * amounts[1]
            sums[2] += sign * amounts[2]
            sums[3] += sign * us if counts else 0
        return low, expected, high


def is_machine_time(span: Span) -> bool:
    """Whether the time of `span` is time of a machine: computing of an instance; a disk's hours are no hours of use."""
    return span.meter.charge == COMPUTE and span.attribution.kind == INSTANCE
