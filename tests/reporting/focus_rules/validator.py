"""Validate a FOCUS 1.0 to 1.4 file in one pass: its header, each cell, each row, and rows against each other.

It is stricter than the Foundation's own validator, which accepts a ListCost of 99 where price times quantity is 0.4153, and a
ChargeCategory of Compute, and nowhere stricter than the specification. Every finding names a line, a column and a
grade.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from costguard.errors import shorten, to_one_line
from costguard.reporting.focus.columns import (
    CHECKED_VERSIONS,
    CUSTOM_PREFIX,
    NEWEST_VERSION,
    REQUIRED,
    FocusColumn,
    get_columns,
)
from costguard.values.instant import SECOND_US, to_micros
from tests.reporting.focus_rules.cells import (
    COLUMN_RULE,
    CONSISTENT_RULE,
    ERROR,
    TWICE_RULE,
    WARNING,
    CellFault,
    CellValue,
    FocusFinding,
    ReadJson,
    read_cell,
)
from tests.reporting.focus_rules.row_rules import FocusRow, find_row_faults
from tests.reporting.focus_rules.vocabulary import get_all_columns

FileLine = tuple[int, Sequence[str]]
"""The line of the file that a row ends on, and its cells as text; "" is null."""

AMOUNT_COLUMNS = frozenset(
    (
        *("BilledCost", "ContractedCost", "EffectiveCost", "ListCost", "PricingCurrencyEffectiveCost"),
        *("PricingQuantity", "ConsumedQuantity"),
    )
)
TIME_COLUMNS = ("ChargePeriodStart", "ChargePeriodEnd", "BillingPeriodStart", "BillingPeriodEnd")


@dataclass(frozen=True, slots=True, kw_only=True)
class FocusCheckResult:
    """The result for a file with `rows` rows, checked against `version`."""

    version: str
    rows: int
    findings: tuple[FocusFinding, ...]


def check_focus_file(
    header: Sequence[str], lines: Iterable[FileLine], read_json: ReadJson, version: str | None = None
) -> FocusCheckResult:
    """Return all faults of a file. `version`: the claimed one; None: detected from the columns."""
    version = version or detect_version(header)
    known, found, rows = get_columns(version, among=CHECKED_VERSIONS), list[FocusFinding](), 0
    for name, fault in _find_header_faults(header, version, known):
        found.append(FocusFinding(1, name, fault))
    reader, among = _CellReader([known.get(name) for name in header], read_json, version), _RowComparison(header, found)
    for line, cells in lines:
        rows += 1
        if len(cells) != len(header):
            what = f"has {len(cells)} cells where the header has {len(header)}"
            found.append(FocusFinding(line, "", CellFault(COLUMN_RULE, what)))
            continue
        row, faults = reader.read_row(header, cells)
        for name, fault in (*faults, *find_row_faults(row)):
            found.append(FocusFinding(line, name, fault))
        among.compare(line, row, cells)
    return FocusCheckResult(version=version, rows=rows, findings=tuple(sorted(found, key=lambda one: one.line)))


def detect_version(header: Sequence[str]) -> str:
    """Detect the version, by the columns that it brought or dropped.

    1.4 has only ServiceProviderName, 1.3 also ProviderName or PublisherName; of those with ProviderName alone the newest whose
    columns are there, 1.0 if there are none of later ones.
    """
    older = {"ProviderName", "PublisherName"} & set(header)
    if "ServiceProviderName" in header or not older:
        return "1.3" if older else NEWEST_VERSION
    every = get_all_columns()
    return max((every[name].since for name in header if name in every and every[name].since <= "1.2"), default="1.0")


def _find_header_faults(
    header: Sequence[str], version: str, known: Mapping[str, FocusColumn]
) -> Iterable[tuple[str, CellFault]]:
    for name, column in known.items():
        if column.level == REQUIRED and name not in header:
            yield name, CellFault(COLUMN_RULE, f"is missing, and FOCUS {version} demands it")
    custom = next((place for place, name in enumerate(header) if name.startswith(CUSTOM_PREFIX)), len(header))
    before = set[str]()
    for place, name in enumerate(header):
        told = shorten(to_one_line(name), 60)
        if name in before:
            yield told, CellFault(COLUMN_RULE, "appears twice in the header")
        elif name in known:
            if place > custom:
                yield (
                    told,
                    CellFault(
                        COLUMN_RULE,
                        "stands after a column of your own",
                        grade=WARNING,
                    ),
                )
        elif name in get_all_columns():
            of = get_all_columns()[name]
            yield (
                told,
                CellFault(COLUMN_RULE, f"is not a column of FOCUS {version}, but of {of.since} to {of.until}"),
            )
        elif not name.strip():
            yield told, CellFault(COLUMN_RULE, f"has no name: column {place + 1}")
        elif not name.startswith(CUSTOM_PREFIX) or not name.isprintable() or name == CUSTOM_PREFIX:
            yield told, CellFault(COLUMN_RULE, "is not a column of FOCUS")
        before.add(name)


class _CellReader:
    """Parses cells."""

    def __init__(self, known: Sequence[FocusColumn | None], read_json: ReadJson, version: str) -> None:
        self._known, self._read_json, self._version = known, read_json, version

    def read_row(self, header: Sequence[str], cells: Sequence[str]) -> tuple[FocusRow, list[tuple[str, CellFault]]]:
        """Return the row, and the faults of its single cells."""
        values, faults = dict[str, CellValue | None](), list[tuple[str, CellFault]]()
        for name, column, text in zip(header, self._known, cells, strict=True):
            if column is not None:
                values[name], fault = read_cell(column, text, self._read_json)
                faults += [(name, fault)] if fault else []
        broken = frozenset(name for name, fault in faults if fault.grade == ERROR)
        return FocusRow(values, broken, self._version), faults


ONE_PARENT = (("ServiceName", "ServiceCategory"), ("SkuPriceId", "SkuId"))
"""Each of the first has one of the second, in all rows of one provider."""


class _RowComparison:
    """Compares each row with the rows before it."""

    def __init__(self, header: Sequence[str], found: list[FocusFinding]) -> None:
        self._found, self._places = found, [place for place, name in enumerate(header) if not _is_variable(name)]
        self._parents = dict[tuple[str, str], tuple[str, int]]()
        self._periods = dict[int, list[_ChargedPeriod]]()
        self._months = dict[tuple[str, str], dict[tuple[datetime, datetime], int]]()

    def compare(self, line: int, row: FocusRow, cells: Sequence[str]) -> None:
        """Record the faults of a row against earlier rows."""
        self._check_parents(line, row)
        self._check_billing_periods(line, row)
        if row.get_text("ChargeCategory") != "Usage" or row.correction or not row.is_full("ResourceId"):
            return
        start, end = row.get_instant("ChargePeriodStart"), row.get_instant("ChargePeriodEnd")
        if start and end and start < end:
            about, amounts = hash(tuple(cells[place] for place in self._places)), hash(tuple(cells))
            self._check_overlap(about, (to_micros(start) // SECOND_US, to_micros(end) // SECOND_US, line, amounts))

    def _check_parents(self, line: int, row: FocusRow) -> None:
        seller = row.get_text("ServiceProviderName") or row.get_text("ProviderName")
        for child, parent in ONE_PARENT:
            name, of = row.get_text(child), row.get_text(parent)
            if not (name and of):
                continue
            before, first = self._parents.setdefault((child, f"{seller}|{name}"), (of, line))
            if before != of:
                what = f"is '{shorten(to_one_line(of), 40)}' for a {child} that had another one on line {first}"
                self._found.append(FocusFinding(line, parent, CellFault(CONSISTENT_RULE, what)))

    def _check_billing_periods(self, line: int, row: FocusRow) -> None:
        """Check that billing periods of one account and issuer are equal or disjoint."""
        first, last = row.get_instant("BillingPeriodStart"), row.get_instant("BillingPeriodEnd")
        if not (first and last) or first >= last:
            return
        others = self._months.setdefault((row.get_text("InvoiceIssuerName"), row.get_text("BillingAccountId")), {})
        if (first, last) in others:
            return
        for other, before in others.items():
            if first < other[1] and other[0] < last:
                what = f"begins a billing period that overlaps that of line {before}"
                self._found.append(FocusFinding(line, "BillingPeriodStart", CellFault(CONSISTENT_RULE, what)))
                return
        others[first, last] = line

    def _check_overlap(self, about: int, period: _ChargedPeriod) -> None:
        """Check that the same thing is not charged twice for any second: `period` overlaps none of its earlier ones.

        A row that is stated twice in all its cells is an error, because consumers would have to remove it. Rows that differ in
        an amount may be parts of one charge, which no rule of FOCUS forbids: a warning.
        """
        others = self._periods.setdefault(about, [])
        place = bisect_left(others, period)
        start, end, line, amounts = period
        for before in others[max(0, place - 1) : place + 1]:
            if before[0] < end and start < before[1]:
                twice = before[3] == amounts
                same = before[:2] == (start, end)
                what = "is charged for a second time" if same else "overlaps a charge for the same thing"
                fault = CellFault(TWICE_RULE, f"{what}: see line {before[2]}", grade=ERROR if twice else WARNING)
                self._found.append(FocusFinding(line, "ChargePeriodStart", fault))
                return
        others.insert(place, period)


_ChargedPeriod = tuple[int, int, int, int]
"""Start and end in seconds, the line, and a hash of all cells of the row."""


def _is_variable(name: str) -> bool:
    """Return whether rows about the same thing may differ in this column: an amount, a quantity or a period."""
    return name in AMOUNT_COLUMNS or name in TIME_COLUMNS or name.startswith("x_Cost")
