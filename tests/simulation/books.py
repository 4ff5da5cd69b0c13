"""Worlds that ask one thing: whether the books hold what machines truly cost, at every step of a long and hard time.

Nobody is guarded there, so that a fleet can be watched for days: a hundred machines that come, stop, start and change their
price, on clouds of which every other listing is spoilt. The worlds of `world` ask the same of small fleets, beside all else.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.simulation.plans import AFTERNOON, BOOKS, LISTING, MONTHS_END, Box, Does, Happens, Plan
from tests.simulation.world import MINUTE, World

TICK = 5
"""Minutes between two polls."""
CLOUDS = ("aws", "runpod", "lambda")
LASTS = (TICK, TICK, 2 * TICK, 3 * TICK, 6 * TICK, 24 * TICK)
"""Minutes of a fault of listings: one poll as often as not, two hours now and then."""
SPOILS = tuple(what for what in LISTING if what != "stale")
LIVED = ("restart", "stopped", "restart", "stopped", "bounce", "price")
RATES = ("0.34", "2.99", "11.96", "32.77")


def books_plan_of(seed: int) -> Plan:
    """The world of `seed`: two days of forty to a hundred and twenty machines.

    It keeps to what decision 0014 assumes: of a few machines that a whole listing lacks the next one tells, a price changes
    once between two looks, a machine does not start twice between two, and no listing is older than its lag. The worlds of
    `drawing` break these, too, and are judged by less.
    """
    dice = random.Random(f"{BOOKS} {seed}")  # noqa: S311 - worlds are drawn, not secret
    minutes = 48 * 60
    boxes = tuple(_box(dice, number, minutes) for number in range(dice.choice((40, 80, 120))))
    events = tuple(sorted((*_spoilt(dice, minutes, boxes), *_lived(dice, minutes, boxes))))
    rails = {"acts_per_10m": 1, "fleet_share_10m": 0.1, "fleet_share_day": 0.2}
    return Plan(seed, BOOKS, minutes, boxes, events, rails, start=dice.choice((AFTERNOON, MONTHS_END)))


def _box(dice: random.Random, number: int, minutes: int) -> Box:
    at = dice.randrange(0, minutes - 60, 7) if dice.random() < 0.4 else 0
    age = 0 if at else dice.choice((10, 60, 24 * 60))
    return Box(f"b{number}", dice.choice(CLOUDS), dice.choice(RATES), (Does(0, "silent"),), age_min=age, at=at)


def _spoilt(dice: random.Random, minutes: int, boxes: tuple[Box, ...]) -> Iterator[Happens]:
    """Each world first draws which ways of spoiling listings it has, and how hard."""
    kinds = [what for what in SPOILS if dice.random() < 0.6] or ["down"]
    hard = dice.choice((0.05, 0.15, 0.3))
    for cloud in CLOUDS:
        for at in range(TICK, minutes - TICK, TICK):
            if dice.random() < hard:
                what, lasts = dice.choice(kinds), dice.choice(LASTS)
                yield Happens(at - 1, what, cloud, TICK if what == "hides" else lasts, dice.choice(boxes).name)


def _lived(dice: random.Random, minutes: int, boxes: tuple[Box, ...]) -> Iterator[Happens]:
    """What people do with their machines, and prices."""
    for box in boxes:
        happens = [dice.choice(LIVED) for _ in range(dice.choice((0, 1, 2, 6)))]
        priced = happens.index("price") if "price" in happens else 0
        taken = list[int]()
        for what in (what for number, what in enumerate(happens) if what != "price" or number == priced):
            how = dice.choice(("0.29", "1.99 unsaid", "12.29", "34.10 unsaid")) if what == "price" else ""
            at = dice.randint(box.at + 2, minutes - 2)
            if all(abs(at - one) > 2 * TICK for one in taken):
                taken.append(at)
                yield Happens(at, what, box.name, how=how)
    for _ in range(dice.choice((0, 2, 6))):
        yield Happens(dice.randint(5, minutes - 5), dice.choice(("crash", "sleeps")), minutes=dice.choice((20, 90, 600)))


class BooksWorld(World):
    """One that polls and says what was spent, and judges nothing."""

    def _watched(self, who: str) -> None:
        since = (self.truth.now() - self.start) // MINUTE
        if since % TICK == 0 or since > self.plan.minutes:
            self.runs += 1
            self.polls(who)
            self._said(who)
            self.log.write("polled", fleet=len(self.plan.boxes))
