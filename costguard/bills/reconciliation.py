"""Compare the lines of a bill with their charges, cell by cell, and name the causes of drift.

A line of one hour and a charge of the same hour are in one cell. A line of a month combines all cells of its month into one
block. If a statement names no resource for a kind of charge (Cost Explorer), its lines are compared with all charges of that
kind in the region.

Each group whose bill lies outside of its charges gets one cause, tested in this order: another currency, a resource that
costguard never saw, no line in the bill, overlapping lines, rounding, the same ratio everywhere (a wrong rate). The rest is
unexplained.

Example: 48 hourly blocks of two pods at $0.69, all billed 1.1014 times that: "a rate of $0.7600 an hour would fit".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from costguard.bills.bill_line import ADDRESS, COMPUTE, CREDIT, STORAGE, TAX
from costguard.bills.bill_line import OTHER as OTHER_CHARGE
from costguard.bills.drift import (
    AFTER,
    BEFORE,
    BEYOND,
    INSIDE,
    UNSURE,
    WITHIN,
    AccountComparison,
    BilledLines,
    CauseContext,
    CellAmounts,
    CellBlock,
    ChargedCell,
    DriftGroup,
    DriftPart,
    DriftResult,
    NanoAmounts,
)
from costguard.errors import shorten
from costguard.values.money import Rate

HOURS_A_DAY = 24
FirstSeenHours = Mapping[tuple[str, str], int]
"""(account, resource) -> the hour in which costguard first saw it."""


def compare_bills(
    lines: Iterable[BilledLines], charged: Iterable[ChargedCell], first_seen: FirstSeenHours
) -> list[AccountComparison]:
    """Compare lines with charges, for each account and currency.

    `first_seen`: see `CauseContext`. In a result, `apart` holds (nano, lines) of tax and credits, `outside` the charges BEFORE
    and AFTER the statement, and `unplaced` the lines without a resource of kinds of charge whose other lines name theirs.
    """
    bills, charges = (
        defaultdict[tuple[str, str], list[BilledLines]](list),
        defaultdict[tuple[str, str], list[ChargedCell]](list),
    )
    for line in lines:
        bills[line.account, line.currency].append(line)
    for one in charged:
        charges[one.account, one.currency].append(one)
    return [
        _compare_account(*place, bills.get(place, ()), charges.get(place, ()), first_seen)
        for place in sorted({*bills, *charges})
    ]


def _compare_account(
    account: str, currency: str, lines: Sequence[BilledLines], charged: Sequence[ChargedCell], first_seen: FirstSeenHours
) -> AccountComparison:
    usage = [line for line in lines if line.charge not in (TAX, CREDIT)]
    charged = _merge_charges(usage, charged)
    kinds = {line.charge for line in usage if line.resource}
    resource_lines = [line for line in usage if line.resource or line.charge not in kinds]
    inside = [one for one in charged if one.where == INSIDE]
    pooled = {line.charge for line in usage} - kinds
    wide = {line.charge for line in usage if line.charge in pooled and not line.region}
    groups = _group_lines(resource_lines, inside, pooled, wide)
    for group in groups:
        _sum_blocks(group, first_seen.get((account, group.resource)))
    unplaced = _group_lines([line for line in usage if not line.resource and line.charge in kinds], (), set(), set())
    for group in unplaced:
        _sum_blocks(group, None)
    return AccountComparison(
        account=account,
        currency=currency,
        groups=tuple(groups),
        unplaced=tuple(unplaced),
        apart={kind: _sum_lines(line for line in lines if line.charge == kind) for kind in (TAX, CREDIT)},
        outside={where: _sum_charges(one for one in charged if one.where == where) for where in (BEFORE, AFTER)},
        cells=_sum_cells(usage, inside),
    )


def _merge_charges(usage: Sequence[BilledLines], charged: Sequence[ChargedCell]) -> Sequence[ChargedCell]:
    """Return the charges, those as OTHER whose resource has no lines but of OTHER: its bill states one amount for all of it.

    The same applies to all charges if no line names a resource or a kind of charge.
    """
    kinds = defaultdict[str, set[str]](set)
    for line in usage:
        kinds[line.resource].add(line.charge)
    undivided = {resource for resource, its in kinds.items() if its == {OTHER_CHARGE}}
    everything = set(kinds) == undivided == {""}
    return [one._replace(charge=OTHER_CHARGE) if everything or one.resource in undivided else one for one in charged]


def _group_lines(
    billed_lines: Iterable[BilledLines], charged: Iterable[ChargedCell], pooled: Collection[str], wide: Collection[str]
) -> list[DriftGroup]:
    """Group lines and charges by resource and kind of charge.

    Kinds in `pooled`, for which no line names a resource, are grouped by region, or, if also in `wide`, as one group.
    """
    groups = dict[tuple[str, str, str], DriftGroup]()
    lines = defaultdict[tuple[str, str, str], list[BilledLines]](list)
    for line in billed_lines:
        region = "" if line.resource or line.charge in wide else line.region
        place = (line.resource, region, line.charge)
        lines[place].append(line)
        groups.setdefault(place, DriftGroup(resource=line.resource, region=line.region, charge=line.charge))
    owed = defaultdict[tuple[str, str, str], list[ChargedCell]](list)
    for one in charged:
        pool = one.charge in pooled
        place = ("" if pool else one.resource, one.region if pool and one.charge not in wide else "", one.charge)
        owed[place].append(one)
        groups.setdefault(place, DriftGroup(resource=place[0], region=one.region, charge=one.charge))
    for place, group in sorted(groups.items()):
        _fill_group(group, lines.get(place, ()), owed.get(place, ()))
    return [groups[place] for place in sorted(groups)]


def _fill_group(group: DriftGroup, lines: Sequence[BilledLines], charged: Sequence[ChargedCell]) -> None:
    """Add every line and charge of the group to its block."""
    first = _find_first_cells(lines)
    for line in lines:
        block = group.blocks.setdefault(first.get(line.first, line.first), CellBlock())
        block.billed, block.lines = block.billed + line.nano, block.lines + line.lines
        block.estimated += line.estimated
        group.steps.add(line.step)
        group.overlapping += line.overlapping
        group.told = group.told or line.told
    dearest = defaultdict[str, int](int)
    for one in charged:
        block = group.blocks.setdefault(first.get(one.cell, one.cell), CellBlock())
        block.low, block.expected, block.high = block.low + one.low, block.expected + one.expected, block.high + one.high
        group.prices.add((one.price, one.unit, one.source))
        dearest[one.sku] += one.high
    group.sku = max(sorted(dearest), key=dearest.__getitem__, default=group.told if not group.resource else "")


def _sum_blocks(group: DriftGroup, first_seen: int | None) -> None:
    """Sum the group's blocks as late, settled, and early: billed before `first_seen`, the hour of the first look."""
    charged = [start for start, block in group.blocks.items() if block.high]
    for start, block in group.blocks.items():
        total = group.late if block.estimated else group.settled
        excess = 0
        if first_seen is not None and start <= first_seen and not block.estimated:
            began = start == min(charged, default=start) and first_seen in _find_block_hours(start, group)
            excess = max(0, block.billed - block.high) if began or not block.high else 0
        group.early.billed += excess
        total.billed, total.lines = total.billed + block.billed - excess, total.lines + block.lines
        total.estimated += block.estimated
        total.low, total.expected, total.high = (
            total.low + block.low,
            total.expected + block.expected,
            total.high + block.high,
        )


def _find_block_hours(start: int, group: DriftGroup) -> range:
    """Return the hours of a block: its own, or its whole day if the group has no other block on that day."""
    day = range(start, start + HOURS_A_DAY)
    alone = start % HOURS_A_DAY == 0 and not any(other in day for other in group.blocks if other != start)
    return day if alone else range(start, start + 1)


def _find_first_cells(lines: Iterable[BilledLines]) -> dict[int, int]:
    """Return cell -> the first cell of its block, for cells that are covered by lines of several cells."""
    first_cells, end, start = dict[int, int](), -1, -1
    for line in sorted((line for line in lines if line.last > line.first), key=lambda line: line.first):
        start = start if line.first <= end else line.first
        end = max(end, line.last) if line.first <= end else line.last
        first_cells |= dict.fromkeys(range(line.first, line.last + 1), start)
    return first_cells


def _sum_lines(lines: Iterable[BilledLines]) -> tuple[int, int]:
    sums = [(line.nano, line.lines) for line in lines]
    return sum(nano for nano, _ in sums), sum(count for _, count in sums)


def _sum_charges(charged: Iterable[ChargedCell]) -> NanoAmounts:
    low = expected = high = 0
    for one in charged:
        low, expected, high = low + one.low, expected + one.expected, high + one.high
    return low, expected, high


def _sum_cells(lines: Iterable[BilledLines], charged: Iterable[ChargedCell]) -> tuple[CellAmounts, ...]:
    """Return bill and charges by cell over all resources; a line of several cells counts in its first."""
    billed, owed = defaultdict[int, int](int), defaultdict[int, list[int]](lambda: [0, 0, 0])
    for line in lines:
        billed[line.first] += line.nano
    for one in charged:
        for place, nano in enumerate((one.low, one.expected, one.high)):
            owed[one.cell][place] += nano
    cells = sorted({*billed, *owed})
    return tuple(
        CellAmounts(cell=cell, billed=billed[cell], charged=(owed[cell][0], owed[cell][1], owed[cell][2])) for cell in cells
    )


DOUBT, LATE, ROUNDING, NOT_STATED = "doubt", "late", "rounding", "not stated"
UNSEEN, NO_RESOURCE, UNBILLED, CURRENCY = "unseen", "no resource", "not billed", "currency"
RATE, OVERLAP, NOT_CHARGED, OTHER = "rate", "overlap", "not charged", "unexplained"
UNWATCHED = "not watched yet"
EXPLAINED = frozenset((TAX, CREDIT, DOUBT, LATE, ROUNDING, NOT_STATED, UNWATCHED))
"""Causes of which costguard knows that they are not in its charges, or not in the bill yet."""

SAME_RATIO = Fraction(2, 1000)
"""Ratios this close to each other are one ratio: bills count time in seconds or hours, and costguard sees it by polls."""
LEAST_OFF = Fraction(1, 1000)
LEAST_BLOCKS = 2
EXACT_SHARE = Fraction(2, 1000)
"""Charges that are known this well say something about a rate."""
FINEST_STEP = 1000
"""Nano-units: what a line may differ by in any case (a bill's binary fractions)."""
MOST_NAMED, MOST_TOLD, LONGEST_TOLD = 5, 3, 60
KIND_WORDS = {COMPUTE: "machine", STORAGE: "disk", ADDRESS: "address"}


def explain_drift(one: AccountComparison, judging: CauseContext) -> DriftResult:
    """Return the result of one account and currency: its parts with their causes, and whether it is within tolerance."""
    for group in (*one.groups, *one.unplaced):
        group.cause = _find_cause(group, one, judging)
    for groups in _group_by_sku(one.groups).values():
        _name_rates(groups)
    parts = tuple(sorted(_list_parts(one, judging), key=lambda part: (part.explained, -abs(part.nano), part.cause, part.sku)))
    charged = _add_amounts(*(group.charged for group in one.groups), *one.outside.values())
    billed = sum(group.billed for group in (*one.groups, *one.unplaced)) + sum(nano for nano, _ in one.apart.values())
    unexplained = sum(part.off for part in parts if not part.explained)
    allowed = judging.tolerance.compute_allowed(billed)
    foreign = [part for part in parts if part.cause == CURRENCY]
    outcome = WITHIN if unexplained <= allowed else UNSURE if foreign or judging.why else BEYOND
    why = f"the bill is incomplete: {judging.why}" if judging.why else foreign[0].reason if foreign else ""
    return DriftResult(
        provider=judging.provider,
        account=one.account,
        currency=one.currency,
        period=judging.period,
        at=judging.at,
        billed=billed,
        charged=charged,
        unexplained=unexplained,
        allowed=allowed,
        tolerance=judging.tolerance.format(),
        outcome=UNSURE if foreign else outcome,
        parts=parts,
        cells=_sum_days(one.cells, judging.cells),
        groups=one.groups + one.unplaced,
        why=why,
    )


def _sum_days(cells: Sequence[CellAmounts], of_a_day: int) -> tuple[CellAmounts, ...]:
    """Return the cells summed by day."""
    days = dict[int, list[CellAmounts]]()
    for cell in cells:
        days.setdefault(cell.cell // of_a_day, []).append(cell)
    return tuple(
        CellAmounts(cell=day, billed=sum(one.billed for one in every), charged=_add_amounts(*(one.charged for one in every)))
        for day, every in sorted(days.items())
    )


def _find_cause(group: DriftGroup, one: AccountComparison, judging: CauseContext) -> str:
    """Return the cause of the drift of the group's settled blocks, before rates are compared."""
    lines, others = group.settled.lines, judging.others.get((one.account, group.resource, group.charge), ())
    if others and (not lines or not group.prices):
        return CURRENCY
    if not group.settled.off:
        return DOUBT
    if abs(group.settled.off) <= lines * FINEST_STEP:
        return ROUNDING
    if not group.prices:
        is_known = (one.account, group.resource) in judging.known
        return NO_RESOURCE if not group.resource else NOT_CHARGED if is_known else UNSEEN
    if not lines and not group.late.lines:
        return UNBILLED
    return OVERLAP if group.overlapping else _name_small_drift(group)


def _name_small_drift(group: DriftGroup) -> str:
    if abs(group.settled.off) <= _bound_rounding(group):
        return ROUNDING
    return STORAGE if group.charge == STORAGE else OTHER


def _bound_rounding(group: DriftGroup) -> int:
    """Return the nano-units that rounding can explain: per settled line half of the finest step that all of them share."""
    step = min(group.steps, default=0)
    return group.settled.lines * max(FINEST_STEP, step // 2)


def _group_by_sku(groups: Iterable[DriftGroup]) -> dict[tuple[str, str], list[DriftGroup]]:
    by_sku = defaultdict[tuple[str, str], list[DriftGroup]](list)
    for group in groups:
        if group.prices and group.settled.lines:
            by_sku[group.charge, group.sku].append(group)
    return by_sku


def _name_rates(groups: Sequence[DriftGroup]) -> None:
    """Assign the cause RATE to groups billed in one ratio: all of an SKU, or single machines if the others differ."""
    common = _find_rate_ratio(groups)
    for group in groups:
        fit = common or _find_rate_ratio([group])
        if fit and group.cause in (OTHER, STORAGE, ROUNDING):
            group.cause, group.ratio = RATE, fit


def _find_rate_ratio(groups: Sequence[DriftGroup]) -> Fraction | None:
    """Return the common ratio of bill to charges in every settled block; None if there is none, or it is 1."""
    blocks = [block for group in groups for block in group.blocks.values() if block.lines and not block.estimated]
    exact = [block for block in blocks if block.low and block.high - block.low <= block.expected * EXACT_SHARE]
    billed, expected = sum(block.billed for block in exact), sum(block.expected for block in exact)
    if len(exact) < LEAST_BLOCKS or not expected or billed <= 0:
        return None
    ratio = Fraction(billed, expected)
    steps = max(min(group.steps, default=0) for group in groups)
    same = all(abs(block.billed - ratio * block.expected) <= _compute_slack(block, steps) for block in exact)
    certain = abs(billed - expected) > sum(block.lines for block in exact) * max(FINEST_STEP, steps // 2)
    return ratio if same and certain and abs(ratio - 1) > LEAST_OFF else None


def _compute_slack(block: CellBlock, step: int) -> Fraction:
    """Return by how much a block may differ from the common ratio."""
    return block.billed * SAME_RATIO + block.lines * max(FINEST_STEP, step)


def _list_parts(one: AccountComparison, judging: CauseContext) -> Iterator[DriftPart]:
    causes = defaultdict[tuple[str, str, str, Fraction], list[DriftGroup]](list)
    for group in (*one.groups, *one.unplaced):
        if group.settled.billed != group.settled.expected or group.settled.off:
            causes[group.cause, group.charge, "" if group.cause == DOUBT else group.sku, group.ratio].append(group)
    for (cause, charge, sku, ratio), groups in sorted(causes.items()):
        yield _build_part(cause, charge, sku, groups, _describe_reason(cause, groups, one, judging, ratio))
    yield from _list_separate_parts(one)


def _list_separate_parts(one: AccountComparison) -> Iterator[DriftPart]:
    """Yield the parts that belong to no single resource and kind of charge, or are reported separately from its drift."""
    groups = (*one.groups, *one.unplaced)
    late = [group for group in groups if group.late.lines]
    lines = sum(group.late.lines for group in late)
    if late or one.outside[AFTER][2]:
        nano = sum(group.late.billed - group.late.expected for group in late) - one.outside[AFTER][1]
        yield _build_separate_part(LATE, nano, _describe_late(one, lines), lines, len(late))
    early = [group for group in groups if group.early.billed]
    if early:
        reason = "billed before costguard first saw it: its start time is unknown"
        yield _build_separate_part(UNWATCHED, sum(group.early.billed for group in early), reason, 0, len(early))
    if one.outside[BEFORE][2]:
        yield _build_separate_part(NOT_STATED, -one.outside[BEFORE][1], "charges from before the statement begins")
    for kind, reason in ((TAX, "tax lines: charges are without tax"), (CREDIT, "credit lines: charges are without credits")):
        nano, lines = one.apart[kind]
        if lines:
            yield _build_separate_part(kind, nano, reason, lines, charge=kind)


def _build_separate_part(
    cause: str, nano: int, reason: str, lines: int = 0, resources: int = 0, *, charge: str = ""
) -> DriftPart:
    return DriftPart(
        cause=cause,
        charge=charge,
        sku="",
        nano=nano,
        off=abs(nano),
        explained=True,
        resources=resources,
        lines=lines,
        reason=reason,
    )


def _build_part(cause: str, charge: str, sku: str, groups: Sequence[DriftGroup], reason: str) -> DriftPart:
    """Return the part of several groups with one cause.

    `off` is the sum of what lies outside of each group's charges; for a group without charges, its whole bill.
    """
    return DriftPart(
        cause=cause,
        charge=charge,
        sku=sku,
        nano=sum(group.settled.billed - group.settled.expected for group in groups),
        off=sum(abs(group.settled.off) for group in groups),
        explained=cause in EXPLAINED,
        resources=len({group.resource for group in groups if group.resource}),
        lines=sum(group.settled.lines for group in groups),
        reason=reason,
        named=tuple(sorted({group.resource for group in groups if group.resource})[:MOST_NAMED]),
    )


def _describe_late(one: AccountComparison, lines: int) -> str:
    reasons = [f"{lines} lines are estimated and will change"] if lines else []
    return "; ".join([*reasons, *(["charges from after the newest line"] if one.outside[AFTER][2] else [])])


def _describe_reason(
    cause: str, groups: Sequence[DriftGroup], one: AccountComparison, judging: CauseContext, ratio: Fraction
) -> str:
    """Return the evidence, as a sentence without its full stop."""
    count, kind = len({group.resource for group in groups}), KIND_WORDS.get(groups[0].charge, "resource")
    which = f"{count} {kind}s" if count > 1 else f"one {kind}"
    if cause == RATE:
        return _describe_rate(groups, ratio, which)
    if cause == UNSEEN:
        account = "" if one.account in judging.accounts else f", of an account that costguard does not poll ({one.account})"
        return f"billed for {which} that costguard never listed{account}"
    if cause == CURRENCY:
        others = {c for group in groups for c in judging.others[one.account, group.resource, group.charge]} - {one.currency}
        return f"in {one.currency}, and the charges or the bill in {', '.join(sorted(others))}: currencies are not added"
    return _REASONS[cause](groups, which)


def _describe_rate(groups: Sequence[DriftGroup], ratio: Fraction, which: str) -> str:
    blocks = sum(1 for group in groups for block in group.blocks.values() if block.lines and not block.estimated)
    text = f"the bill is {float(ratio):.4f} times the charges in all {blocks} periods of {which}"
    prices = {price for group in groups for price in group.prices}
    if len(prices) != 1:
        return f"{text}; {len(prices)} prices were counted"
    ((price, unit, source),) = prices
    fit = round(price * ratio)
    if not price or not fit:
        return text
    counted, fitting = Rate(nano_per_hour=price).format(), Rate(nano_per_hour=fit).format()
    per = "an hour" if unit == "Hours" else f"per {unit.removesuffix('s')}"
    return f"{text}: {fitting} {per} would fit, {counted} was counted{f' ({source})' if source else ''}"


def _describe_uncharged(groups: Sequence[DriftGroup], which: str) -> str:
    return f"billed for {which} that costguard knows, without charges at that time{_describe_lines(groups)}"


def _describe_nameless(groups: Sequence[DriftGroup], _: str) -> str:
    return f"lines without a resource, and without a charge{_describe_lines(groups)}"


def _describe_lines(groups: Sequence[DriftGroup]) -> str:
    """Return some of the bill's descriptions of the lines; "" if there are none."""
    texts = sorted({shorten(group.told, LONGEST_TOLD) for group in groups if group.told})
    return f": {', '.join(texts[:MOST_TOLD])}" if texts else ""


_REASONS: dict[str, Callable[[Sequence[DriftGroup], str], str]] = {
    DOUBT: lambda _, which: f"{which}: within the bounds of the charges",
    ROUNDING: lambda groups, which: f"{which}: explained by rounding of {sum(g.settled.lines for g in groups)} lines",
    UNBILLED: lambda _, which: f"{which}: charged, but the bill has no line",
    OVERLAP: lambda groups, which: f"{which}: {sum(g.overlapping for g in groups)} lines overlap others of the same resource",
    NOT_CHARGED: _describe_uncharged,
    NO_RESOURCE: _describe_nameless,
    STORAGE: lambda _, which: f"{which}: the bill differs from size times time",
    RATE: lambda _, which: f"{which}: another ratio",
    OTHER: lambda _, which: f"{which}: the bill differs from the charges, without a constant ratio",
}


def _add_amounts(*amounts: NanoAmounts) -> NanoAmounts:
    return sum(a[0] for a in amounts), sum(a[1] for a in amounts), sum(a[2] for a in amounts)
