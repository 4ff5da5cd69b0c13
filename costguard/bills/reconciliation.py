"""Lines of a bill beside the charges that they are for: by resource and kind of charge, cell by cell.

A line of one hour and a charge of the same hour stand in one cell. A line of a month takes all the cells of its month into one
block. A statement that names no resource of a kind of charge (Cost Explorer) is held against all of that kind in its region.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from costguard.bills.bill_line import CREDIT, TAX
from costguard.bills.drift import (
    AFTER,
    BEFORE,
    INSIDE,
    AccountComparison,
    BilledLines,
    CellAmounts,
    CellBlock,
    ChargedCell,
    DriftGroup,
    NanoAmounts,
)

HOURS_A_DAY = 24
FirstSeenHours = Mapping[tuple[str, str], int]
"""(account, resource) -> the hour in which costguard first saw it."""


def compare_bills(
    stated: Iterable[BilledLines], charged: Iterable[ChargedCell], known: FirstSeenHours
) -> list[AccountComparison]:
    """Lines beside charges, for each account and currency. `known`: see `Judging`.

    `apart`: (nano, lines) of tax and credits. `outside`: charges BEFORE and AFTER the statement. `unplaced`: lines of no
    resource, of kinds of charge whose other lines name theirs.
    """
    bills, charges = (
        defaultdict[tuple[str, str], list[BilledLines]](list),
        defaultdict[tuple[str, str], list[ChargedCell]](list),
    )
    for line in stated:
        bills[line.account, line.currency].append(line)
    for one in charged:
        charges[one.account, one.currency].append(one)
    return [
        _compare_account(*place, bills.get(place, ()), charges.get(place, ()), known) for place in sorted({*bills, *charges})
    ]


def _compare_account(
    account: str, currency: str, stated: Sequence[BilledLines], charged: Sequence[ChargedCell], known: FirstSeenHours
) -> AccountComparison:
    usage = [line for line in stated if line.charge not in (TAX, CREDIT)]
    named = {line.charge for line in usage if line.resource}
    whole = [line for line in usage if line.resource or line.charge not in named]
    inside = [one for one in charged if one.where == INSIDE]
    pooled = {line.charge for line in usage} - named
    wide = {line.charge for line in usage if line.charge in pooled and not line.region}
    groups = _group_lines(whole, inside, pooled, wide)
    for group in groups:
        _sum_blocks(group, known.get((account, group.resource)))
    unplaced = _group_lines([line for line in usage if not line.resource and line.charge in named], (), set(), set())
    for group in unplaced:
        _sum_blocks(group, None)
    return AccountComparison(
        account=account,
        currency=currency,
        groups=tuple(groups),
        unplaced=tuple(unplaced),
        apart={kind: _sum_lines(line for line in stated if line.charge == kind) for kind in (TAX, CREDIT)},
        outside={where: _sum_charges(one for one in charged if one.where == where) for where in (BEFORE, AFTER)},
        cells=_sum_cells(usage, inside),
    )


def _group_lines(
    stated: Iterable[BilledLines], charged: Iterable[ChargedCell], pooled: Collection[str], wide: Collection[str]
) -> list[DriftGroup]:
    """By resource and charge; of the kinds in `pooled`, which no line states by resource, by region, or (`wide`) as one."""
    groups = dict[tuple[str, str, str], DriftGroup]()
    lines = defaultdict[tuple[str, str, str], list[BilledLines]](list)
    for line in stated:
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


def _fill_group(group: DriftGroup, stated: Sequence[BilledLines], charged: Sequence[ChargedCell]) -> None:
    """Every line and charge of the group in its block."""
    first = _find_first_cells(stated)
    for line in stated:
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
    """The group's blocks as sums: late, settled, and early where nobody had looked before the hour `first_seen`."""
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
    """The hours of a block: its own, or its whole day, where the group has no other block of that day."""
    day = range(start, start + HOURS_A_DAY)
    alone = start % HOURS_A_DAY == 0 and not any(other in day for other in group.blocks if other != start)
    return day if alone else range(start, start + 1)


def _find_first_cells(stated: Iterable[BilledLines]) -> dict[int, int]:
    """Cell -> the first cell of the block that it belongs to, for cells that lines reach over."""
    found, end, start = dict[int, int](), -1, -1
    for line in sorted((line for line in stated if line.last > line.first), key=lambda line: line.first):
        start = start if line.first <= end else line.first
        end = max(end, line.last) if line.first <= end else line.last
        found |= dict.fromkeys(range(line.first, line.last + 1), start)
    return found


def _sum_lines(lines: Iterable[BilledLines]) -> tuple[int, int]:
    found = [(line.nano, line.lines) for line in lines]
    return sum(nano for nano, _ in found), sum(count for _, count in found)


def _sum_charges(charged: Iterable[ChargedCell]) -> NanoAmounts:
    low = expected = high = 0
    for one in charged:
        low, expected, high = low + one.low, expected + one.expected, high + one.high
    return low, expected, high


def _sum_cells(stated: Iterable[BilledLines], charged: Iterable[ChargedCell]) -> tuple[CellAmounts, ...]:
    """Cell by cell, all resources together; a line of several cells stands in its first."""
    billed, owed = defaultdict[int, int](int), defaultdict[int, list[int]](lambda: [0, 0, 0])
    for line in stated:
        billed[line.first] += line.nano
    for one in charged:
        for place, nano in enumerate((one.low, one.expected, one.high)):
            owed[one.cell][place] += nano
    cells = sorted({*billed, *owed})
    return tuple(
        CellAmounts(cell=cell, billed=billed[cell], charged=(owed[cell][0], owed[cell][1], owed[cell][2])) for cell in cells
    )
