"""Looking up one by one what a listing lacks, before its absence is believed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from costguard.metering.inventory import Failed, Partial, Poll
from costguard.metering.observation import Observation
from costguard.providers.ports import Inspector
from costguard.values.resource import ENDED, ResourceKey

LOOKUPS_MAX = 100
"""Single look-ups of one poll: with more missing at once, the listing is wrong or the account is, and a rate limit is near."""


def verify_absences(answer: Poll, missing: Iterable[ResourceKey], source: Inspector) -> Poll:
    """`answer` with what single look-ups say of the missing. One that is there after all makes the listing partial.

    One that answers that it has ended is no contradiction: the listing left it out because of that.
    """
    missing, gone, there = tuple(missing), set[ResourceKey](), list[Observation]()
    for key in missing[:LOOKUPS_MAX]:
        try:
            found = source.look_up(key)
        except Exception:  # noqa: BLE001, S112 - a plug-in may raise anything
            continue  # unknown stays unknown: it is neither gone nor there
        if found is None:
            gone.add(key)
        elif isinstance(found, Observation) and found.key == key:
            there.append(found)
    answer = replace(answer, gone=frozenset(gone), unanswered=frozenset(missing) - gone - {one.key for one in there})
    if not there or isinstance(answer.inventory, Failed):
        return answer
    items = (*answer.inventory.items, *there)
    alive = sum(one.state != ENDED for one in there)
    if not alive:
        return replace(answer, inventory=replace(answer.inventory, items=items))
    return replace(answer, inventory=Partial(items, f"the listing lacks {alive} that answer by themselves"))
