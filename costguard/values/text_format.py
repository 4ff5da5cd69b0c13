"""Text of amounts, instants and durations for people; encoding of untrusted names for each output channel.

Example: a machine is named `<!channel> ](https://x)` with an escape code. A terminal shows the name without the code; a chat
shows other brackets and an address that is no link, and nobody is paged. Active characters are replaced by lookalikes instead
of being escaped, because libraries between costguard and a chat unescape text once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, tzinfo

from costguard.errors import shorten, to_one_line
from costguard.values.money import NANO, Money, MoneyInterval
from costguard.values.resource import ResourceKey, ScopeKey

SUM_PLACES, RATE_PLACES = 2, 4
"""Decimals that a sum and a rate are shown with, at least (DESIGN, section 5)."""

LONGEST_REASON = 300
WIDE_DIVISOR = 100
"""An interval is shown if it is wider than the expected amount by this divisor."""
LEAST_SHARE = 0.005
LARGEST_SHARE = 10
"""A change that is a larger share of what it was is said in money alone."""
MOST_SCOPE_LINES = 20
"""Lines about scopes that people are shown: a company has thousands. JSON holds them all."""

LARGE_UNITS = {"d": 86_400, "h": 3600, "min": 60, "s": 1}


def format_exact(money: Money, least: int = SUM_PLACES) -> str:
    """Format the amount to the nano-unit, without trailing zeros beyond `least` decimals, so that parts add up."""
    units, nano = divmod(abs(money.nano), NANO)
    minus = "-" if money.nano < 0 else ""
    return f"{minus}{units}.{f'{nano:09}'.rstrip('0').ljust(least, '0')}"


def format_interval_exact(interval: MoneyInterval, least: int = SUM_PLACES) -> dict[str, str]:
    """Return {"low", "expected", "high"}, each formatted by `format_exact`."""
    return {
        "low": format_exact(interval.low, least),
        "expected": format_exact(interval.expected, least),
        "high": format_exact(interval.high, least),
    }


def get_currency_sign(currency: str) -> str:
    """Return the prefix of an amount: `$`, or the code of another currency and a space."""
    return "$" if currency == "USD" else f"{currency} "


def format_amount(money: Money, places: int = SUM_PLACES) -> str:
    """Format an amount for people: `5,185.02`. Data has no separators."""
    return f"{money.to_decimal():,.{places}f}"


def format_amount_ends(interval: MoneyInterval, places: int = SUM_PLACES) -> tuple[str, str, str]:
    """Format low, expected and high for people."""
    return format_amount(interval.low, places), format_amount(interval.expected, places), format_amount(interval.high, places)


def format_interval(interval: MoneyInterval) -> str:
    """Format as `12.34 (11.00 to 13.00)`, or `12.34` if low and high differ by at most 1 % of it: nobody decides by that."""
    low, expected, high = format_amount_ends(interval)
    return f"{expected} ({low} to {high})" if is_wide(interval) and low != high else expected


def is_wide(interval: MoneyInterval) -> bool:
    """Return whether low and high differ by more than 1 % of the expected amount."""
    return (interval.high.nano - interval.low.nano) * WIDE_DIVISOR > abs(interval.expected.nano)


def format_bounds(low: Money, high: Money, places: int) -> str:
    """Format as `0 to 16.00`."""
    return f"{format_amount(low, places) if low.nano else '0'} to {format_amount(high, places)}"


def format_share(share: float) -> str:
    """Format a share as `43%`, or `under 1%` if it is above zero but would round to 0%."""
    return "under 1%" if 0 < share < LEAST_SHARE else f"{share:.0%}"


def format_instant(at: datetime) -> str:
    """Format as ISO 8601 in UTC with a Z: `2026-10-03T12:00:00Z`."""
    return at.isoformat().replace("+00:00", "Z")


def format_local_time(at: datetime, zone: tzinfo = UTC) -> str:
    """Format an instant for people: `2026-10-03 14:00 CEST`; the full zone name if it has no alphabetic abbreviation."""
    local = at.astimezone(zone)
    name = local.tzname() or ""
    return f"{local:%Y-%m-%d %H:%M} {name if name.isalpha() else zone}"


def format_near_time(at: datetime, now: datetime, zone: tzinfo = UTC) -> str:
    """Format an instant for people who read it at `now`: `14:00 CEST`, and with its date where that is not today in `zone`."""
    is_today = at.astimezone(zone).date() == now.astimezone(zone).date()
    return format_local_time(at, zone)[len("2026-10-03 ") if is_today else 0 :]


def format_time_left(due: datetime, now: datetime) -> str:
    """Format how long it is until `due`, in whole minutes from 90 s on: `in 15 min`; "" once it has passed."""
    left = due - now
    left = timedelta(minutes=round(left / timedelta(minutes=1))) if left >= timedelta(seconds=90) else left
    return f"in {format_length(left)}" if left >= timedelta(seconds=1) else ""


def format_gpus(gpu: str, count: float) -> str:
    """Format the GPUs of a machine: `RTX 4090`, `8x A100 80GB SXM`."""
    name = gpu.removeprefix("NVIDIA ").replace("-", " ")
    return name if count == 1 else f"{count:g}x {name}"


def format_length(length: timedelta) -> str:
    """Format a duration in its two largest units: `3 h`, `2 d 4 h`, `3 h 10 min`, `40 s`."""
    left, parts = max(0, int(length.total_seconds())), []
    for unit, seconds in LARGE_UNITS.items():
        if left >= seconds:
            parts.append((unit, left // seconds))
            left %= seconds
    largest = [unit for unit, _ in parts][:1]
    units = list(LARGE_UNITS)
    top_parts = [(u, n) for u, n in parts if units.index(u) - units.index(largest[0]) <= 1]
    return " ".join(f"{n} {unit}" for unit, n in top_parts) or "0 s"


def format_scope(scope: ScopeKey) -> str:
    """Format a scope: `aws/123/us-east-1`; `aws` for an account that could never be asked for its scopes."""
    return "/".join(to_one_line(part) for part in scope if part)


def describe_unreached_scope(scope: ScopeKey, why: str) -> str:
    """Describe an account that could never be asked for its scopes. The reason is whole: it ends with what to do."""
    return f"{format_scope(scope)}: {why}"


def describe_misdated_scope(scope: ScopeKey, at: datetime) -> str:
    """Describe a scope whose last poll is dated in the future because of a wrong clock."""
    reason = f"its last poll is dated {at:%Y-%m-%d}, ahead of this clock"
    return f"{format_scope(scope)}: {reason}: later polls are ignored until then; check the clock"


def format_scope_reason(why: str) -> str:
    """Format a reason as `: timeout`, shortened if long; "" if there is none."""
    return f": {shorten(to_one_line(why), LONGEST_REASON)}" if why else ""


def limit_lines(lines: Iterable[str], what: str) -> tuple[str, ...]:
    """Return the first `MOST_SCOPE_LINES` of `lines`, and a count of the rest: `and 3 more scopes (--json lists them)`."""
    every = tuple(lines)
    more = len(every) - MOST_SCOPE_LINES
    return every if more <= 0 else (*every[:MOST_SCOPE_LINES], f"and {more} more {what} (--json lists them)")


LINE_CHARS_MAX = 600
"""Characters of one line of a message."""
TITLE_CHARS_MAX = 200

_LOOKALIKES = str.maketrans({"<": "‹", ">": "›", "&": "＆", "@": "＠", "`": "ˋ", "*": "∗", "~": "∼", "|": "¦", "\\": "∖"})  # noqa: RUF001 - that they look alike is the point
_ADDRESS = re.compile(r"(?i)(:)(?=//)|(\bwww)(?=\.)|(\b(?:mailto|javascript|tel|data|slack|tg|discord|file|sms))(?=:)")
_BREAK = "\u200b"
"""A blank of no width: what stands on both sides of it is no address and no markup any more."""


def encode_plain(text: str, longest: int = LINE_CHARS_MAX) -> str:
    """Return one line without control codes, line breaks or bidirectional marks.

    It is safe for terminals, logs and mail headers. For the console, mail and webhooks.
    """
    return shorten(to_one_line(text), longest)


def encode_chat(text: str, longest: int = LINE_CHARS_MAX) -> str:
    """Encode as `encode_plain` does, and disable mentions, markup, HTML tags and links.

    For Slack, Discord, Telegram, Teams and Matrix.
    """
    safe = encode_plain(text, longest).translate(_LOOKALIKES)
    safe = _ADDRESS.sub(lambda match: f"{match[0]}{_BREAK}", safe)
    return safe.replace("](", f"]{_BREAK}(").replace("__", f"_{_BREAK}_").replace("{{", "{" + _BREAK + "{")


def quote_shell_word(text: str) -> str:
    """Quote `text` as one word of a command line, so that an untrusted id cannot add a second command."""
    clean = to_one_line(text)
    return clean if re.fullmatch(r"[A-Za-z0-9._:/=+%-]+", clean) else "'" + clean.replace("'", "'\"'\"'") + "'"


def format_command(verb: str, key: ResourceKey, *more: str) -> str:
    """Return `costguard VERB KEY ...` for one machine, by its full key: no other machine's name can match it."""
    return " ".join(("costguard", verb, quote_shell_word(key.path), *more))
