"""Input checks used by all value classes, so that an invalid value cannot be built.

A failed check names the field, what is wrong, and what to write instead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields
from datetime import date, time
from decimal import Decimal
from typing import Any

from costguard.errors import InputError, UnknownNameError, shorten

HUGE_NUMBER = 1e300
"""Beyond any quantity here, and within what a float holds: a JSON integer of 400 digits is not."""

LARGEST_COUNT = 10**18
"""Larger counts (of tokens, parameters ...) are typing mistakes: a million times the largest run known."""


UNQUOTED_HINT = "write the number without quotes"


def require(truth: bool, field: str, what: str, hint: str | None = None) -> None:  # noqa: FBT001 - reads as a sentence
    """Raise InputError for `field` unless `truth`."""
    if not truth:
        raise InputError(what, field=field, hint=hint)


def require_whole_number(value: object, field: str, *, least: int = 1, most: int = LARGEST_COUNT) -> int:
    """Return `value` as an int between `least` and `most`; 5e7 and 50_000_000.0 are accepted too."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -math.inf < value < math.inf:
        hint = UNQUOTED_HINT if _is_digits(value) else f"write {least} or more"
        raise InputError(f"must be a whole number, not {describe_value(value)}", field=field, hint=hint)
    if int(value) != value:
        raise InputError(f"must be a whole number, not {describe_value(value)}", field=field, hint=f"write {round(value)}")
    if value < least:
        raise InputError(f"must be at least {least}, not {describe_value(value)}", field=field, hint=f"write {least} or more")
    if value > most:
        what = f"must be at most {most:,}, not {describe_value(value)}"
        raise InputError(what, field=field, hint="check the unit and the zeros")
    return int(value)


def require_number(value: object, field: str, *, least: float = 0.0, most: float = 1e18) -> float:
    """Return `value` as a finite float between `least` and `most`. Raises InputError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -HUGE_NUMBER < value < HUGE_NUMBER:
        hint = UNQUOTED_HINT if _is_digits(value) else f"write a number from {least:g}"
        raise InputError(f"must be a number, not {describe_value(value)}", field=field, hint=hint)
    if not least <= value <= most:
        what = f"must be between {least:g} and {most:g}, not {describe_value(value)}"
        raise InputError(what, field=field, hint="check the unit")
    return float(value)


def _is_digits(value: object) -> bool:
    return isinstance(value, str) and value.strip().replace(".", "", 1).isdigit()


def require_one_of(value: object, choices: Iterable[str], field: str) -> str:
    """Return `value` if it is one of `choices`; otherwise raise an error that suggests the nearest and lists them all."""
    options = tuple(choices)
    if isinstance(value, str) and value in options:
        return value
    raise UnknownNameError(
        "value",
        str(value),
        field=field,
        nearest=find_nearest_names(str(value), options),
        hint=f"write one of: {', '.join(options)}" if options else "omit it: no value is allowed",
    )


def require_known_keys(table: Mapping[str, object], keys: tuple[str, ...], where: str) -> None:
    """Raise UnknownNameError for the first key of `table` that is not in `keys`."""
    for key in table:
        if key not in keys:
            raise make_unknown_key_error(str(key), keys, f"{where}.{key}" if where else str(key))


def make_unknown_key_error(key: str, keys: tuple[str, ...], field: str) -> InputError:
    """Return the error of a key that a table does not have."""
    return UnknownNameError(
        "key", key, field=field, nearest=find_nearest_names(key, keys), hint=f"known keys: {', '.join(keys)}"
    )


Check = Callable[[object, str], object]
"""Returns a value as it is used; raises InputError for the field that the text names if it is wrong."""


def declare_field(check: Check, **declared: object) -> Any:  # noqa: ANN401 - as dataclasses' field
    """Return the field of a dataclass whose value `check` checks. `declared`: as dataclasses' field takes it."""
    return field(metadata={"check": check}, **declared)  # type: ignore[call-overload]  # as `field` takes it


def list_checks(kind: type) -> dict[str, Check]:
    """Return the checks of the fields of a dataclass that `declare_field` declared; None passes where it is the default."""
    checked = {one.name: (one.metadata["check"], one.default) for one in fields(kind) if "check" in one.metadata}
    return {name: permit_none(check) if default is None else check for name, (check, default) in checked.items()}


def choose_from(choices: Iterable[str]) -> Check:
    """Return the check of a value that is one of `choices`."""
    return lambda value, name: require_one_of(value, choices, name)


def permit_none(check: Check) -> Check:
    """Return `check` that lets None pass, which states nothing."""
    return lambda value, name: None if value is None else check(value, name)


ERRORS_MOST = 50
"""Errors of one table that are listed: the nearest names are sought for each."""


def list_value_errors(table: Mapping[str, object], checks: Mapping[str, Check], where: str) -> list[InputError]:
    """Return an error for each key of `table` without a check, and for each value that its own refuses. `where`: its name."""
    errors: list[InputError] = []
    for key, value in table.items():
        name = f"{where}.{key}" if where else str(key)
        if len(errors) >= ERRORS_MOST:
            break
        if key not in checks:
            errors.append(make_unknown_key_error(str(key), tuple(checks), name))
            continue
        try:
            checks[key](value, name)
        except InputError as error:  # no context manager here: every job passes by
            errors.append(error)
    return errors


def find_nearest_names(name: str, names: Iterable[str], most: int = 4, cutoff: float = 0.5) -> tuple[str, ...]:
    """Return the names in `names` most similar to `name`, best first. `cutoff`: how much must agree, 0 to 1."""
    from difflib import get_close_matches  # only for an error

    by_folded = {fold_name(k): k for k in names}
    close = get_close_matches(fold_name(name)[:80], by_folded, n=most, cutoff=cutoff)
    return tuple(dict.fromkeys(by_folded[c] for c in close))


def fold_name(name: str) -> str:
    """Return `name` to compare: lower case, no separators but a dot of digits; `A100_80gb` is `a100-80GB`, 1.3b not 13b."""
    return _LOOSE_DOT.sub("", name.lower().translate(_SEPARATORS))


def describe_value(value: object) -> str:
    """Format a user's value for an error message."""
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, int) and not -LARGEST_SHOWN < value < LARGEST_SHOWN:
        return "a number of more than 40 digits"
    return shorten(f"'{value}'" if isinstance(value, str) else f"{value}" if isinstance(value, Decimal) else repr(value), 40)


LARGEST_SHOWN = 10**40
_SEPARATORS = str.maketrans("", "", " -_")
_LOOSE_DOT = re.compile(r"(?<!\d)\.|\.(?!\d)")
