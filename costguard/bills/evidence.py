"""Weigh settled bill lines as evidence: which of them bound the doubtful charges of a resource, and by how much.

A line bounds what its resource cost for its kind of charge in its period, and nothing else. From its amount, what is certain of
the charges in that period is subtracted; the rest is what the doubtful ones cost.

Example: a pod may have run from 12:00 until 12:50 (MAYBE, $0.00 to $0.50) and surely ran from 12:50 on, at $0.60 an hour. The
line of 12:00 to 13:00 says $0.10. The certain ten minutes cost $0.10, so before 12:50 it cost nothing.

Narrowing raises the low end of charges, on which hard caps count. So a line counts only if nothing speaks against it:

- it is settled: its provider does not call it estimated, its period was over when it was stated, and the account was listed
  completely since. An estimated line counts with a tolerance, if its provider's rule states one;
- it names its resource, in the currency of the charges, within one UTC day, and no other line overlaps it or states it again;
- its amount lies within what is possible, or only the price speaks against it (below). One that contradicts what was seen is a
  finding, and no line of its resource, kind of charge and day counts.

A bill wins over the price that costguard counted, which is a list price or an estimate. A line below the certain charges
states another price, unless the same resource has a line that cannot be explained so: then its provider may count hours
otherwise. A line above the possible charges states one if the resource was seen to run all the time of the line, because else
it may have run longer. It raises the expected and the high figure, and never the low one, on which hard caps count. Example: a
machine at $2 an hour was seen to run all day, and its line says $27.84: so the day cost $27.84, not $48.

Example of an estimated line: a Vast machine, found at 12:00, may have run since midnight at $20. The day's line so far says
$120. It may change by 2 %, and may lack the last 15 minutes: the machine cost $117.60 to $127.40.

A day's line does not say at what time of that day a resource ran. Doubtful charges at several times of one line are bounded
each by itself, so that each of them holds the truth; those of the same time (two disks) share the amount.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from costguard.metering.billing import BillTerms
from costguard.metering.observation import SUSTAINED, is_stated_by_bills
from costguard.metering.span import SEEN, NanoAmounts, Span, compute_amounts
from costguard.values.instant import DAY_US, SECOND_US, to_micros
from costguard.values.money import divide_half_even
from costguard.values.resource import Attribution

LATE, FUTURE, AHEAD, UNWATCHED = "not settled", "of the future", "not looked at since", "not watched yet"
CURRENCY, LONG, NEGATIVE = "another currency", "longer than a day", "negative"
TWICE, OVERLAP = "stated twice", "overlap"
ABOVE, BELOW, BLOCKED = "more than possible", "less than certain", "beside a contradiction"
REPRICED = "another price"
"""Of lines that count, although they are outside of the charges: they state another price."""
CONTRADICTIONS = frozenset((ABOVE, BELOW))
REASON_SENTENCES: Mapping[str, str] = {
    LATE: "its provider may still change it",
    FUTURE: "its period had not ended when it was issued",
    AHEAD: "the account was not listed completely since its period",
    UNWATCHED: "its period is before costguard first saw the resource",
    CURRENCY: "it is in another currency than the charges",
    LONG: "it covers more than one UTC day without a daily split",
    NEGATIVE: "it credits more than was charged",
    TWICE: "the bill contains it twice",
    OVERLAP: "it overlaps another line of the same resource",
    ABOVE: "it is more than the observed resource can have cost",
    BELOW: "it is less than the observed resource cost, and another line of the resource is more than that",
    BLOCKED: "another line of that resource and day contradicts the observations",
}
"""Why a line narrows nothing, in words."""

_END_OF_OPEN = 2**62
NO_LINE = "no line in a complete answer"
FINEST_STEP = 1000
"""Nano-units by which a line may be off in any case: a bill's binary fractions."""


class EvidenceLine(NamedTuple):
    """A line of a bill for one resource and kind of charge. `id`: its row in the ledger. Times are microseconds.

    `stated_us`: when its provider stated it.
    """

    id: int
    start_us: int
    end_us: int
    nano: int
    currency: str
    estimated: bool
    description: str
    stated_us: int


class EvidenceSpan(NamedTuple):
    """A span of that resource and kind of charge as observed, without evidence. `id`: its row. Open ones are known to go on."""

    id: int
    span: Span


class BilledPart(NamedTuple):
    """The amounts of a span in [start_us, end_us) as bounded by the bill line `line_id`; of an open one: by another price."""

    span_id: int
    start_us: int
    end_us: int
    line_id: int
    amounts: NanoAmounts


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceContext:
    """What is known beside the lines, times in microseconds.

    `watched_until_us`: up to when all charges of the resource are recorded. `watched_since_us`: when it was first seen; None:
    its provider states since when it exists. `step`: the nano-units that all amounts of the statement are whole multiples of,
    0 if none is visible: a line may be off by half of it.

    `estimated_lag_us`: an estimated line contains the usage up to so long before it was stated, within `estimated_percent`;
    None: an estimated line is no evidence.
    """

    now_us: int
    watched_until_us: int
    watched_since_us: int | None = None
    step: int = 0
    estimated_lag_us: int | None = None
    estimated_percent: int = 0


class BillAnswerPeriod(NamedTuple):
    """A complete answer of a provider: its period, and when it was stated, in microseconds."""

    start_us: int
    end_us: int
    stated_us: int


class UnusedLine(NamedTuple):
    """A line that bounds nothing, with the reason (a key of `REASON_SENTENCES`)."""

    reason: str
    line: EvidenceLine


@dataclass(slots=True)
class WeighedEvidence:
    """The result: `parts` of spans that lines bound, and the lines that bound nothing. `repriced`: those of another price."""

    parts: list[BilledPart] = field(default_factory=list)
    unused: list[UnusedLine] = field(default_factory=list)
    repriced: list[EvidenceLine] = field(default_factory=list)


@dataclass(slots=True)
class _Window:
    """The lines of one period, and why they do not count ("" if they do)."""

    start_us: int
    end_us: int
    lines: list[EvidenceLine]
    reason: str = ""

    @property
    def nano(self) -> int:
        return sum(line.nano for line in self.lines)

    @property
    def day(self) -> int:
        return self.start_us // DAY_US

    @property
    def estimated(self) -> bool:
        return any(line.estimated for line in self.lines)

    @property
    def stated_us(self) -> int:
        return min(line.stated_us for line in self.lines)


class _Slack(NamedTuple):
    """By how many nano-units the truth may be below and above the amount of a window."""

    below: int
    above: int


class _Cut(NamedTuple):
    """A span in a window, with its amounts there. `doubtful`: evidence may bound it. `sure`: it ran."""

    span_id: int
    span: Span
    start_us: int
    end_us: int
    low: int
    expected: int
    high: int
    currency: str
    doubtful: bool
    sure: bool


def weigh_lines(lines: Iterable[EvidenceLine], spans: Sequence[EvidenceSpan], context: EvidenceContext) -> WeighedEvidence:
    """Return what `lines` say of the doubtful ones of `spans`; all are of one resource and kind of charge."""
    windows = _group_by_period(_cut_running_line(line, context) for line in lines)
    _mark_overlaps(windows)
    evidence, cuts, index = WeighedEvidence(), dict[int, list[_Cut]](), _SpanIndex(spans)
    for number, window in enumerate(windows):
        window.reason = window.reason or _find_fault(window, context)
        if not window.reason:
            cuts[number] = _drop_undiscounted(window, index.cut(window), context)
            window.reason = _compare_amounts(window, cuts[number], context)
    _accept_prices(windows, cuts)
    contradicted = {window.day for window in windows if window.reason in CONTRADICTIONS}
    for number, window in enumerate(windows):
        if not window.reason and window.day in contradicted:
            window.reason = BLOCKED
        if window.reason == REPRICED:
            evidence.repriced += window.lines
            evidence.parts += _apply_bill(window, cuts[number], _compute_slack(window, cuts[number], context).above)
        elif window.reason:
            evidence.unused += [UnusedLine(window.reason, line) for line in window.lines]
        else:
            evidence.parts += _bound_doubt(window, cuts[number], _compute_slack(window, cuts[number], context))
    return evidence


def _accept_prices(windows: Sequence[_Window], cuts: Mapping[int, Sequence[_Cut]]) -> None:
    """Mark the windows that contradict the charges, and that another price explains."""
    covered = {
        number: _cover_window(window, cuts[number]) for number, window in enumerate(windows) if window.reason in CONTRADICTIONS
    }
    above = {
        windows[number].day for number, whole_time in covered.items() if windows[number].reason == ABOVE and not whole_time
    }
    for number, whole_time in covered.items():
        window = windows[number]
        if window.day not in above and (whole_time or (window.reason == BELOW and not above)):
            window.reason = REPRICED


def _cover_window(window: _Window, cuts: Sequence[_Cut]) -> bool:
    """Return whether the resource surely ran in all of a window."""
    at_us = window.start_us
    for start_us, end_us in sorted((cut.start_us, cut.end_us) for cut in cuts if cut.sure):
        if start_us > at_us:
            return False
        at_us = max(at_us, end_us)
    return at_us >= window.end_us


def list_gaps(
    lines: Collection[EvidenceLine],
    spans: Collection[Span],
    answers: Iterable[BillAnswerPeriod],
    terms: BillTerms,
    context: EvidenceContext,
) -> list[EvidenceLine]:
    """Return a line of zero for each settled hour (or day) of doubt in which a resource has none, of any kind of charge.

    `lines`, `spans`: all of the resource; `answers`: those that had lines of it. An hour in which anything of it is sure to
    bill is none: the answer lacks it. The evidence is another line of the resource. Example: a pod that costs nothing while it
    is stopped has lines of 11:00 to 12:00 alone, in an answer of the whole day: it did not run before 11:00.
    """
    step_us, settles_us, hours = terms.step_s * SECOND_US, terms.settles_s * SECOND_US, dict[int, int]()
    for answer in answers if lines else ():
        until_us = min(answer.end_us, answer.stated_us - settles_us, context.watched_until_us)
        for hour in range(-(-answer.start_us // step_us), until_us // step_us):
            hours[hour] = max(hours.get(hour, 0), answer.stated_us)
    for line in lines:
        for hour in range(line.start_us // step_us, -(-line.end_us // step_us)):
            hours.pop(hour, None)
    gaps, evidence = list[EvidenceLine](), min(lines, default=None)
    for hour, stated_us in sorted(hours.items()):
        period = (hour * step_us, (hour + 1) * step_us)
        amounts = [compute_amounts(span, *period) for span in spans]
        if evidence is not None and any(high for *_, high in amounts) and not any(low for low, *_ in amounts):
            currency = evidence.currency
            gaps.append(
                EvidenceLine(evidence.id, *period, 0, currency, estimated=False, description=NO_LINE, stated_us=stated_us)
            )
    return gaps


def _cut_running_line(line: EvidenceLine, context: EvidenceContext) -> EvidenceLine:
    """Return an estimated line of a period that was not over as one that ends when it was stated."""
    end_us = min(line.end_us, line.stated_us, context.now_us)
    runs = line.estimated and context.estimated_lag_us is not None and line.start_us < end_us
    return line._replace(end_us=end_us) if runs else line


def _group_by_period(lines: Iterable[EvidenceLine]) -> list[_Window]:
    groups = defaultdict[tuple[int, int], list[EvidenceLine]](list)
    for line in lines:
        groups[line.start_us, line.end_us].append(line)
    return [_Window(*period, lines=every) for period, every in sorted(groups.items())]


def _mark_overlaps(windows: Sequence[_Window]) -> None:
    """Mark every window that overlaps another one: hours beside their day."""
    last: _Window | None = None
    for window in windows:
        if last is not None and window.start_us < last.end_us:
            window.reason = last.reason = OVERLAP
        if last is None or window.end_us > last.end_us:
            last = window


def _find_fault(window: _Window, context: EvidenceContext) -> str:
    """Return why the lines of a window do not count, whatever their amount; "" if nothing speaks against them."""
    described = Counter(line.description for line in window.lines if line.nano > 0)
    lag_us = context.estimated_lag_us
    tests = (
        (window.end_us > min(context.now_us, window.stated_us), FUTURE),
        (window.estimated and lag_us is None, LATE),
        (window.end_us > context.watched_until_us + (lag_us or 0) * window.estimated, AHEAD),
        ((window.end_us - 1) // DAY_US != window.day, LONG),
        (len({line.currency for line in window.lines}) > 1, CURRENCY),
        (any(count > 1 for count in described.values()), TWICE),
        (window.nano < 0, NEGATIVE),
    )
    return next((reason for wrong, reason in tests if wrong), "")


class _SpanIndex:
    """The spans in order of time, for windows in that order: a month has a line for each of its hours."""

    def __init__(self, spans: Sequence[EvidenceSpan]) -> None:
        intervals = (
            (to_micros(one.span.start), _END_OF_OPEN if one.span.end is None else to_micros(one.span.end), one) for one in spans
        )
        self._spans = sorted(intervals, key=itemgetter(0, 1))
        self._passed = 0

    def cut(self, window: _Window) -> list[_Cut]:
        """Return the parts of the spans in `window`, which does not begin before the last one."""
        while self._passed < len(self._spans) and self._spans[self._passed][1] <= window.start_us:
            self._passed += 1
        cuts = []
        for index in range(self._passed, len(self._spans)):
            first_us, last_us, (number, span) = self._spans[index]
            if first_us >= window.end_us:
                break
            start_us, end_us = max(window.start_us, first_us), min(window.end_us, last_us)
            if start_us < end_us:
                low, expected, high = compute_amounts(span, start_us, end_us)
                is_learned = is_stated_by_bills(span.meter.source) and not window.estimated
                doubtful, sure = (span.end is not None or is_learned) and low < high, span.presence == SEEN
                place = (number, span, start_us, end_us)
                cuts.append(_Cut(*place, low, expected, high, span.meter.price.currency, doubtful, sure))
        return cuts


def _drop_undiscounted(window: _Window, cuts: Sequence[_Cut], context: EvidenceContext) -> list[_Cut]:
    """Return the cuts of a window, without a doubt that an amount at the full price does not settle.

    Google states costs before the discount for sustained use, which is a credit: such a line says nothing of it.
    """
    full = window.nano + FINEST_STEP + context.step >= sum(cut.high for cut in cuts)
    return [cut._replace(doubtful=False) if full and cut.sure and SUSTAINED in cut.span.meter.source else cut for cut in cuts]


def _compare_amounts(window: _Window, cuts: Sequence[_Cut], context: EvidenceContext) -> str:
    """Return why the amount of a window cannot be, or cannot be compared; "" if it lies within what is possible."""
    if any(cut.currency != window.lines[0].currency for cut in cuts):
        return CURRENCY
    slack, since = _compute_slack(window, cuts, context), context.watched_since_us
    if since is not None and window.start_us < since:  # some of the amount may be of the time before it
        return UNWATCHED
    above = window.nano - slack.below > sum(cut.high for cut in cuts)
    if above or window.nano + slack.above < sum(cut.low for cut in cuts):
        return LATE if window.estimated else ABOVE if above else BELOW
    return ""


def _compute_slack(window: _Window, cuts: Sequence[_Cut], context: EvidenceContext) -> _Slack:
    """Return by how much the truth may differ from the lines of a window.

    An estimated one may change by a share, and may lack its last usage: all that the spans can have cost then. What it has of
    the time after the last listing may be as much again as is known of it, or a run that nobody saw yet.
    """
    slack = len(window.lines) * max(FINEST_STEP, context.step // 2)
    if not window.estimated or context.estimated_lag_us is None:
        return _Slack(slack, slack)
    slack += -(-abs(window.nano) * context.estimated_percent // 100)
    unstated_us = min(window.stated_us - context.estimated_lag_us, context.watched_until_us)
    unseen, unstated = (
        sum(compute_amounts(cut.span, max(cut.start_us, since_us), cut.end_us)[2] for cut in cuts if cut.end_us > since_us)
        for since_us in (context.watched_until_us, unstated_us)
    )
    unseen_us = max(window.end_us - context.watched_until_us, 0)
    unseen_run = max((-(-cut.high * unseen_us // (cut.end_us - cut.start_us)) for cut in cuts), default=0)
    return _Slack(slack + max(unseen, unseen_run), slack + unstated)


def _bound_doubt(window: _Window, cuts: Sequence[_Cut], slack: _Slack) -> Iterator[BilledPart]:
    """Yield the doubtful cuts of a window with their amounts, where these are narrower than before."""
    low, high = sum(cut.low for cut in cuts), sum(cut.high for cut in cuts)
    line = max(window.lines, key=lambda one: (one.nano, -one.id))
    for group in _group_by_time(cuts):
        least, most = sum(cut.low for cut in group), sum(cut.high for cut in group)
        floor = min(most, max(least, window.nano - slack.below - (high - most)))
        ceiling = max(floor, min(most, window.nano + slack.above - (low - least)))
        for cut in group:
            amounts = (
                cut.low + (cut.high - cut.low) * (floor - least) // (most - least),
                cut.low + divide_half_even((cut.high - cut.low) * (min(max(window.nano, low), high) - low), high - low),
                cut.high - (cut.high - cut.low) * (most - ceiling) // (most - least),
            )
            expected = min(max(amounts[1], amounts[0]), amounts[2])
            if amounts[2] - amounts[0] < cut.high - cut.low:
                yield BilledPart(cut.span_id, cut.start_us, cut.end_us, line.id, (amounts[0], expected, amounts[2]))


def _apply_bill(window: _Window, cuts: Sequence[_Cut], slack: int) -> Iterator[BilledPart]:
    """Yield the cuts of a window with the amount of its lines, each with its share: they add up to it."""
    line = max(window.lines, key=lambda one: (one.nano, -one.id))
    weights = [cut.expected for cut in cuts]
    weights = weights if any(weights) else [cut.end_us - cut.start_us for cut in cuts]
    total, weighed, paid = sum(weights), 0, 0
    for cut, weight in zip(cuts, weights, strict=True):
        weighed += weight
        share = divide_half_even(window.nano * weighed, total) - paid
        paid += share
        off = divide_half_even(slack * weight, total)
        low = min(cut.low, max(0, share - off))
        yield BilledPart(cut.span_id, cut.start_us, cut.end_us, line.id, (low, share, share + off))


def _group_by_time(cuts: Sequence[_Cut]) -> Iterator[list[_Cut]]:
    """Yield the doubtful cuts in groups of one attribution and time: the parts of a storage charge."""
    groups = defaultdict[tuple[Attribution, int, int], list[_Cut]](list)
    for cut in cuts:
        if cut.doubtful:
            groups[cut.span.attribution, cut.start_us, cut.end_us].append(cut)
    yield from groups.values()


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceFinding:
    """Lines of one account and kind of charge that narrow nothing for one reason. `resources`: some of theirs.

    `days`: of lines that contradict what was seen, every (resource, UTC day in days since 1970).
    """

    provider: str
    account: str
    charge: str
    reason: str
    lines: int
    nano: int
    currency: str
    resources: tuple[str, ...]
    days: frozenset[tuple[str, int]] = frozenset()

    @property
    def contradicts(self) -> bool:
        """Whether the lines cannot be true together with what was seen."""
        return self.reason in CONTRADICTIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceSummary:
    """What the bill of one account and currency does to the charges.

    `lines`: those that bound something, of `resources` resources; `estimated` of them with a tolerance of `percent`. `doubt`,
    `left`: high less low of the charges that they bound, in nano-units, without and with the bill. `repriced`: how many lines
    state another price; `counted`, `billed`: what their time costs at the counted price, and by the bill.
    """

    provider: str
    account: str
    currency: str
    lines: int
    resources: int
    doubt: int
    left: int
    repriced: int = 0
    counted: int = 0
    billed: int = 0
    estimated: int = 0
    percent: int = 0
