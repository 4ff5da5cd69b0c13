"""What the times of a signal's samples say, whatever was measured: holes, and samples missing at both ends of a window.

Times are whole microseconds since 1970, lengths whole microseconds.

Example: a sample is due every minute, and those of 18:01, 18:02 and 18:05 arrived: there are holes at 18:03 and 18:04.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from math import ceil
from operator import sub
from typing import NamedTuple

from costguard.values.instant import MICROSECOND, to_micros

BUSY_SHARE_MIN = 0.1
"""A signal of levels is work where at least this share of the window's samples is busy; less is noise."""


class ActivityWindow(NamedTuple):
    """The window of a summary: samples from `start` on, and for the state those after `opens`.

    `due`: how many samples are expected. `start`, `opens`, `now`, `newest`: microseconds since 1970; `length` and `poll`:
    microseconds. `newest`: how recent a sample can be.
    """

    start: int
    opens: int
    now: int
    length: int
    poll: int
    due: int
    newest: int

    def get_busy_min(self, span: int) -> int:
        """Return how many busy samples within `span` count as work."""
        return max(1, ceil(BUSY_SHARE_MIN * round(min(self.length, span) / self.poll) - 1e-9))


def build_window(start: datetime, now: datetime, window: timedelta, poll: timedelta, lag: timedelta) -> ActivityWindow:
    """Return the window of length `window` that ends `now`; samples are due every `poll`, and the newest is `lag` late."""
    start_us, now_us, length, rhythm = to_micros(start), to_micros(now), window // MICROSECOND, poll // MICROSECOND
    span = min(length, now_us - start_us)
    opens = now_us - span if span < now_us - start_us else start_us - 1  # half-open, and a run's first sample is in it
    return ActivityWindow(start_us, opens, now_us, length, rhythm, max(1, round(span / rhythm)), now_us - lag // MICROSECOND)


class WindowFit(NamedTuple):
    """How times lie in a window. `first`: index of the first one after `opens`.

    `head`, `tail`: samples missing before the first and after the last one; `counter_head`: as `head`, of a counter, which also
    needs its value at the opening of the window. `holes`: when samples are missing between them; `holes_inside`: how many of
    these after `opens`. `fresh`: the last one is recent. `bound`: the first one if it came late, so that nothing is known of
    before; None: it came in time.
    """

    first: int
    head: int
    counter_head: int
    tail: int
    holes: Sequence[int]
    holes_inside: int
    fresh: bool
    bound: int | None


class SampleTimes(NamedTuple):
    """The times of a signal's samples, `ats`, in order and at least one. `gap`: the longest distance of two; 0 for one time.

    With it most questions about a signal that was measured all the time are answered without a look at each time.
    """

    ats: Sequence[int]
    gap: int

    @classmethod
    def of(cls, ats: Sequence[int]) -> SampleTimes:
        """Return the times `ats`."""
        return cls(ats, max(map(sub, ats[1:], ats), default=0))

    def fit(self, window: ActivityWindow) -> WindowFit:
        """Return how the times lie in `window`."""
        ats, opens, poll, holes = self.ats, window.opens, window.poll, self.find_holes(window.poll)
        late, head, counter_head = window.newest - ats[-1], 0, 0
        if ats[0] > opens:
            wait = ats[0] - max(opens, window.start)
            head, counter_head = -(-wait // poll) - 1, wait // poll
        return WindowFit(
            first=bisect_right(ats, opens),
            head=head,
            counter_head=counter_head,
            tail=max(0, late // poll),
            holes=holes,
            holes_inside=len(holes) - bisect_right(holes, opens),
            fresh=late <= 2 * poll and ats[-1] > opens,  # a window that holds no sample, as measures come late, proves nothing
            bound=ats[0] if ats[0] - window.start >= poll else None,
        )

    def find_holes(self, poll: int) -> Sequence[int]:
        """Return when samples were due at an interval of `poll` and did not arrive."""
        if 2 * self.gap <= 3 * poll:
            return ()
        due = ((a, (2 * (b - a) + poll) // (2 * poll)) for a, b in pairwise(self.ats))
        return [a + k * poll for a, n in due for k in range(1, n)]

    def drop_noise(self, often: Sequence[int], window: ActivityWindow) -> Sequence[int]:
        """Return those of `often`, some of these times, that are not noise: enough of them lie in the window that ends there.

        From `complete_index` on, a complete window lies before each sample, so the same minimum, `least`, applies to all.
        """
        length, least = window.length, window.get_busy_min(window.length)
        complete_index = bisect_left(often, window.start + length - window.poll)
        early = [at for k, at in enumerate(often[:complete_index]) if has_enough_before(often, k, window)]
        first = max(complete_index, least - 1)
        if len(often) == len(self.ats) and self.gap * (least - 1) < length:
            return [*early, *often[first:]]
        pairs = zip(often[first:], often[first - least + 1 :], strict=False)
        return [*early, *(at for at, first_at in pairs if first_at > at - length)]

    def find_busy_start(self, marks: Sequence[int], pause: int) -> int:
        """Return since when `marks`, some of these times, follow each other without a pause of `pause` or longer."""
        if self.gap < pause and marks[0] == self.ats[len(self.ats) - len(marks)]:  # none is left out from there on
            return marks[0]
        return next((at for at, previous_at in pairwise(reversed(marks)) if at - previous_at >= pause), marks[0])


def has_enough_before(marks: Sequence[int], k: int, window: ActivityWindow) -> bool:
    """Return whether enough of `marks` lie in the window that ends at index `k`."""
    at = marks[k]
    first_index = k - window.get_busy_min(at - window.start + window.poll) + 1
    return first_index >= 0 and marks[first_index] > at - window.length
