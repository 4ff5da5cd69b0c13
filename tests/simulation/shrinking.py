"""A plan that fails made small: without the parts that do not matter, then with smaller numbers (delta debugging, Zeller 2002).

A part is a machine, an event, something that meddles, or a turn of what a machine does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tests.simulation.plans import Box, Does, Happens, Plan

Part = tuple[str, int]
Fails = Callable[[Plan], bool]


def shrunk(plan: Plan, fails: Fails, *, most: int = 400) -> Plan:
    """The smallest plan found that still `fails`, as `plan` does, within `most` worlds."""
    tries = [most]

    def still(tried: Plan) -> bool:
        tries[0] -= 1
        return tries[0] >= 0 and fails(tried)

    parts = _ddmin(_parts(plan), lambda kept: still(_with(plan, kept)))
    small = _with(plan, parts)
    for simpler in _simpler:
        changed = True
        while changed and tries[0] > 0:
            found = next((one for one in simpler(small) if one != small and still(one)), None)
            changed, small = found is not None, found or small
    return small


def size(plan: Plan) -> int:
    """Its events, and what meddles."""
    return len(plan.events) + len(plan.meddles)


def _parts(plan: Plan) -> list[Part]:
    """What may be left out; a machine needs what it does first."""
    parts = [("event", number) for number in range(len(plan.events))]
    parts += [("meddle", look) for look in plan.meddles]
    parts += [("box", number) for number in range(len(plan.boxes))]
    return [*parts, ("twin", 0)] if plan.twin else parts


def _with(plan: Plan, parts: Sequence[Part]) -> Plan:
    kept = set(parts)
    return replace(
        plan,
        boxes=tuple(one for number, one in enumerate(plan.boxes) if ("box", number) in kept),
        events=tuple(one for number, one in enumerate(plan.events) if ("event", number) in kept),
        meddles={look: what for look, what in plan.meddles.items() if ("meddle", look) in kept},
        twin=plan.twin and ("twin", 0) in kept,
    )


def _ddmin(parts: list[Part], fails: Callable[[list[Part]], bool]) -> list[Part]:
    """No part of what is left can be left out by itself."""
    grains = 2
    while len(parts) >= 2:
        length = -(-len(parts) // grains)
        pieces = [parts[at : at + length] for at in range(0, len(parts), length)]
        without = [[one for one in parts if one not in piece] for piece in pieces]
        found = next((rest for rest in without if rest and fails(rest)), None)
        if found is not None:
            parts, grains = found, max(grains - 1, 2)
        elif grains >= len(parts):
            break
        else:
            grains = min(2 * grains, len(parts))
    return parts


def _shorter(plan: Plan) -> Iterator[Plan]:
    """A world that ends sooner."""
    for minutes in (plan.minutes // 2, plan.minutes * 3 // 4, plan.minutes - 5, plan.minutes - 1):
        if 1 <= minutes < plan.minutes:
            yield replace(plan, minutes=minutes, events=tuple(one for one in plan.events if one.at <= minutes))


def _plainer(plan: Plan) -> Iterator[Plan]:
    """A machine with one turn less, or with nothing of its own; an event that takes a minute."""
    for number, box in enumerate(plan.boxes):
        for turn in range(1, len(box.does)):
            yield _boxed(plan, number, replace(box, does=(*box.does[:turn], *box.does[turn + 1 :])))
        for changed in (
            {"guard": ""},
            {"few": False},
            {"age_min": Box.__dataclass_fields__["age_min"].default},
            {"rate": "2.99"},
        ):
            yield _boxed(plan, number, replace(box, **changed))
    for number, event in enumerate(plan.events):
        yield _timed(plan, number, event._replace(minutes=min(event.minutes, 1)))


def _earlier(plan: Plan) -> Iterator[Plan]:
    """Something happens at half its time, or takes half as long."""
    for number, event in enumerate(plan.events):
        yield _timed(plan, number, event._replace(at=event.at // 2))
        yield _timed(plan, number, event._replace(minutes=event.minutes // 2))
    for number, box in enumerate(plan.boxes):
        for turn in range(1, len(box.does)):
            does = (*box.does[:turn], Does(box.does[turn].at // 2, box.does[turn].what), *box.does[turn + 1 :])
            yield _boxed(plan, number, replace(box, does=does))


_simpler = (_shorter, _plainer, _earlier, _shorter)


def _boxed(plan: Plan, number: int, box: Box) -> Plan:
    return replace(plan, boxes=(*plan.boxes[:number], box, *plan.boxes[number + 1 :]))


def _timed(plan: Plan, number: int, event: Happens) -> Plan:
    return replace(plan, events=tuple(sorted((*plan.events[:number], event, *plan.events[number + 1 :]))))
