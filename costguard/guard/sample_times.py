"""What the times of samples say, whatever was measured: holes, samples missing at both ends of a window, and steady load.

One look at a machine gives a sample of each of its signals, and one poll those of many machines, so thousands of series have
the same times. `TimesPool` finds the equal ones, and what follows from the times alone is computed once for all of them.

Example: 10,000 machines are polled every minute for an hour, three signals each. Their 30,000 series have the times of 10
accounts, and four policies ask for four windows: where samples are missing is computed 40 times instead of 120,000.

Times are whole microseconds since 1970, lengths whole microseconds.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
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
        return _compute_busy_min(min(self.length, span), self.poll)


@lru_cache(maxsize=1000)
def _compute_busy_min(span: int, poll: int) -> int:
    return max(1, ceil(BUSY_SHARE_MIN * round(span / poll) - 1e-9))


@lru_cache(maxsize=5000)
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


class SteadyLoad(NamedTuple):
    """What holds for a signal that is above its threshold in each of its samples. `busy`: it shows work now.

    `began`: since when without a pause as long as a window. `weak`: so many of its first samples are too few to be work, unless
    they carry enough bytes. `until`: when the work ended, as far as is known.
    """

    busy: bool
    began: int
    weak: int
    until: int


class SampleTimes:
    """The times of a series, in order and at least one; shared by all series with the same times."""

    __slots__ = ("_fits", "_gap", "_holes", "_steady", "ats")

    def __init__(self, ats: Sequence[int]) -> None:
        self.ats = ats
        self._gap: int | None = None
        self._holes: dict[int, Sequence[int]] = {}
        self._fits: dict[ActivityWindow, WindowFit] = {}
        self._steady: dict[tuple[ActivityWindow, bool], SteadyLoad | None] = {}

    @property
    def gap(self) -> int:
        """Return the longest distance of two; 0 for a single one."""
        if self._gap is None:
            self._gap = max(map(sub, self.ats[1:], self.ats), default=0)
        return self._gap

    def find_holes(self, poll: int) -> Sequence[int]:
        """Return when samples were due at an interval of `poll` and did not arrive."""
        if 2 * self.gap <= 3 * poll:
            return ()
        if poll not in self._holes:
            pairs = zip(self.ats, self.ats[1:], strict=False)
            due = ((a, (2 * (b - a) + poll) // (2 * poll)) for a, b in pairs)
            self._holes[poll] = [a + k * poll for a, n in due for k in range(1, n)]
        return self._holes[poll]

    def fit(self, window: ActivityWindow) -> WindowFit:
        """Return how the times lie in `window`."""
        found = self._fits.get(window)
        if found is None:
            found = self._fits[window] = self._compute_fit(window)
        return found

    def find_steady_load(self, window: ActivityWindow, *, volumes: bool) -> SteadyLoad | None:
        """Return what holds for a signal that is above its threshold in all samples. `volumes`: it counts bytes.

        None: a sample is missing, or so few exist that they may be noise.
        """
        asked = window, volumes
        if asked not in self._steady:
            self._steady[asked] = self._compute_steady_load(window, volumes=volumes)
        return self._steady[asked]

    def drop_noise(self, often: Sequence[int], window: ActivityWindow) -> Sequence[int]:
        """Return those of `often` that are not noise: enough of them lie in the window that ends there.

        From index `whole` on, a complete window lies before each sample, so the same minimum, `least`, applies to all of them.
        """
        if not often:
            return ()
        length, least = window.length, window.get_busy_min(window.length)
        whole = bisect_left(often, window.start + length - window.poll)
        early = [at for k, at in enumerate(often[:whole]) if has_enough_before(often, k, window)]
        first = max(whole, least - 1)
        if often is self.ats and self.gap * (least - 1) < length:
            return [*early, *often[first:]]
        pairs = zip(often[first:], often[first - least + 1 :], strict=False)
        return [*early, *(at for at, before in pairs if before > at - length)]

    def find_busy_start(self, marks: Sequence[int], pause: int) -> int:
        """Return since when `marks`, some of these times, follow each other without a pause of `pause` or longer."""
        if (len(marks) == len(self.ats) and self.gap < pause) or max(map(sub, marks[1:], marks), default=0) < pause:
            return marks[0]
        later = next((after for after, before in pairwise(reversed(marks)) if after - before >= pause), None)
        return marks[0] if later is None else later

    def _compute_fit(self, window: ActivityWindow) -> WindowFit:
        ats, opens, poll = self.ats, window.opens, window.poll
        late, holes = window.newest - ats[-1], self.find_holes(poll)
        fresh = late <= 2 * poll and ats[-1] > opens  # a window that holds no sample, as measures come late, proves nothing
        head, counter_head = _count_missing_head(ats[0], window)
        return WindowFit(
            first=bisect_right(ats, opens) if ats[0] <= opens else 0,
            head=head,
            counter_head=counter_head,
            tail=max(0, late // poll),
            holes=holes,
            holes_inside=len(holes) - bisect_right(holes, opens) if holes else 0,
            fresh=fresh,
            bound=ats[0] if ats[0] - window.start >= poll else None,
        )

    def _compute_steady_load(self, window: ActivityWindow, *, volumes: bool) -> SteadyLoad | None:
        ats, opens, poll, length = self.ats, window.opens, window.poll, window.length
        fit, last_at = self.fit(window), ats[-1]
        if 2 * self.gap > 3 * poll or length < poll or last_at <= opens or fit.head:
            return None
        until = min(window.now, last_at + poll)
        if volumes:
            marks = self.drop_noise(ats, window)
            weak = len(ats) - len(marks)
            if not marks or marks[0] != ats[weak] or marks[-1] != last_at:
                return None
            return SteadyLoad(busy=True, began=self.find_busy_start(marks, length), weak=weak, until=until)
        enough = len(ats) - window.get_busy_min(last_at - window.start + poll)
        if enough < 0 or self.gap >= length or ats[enough] <= last_at - length:
            return None
        busy = len(ats) - fit.first >= window.get_busy_min(window.now - window.start)
        return SteadyLoad(busy=busy, began=ats[0], weak=0, until=until)


class TimesPool:
    """Gives equal times the same `SampleTimes`, for one run.

    `intervals`: how often a sample is due, by the times of all signals
    of a resource.
    """

    def __init__(self) -> None:
        self.intervals: dict[tuple[SampleTimes, ...], timedelta] = {}
        self._known: dict[object, SampleTimes] = {}
        self._last: SampleTimes | None = None

    def share(self, ats: Sequence[int]) -> SampleTimes:
        """Return the times of `ats`, which must be in order and not empty."""
        if self._last is not None and self._last.ats == ats:  # the signals of one machine follow each other
            return self._last
        as_bytes = getattr(ats, "tobytes", None)  # of an array, as the ledger gives them: faster than a tuple
        mark = as_bytes() if as_bytes is not None else tuple(ats)
        found = self._known.get(mark)
        if found is None:
            found = self._known[mark] = SampleTimes(ats)
        self._last = found
        return found


def has_enough_before(marks: Sequence[int], k: int, window: ActivityWindow) -> bool:
    """Return whether enough of `marks` lie in the window that ends at index `k`."""
    at = marks[k]
    before = k - window.get_busy_min(at - window.start + window.poll) + 1
    return before >= 0 and marks[before] > at - window.length


def _count_missing_head(first: int, window: ActivityWindow) -> tuple[int, int]:
    """Count the samples missing before the first one, and as many of a counter."""
    if first <= window.opens:
        return 0, 0
    wait = first - max(window.opens, window.start)
    return -(-wait // window.poll) - 1, wait // window.poll
