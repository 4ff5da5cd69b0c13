"""Simulate the daily limits of [rails] over fleets of 1 to 100 machines: what idling costs, and what a wrong measure destroys.

    python scripts/simulate_limits.py            # prints the table of decision 0042

Each fleet plays one day in steps of a minute with the product's own limits and breaker (`costguard/guard/limits.py`). A machine
is due 60 min after it turned idle. Three cases: all jobs end, spread over eight hours; all end in the same minute; a third of
the fleet is measured wrongly as idle, spread over eight hours, so that the breaker does not see it (in the same minute it holds
them all). `idle`: hours that an idle machine runs on, on average. `wrong`: share of the fleet that is stopped although it
works, before somebody looks, eight hours after the first.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from math import ceil
from random import Random

from costguard.guard.action_intents import DONE, Intent
from costguard.guard.limits import Breaker, compute_headroom, update_breaker
from costguard.guard.policy import Rails
from costguard.values.resource import Incarnation, ResourceKey

START = datetime(2026, 11, 23, tzinfo=UTC)
MINUTE, DUE_AFTER, SPREAD, LOOKED_AFTER = timedelta(minutes=1), timedelta(minutes=60), timedelta(hours=8), timedelta(hours=8)
FLEETS = (1, 2, 3, 5, 8, 10, 15, 20, 30, 50, 100)
LIMITS = {
    "20 % (before)": (Fraction(20, 100), 1, Fraction(10, 100)),
    "50 %": (Fraction(50, 100), 1, Fraction(1)),
    "50 %, at least 10": (Fraction(50, 100), 10, Fraction(1)),
    "50 %, at least 20": (Fraction(50, 100), 20, Fraction(1)),
    "100 %": (Fraction(1), 1, Fraction(1)),
}
"""Share of a day, the least that it allows, and share of ten minutes."""


def play_day(size: int, turns: dict[int, datetime], rails: Rails, until: datetime) -> dict[int, datetime]:
    """When each machine of `turns` (number -> when it turned idle) is stopped, of a fleet of `size` that runs until then."""
    stopped, sent = dict[int, datetime](), list[Intent]()
    breaker: Breaker | None = None
    at = START
    while at < until:
        idle = {_key(n): since for n, since in turns.items() if since <= at and n not in stopped}
        breaker = _update(breaker, idle, size, rails, at)
        room = compute_headroom(sent, size, rails, at).acts
        for number, since in sorted(turns.items(), key=lambda one: one[1]):
            held = breaker is not None and breaker.holds(_key(number))
            if room > 0 and number not in stopped and since + DUE_AFTER <= at and not held:
                stopped[number], room = at, room - 1
                sent.append(_intent(number, at))
        at += MINUTE
    return stopped


def _update(
    breaker: Breaker | None, idle: dict[ResourceKey, datetime], size: int, rails: Rails, at: datetime
) -> Breaker | None:
    """The product's breaker, its share turned into a number: here the fleet is a size and not a list of machines."""
    least = max(rails.breaker_least, ceil(size * rails.breaker_share))
    return update_breaker(breaker, idle, (), replace(rails, breaker_least=least, breaker_share=Fraction(0)), at)


def _key(number: int) -> ResourceKey:
    return ResourceKey("aws", "1", "us-east-1", f"i-{number}")


def _intent(number: int, at: datetime) -> Intent:
    life = Incarnation(key=_key(number), created_at=START, started_at=START)
    return Intent(
        id=str(number), life=life, act="stop", policy="idle", rule="idle", why="", evidence="", state=DONE, created_at=at,
        moved_at=at, sends=1, sent_at=at,
    )  # fmt: skip


def main() -> None:
    """Print the table."""
    print(f"{'limit of a day':20}{'':8}" + "".join(f"{size:>7}" for size in FLEETS))
    for name, (day, least, ten) in LIMITS.items():
        rails = Rails(fleet_share_day=day, acts_least_day=least, fleet_share_10m=ten)
        rows: dict[str, list[str]] = {"idle": [], "wrong": []}
        for size in FLEETS:
            draw = Random(size)  # noqa: S311 - a simulation
            spread = {n: START + draw.random() * SPREAD for n in range(size)}
            end = START + timedelta(days=1)
            stopped = play_day(size, spread, rails, end)
            hours = [(stopped.get(n, end) - at).total_seconds() / 3600 for n, at in spread.items()]
            rows["idle"].append(f"{sum(hours) / len(hours):7.1f}")
            wrong = dict(list(spread.items())[: -(-size // 3)])
            rows["wrong"].append(f"{len(play_day(size, wrong, rails, START + LOOKED_AFTER)) / size:7.0%}")
        for row, values in rows.items():
            print(f"{name:20}{row:8}" + "".join(values))


if __name__ == "__main__":
    main()
