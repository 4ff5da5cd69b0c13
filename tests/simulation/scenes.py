"""Scenes: rare moments that a storm is given on purpose, since a campaign must have met each of them often enough.

Dice alone hardly ever let a watchdog end between a call and its outcome: there must be an idle machine, due, with the rails
free, and a crash in that minute. A scene puts in what its moment needs; whether it came about is counted off the clouds' log
(`sometimes`), not here.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from tests.simulation.plans import MONTHS_END, Box, Does, Happens, Plan

DUE = 16
"""The minute at which a machine that idles from the beginning may be stopped, at the earliest."""


def staged(plan: Plan, dice: random.Random) -> Plan:
    """`plan` with none, one or two scenes."""
    for scene in dice.sample(SCENES, dice.choice((0, 1, 1, 2))):
        plan = scene(plan, dice)
    return replace(plan, events=tuple(sorted(plan.events)))


def _ends_after_a_call(plan: Plan, dice: random.Random) -> Plan:
    return _with(_idle(plan, 1), Happens(dice.randint(2, DUE), "dies", how="after"))


def _ends_before_a_message_is_settled(plan: Plan, dice: random.Random) -> Plan:
    return _with(_idle(plan, 1), Happens(dice.randint(0, 2), "dies", how="told"))


def _ends_after_a_commit(plan: Plan, dice: random.Random) -> Plan:
    return _with(_idle(plan, 1), Happens(dice.randint(0, DUE), "dies", how=f"commit {dice.randint(1, 9)}"))


def _answer_is_lost(plan: Plan, _: random.Random) -> Plan:
    return _with(_idle(plan, 1), Happens(0, "answers", "s0", 10, "lost"))


def _runs_again_between_two_looks(plan: Plan, dice: random.Random) -> Plan:
    return _with(_box(plan, "s0", "busy"), Happens(dice.randint(3, plan.minutes - 3), "bounce", "s0"))


def _month_ends_unseen(plan: Plan, dice: random.Random) -> Plan:
    begins = dice.randint(24, 28)
    return _with(replace(_box(plan, "s0", "busy"), start=MONTHS_END), Happens(begins, "down", "runpod", 35 - begins))


def _price_changes_unseen(plan: Plan, dice: random.Random) -> Plan:
    at = dice.randint(4, plan.minutes - 12)
    events = Happens(at, "down", "runpod", 6), Happens(at + 2, "price", "s0", how=dice.choice(("1.99", "12.29")))
    return _with(_box(plan, "s0", "busy"), *events)


def _kept_after_the_verdict(plan: Plan, dice: random.Random) -> Plan:
    return replace(_idle(plan, 2), meddles={dice.randint(1, 2): dice.choice(("label", "lease", "freeze", "protect"))})


def _paused_in_a_deed(plan: Plan, dice: random.Random) -> Plan:
    return replace(_idle(plan, 2), meddles={dice.randint(1, 2): "paused"}, twin=True)


def _rails_hold(plan: Plan, _: random.Random) -> Plan:
    return replace(_idle(plan, 3), rails={**plan.rails, "acts_per_10m": 1, "breaker_least": 50})


def _label_is_missing_once(plan: Plan, dice: random.Random) -> Plan:
    at = dice.randint(3, plan.minutes - 3)
    return _with(_box(plan, "s0", "quiet", guard="label"), Happens(at, "forgets", "runpod", 1, "s0"))


def _sleeps_for_an_hour(plan: Plan, dice: random.Random) -> Plan:
    begins = dice.randint(2, 30)
    return _with(replace(plan, minutes=max(plan.minutes, begins + 75), twin=False), Happens(begins, "sleeps", minutes=61))


SCENES: tuple[Callable[[Plan, random.Random], Plan], ...] = (
    _ends_after_a_call,
    _ends_before_a_message_is_settled,
    _ends_after_a_commit,
    _answer_is_lost,
    _runs_again_between_two_looks,
    _month_ends_unseen,
    _price_changes_unseen,
    _kept_after_the_verdict,
    _paused_in_a_deed,
    _rails_hold,
    _label_is_missing_once,
    _sleeps_for_an_hour,
)


def _with(plan: Plan, *events: Happens) -> Plan:
    return replace(plan, events=(*plan.events, *events))


def _box(plan: Plan, name: str, does: str, guard: str = "") -> Plan:
    """One machine more on RunPod, whose measures come with its listing; it takes the place of one of that name."""
    others = tuple(box for box in plan.boxes if box.name != name)
    return replace(plan, boxes=(*others, Box(name, "runpod", "2.99", (Does(0, does),), guard)))


def _idle(plan: Plan, count: int) -> Plan:
    """`count` machines that idle from the beginning, with nothing that keeps them or their acts."""
    for number in range(count):
        plan = _box(plan, f"s{number}", "quiet")
    return plan
