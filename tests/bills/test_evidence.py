"""Whatever happened inside doubtful time, and however it is cut: what a true bill makes of it holds the truth."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from costguard.bills.evidence import (
    FINEST_STEP,
    LATE,
    NO_LINE,
    UNWATCHED,
    BillAnswerPeriod,
    EvidenceContext,
    EvidenceLine,
    EvidenceSpan,
    list_gaps,
    weigh_lines,
)
from costguard.metering.billing import BillTerms
from costguard.metering.meter import Meter, PriceRange
from costguard.metering.span import EDGE, GAP, MAYBE, SEEN, Span, apply_bill, compute_amounts, count_expected_us, split_by_day
from costguard.values.instant import from_micros
from tests.books import attribution
from tests.campaign import examples
from tests.ledger.fleet import key

MINUTE, HOUR = 60 * 10**6, 3600 * 10**6
PRICE = 2_000_000_000
KNOWN = EvidenceContext(now_us=30 * HOUR, watched_until_us=30 * HOUR)
MANY = settings(max_examples=examples(200), deadline=None)


def span(start_us: int, end_us: int, presence: str = GAP, *, part: str = "", low: int = PRICE) -> Span:
    meter = Meter("compute", PriceRange(low, max(low, PRICE // 2), PRICE), part=part)
    start, end = from_micros(start_us), from_micros(end_us)
    whose = attribution()
    return Span(key=key("i-1"), attribution=whose, meter=meter, start=start, anchor=start, end=end, presence=presence)


def line(nano: int, start_us: int = 0, end_us: int = HOUR) -> EvidenceLine:
    return EvidenceLine(7, start_us, end_us, nano, "USD", estimated=False, description="", stated_us=29 * HOUR)


def cost(ran: set[int], start_us: int, end_us: int) -> int:
    """What the minutes `ran` cost within a period of whole minutes."""
    return PRICE * sum(start_us <= minute * MINUTE < end_us for minute in ran) // 60


minutes = st.sets(st.integers(0, 59), max_size=60)


@MANY
@given(ran=minutes, a=st.integers(0, 60), b=st.integers(0, 60))
def test_any_cut_of_a_billed_span_holds_what_it_cost(ran: set[int], a: int, b: int) -> None:
    start, end = min(a, b) * MINUTE, max(a, b) * MINUTE
    total = cost(ran, 0, HOUR)
    billed = replace(span(0, HOUR, SEEN), billed=(total, total, total))
    low, expected, high = compute_amounts(billed, start, end)
    assert 0 <= low <= expected <= high
    assert low - 2 <= cost(ran, start, end) <= high + 2
    assert compute_amounts(billed, 0, HOUR) == (total, total, total)
    assert split_by_day(billed) == ([(0, (total,) * 3, count_expected_us(billed, 0, HOUR))] if ran else [])
    assert abs(count_expected_us(billed, 0, HOUR) - len(ran) * MINUTE) <= MINUTE // 1000


@MANY
@given(
    ran=minutes,
    cuts=st.sets(st.integers(1, 59), max_size=4),
    kinds=st.lists(st.sampled_from((GAP, EDGE, MAYBE, SEEN)), min_size=5),
)
def test_every_part_of_a_line_holds_what_it_cost(ran: set[int], cuts: set[int], kinds: list[str]) -> None:
    """Spans of all kinds in one hour, of which the bill states the sum: a machine that was seen ran in all of its span."""
    edges = [0, *sorted(cuts), 60]
    spans = [
        EvidenceSpan(number, span(a * MINUTE, b * MINUTE, kind))
        for number, ((a, b), kind) in enumerate(zip(pairwise(edges), kinds, strict=False))
    ]
    for (_, one), (a, b) in zip(spans, pairwise(edges), strict=True):
        ran = ran | set(range(a, b)) if one.presence == SEEN else ran
    total = cost(ran, 0, HOUR)
    found = weigh_lines([line(total)], spans, KNOWN)
    assert found.unused == []
    for part in found.parts:
        truth, (low, expected, high) = cost(ran, part.start_us, part.end_us), part.amounts
        assert low <= expected <= high
        assert low - len(edges) <= truth <= high + len(edges)
    doubtful = [number for number, one in spans if one.presence != SEEN]
    if len(doubtful) == 1:
        (part,) = found.parts
        assert part.amounts[2] - part.amounts[0] <= 2 * FINEST_STEP + len(edges), "what is left of the line is its cost"


def test_two_disks_of_one_line_share_its_amount() -> None:
    """Each alone may have billed anything; together they cost what the line says."""
    spans = [EvidenceSpan(number, span(0, HOUR, part=f"disk#{number}")) for number in (1, 2)]
    parts = weigh_lines([line(3_000_000_000)], spans, KNOWN).parts
    assert [part.span_id for part in parts] == [1, 2]
    assert sum(part.amounts[1] for part in parts) == 3_000_000_000
    assert sum(part.amounts[2] - part.amounts[0] for part in parts) <= 4 * FINEST_STEP


def test_amounts_in_cents_leave_half_a_cent_in_doubt() -> None:
    cents = replace(KNOWN, step=10_000_000)
    (part,) = weigh_lines([line(1_230_000_000)], [EvidenceSpan(1, span(0, HOUR))], cents).parts
    assert part.amounts == (1_225_000_000, 1_230_000_000, 1_235_000_000)


def test_a_line_of_a_time_before_the_resource_was_first_seen_narrows_nothing() -> None:
    """A day's $9 may be of the hours before: first seen at noon, six certain hours and four in doubt, at $1 an hour each."""
    certain, doubt = span(12 * HOUR, 18 * HOUR, SEEN), span(18 * HOUR, 22 * HOUR)
    spans = [EvidenceSpan(1, certain), EvidenceSpan(2, doubt)]
    said = line(18 * 10**9, 0, 24 * HOUR)
    seen_since_noon = replace(KNOWN, watched_since_us=12 * HOUR)
    found = weigh_lines([said], spans, seen_since_noon)
    assert (found.parts, [one.reason for one in found.unused]) == ([], [UNWATCHED])
    assert weigh_lines([said], spans, KNOWN).parts, "a control: of a resource whose creation is stated it narrows"


LAG_MINUTES, PERCENT = 15, 2
ESTIMATES = replace(KNOWN, estimated_lag_us=LAG_MINUTES * MINUTE, estimated_percent=PERCENT)


@MANY
@given(
    ran=minutes,
    stated=st.integers(2, 60),
    unseen=st.integers(0, LAG_MINUTES),
    late=st.integers(0, LAG_MINUTES),
    off=st.integers(-19, 19),
    found=st.integers(0, 59),
)
def test_an_estimated_line_bounds_what_it_may_become(  # noqa: PLR0917 - what is drawn
    ran: set[int], stated: int, unseen: int, late: int, off: int, found: int
) -> None:
    """A line of an hour that runs, which lacks up to 15 minutes and is off by 1.9 % at most.

    The machine was listed up to 15 minutes before it, running since `found`. Then it may have stopped, or started again.
    """
    watched = max(stated - unseen, 1)
    found = min(found, watched)
    ran = {minute for minute in ran if minute < stated} | set(range(found, watched))
    so_far = cost(ran, 0, (stated - late) * MINUTE)
    one = line(so_far * (1000 + off) // 1000)._replace(estimated=True, stated_us=stated * MINUTE)
    certain = replace(span(found * MINUTE, HOUR, SEEN), end=None)
    spans = [EvidenceSpan(1, certain), *([EvidenceSpan(2, span(0, found * MINUTE))] if found else [])]
    for part in weigh_lines([one], spans, replace(ESTIMATES, watched_until_us=watched * MINUTE)).parts:
        low, expected, high = part.amounts
        assert low <= expected <= high
        assert low - 4 <= cost(ran, 0, found * MINUTE) <= high + 4


def test_an_estimated_line_narrows_by_its_tolerance_and_one_that_does_not_fit_is_only_late() -> None:
    spans = [EvidenceSpan(1, span(0, HOUR))]
    half = line(10**9)._replace(estimated=True)
    (part,) = weigh_lines([half], spans, ESTIMATES).parts
    assert part.amounts == (980_000_000 - FINEST_STEP, 10**9, 1_020_000_000 + FINEST_STEP)
    assert [one.reason for one in weigh_lines([half], spans, KNOWN).unused] == [LATE], "nobody says how far it may be off"
    for wrong in (half._replace(nano=3 * 10**9), half._replace(nano=10**8)):
        certain = [EvidenceSpan(1, span(0, HOUR // 2, SEEN)), EvidenceSpan(2, span(HOUR // 2, HOUR))]
        weighed = weigh_lines([wrong], certain, ESTIMATES)
        assert (weighed.parts, [one.reason for one in weighed.unused]) == ([], [LATE])


HOURLY = BillTerms(asked="doubt", step_s=3600, settles_s=3600, states_all=True)
ANSWER = BillAnswerPeriod(0, 4 * HOUR, 4 * HOUR)


def test_an_hour_without_a_line_is_a_gap_where_a_settled_answer_has_the_resource() -> None:
    doubt, own_line = [span(0, 2 * HOUR)], line(10**9, HOUR, 2 * HOUR)
    (gap,) = list_gaps([own_line], doubt, [ANSWER], HOURLY, KNOWN)
    assert (gap.start_us, gap.end_us, gap.nano, gap.id, gap.description) == (0, HOUR, 0, own_line.id, NO_LINE)
    (part,) = weigh_lines([gap], [EvidenceSpan(1, doubt[0])], KNOWN).parts
    assert part.amounts == (0, 0, FINEST_STEP)


def test_no_hour_is_a_gap_that_could_still_get_a_line_or_is_sure_to_have_one() -> None:
    own_line, doubt = line(10**9, HOUR, 2 * HOUR), [span(0, 4 * HOUR)]
    starts = {
        name: [gap.start_us // HOUR for gap in list_gaps(lines, spans, answers, HOURLY, context)]
        for name, lines, spans, answers, context in (
            ("a control", [own_line], doubt, [ANSWER], KNOWN),
            ("nothing is stated of the resource", [], doubt, [ANSWER], KNOWN),
            ("no complete answer", [own_line], doubt, [], KNOWN),
            ("not settled", [own_line], doubt, [ANSWER._replace(stated_us=2 * HOUR)], KNOWN),
            ("not listed since", [own_line], doubt, [ANSWER], replace(KNOWN, watched_until_us=HOUR - 1)),
            ("a disk is sure to bill", [own_line], [*doubt, span(0, HOUR // 2, SEEN, part="disk")], [ANSWER], KNOWN),
            ("a part of an hour", [own_line], doubt, [ANSWER._replace(start_us=1)], KNOWN),
        )
    }
    assert starts == {
        "a control": [0, 2],
        "nothing is stated of the resource": [],
        "no complete answer": [],
        "not settled": [0],
        "not listed since": [],
        "a disk is sure to bill": [2],
        "a part of an hour": [2],
    }


def test_a_full_price_settles_nothing_of_a_discount_for_sustained_use_and_a_lower_one_is_the_price() -> None:
    ran = span(0, HOUR, SEEN, low=PRICE // 2)
    meter = replace(ran.meter, source="sustained use, 80.00% of the price; list 2.000000000 USD: Cloud Billing Catalog")
    seen, full = EvidenceSpan(1, replace(ran, meter=meter)), compute_amounts(ran, 0, HOUR)[2]
    assert weigh_lines([line(full)], [seen], KNOWN).parts == [], "it is the cost before credits"
    (part,) = weigh_lines([line(full * 7 // 10)], [seen], KNOWN).parts
    assert part.amounts[1] == full * 7 // 10
    billed = apply_bill(seen.span, part.amounts, SEEN)
    assert count_expected_us(billed, 0, HOUR) == HOUR, "at a lower price it ran as long"
