"""Numbers of a chart: what its axis says, and how a value is written where nobody has.

ticks(0, 3700)  ->  0, 1000, 2000, 3000, 4000
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise

STEPS = (1, 2, 2.5, 5, 10)
FINE_STEPS = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
"""Steps of an axis, and of shades, which need no grid that the eye can follow."""

AXIS_PARTS_MAX = 4
"""An axis has at most so many parts."""

LARGEST_VALUE = 1e300
SMALLEST_VALUE = 1e-9
"""What is nearer to zero is drawn as zero: less than a nano-dollar is no money."""

SUFFIXES = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e4, "k"))
"""From this size on, an axis counts in these; `k` is a thousand, and 1,000 to 9,999 are written out."""

SCIENTIFIC, CENT = 1e16, 0.01
THOUSAND, LETTERS = 1000.0, ("", "k", "M", "B", "T")


def clamp_number(value: float | None) -> float | None:
    """`value` as it can be drawn; None where there is none, or it is no number."""
    if value is None or not math.isfinite(value):
        return None
    value = max(-LARGEST_VALUE, min(LARGEST_VALUE, value))
    return value if abs(value) > SMALLEST_VALUE else 0.0


def compute_ticks(low: float, high: float, parts: int = AXIS_PARTS_MAX, steps: Sequence[float] = STEPS) -> tuple[float, ...]:
    """Round numbers in equal steps that hold `low` and `high`, and zero, among them."""
    low, high = min(low, 0.0), max(high, 0.0)
    if high - low <= SMALLEST_VALUE:
        return (0.0, 1.0)
    raw = high / parts - low / parts
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(s * size for s in steps if s * size >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(step * n for n in range(first, last + 1))


def format_ticks(at: Sequence[float], unit: str) -> tuple[str, ...]:
    """`at` in words, all in the same decimals and the same thousands: `$0`, `$2.5k`, `$5.0k`."""
    most = max(map(abs, at))
    if most >= SCIENTIFIC:
        return tuple(add_unit(f"{v:.2g}", unit) for v in at)
    scale, suffix = next(((1e3 if s == "k" else size, s) for size, s in SUFFIXES if most >= size), (1.0, ""))
    step = min(abs(b - a) for a, b in pairwise(at)) / scale
    places = next((n for n in range(13) if math.isclose(step * 10**n, round(step * 10**n), rel_tol=1e-6)), 12)
    return tuple(add_unit(f"{v / scale:,.{places}f}{suffix if v else ''}", unit) for v in at)


def format_short(value: float) -> str:
    """At most five characters for a cell of a grid, without its unit: `~0`, `0.04`, `3.5`, `120`, `4.5k`, `-12k`."""
    size = abs(value)
    if not size:
        return "0"
    if size >= THOUSAND**5:
        return f"{value:.0e}".replace("e+", "e")
    if size < 1:
        return f"{value:.2f}" if size >= 0.005 else "~0"  # noqa: PLR2004 - what two decimals round to nothing
    power = next((n for n in (4, 3, 2, 1) if size >= 0.9995 * THOUSAND**n), 0)
    part = value / THOUSAND**power
    return f"{part:.{int(abs(part) < 9.95)}f}{LETTERS[power]}"  # noqa: PLR2004 - two figures are enough


def format_value(value: float | None, unit: str) -> str:
    """A value for people, where the chart brings no text of its own."""
    number = clamp_number(value)
    if number is None:
        return UNKNOWN
    plain = not number or CENT <= abs(number) < SCIENTIFIC
    return add_unit(f"{number:,.2f}" if plain else f"{number:.4g}", unit)


def add_unit(number: str, unit: str) -> str:
    """`$12`, `-$12`, `$12/h`, `EUR 12`, `12%`, `12 GPU-hours`: what money is counted in goes before the number."""
    currency = CURRENCY.match(unit)
    if currency is None:
        return f"{number}{unit}" if unit in {"", "%"} else f"{number} {unit}"
    code = currency[1]
    before = code if code == "$" else f"{code} "
    minus, digits = ("-", number[1:]) if number.startswith("-") else ("", number)
    return f"{minus}{before}{digits}{unit.removeprefix(code)}"


def format_given_text(text: str, value: float | None, unit: str) -> str:
    """The text that a chart brings for a value, with its unit where it is a bare number, or one of our own."""
    if not text:
        return format_value(value, unit)
    bare = BARE_NUMBER.match(text)
    return f"{add_unit(bare[0], unit)}{text[bare.end() :]}" if bare and unit.strip("/h ") not in text else text


CURRENCY = re.compile(r"(\$|[A-Z]{3})(?=/|$)")
BARE_NUMBER = re.compile(r"-?\d[\d,.]*(?= |$)", re.ASCII)
"""A number at the start of a text, with nothing behind it but other words: `12.34 (11.00 to 13.00)`."""

UNKNOWN = "not known"
