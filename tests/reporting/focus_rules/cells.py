"""Cells of a FOCUS file: each is parsed to a value or a fault; findings with line, column, rule and correction.

Examples: `1.50`, `.5` and `1.5E-7` are decimals, `1,5`, `+1`, `1E+3` and `$1` are not; `2026-11-01T02:00:00Z` is an instant and
`2026-11-01 02:00:00` is not; `GB-Months` is a unit and `gigabytes` is not.

A finding has a grade. An error breaks a MUST of the specification, a warning one of its SHOULDs or what is improbable, and
rounding is a product that was rounded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal

from costguard.errors import InputError, shorten, to_one_line
from costguard.reporting.focus.columns import (
    CURRENCY_KIND,
    CUSTOM_PREFIX,
    DECIMAL_KIND,
    JSON_KIND,
    PAIRS_KIND,
    PRICED_KIND,
    TIME_KIND,
    UNIT_KIND,
    VIRTUAL_KIND,
    FocusColumn,
)
from costguard.reporting.focus.rows import PLACEHOLDERS
from costguard.values.checks import find_nearest_names
from tests.reporting.focus_rules.vocabulary import ALLOWED, CURRENCY_CODES, PRICE_KEYS, PRICE_NUMBERS, SUBCATEGORIES

COLUMN_RULE, NULL_RULE, TYPE_RULE, FORMAT_RULE, VALUE_RULE, JSON_RULE = "column", "null", "type", "format", "value", "json"
IDENTITY_RULE, ROUNDED_RULE, PERIOD_RULE, CONDITION_RULE = "identity", "rounded", "period", "condition"
CONSISTENT_RULE, TWICE_RULE = "consistent", "twice"
"""The rules, by what they look at: the header, empty cells, numbers, how a cell is written, which values there are, JSON;
price times quantity (and whether it was only rounded), periods, what one cell asks of another, what one row asks of another,
what is stated twice."""

ERROR, WARNING, ROUNDING = "error", "warning", "rounding"
GRADES = (ERROR, WARNING, ROUNDING)
"""How grave a finding is, the gravest first."""

MOST_ALIKE = 20
"""Findings of one rule and grade in one column that are told; the others are counted. One finding tells of all roundings."""


@dataclass(frozen=True, slots=True)
class CellFault:
    """A fault of a cell. `rule`: one of the rules above. `instead`: what to write. `difference`: by how much it was rounded."""

    rule: str
    what: str
    instead: str
    grade: str = ERROR
    difference: Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FocusFinding:
    """A fault and its place. `line`: of the file, from 1, where the row ends; for a Parquet file the number of the row.

    `count`: more than 1 where one finding stands for several cells of a column. `largest`: the largest difference of these.
    """

    line: int
    column: str
    fault: CellFault
    count: int = 1
    largest: Decimal | None = None


@dataclass(slots=True)
class FindingLog:
    """The findings so far: the first ones of each kind, and the count of all."""

    told: list[FocusFinding] = field(default_factory=list)
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    rounded: dict[str, FocusFinding] = field(default_factory=dict)

    def add(self, line: int, column: str, fault: CellFault, *, alike: str | None = None) -> None:
        """Add a finding. `alike`: the column that it is counted under, if not its own."""
        kind = (column if alike is None else alike, fault.rule, fault.grade)
        self.counts[kind] += 1
        if fault.difference is not None:
            first = self.rounded.get(column, FocusFinding(line=line, column=column, fault=fault, count=0))
            largest = fault.difference if first.largest is None else max(first.largest, fault.difference)
            self.rounded[column] = replace(first, count=first.count + 1, largest=largest)
        elif self.counts[kind] <= MOST_ALIKE:
            self.told.append(FocusFinding(line=line, column=column, fault=fault))

    def list_findings(self) -> list[FocusFinding]:
        """Return the findings that are told, in the order of the file; that of a column's roundings stands at the first one."""
        return sorted((*self.told, *map(_describe_roundings, self.rounded.values())), key=lambda finding: finding.line)

    def count_by_grade(self) -> dict[str, int]:
        """Return the number of all findings of each grade, listed or not."""
        return {grade: sum(count for (_, _, held), count in self.counts.items() if held == grade) for grade in GRADES}


def _describe_roundings(finding: FocusFinding) -> FocusFinding:
    """Return `finding` with the number of roundings and the largest difference in its text."""
    many = f"in {finding.count:,} rows by {finding.largest:.2e} at most" if finding.count > 1 else f"by {finding.largest:.2e}"
    return replace(finding, fault=replace(finding.fault, what=f"{finding.fault.what}: {many}"))


ReadJson = Callable[[str], object]
"""The value of a JSON text; InputError where it is none, or states a key of an object twice. Core reads no JSON itself."""

CellValue = str | Decimal | datetime | Mapping[object, object]

NUMBER_PATTERN = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE]-?\d{1,3})?", re.ASCII)
"""FOCUS, Numeric Format: an integer, a decimal, or mEn, where the exponent has no sign but a minus. It demands no digit before
the point: Oracle writes .5."""
INSTANT_PATTERN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
FRACTION_PATTERN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", re.ASCII)
LONGEST_NUMBER = 60
_SIZE = r"(?:[KMGTPE]i?)?[bB]"
_TIMES = ("Year", "Month", "Day", "Hour", "Minute", "Second", "Millisecond", "Microsecond")
_WORD = re.compile(rf"{_SIZE}|[A-Z][A-Za-z0-9]*", re.ASCII)
_PARTS = re.compile(r"(?:(?P<count>\d+) )?(?P<unit>[^/\s]+)(?:/(?:(?P<per>\d+) )?(?P<time>[A-Za-z]+))?", re.ASCII)
_LOOSE_SIZE = re.compile(r"(?:kilo|mega|giga|tera|peta|exa|kibi|mebi|gibi|tebi)?(?:byte|bit)s?|[KMGTPE]i?[bB]s", re.IGNORECASE)

CURRENCY_SIGNS = frozenset("$€£¥₹₽₩₺₴₫₪₱฿¢")
ISO_LOOK = re.compile(r"[A-Z]{3}", re.ASCII)
PRICE_TEXTS = frozenset(PRICE_KEYS) - frozenset(PRICE_NUMBERS)

NULL_TEXT = "NULL"
"""How some write null in CSV, beside nothing at all; other words for it are findings."""
FREE_COLUMNS = frozenset(
    ("ResourceName", "ResourceId", "ChargeDescription", "BillingAccountName", "SubAccountName", "HostProviderName")
)
"""Columns in which a word such as "none" may be somebody's name for a thing, or is allowed."""


def read_cell(column: FocusColumn, text: str, read_json: ReadJson) -> tuple[CellValue | None, CellFault | None]:
    """Return the value of a cell (None if null or invalid) and its fault (None if valid)."""
    if text in ("", NULL_TEXT):
        return None, None if column.null else CellFault(NULL_RULE, "is empty and must not be", _describe_wanted(column))
    if not text.strip():
        return None, CellFault(NULL_RULE, "holds blanks only", "leave it empty" if column.null else _describe_wanted(column))
    if column.name not in FREE_COLUMNS and text.strip().casefold() in PLACEHOLDERS:
        hint = "leave it empty: that is how null is written" if column.null else _describe_wanted(column)
        return None, CellFault(NULL_RULE, f"holds a word for nothing: {_quote(text)}", hint)
    return _READERS.get(column.kind, _read_text)(column, text, read_json)


def _read_text(column: FocusColumn, text: str, _: ReadJson) -> tuple[CellValue | None, CellFault | None]:
    allowed = tuple(SUBCATEGORIES) if column.name == "ServiceCategory" else ALLOWED.get(column.name, ())
    if allowed and text not in allowed:
        return None, CellFault(VALUE_RULE, f"is none of the values there are: {_quote(text)}", _suggest_nearest(text, allowed))
    return text, None


def _read_decimal(column: FocusColumn, text: str, _: ReadJson) -> tuple[CellValue | None, CellFault | None]:
    if len(text) > LONGEST_NUMBER or not NUMBER_PATTERN.fullmatch(text):
        hint = "write digits with one point at most: 1234.5 or 1.5E-7, no sign but -, no comma or currency"
        return None, CellFault(TYPE_RULE, f"is not a decimal number: {_quote(text)}", hint)
    value = Decimal(text)
    if "UnitPrice" in column.name and value < 0:
        return None, CellFault(
            VALUE_RULE, f"is a negative price: {_quote(text)}", "write the price; what it lowers is a cost below 0"
        )
    return value, None


def _read_time(_: FocusColumn, text: str, __: ReadJson) -> tuple[CellValue | None, CellFault | None]:
    hint = "write an instant in UTC as 2026-11-01T00:00:00Z"
    if not INSTANT_PATTERN.fullmatch(text):
        if FRACTION_PATTERN.fullmatch(text):
            hint = f"write whole seconds: {text[:19]}Z"
        return None, CellFault(FORMAT_RULE, f"is not written as an instant: {_quote(text)}", hint)
    try:
        return datetime.fromisoformat(text).astimezone(UTC), None
    except ValueError:
        return None, CellFault(FORMAT_RULE, f"is not an instant of the calendar: {_quote(text)}", hint)


def _read_currency(_: FocusColumn, text: str, __: ReadJson) -> tuple[CellValue | None, CellFault | None]:
    if text not in CURRENCY_CODES:
        near = find_nearest_names(text.upper(), CURRENCY_CODES)
        hint = f"write {' or '.join(near) if near else 'USD, EUR, ...'}"
        return None, CellFault(FORMAT_RULE, f"is not an ISO 4217 code: {_quote(text)}", hint)
    return text, None


def _read_virtual_currency(_: FocusColumn, text: str, __: ReadJson) -> tuple[CellValue | None, CellFault | None]:
    """Read a currency that may be virtual: any text but one that means a national currency and is not written as its code."""
    if text in CURRENCY_CODES:
        return text, None
    if text.strip().upper() in CURRENCY_CODES or CURRENCY_SIGNS.intersection(text):
        fault = CellFault(
            FORMAT_RULE, f"is not an ISO 4217 code: {_quote(text)}", "write USD, EUR, ... for a national currency"
        )
        return None, fault
    if ISO_LOOK.fullmatch(text):
        hint = "write an ISO 4217 code, or a virtual currency as a word: Tokens, Credits"
        what = f"looks like an ISO 4217 code and is none: {_quote(text)}"
        return text, CellFault(FORMAT_RULE, what, hint, grade=WARNING)
    return text, None


def _read_priced_currency(column: FocusColumn, text: str, read_json: ReadJson) -> tuple[CellValue | None, CellFault | None]:
    """Read the currency of a price in 1.4, which demands ISO 4217 codes, and goes on to speak of virtual currencies there."""
    value, fault = _read_virtual_currency(column, text, read_json)
    if fault or text in CURRENCY_CODES:
        return value, fault
    what = f"is a virtual currency, which CurrencyFormat of FOCUS 1.4 has no place for: {_quote(text)}"
    hint = "write the ISO 4217 code of a national currency, or export 1.2 or 1.3"
    return text, CellFault(FORMAT_RULE, what, hint, grade=WARNING)


def _read_unit(_: FocusColumn, text: str, __: ReadJson) -> tuple[CellValue | None, CellFault | None]:
    found = _PARTS.fullmatch(text)
    words = found["unit"].split("-") if found else []
    sound = bool(words) and all(_WORD.fullmatch(word) and not _LOOSE_SIZE.fullmatch(word) for word in words)
    if not found or not sound or (found["time"] and found["time"].removesuffix("s") not in _TIMES):
        hint = "write Hours, GB, GB-Months, GB/Hour, 1000 Tokens"
        return text, CellFault(FORMAT_RULE, f"is not written as a unit: {_quote(text)}", hint, grade=WARNING)
    if words[-1] in _TIMES:
        hint = f"write {text.replace(found['unit'], found['unit'] + 's', 1)}"
        return text, CellFault(FORMAT_RULE, f"is a unit in the singular: {_quote(text)}", hint, grade=WARNING)
    return text, None


def _read_pairs(column: FocusColumn, text: str, read_json: ReadJson) -> tuple[CellValue | None, CellFault | None]:
    value, fault = _read_json_object(column, text, read_json)
    if fault:
        return None, fault
    if not isinstance(value, Mapping):
        return None, CellFault(JSON_RULE, "is not a JSON object", 'write {"key": "value"}')
    for key, one in value.items():
        if isinstance(one, Mapping | list):
            hint = "write a text, a number, true, false or null"
            return None, CellFault(JSON_RULE, f"has a list or an object at {_quote(str(key))}", hint)
        fault = _check_price_detail(str(key), one) if column.name == "SkuPriceDetails" else None
        if fault:
            return None, fault
    return value, None


def _check_price_detail(key: str, value: object) -> CellFault | None:
    """Return the fault of one property of SkuPriceDetails; None if it has none. Every property may be null."""
    if key not in PRICE_KEYS and not key.startswith(CUSTOM_PREFIX):
        near = find_nearest_names(key, PRICE_KEYS)
        hint = f"write {' or '.join((*near, f'{CUSTOM_PREFIX}{shorten(to_one_line(key), 40)}'))}"
        return CellFault(VALUE_RULE, f"has a key that FOCUS does not know: {_quote(key)}", hint)
    if key in PRICE_NUMBERS and isinstance(value, str | bool):
        return CellFault(VALUE_RULE, f"has at {key} no number: {_quote(str(value))}", f'write "{key}": 8, without quotes')
    if key in PRICE_TEXTS and value is not None and not isinstance(value, str):
        return CellFault(VALUE_RULE, f"has at {key} no text: {_quote(str(value))}", f'write "{key}": "...", in quotes')
    return None


def _read_json_object(_: FocusColumn, text: str, read_json: ReadJson) -> tuple[CellValue | None, CellFault | None]:
    try:
        value = read_json(text)
    except InputError as wrong:
        return None, CellFault(JSON_RULE, f"is not JSON: {wrong.what}", 'write {"key": "value"}, with quotes and each key once')
    if not isinstance(value, Mapping):
        return None, CellFault(JSON_RULE, "is not a JSON object", 'write {"key": "value"}')
    return value, None


_READERS = {
    DECIMAL_KIND: _read_decimal,
    TIME_KIND: _read_time,
    CURRENCY_KIND: _read_currency,
    VIRTUAL_KIND: _read_virtual_currency,
    PRICED_KIND: _read_priced_currency,
    UNIT_KIND: _read_unit,
    PAIRS_KIND: _read_pairs,
    JSON_KIND: _read_json_object,
}


def _describe_wanted(column: FocusColumn) -> str:
    wanted = {
        DECIMAL_KIND: "a number",
        TIME_KIND: "an instant as 2026-11-01T00:00:00Z",
        **dict.fromkeys((CURRENCY_KIND, VIRTUAL_KIND, PRICED_KIND), "a currency such as USD"),
    }
    return f"write {wanted.get(column.kind, 'what it is')}"


def _suggest_nearest(text: str, allowed: tuple[str, ...]) -> str:
    near = find_nearest_names(text, allowed)
    return f"write {near[0]}" if near else f"write one of: {', '.join(allowed)}"


def _quote(text: str) -> str:
    return f"'{shorten(to_one_line(text), 40)}'"
