"""One cell of a FOCUS file: its value, or what is wrong with how it is written.

Examples: `1.50` and `1.5E-7` are decimals, `1,5`, `+1`, `1E+3` and `$1` are none; `2026-11-01T02:00:00Z` is an instant and
`2026-11-01 02:00:00` is none; `GB-Months` is a unit and `gigabytes` is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal

from costguard.errors import InputError, one_line, shortened
from costguard.reporting.focus.columns import (
    ALLOWED,
    CURRENCY,
    CUSTOM,
    DECIMAL,
    JSON,
    PAIRS,
    PRICE_KEYS,
    PRICE_NUMBERS,
    SUBCATEGORIES,
    TIME,
    UNIT,
    Column,
)
from costguard.reporting.focus.currencies import CODES
from costguard.reporting.focus.finding import FORMAT, JSON_TEXT, NULL, TYPE, VALUE, Fault
from costguard.values.checks import nearest_names

ReadJson = Callable[[str], object]
"""The value of a JSON text; InputError where it is none, or states a key of an object twice. Core reads no JSON itself."""

Value = str | Decimal | datetime | Mapping[object, object]

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE]-?\d{1,3})?", re.ASCII)
"""FOCUS 1.2, Numeric Format: an integer, a decimal, or mEn, where the exponent has no sign but a minus."""
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
LONGEST_NUMBER = 60
_SIZE = r"(?:[KMGTPE]i?)?[bB]"
_TIMES = ("Year", "Month", "Day", "Hour", "Minute", "Second", "Millisecond", "Microsecond")
_WORD = re.compile(rf"{_SIZE}|[A-Z][A-Za-z0-9]*", re.ASCII)
_PARTS = re.compile(r"(?:(?P<count>\d+) )?(?P<unit>[^/\s]+)(?:/(?:(?P<per>\d+) )?(?P<time>[A-Za-z]+))?", re.ASCII)
_LOOSE_SIZE = re.compile(r"(?:kilo|mega|giga|tera|peta|exa|kibi|mebi|gibi|tebi)?(?:byte|bit)s?|[KMGTPE]i?[bB]s", re.IGNORECASE)

WRITTEN_NULL = "NULL"
"""How some write null in CSV, beside nothing at all; other words for it are findings."""
PLACEHOLDERS = frozenset(("null", "none", "nil", "n/a", "na", "nan", "not applicable", "unknown", "undefined", "-", "\\n"))
FREE = frozenset(
    ("ResourceName", "ResourceId", "ChargeDescription", "BillingAccountName", "SubAccountName", "HostProviderName")
)
"""Columns in which a word such as "none" may be somebody's name for a thing, or is allowed."""


def read(column: Column, text: str, read_json: ReadJson) -> tuple[Value | None, Fault | None]:
    """The value of a cell, None for null and where it has none, and what is wrong with it."""
    if text in ("", WRITTEN_NULL):
        return None, None if column.null else Fault(NULL, "is empty and must not be", _wanted(column))
    if not text.strip():
        return None, Fault(NULL, "holds blanks only", "leave it empty" if column.null else _wanted(column))
    if column.name not in FREE and text.strip().casefold() in PLACEHOLDERS:
        hint = "leave it empty: that is how null is written" if column.null else _wanted(column)
        return None, Fault(NULL, f"holds a word for nothing: {_shown(text)}", hint)
    return _READ.get(column.kind, _text)(column, text, read_json)


def _text(column: Column, text: str, _: ReadJson) -> tuple[Value | None, Fault | None]:
    allowed = tuple(SUBCATEGORIES) if column.name == "ServiceCategory" else ALLOWED.get(column.name, ())
    if allowed and text not in allowed:
        return None, Fault(VALUE, f"is none of the values there are: {_shown(text)}", _nearest(text, allowed))
    return text, None


def _decimal(column: Column, text: str, _: ReadJson) -> tuple[Value | None, Fault | None]:
    if len(text) > LONGEST_NUMBER or not NUMBER.fullmatch(text):
        hint = "write digits with one point at most: 1234.5 or 1.5E-7, no sign but -, no comma or currency"
        return None, Fault(TYPE, f"is no decimal number: {_shown(text)}", hint)
    value = Decimal(text)
    if "UnitPrice" in column.name and value < 0:
        return None, Fault(VALUE, f"is a negative price: {_shown(text)}", "write the price; what it lowers is a cost below 0")
    return value, None


def _time(_: Column, text: str, __: ReadJson) -> tuple[Value | None, Fault | None]:
    hint = "write an instant in UTC as 2026-11-01T00:00:00Z"
    if not INSTANT.fullmatch(text):
        return None, Fault(FORMAT, f"is not written as an instant: {_shown(text)}", hint)
    try:
        return datetime.fromisoformat(text).astimezone(UTC), None
    except ValueError:
        return None, Fault(FORMAT, f"is no instant of the calendar: {_shown(text)}", hint)


def _currency(_: Column, text: str, __: ReadJson) -> tuple[Value | None, Fault | None]:
    if text not in CODES:
        near = nearest_names(text.upper(), CODES)
        hint = f"write {' or '.join(near) if near else 'USD, EUR, ...'}"
        return None, Fault(FORMAT, f"is no ISO 4217 code: {_shown(text)}", hint)
    return text, None


def _unit(_: Column, text: str, __: ReadJson) -> tuple[Value | None, Fault | None]:
    found = _PARTS.fullmatch(text)
    words = found["unit"].split("-") if found else []
    sound = bool(words) and all(_WORD.fullmatch(word) and not _LOOSE_SIZE.fullmatch(word) for word in words)
    if not found or not sound or (found["time"] and found["time"].removesuffix("s") not in _TIMES):
        hint = "write Hours, GB, GB-Months, GB/Hour, 1000 Tokens"
        return None, Fault(FORMAT, f"is not written as a unit: {_shown(text)}", hint)
    return text, None


def _pairs(column: Column, text: str, read_json: ReadJson) -> tuple[Value | None, Fault | None]:
    value, fault = _json(column, text, read_json)
    if fault:
        return None, fault
    if not isinstance(value, Mapping):
        return None, Fault(JSON_TEXT, "is no JSON object", 'write {"key": "value"}')
    for key, one in value.items():
        if isinstance(one, Mapping | list):
            hint = "write a text, a number, true, false or null"
            return None, Fault(JSON_TEXT, f"has a list or an object at {_shown(str(key))}", hint)
        if column.name == "SkuPriceDetails" and key not in PRICE_KEYS and not str(key).startswith(CUSTOM):
            near = nearest_names(str(key), PRICE_KEYS)
            hint = f"write {' or '.join((*near, f'{CUSTOM}{shortened(one_line(str(key)), 40)}'))}"
            return None, Fault(VALUE, f"has a key that FOCUS does not know: {_shown(str(key))}", hint)
        if column.name == "SkuPriceDetails" and key in PRICE_NUMBERS and isinstance(one, str | bool):
            return None, Fault(VALUE, f"has at {key} no number: {_shown(str(one))}", f'write "{key}": 8, without quotes')
    return value, None


def _json(_: Column, text: str, read_json: ReadJson) -> tuple[Value | None, Fault | None]:
    try:
        value = read_json(text)
    except InputError as wrong:
        return None, Fault(JSON_TEXT, f"is no JSON: {wrong.what}", 'write {"key": "value"}, with quotes and each key once')
    if not isinstance(value, Mapping):
        return None, Fault(JSON_TEXT, "is no JSON object", 'write {"key": "value"}')
    return value, None


_READ = {DECIMAL: _decimal, TIME: _time, CURRENCY: _currency, UNIT: _unit, PAIRS: _pairs, JSON: _json}


def _wanted(column: Column) -> str:
    wanted = {DECIMAL: "a number", TIME: "an instant as 2026-11-01T00:00:00Z", CURRENCY: "a currency such as USD"}
    return f"write {wanted.get(column.kind, 'what it is')}"


def _nearest(text: str, allowed: tuple[str, ...]) -> str:
    near = nearest_names(text, allowed)
    return f"write {near[0]}" if near else f"write one of: {', '.join(allowed)}"


def _shown(text: str) -> str:
    return f"'{shortened(one_line(text), 40)}'"
