"""Cells of exports, as tests read them back."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

from costguard.errors import InputError


def format_cell(value: object) -> str:
    """Return a Parquet cell in the text form that FOCUS uses in CSV; text is unchanged, null is ""."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, datetime):
        at = value.astimezone(UTC) if value.tzinfo else value
        return f"{at:%Y-%m-%dT%H:%M:%S}{f'.{at:%f}' * bool(at.microsecond)}{'Z' * bool(value.tzinfo)}"
    if isinstance(value, Decimal):
        text = f"{value:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    if isinstance(value, float):
        return format_cell(Decimal(repr(value)))
    if isinstance(value, list) and all(isinstance(one, tuple) for one in value):  # a map: pairs
        value = dict(value)
    return json.dumps(value, default=format_cell) if isinstance(value, dict | list | bool) else str(value)


def parse_json(text: str) -> object:
    """Return the value of a JSON text; raise InputError if it is invalid or an object has a key twice."""
    try:
        return json.loads(text, object_pairs_hook=_reject_duplicate_keys, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as wrong:
        raise InputError(str(wrong).split(":")[0]) from None


def _reject_duplicate_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError("a key appears twice")
    return table


def _reject_constant(word: str) -> object:
    raise ValueError(f"{word} is not a number of JSON")
