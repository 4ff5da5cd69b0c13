"""Validate a FOCUS 1.2, 1.3 or 1.4 file in one pass: its header, each cell, each row, and rows against each other.

Rules within a row: which cells are null together, price times quantity, periods, and the invoice issuer. Example: a row with
ListUnitPrice 2.49 and PricingQuantity 1.5 must have ListCost 3.735.

It is stricter than the Foundation's own validator, which accepts a ListCost of 99 where price times quantity is 0.4153, and a
ChargeCategory of Compute. Every finding names a line, a column and the correction.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Context, Decimal

from costguard.errors import shorten, to_one_line
from costguard.reporting.focus.cells import (
    COLUMN_RULE,
    CONDITION_RULE,
    CONSISTENT_RULE,
    IDENTITY_RULE,
    PERIOD_RULE,
    ROUNDED_RULE,
    TWICE_RULE,
    VALUE_RULE,
    CellFault,
    CellValue,
    FindingLog,
    FocusFinding,
    ReadJson,
    read_cell,
)
from costguard.reporting.focus.columns import (
    CUSTOM_PREFIX,
    NEWEST_VERSION,
    REQUIRED,
    SUBCATEGORIES,
    VERSIONS,
    FocusColumn,
    get_all_columns,
    get_columns,
)
from costguard.values.checks import find_nearest_names
from costguard.values.instant import SECOND_US, to_micros

EXACT = Context(prec=130)
"""Products of any two numbers that a cell can hold, without rounding."""

RowFaults = Iterator[tuple[str, CellFault]]


@dataclass(frozen=True, slots=True)
class FocusRow:
    """A parsed row. `values`: by column; None is null. `broken`: columns with an invalid cell, of unknown value."""

    values: Mapping[str, CellValue | None]
    broken: frozenset[str]

    def is_null(self, name: str) -> bool:
        """Return whether the column exists and its cell is empty."""
        return name in self.values and self.values[name] is None and name not in self.broken

    def is_full(self, name: str) -> bool:
        """Return whether the cell is not empty, valid or not."""
        return self.values.get(name) is not None or name in self.broken

    def get_text(self, name: str) -> str:
        """Return its text, "" for none."""
        value = self.values.get(name)
        return value if isinstance(value, str) else ""

    def get_number(self, name: str) -> Decimal | None:
        """Return its number; None: it has none."""
        value = self.values.get(name)
        return value if isinstance(value, Decimal) else None

    def get_instant(self, name: str) -> datetime | None:
        """Return its instant; None: it has none."""
        value = self.values.get(name)
        return value if isinstance(value, datetime) else None

    @property
    def correction(self) -> bool:
        """Return whether it corrects a closed bill; many rules do not apply to it."""
        return self.get_text("ChargeClass") == "Correction" or "ChargeClass" in self.broken

    @property
    def sold(self) -> bool:
        """Return whether it is usage or a purchase, which has a price."""
        return self.get_text("ChargeCategory") in ("Usage", "Purchase") and not self.correction


NULL_WITH: Mapping[str, tuple[str, ...]] = {
    "AllocatedMethodId": ("AllocatedResourceId", "AllocatedResourceName", "AllocatedMethodDetails", "AllocatedTags"),
    "CapacityReservationId": ("CapacityReservationStatus",),
    "CommitmentDiscountId": (
        *("CommitmentDiscountCategory", "CommitmentDiscountName", "CommitmentDiscountQuantity"),
        *("CommitmentDiscountStatus", "CommitmentDiscountType", "CommitmentDiscountUnit"),
    ),
    "CommitmentDiscountQuantity": ("CommitmentDiscountUnit",),
    "ConsumedQuantity": ("ConsumedUnit",),
    "PricingQuantity": ("PricingUnit",),
    "RegionId": ("RegionName",),
    "ResourceId": ("ResourceName", "ResourceType"),
    "SkuId": ("SkuMeter", "SkuPriceId"),
    "SkuPriceId": ("SkuPriceDetails", "ListUnitPrice"),
    "SubAccountId": ("SubAccountName", "SubAccountType"),
}
"""Where the first is null, the others are."""

FULL_WITH: Mapping[str, tuple[str, ...]] = {
    "AllocatedResourceId": ("AllocatedMethodId",),
    "BillingAccountId": ("BillingAccountType",),
    "CommitmentDiscountId": ("CommitmentDiscountCategory", "CommitmentDiscountType"),
    "CommitmentDiscountQuantity": ("CommitmentDiscountUnit",),
    "ConsumedQuantity": ("ConsumedUnit",),
    "PricingQuantity": ("PricingUnit",),
    "RegionId": ("RegionName",),
    "ResourceId": ("ResourceType",),
    "SkuPriceId": ("SkuId",),
    "SubAccountId": ("SubAccountType",),
}
"""Where the first holds something, the others do."""

OF_WHAT_IS_SOLD = (
    *("SkuId", "SkuPriceId", "PricingQuantity", "PricingUnit", "ListUnitPrice", "ContractedUnitPrice", "PricingCategory"),
)
"""Full where something was used or bought, and null for a tax."""

SAME_CURRENCY = {
    "PricingCurrencyContractedUnitPrice": "ContractedUnitPrice",
    "PricingCurrencyEffectiveCost": "EffectiveCost",
    "PricingCurrencyListUnitPrice": "ListUnitPrice",
}


def find_row_faults(row: FocusRow) -> RowFaults:
    """Yield every fault between cells of `row`, with the column in which to correct it."""
    yield from _check_null_pairs(row)
    yield from _check_category(row)
    yield from _check_products(row)
    yield from _check_periods(row)
    yield from _check_service(row)


def _check_null_pairs(row: FocusRow) -> RowFaults:
    for first, others in NULL_WITH.items():
        for name in others if row.is_null(first) else ():
            if row.is_full(name):
                yield (
                    name,
                    CellFault(CONDITION_RULE, f"holds something where {first} is null", f"leave it empty, or fill {first}"),
                )
    for first, others in FULL_WITH.items():
        for name in others if row.is_full(first) else ():
            if row.is_null(name):
                yield name, CellFault(CONDITION_RULE, f"is null where {first} is not", f"fill it, or leave {first} empty")


def _check_category(row: FocusRow) -> RowFaults:
    category = row.get_text("ChargeCategory")
    for name in OF_WHAT_IS_SOLD:
        if row.sold and row.is_null(name):
            yield (
                name,
                CellFault(CONDITION_RULE, f"is null for a {category} charge", "fill it; only a Correction may leave it out"),
            )
        if category == "Tax" and row.is_full(name):
            yield (
                name,
                CellFault(CONDITION_RULE, "holds something for a Tax charge", "leave it empty: a tax has no price of its own"),
            )
    unused = row.get_text("CommitmentDiscountStatus") == "Unused"
    if category and row.is_full("ConsumedQuantity") and (category != "Usage" or unused):
        of = "an Unused commitment" if category == "Usage" else f"a {category} charge"
        yield "ConsumedQuantity", CellFault(CONDITION_RULE, f"holds something for {of}", "leave it empty: nothing was used")
    if category == "Usage" and row.is_null("ConsumedQuantity") and not (unused or row.correction):
        yield "ConsumedQuantity", CellFault(CONDITION_RULE, "is null for a Usage charge", "write how much was used")
    for name in ("CommitmentDiscount", "CapacityReservation"):
        if category == "Usage" and row.is_full(f"{name}Id") and row.is_null(f"{name}Status"):
            yield f"{name}Status", CellFault(CONDITION_RULE, f"is null where {name}Id is not", "write Used or Unused")
    consumed = row.get_number("ConsumedQuantity")
    if category == "Usage" and not row.correction and consumed is not None and consumed < 0:
        hint = "write what was used; only a Correction takes some of it back"
        yield "ConsumedQuantity", CellFault(VALUE_RULE, f"is negative for a Usage charge: {_format_plain(consumed)}", hint)
    yield from _check_commitment(row)
    if category == "Purchase" and row.get_text("ChargeFrequency") == "Usage-Based":
        yield "ChargeFrequency", CellFault(CONDITION_RULE, "is Usage-Based for a Purchase", "write One-Time or Recurring")


def _check_commitment(row: FocusRow) -> RowFaults:
    """Check that usage under a commitment, and no other usage, is priced as Committed."""
    priced = row.get_text("PricingCategory")
    if row.get_text("ChargeCategory") != "Usage" or row.correction:
        return
    if priced == "Committed" and row.is_null("CommitmentDiscountId"):
        hint = "write Standard or Dynamic, or name the commitment in CommitmentDiscountId"
        yield "PricingCategory", CellFault(CONDITION_RULE, "is Committed where CommitmentDiscountId is null", hint)
    if priced == "Standard" and row.is_full("CommitmentDiscountId"):
        hint = "write Committed, or leave CommitmentDiscountId empty"
        yield "PricingCategory", CellFault(CONDITION_RULE, "is Standard where CommitmentDiscountId is not null", hint)


def _check_products(row: FocusRow) -> RowFaults:
    quantity = row.get_number("PricingQuantity")
    for cost, price in (("ListCost", "ListUnitPrice"), ("ContractedCost", "ContractedUnitPrice")):
        stated, each = row.get_number(cost), row.get_number(price)
        if row.correction or stated is None or each is None or quantity is None:
            continue
        product = EXACT.multiply(each, quantity)
        if stated != product:
            told = "was rounded" if (rounded := _is_rounded(stated, product)) else f"is {stated:f}"
            fault = CellFault(
                ROUNDED_RULE if rounded else IDENTITY_RULE,
                f"{told}, and is not {price} x PricingQuantity",
                f"write {_format_plain(product)}",
            )
            yield cost, fault
    if row.get_text("PricingCurrency") and row.get_text("PricingCurrency") == row.get_text("BillingCurrency"):
        for name, other in SAME_CURRENCY.items():
            stated, same = row.get_number(name), row.get_number(other)
            if stated is not None and same is not None and stated != same:
                yield (
                    name,
                    CellFault(
                        IDENTITY_RULE, f"is {stated:f}, and {other} in the same currency is not", f"write {_format_plain(same)}"
                    ),
                )
    payee = row.get_text("InvoiceIssuerName")
    for seller in ("ServiceProviderName", "ProviderName"):
        billed = row.get_number("BilledCost")
        if row.get_text(seller) and payee and payee != row.get_text(seller) and billed:
            hint = f"spell it as {seller}, or write BilledCost 0 where another party collects the money"
            yield "InvoiceIssuerName", CellFault(CONDITION_RULE, f"is not {seller}, and BilledCost is not 0", hint)
            return


def _check_periods(row: FocusRow) -> RowFaults:
    ends = [
        row.get_instant(name) for name in ("ChargePeriodStart", "ChargePeriodEnd", "BillingPeriodStart", "BillingPeriodEnd")
    ]
    start, end, first, last = ends
    if start and end and start >= end:
        yield (
            "ChargePeriodEnd",
            CellFault(PERIOD_RULE, "is not after ChargePeriodStart", "the end is the first instant outside"),
        )
    if first and last and first >= last:
        yield (
            "BillingPeriodEnd",
            CellFault(PERIOD_RULE, "is not after BillingPeriodStart", "the end is the first instant outside"),
        )
    if row.get_text("ChargeCategory") == "Purchase" or row.correction:
        return  # what is bought may hold for years, and what is mended lies in an earlier period
    if start and first and last and not first <= start < last:
        yield (
            "ChargePeriodStart",
            CellFault(PERIOD_RULE, "lies outside the billing period", f"from {_format_at(first)} to before {_format_at(last)}"),
        )
    elif end and last and end > last:
        hint = f"split the charge at {_format_at(last)}: a row for each billing period"
        yield "ChargePeriodEnd", CellFault(PERIOD_RULE, "lies beyond the end of the billing period", hint)


def _check_service(row: FocusRow) -> RowFaults:
    category, under = row.get_text("ServiceCategory"), row.get_text("ServiceSubcategory")
    if category in SUBCATEGORIES and under and under not in (known := (*SUBCATEGORIES[category], f"Other ({category})")):
        yield (
            "ServiceSubcategory",
            CellFault(VALUE_RULE, f"is not a subcategory of {category}", f"write one of: {', '.join(known)}"),
        )


LEAST_DECIMALS = 4
"""With fewer decimals a cost is no product that was rounded, but another number."""


def _is_rounded(stated: Decimal, product: Decimal) -> bool:
    """Return whether `stated` is the product rounded up or down to fewer decimals."""
    exponent = stated.as_tuple().exponent
    places = -exponent if isinstance(exponent, int) else 0
    return places >= LEAST_DECIMALS and abs(EXACT.subtract(stated, product)) < Decimal(1).scaleb(-places)


def _format_plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _format_at(instant: datetime) -> str:
    return f"{instant:%Y-%m-%dT%H:%M:%SZ}"


FileLine = tuple[int, Sequence[str]]
"""The line of the file that a row ends on, and its cells as text; "" is null."""

REMEMBERED_ROWS = 2_000_000
"""Rows that are kept to be compared with later ones: some 400 MB. Of a longer file the rest is compared with nothing."""

_REMEMBERED_CELLS, _SHORT_CELL = 4096, 1000
"""Cells of one column whose verdict is kept, and characters of such a cell: most say what others said before."""

AMOUNT_COLUMNS = frozenset(
    (
        *("BilledCost", "ContractedCost", "EffectiveCost", "ListCost", "PricingCurrencyEffectiveCost"),
        *("PricingQuantity", "ConsumedQuantity"),
    )
)
TIME_COLUMNS = ("ChargePeriodStart", "ChargePeriodEnd", "BillingPeriodStart", "BillingPeriodEnd")


@dataclass(frozen=True, slots=True, kw_only=True)
class FocusCheckResult:
    """The result for a file with `rows` rows, checked against `version`. `count`: of all findings, listed or not."""

    version: str
    rows: int
    findings: tuple[FocusFinding, ...]
    count: int


def check_focus_file(
    header: Sequence[str], lines: Iterable[FileLine], read_json: ReadJson, version: str | None = None
) -> FocusCheckResult:
    """Return all faults of a file. `version`: the claimed one; None: detected from the columns."""
    version = version or detect_version(header)
    known, found, rows = get_columns(version), FindingLog(), 0
    for name, fault in _find_header_faults(header, version, known):
        found.add(1, name, fault, alike=name if name in known else "")
    reader, among = _CellReader([known.get(name) for name in header], read_json), _RowComparison(header, found)
    for line, cells in lines:
        rows += 1
        if len(cells) != len(header):
            what = f"has {len(cells)} cells where the header has {len(header)}"
            found.add(line, "", CellFault(COLUMN_RULE, what, 'write a cell for each column; "quote" those that hold commas'))
            continue
        row, faults = reader.read_row(header, cells)
        for name, fault in (*faults, *find_row_faults(row)):
            found.add(line, name, fault)
        among.compare(line, row, cells)
    findings = sorted(found.told, key=lambda finding: finding.line)
    return FocusCheckResult(version=version, rows=rows, findings=tuple(findings), count=found.count)


def detect_version(header: Sequence[str]) -> str:
    """Detect the version: 1.2 has only ProviderName, 1.3 also ServiceProviderName, 1.4 only ServiceProviderName."""
    if "ServiceProviderName" not in header and "ProviderName" in header:
        return VERSIONS[0]
    return VERSIONS[1] if "ProviderName" in header or "PublisherName" in header else NEWEST_VERSION


def _find_header_faults(
    header: Sequence[str], version: str, known: Mapping[str, FocusColumn]
) -> Iterable[tuple[str, CellFault]]:
    for name, column in known.items():
        if column.level == REQUIRED and name not in header:
            alike = [other for other in header if other not in known and other.casefold().replace("_", "") == name.casefold()]
            hint = f"write it {name}, not {alike[0]}" if alike else "add it"
            yield name, CellFault(COLUMN_RULE, f"is missing, and FOCUS {version} demands it", hint)
    custom = next((place for place, name in enumerate(header) if name.startswith(CUSTOM_PREFIX)), len(header))
    before = set[str]()
    for place, name in enumerate(header):
        told = shorten(to_one_line(name), 60)
        if name in before:
            yield told, CellFault(COLUMN_RULE, "appears twice in the header", "keep one of them")
        elif name in known:
            if place > custom:
                yield (
                    told,
                    CellFault(COLUMN_RULE, "stands after a column of your own", f"put columns with {CUSTOM_PREFIX} last"),
                )
        elif name in get_all_columns():
            of = get_all_columns()[name]
            yield (
                told,
                CellFault(COLUMN_RULE, f"is not a column of FOCUS {version}, but of {of.since} to {of.until}", "leave it out"),
            )
        elif not name.strip():
            yield told, CellFault(COLUMN_RULE, f"has no name: column {place + 1}", "name it, or drop it with its comma")
        elif not name.startswith(CUSTOM_PREFIX) or not name.isprintable() or name == CUSTOM_PREFIX:
            near = find_nearest_names(name, known)
            hint = f"write {' or '.join((*near[:1], f'{CUSTOM_PREFIX}{told}'))}"
            yield told, CellFault(COLUMN_RULE, "is not a column of FOCUS", hint)
        before.add(name)


class _CellReader:
    """Parses cells. Results are cached by column and text."""

    def __init__(self, known: Sequence[FocusColumn | None], read_json: ReadJson) -> None:
        self._known, self._read_json = known, read_json
        self._verdicts: list[dict[str, tuple[CellValue | None, CellFault | None]]] = [{} for _ in known]

    def read_row(self, header: Sequence[str], cells: Sequence[str]) -> tuple[FocusRow, list[tuple[str, CellFault]]]:
        """Return the row, and the faults of its single cells."""
        values, faults = dict[str, CellValue | None](), list[tuple[str, CellFault]]()
        for name, column, verdicts, text in zip(header, self._known, self._verdicts, cells, strict=True):
            if column is None:
                continue
            verdict = verdicts.get(text)
            if verdict is None:
                verdict = read_cell(column, text, self._read_json)
                if len(verdicts) < _REMEMBERED_CELLS and len(text) <= _SHORT_CELL:
                    verdicts[text] = verdict
            value, fault = verdict
            values[name] = value
            if fault:
                faults.append((name, fault))
        return FocusRow(values, frozenset(name for name, _ in faults)), faults


ONE_PARENT = (("ServiceName", "ServiceCategory"), ("SkuPriceId", "SkuId"))
"""Each of the first has one of the second, in all rows of one provider."""


class _RowComparison:
    """Compares each row with the rows before it."""

    def __init__(self, header: Sequence[str], found: FindingLog) -> None:
        self._found, self._places = found, [place for place, name in enumerate(header) if not _is_variable(name)]
        self._parents = dict[tuple[str, str], tuple[str, int]]()
        self._periods = dict[int, list[tuple[int, int, int]]]()
        self._kept = 0
        self._months = dict[tuple[str, str], dict[tuple[datetime, datetime], int]]()

    def compare(self, line: int, row: FocusRow, cells: Sequence[str]) -> None:
        """Record the faults of a row against earlier rows."""
        self._check_parents(line, row)
        self._check_billing_periods(line, row)
        if row.get_text("ChargeCategory") != "Usage" or row.correction or not row.is_full("ResourceId"):
            return
        start, end = row.get_instant("ChargePeriodStart"), row.get_instant("ChargePeriodEnd")
        if start and end and start < end and self._kept < REMEMBERED_ROWS:
            about = hash(tuple(cells[place] for place in self._places))
            self._check_overlap(about, (to_micros(start) // SECOND_US, to_micros(end) // SECOND_US, line))

    def _check_parents(self, line: int, row: FocusRow) -> None:
        seller = row.get_text("ServiceProviderName") or row.get_text("ProviderName")
        for child, parent in ONE_PARENT:
            name, of = row.get_text(child), row.get_text(parent)
            if not (name and of) or len(self._parents) >= REMEMBERED_ROWS:
                continue
            before, first = self._parents.setdefault((child, f"{seller}|{name}"), (of, line))
            if before != of:
                what = f"is '{shorten(to_one_line(of), 40)}' for a {child} that had another one on line {first}"
                hint = f"write '{shorten(to_one_line(before), 40)}', or another {child}"
                self._found.add(line, parent, CellFault(CONSISTENT_RULE, what, hint))

    def _check_billing_periods(self, line: int, row: FocusRow) -> None:
        """Check that billing periods of one account and issuer are equal or disjoint."""
        first, last = row.get_instant("BillingPeriodStart"), row.get_instant("BillingPeriodEnd")
        if not (first and last) or first >= last or len(self._months) >= REMEMBERED_ROWS:
            return
        others = self._months.setdefault((row.get_text("InvoiceIssuerName"), row.get_text("BillingAccountId")), {})
        if (first, last) in others or len(others) >= _REMEMBERED_CELLS:
            return
        for other, before in others.items():
            if first < other[1] and other[0] < last:
                what = f"begins a billing period that overlaps that of line {before}"
                self._found.add(
                    line, "BillingPeriodStart", CellFault(CONSISTENT_RULE, what, "write the whole period of the invoice")
                )
                return
        others[first, last] = line

    def _check_overlap(self, about: int, period: tuple[int, int, int]) -> None:
        """Check that the same thing is not charged twice for any second: `period` overlaps none of its earlier ones."""
        others = self._periods.setdefault(about, [])
        place = bisect_left(others, period)
        start, end, line = period
        for before in others[max(0, place - 1) : place + 1]:
            if before[0] < end and start < before[1]:
                same = before[:2] == (start, end)
                what = "is charged for a second time" if same else "overlaps a charge for the same thing"
                hint = "drop one of the two rows, or say what sets them apart" if same else "let one end where the other begins"
                self._found.add(line, "ChargePeriodStart", CellFault(TWICE_RULE, f"{what}: see line {before[2]}", hint))
                return
        others.insert(place, period)
        self._kept += 1


def _is_variable(name: str) -> bool:
    """Return whether rows about the same thing may differ in this column: an amount, a quantity or a period."""
    return name in AMOUNT_COLUMNS or name in TIME_COLUMNS or name.startswith("x_Cost")
