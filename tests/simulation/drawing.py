"""Seed -> plan: which machines there are, what they do, and what goes wrong in their world.

Each plan first draws which kinds of trouble it has and how hard, so that worlds differ more than they would with all at once.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.simulation.books import books_plan_of
from tests.simulation.plans import (
    ACTIVITIES,
    AFTERNOON,
    BOOKS,
    CALM,
    CAP,
    DRILL,
    LISTING,
    MONTHS_END,
    STORM,
    TURNED,
    WIRED,
    Box,
    Does,
    Happens,
    Plan,
)  # fmt: skip
from tests.simulation.scenes import staged
from tests.simulation.wired_plans import wired_plan_of

KINDS = (CALM, STORM, STORM, STORM, CAP, TURNED)
APART = {WIRED: wired_plan_of, BOOKS: books_plan_of}
"""Kinds that are drawn only where they are asked for."""
ANSWERS = ("lost", "deaf", "unclear", "refuses")
MEDDLING = ("label", "lease", "freeze", "restart", "slow", "slower", "protect", "relabel", "paused")
DEATHS = ("before", "after", "told", "commit")
"""When a watchdog ends: before or after its next request, between a message and its settling, after one of its commits."""
EVENTS = (
    *LISTING, "answers", "restart", "stopped", "label", "unlabel", "slip", "lease", "lift", "snooze", "freeze", "disarm",
    "crash", "dies", "sleeps", "jumps", "twin sleeps", "bounce", "price", "mute",
)  # fmt: skip


def drill_of(seed: int) -> Plan:
    """A short world in which each rule is tempted: what a guard without it would do wrong soon."""
    dice = random.Random(seed)  # noqa: S311 - worlds are drawn, not secret
    guards = ("", "", "", "unarmed", "label", "label", "controller", "wish")
    boxes = [
        _box(dice, n, (Does(0, "quiet"),), guard=guard, cloud=dice.choice(("aws", "runpod"))) for n, guard in enumerate(guards)
    ]
    boxes += [_box(dice, n, (Does(0, "quiet"),), guard="", cloud="runpod") for n in (10, 11, 12)]
    boxes += [_box(dice, 8, (Does(0, "busy"), Does(4, "silent")), guard="", cloud="runpod")]
    boxes += [_box(dice, 9, (Does(0, "quiet"),), guard="", cloud="runpod", few=True)]
    leased = dice.randint(0, 2)
    events = (Happens(2, "lease", f"b{leased}", 60), Happens(3, "unlabel", "b4"), Happens(8, "crash"))
    return Plan(
        seed=seed,
        kind=DRILL,
        minutes=34,
        boxes=tuple(boxes),
        events=events,
        rails={"acts_per_10m": 3, "fleet_share_10m": 0.34, "fleet_share_day": 0.7, "breaker_least": 50},
        meddles={5: dice.choice(MEDDLING), dice.choice((1, 2)): "restart"},
    )


def crashing(plan: Plan, commits: int) -> Iterator[Plan]:
    """`plan` once for each of its commits, with the watchdog ended right after it; and before and after its first request."""
    for how in ("before", "after", *(f"commit {number}" for number in range(1, commits + 1))):
        yield replace(plan, events=tuple(sorted((*plan.events, Happens(0, "dies", how=how)))))


def plan_of(seed: int, kind: str = "") -> Plan:
    """The world of `seed`. Those of some kinds have seeds of their own."""
    if kind in APART:
        return APART[kind](seed)
    dice = random.Random(seed)  # noqa: S311 - worlds are drawn, not secret
    kind = kind or dice.choice(KINDS)
    minutes = dice.choice((60, 70, 80, 80, 120)) if kind != TURNED else dice.choice((50, 60))
    boxes = {CALM: _calm, STORM: _stormy, CAP: _burning, TURNED: _turned}[kind](dice, minutes)
    share = dice.choice((0.1, 0.2, 0.34, 0.5))
    rails = {
        "acts_per_10m": dice.choice((1, 2, 3, 4)),
        "fleet_share_10m": share,
        "fleet_share_day": max(share, dice.choice((0.2, 0.6))),
    }
    rails["breaker_least"] = dice.choice((5, 50)) if kind in {STORM, CAP} else 5
    if kind == CAP:
        rails |= {"acts_per_run": 5, "acts_per_10m": 5, "fleet_share_10m": 1.0, "fleet_share_day": 1.0}
    events = tuple(sorted(_events(dice, boxes, minutes))) if kind == STORM else ()
    meddles = {dice.randint(1, 12): dice.choice(MEDDLING) for _ in range(dice.choice((0, 1, 3)))} if kind == STORM else {}
    plan = Plan(
        seed=seed,
        kind=kind,
        minutes=minutes,
        boxes=boxes,
        events=events,
        rails=rails,
        meddles=meddles,
        twin=kind == STORM and dice.random() < 0.35,
        cap_hours=dice.uniform(0.4, 1.2) if kind == CAP else 0.0,
        start=dice.choice((AFTERNOON, AFTERNOON, MONTHS_END)) if kind == STORM else AFTERNOON,
    )
    return _fail_looks(staged(plan, dice)) if kind == STORM else plan


def _fail_looks(plan: Plan) -> Plan:
    """In half of the worlds one look of the first eight fails, or comes late; drawn apart, so that the rest stays as it was."""
    dice = random.Random(f"{plan.seed}/looks")  # noqa: S311 - worlds are drawn, not secret
    look, what = dice.randint(1, 8), dice.choice(("fails", "fails", "slower"))
    return plan if dice.random() < 0.5 else replace(plan, meddles={look: what, **plan.meddles})


def _box(dice: random.Random, number: int, does: tuple[Does, ...], **stated: Any) -> Box:  # noqa: ANN401 - any field
    cloud = dice.choice(("aws", "aws", "runpod", "runpod", "lambda")) if "cloud" not in stated else stated.pop("cloud")
    guard = stated.pop("guard", None)
    if guard is None:
        guards = ("controller", "handling", "unstoppable", "unarmed", "label", "wish", "slip", "loses")
        guard = dice.choice(guards) if dice.random() < 0.25 else ""
    return Box(name=f"b{number}", cloud=cloud, rate=dice.choice(("2.99", "11.96", "32.77")), does=does, guard=guard, **stated)


def _calm(dice: random.Random, minutes: int) -> tuple[Box, ...]:
    """So few turn idle at once that nothing but the rails may hold an act."""
    count, boxes, turn = dice.randint(5, 12), [], 16
    for number in range(count):
        idles = dice.random() < 0.7 and turn < minutes - 25
        does = (Does(0, dice.choice(("busy", "busy", "io", "cpu"))), *((Does(turn, "quiet"),) if idles else ()))
        turn += dice.randint(4, 9) if idles else 0
        boxes.append(_box(dice, number, does))
    return tuple(boxes)


def _stormy(dice: random.Random, minutes: int) -> tuple[Box, ...]:
    boxes = []
    for number in range(dice.choice((5, 6, 8, 8, 10, 12, 25))):
        turns = sorted(dice.sample(range(5, minutes - 15), dice.choice((0, 1, 1, 1, 2, 4))))
        lazy = dice.random() < 0.6
        what = ("quiet", "quiet", "quiet", "quiet", "busy", "silent") if lazy else ACTIVITIES
        first = dice.choice(("busy", "busy", "busy", "io", "cpu", "quiet", "quiet"))
        does = (Does(0, first), *(Does(at, dice.choice(what)) for at in turns))
        late = dice.random() < 0.15
        few, age = dice.random() < 0.1, dice.choice((10, 60, 24 * 60))
        boxes.append(_box(dice, number, does, few=few, age_min=0 if late else age, at=dice.randint(5, 60) if late else 0))
    return tuple(boxes)


def _turned(dice: random.Random, minutes: int) -> tuple[Box, ...]:
    """All turn idle at one moment, or fall silent."""
    at, what = dice.randint(20, minutes // 2), dice.choice(("quiet", "quiet", "silent"))
    return tuple(_box(dice, n, (Does(0, "busy"), Does(at, what)), guard="") for n in range(dice.randint(6, 14)))


def _burning(dice: random.Random, minutes: int) -> tuple[Box, ...]:
    count = dice.randint(2, 8)
    return tuple(
        _box(
            dice,
            n,
            (Does(0, dice.choice(("busy", "busy", "quiet", "silent"))),),
            guard="",
            cloud="aws",
            age_min=dice.randint(20, minutes),
        )
        for n in range(count)
    )


def _events(dice: random.Random, boxes: tuple[Box, ...], minutes: int) -> Iterator[Happens]:
    """Each world first draws which kinds of trouble it has, and how hard."""
    often = dice.choice((0.08, 0.15, 0.35))
    on = {what for what in EVENTS if dice.random() < often}
    for what in sorted(on):
        for _ in range(dice.choice((1, 1, 2, 4))):
            name, how = dice.choice(boxes).name, ""
            if what == "answers":
                how = dice.choice(ANSWERS)
            elif what in LISTING:
                name, how = dice.choice(("aws", "runpod", "lambda")), dice.choice(boxes).name
            elif what == "jumps":
                how = str(dice.choice((3, 20, 90, 600, -3, -20, -300)))
            elif what == "dies":
                how = dice.choice(DEATHS)
                how = f"commit {dice.randint(1, 12)}" if how == "commit" else how
            elif what == "price":
                how = dice.choice(("1.99", "2.99", "12.29", "1.99 unsaid", "34.10 unsaid"))
            at = dice.randint(3, minutes - 2) if what != "answers" else dice.randint(0, minutes // 2)
            lasts = (1, 2, 5, 25, 60) if what.endswith("sleeps") else (1, 2, 5, 10, 25)
            yield Happens(at, what, name, dice.choice(lasts), how)
