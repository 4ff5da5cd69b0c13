"""Cells of a FOCUS file: each is parsed to a value or a fault; findings with line, column, rule and correction.

Examples: `1.50`, `.5` and `1.5E-7` are decimals, `1,5`, `+1`, `1E+3` and `$1` are not; `2026-11-01T02:00:00Z` is an instant and
`2026-11-01 02:00:00` is not; `GB-Months` is a unit and `gigabytes` is not.

A finding has a grade. An error breaks a MUST of the specification, a warning one of its SHOULDs or what is improbable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
from tests.reporting.focus_rules.vocabulary import ALLOWED, CURRENCY_CODES, PRICE_KEYS, PRICE_NUMBERS, SUBCATEGORIES

COLUMN_RULE, NULL_RULE, TYPE_RULE, FORMAT_RULE, VALUE_RULE, JSON_RULE = "column", "null", "type", "format", "value", "json"
IDENTITY_RULE, PERIOD_RULE, CONDITION_RULE = "identity", "period", "condition"
CONSISTENT_RULE, TWICE_RULE = "consistent", "twice"
"""The rules, by what they look at: the header, empty cells, numbers, how a cell is written, which values there are, JSON;
price times quantity, periods, what one cell asks of another, what one row asks of another,
what is stated twice."""

ERROR, WARNING = "error", "warning"


@dataclass(frozen=True, slots=True)
class CellFault:
    """A fault of a cell. `rule`: one of the rules above."""

    rule: str
    what: str
    grade: str = ERROR


@dataclass(frozen=True, slots=True)
class FocusFinding:
    """A fault and its place. `line`: of the file, from 1, where the row ends; for a Parquet file the number of the row."""

    line: int
    column: str
    fault: CellFault


ReadJson = Callable[[str], object]
"""The value of a JSON text; InputError where it is none, or states a key of an object twice. Core reads no JSON itself."""

CellValue = str | Decimal | datetime | Mapping[object, object]

NUMBER_PATTERN = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE]-?\d{1,3})?", re.ASCII)
"""FOCUS, Numeric Format: an integer, a decimal, or mEn, where the exponent has no sign but a minus. It demands no digit before
the point: Oracle writes .5."""
INSTANT_PATTERN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
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
        return None, None if column.null else CellFault(NULL_RULE, "is empty and must not be")
    if not text.strip():
        return None, CellFault(NULL_RULE, "holds blanks only")
    if column.name not in FREE_COLUMNS and text.strip().casefold() in PLACEHOLDERS:
        return None, CellFault(NULL_RULE, f"holds a word for nothing: {_quote(text)}")
    return _READERS.get(column.kind, _read_text)(column, text, read_json)


def _read_text(column: FocusColumn, text: str, _: ReadJson) -> tuple[CellValue | None, CellFault | None]:
    allowed = tuple(SUBCATEGORIES) if column.name == "ServiceCategory" else ALLOWED.get(column.name, ())
    if allowed and text not in allowed:
        return None, CellFault(VALUE_RULE, f"is none of the values there are: {_quote(text)}")
    return text, None


def _read_decimal(column: FocusColumn, text: str, _: ReadJson) -> tuple[CellValue | None, CellFault | None]:
    if len(text) > LONGEST_NUMBER or not NUMBER_PATTERN.fullmatch(text):
        return None, CellFault(TYPE_RULE, f"is not a decimal number: {_quote(text)}")
    value = Decimal(text)
    if "UnitPrice" in column.name and value < 0:
        return None, CellFault(VALUE_RULE, f"is a negative price: {_quote(text)}")
    return value, None


def _read_time(_: FocusColumn, text: str, __: ReadJson) -> tuple[CellValue | None, CellFault | None]:
    if not INSTANT_PATTERN.fullmatch(text):
        return None, CellFault(FORMAT_RULE, f"is not written as an instant: {_quote(text)}")
    try:
        return datetime.fromisoformat(text).astimezone(UTC), None
    except ValueError:
        return None, CellFault(FORMAT_RULE, f"is not an instant of the calendar: {_quote(text)}")


def _read_currency(_: FocusColumn, text: str, __: ReadJson) -> tuple[CellValue | None, CellFault | None]:
    if text not in CURRENCY_CODES:
        return None, CellFault(FORMAT_RULE, f"is not an ISO 4217 code: {_quote(text)}")
    return text, None


def _read_virtual_currency(_: FocusColumn, text: str, __: ReadJson) -> tuple[CellValue | None, CellFault | None]:
    """Read a currency that may be virtual: any text but one that means a national currency and is not written as its code."""
    if text in CURRENCY_CODES:
        return text, None
    if text.strip().upper() in CURRENCY_CODES or CURRENCY_SIGNS.intersection(text):
        fault = CellFault(FORMAT_RULE, f"is not an ISO 4217 code: {_quote(text)}")
        return None, fault
    if ISO_LOOK.fullmatch(text):
        what = f"looks like an ISO 4217 code and is none: {_quote(text)}"
        return text, CellFault(FORMAT_RULE, what, grade=WARNING)
    return text, None


def _read_priced_currency(column: FocusColumn, text: str, read_json: ReadJson) -> tuple[CellValue | None, CellFault | None]:
    """Read the currency of a price in 1.4, which demands ISO 4217 codes, and goes on to speak of virtual currencies there."""
    value, fault = _read_virtual_currency(column, text, read_json)
    if fault or text in CURRENCY_CODES:
        return value, fault
    what = f"is a virtual currency, which CurrencyFormat of FOCUS 1.4 has no place for: {_quote(text)}"
    return text, CellFault(FORMAT_RULE, what, grade=WARNING)


def _read_unit(_: FocusColumn, text: str, __: ReadJson) -> tuple[CellValue | None, CellFault | None]:
    found = _PARTS.fullmatch(text)
    words = found["unit"].split("-") if found else []
    sound = bool(words) and all(_WORD.fullmatch(word) and not _LOOSE_SIZE.fullmatch(word) for word in words)
    if not found or not sound or (found["time"] and found["time"].removesuffix("s") not in _TIMES):
        return text, CellFault(FORMAT_RULE, f"is not written as a unit: {_quote(text)}", grade=WARNING)
    if words[-1] in _TIMES:
        return text, CellFault(FORMAT_RULE, f"is a unit in the singular: {_quote(text)}", grade=WARNING)
    return text, None


def _read_pairs(column: FocusColumn, text: str, read_json: ReadJson) -> tuple[CellValue | None, CellFault | None]:
    value, fault = _read_json_object(column, text, read_json)
    if fault:
        return None, fault
    if not isinstance(value, Mapping):
        return None, CellFault(JSON_RULE, "is not a JSON object")
    for key, one in value.items():
        if isinstance(one, Mapping | list):
            return None, CellFault(JSON_RULE, f"has a list or an object at {_quote(str(key))}")
        fault = _check_price_detail(str(key), one) if column.name == "SkuPriceDetails" else None
        if fault:
            return None, fault
    return value, None


def _check_price_detail(key: str, value: object) -> CellFault | None:
    """Return the fault of one property of SkuPriceDetails; None if it has none. Every property may be null."""
    if key not in PRICE_KEYS and not key.startswith(CUSTOM_PREFIX):
        return CellFault(VALUE_RULE, f"has a key that FOCUS does not know: {_quote(key)}")
    if key in PRICE_NUMBERS and isinstance(value, str | bool):
        return CellFault(VALUE_RULE, f"has at {key} no number: {_quote(str(value))}")
    if key in PRICE_TEXTS and value is not None and not isinstance(value, str):
        return CellFault(VALUE_RULE, f"has at {key} no text: {_quote(str(value))}")
    return None


def _read_json_object(_: FocusColumn, text: str, read_json: ReadJson) -> tuple[CellValue | None, CellFault | None]:
    try:
        value = read_json(text)
    except InputError as wrong:
        return None, CellFault(JSON_RULE, f"is not JSON: {wrong.what}")
    if not isinstance(value, Mapping):
        return None, CellFault(JSON_RULE, "is not a JSON object")
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


def _quote(text: str) -> str:
    return f"'{shorten(to_one_line(text), 40)}'"
