"""What the quick suite leaves to `make campaigns`: marked tests, cases beyond a sample, hypothesis examples beyond a few.

`make test` runs what is not marked `proof`. `make campaigns` runs what is, and each test of hypothesis once more with all its
examples. `pytest` without `-m` runs all tests. A campaign is marked `@pytest.mark.proof`. Of a test of many cases,
`@pytest.mark.sampled(3)` leaves one case of three to the quick suite: those whose places in their lists of parameters add up
to a multiple of 3 (and `first`). Of adapters times cases, each adapter and each case is so tried, but not each with each.

COSTGUARD_PART=1/3 (2/3, 3/3) leaves of a campaign the tests whose names fall to this part. CI plays the part that the commit's
hash chooses: the same each time for one commit, all of them within a few commits.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

FULL = os.environ.get("COSTGUARD_EXAMPLES") == "full"
PART = os.environ.get("COSTGUARD_PART", "")
SHARE, EXAMPLES_MIN = 5, 4


def mark_campaigns(items: Iterable[pytest.Item]) -> None:
    """Mark each case `proof` that its test's `sampled(every, first=0)` leaves out of the quick suite.

    Which cases these are depends on nothing but the test itself: it is the same on each worker, and for one case run alone.
    """
    for item in items:
        for mark in item.iter_markers("sampled"):
            if not is_in_sample(case_places(item), *mark.args, **mark.kwargs):
                item.add_marker(pytest.mark.proof)


def is_in_part(name: str, part: str) -> bool:
    """Whether the test `name` falls to `part`, `2/3`: by a sum of its name, so that it stays where it is when others come."""
    number, _, parts = part.partition("/")
    return zlib.crc32(name.encode()) % int(parts) + 1 == int(number)


def is_in_sample(places: Iterable[int], every: int, first: int = 0) -> bool:
    """Whether the case at these places of its lists of parameters is one of every `every`."""
    return sum(places) % every == first


def case_places(item: pytest.Item) -> list[int]:
    """At which place of each list of parameters the case stands; none for a test without parameters.

    Names that one `parametrize` gives values to together stand at one place. pytest's own index is right for fixtures alone:
    that of a `parametrize` counts all cases of the test.
    """
    call = getattr(item, "callspec", None)
    if call is None:
        return []
    lists = [(_names(mark.args[0]), list(mark.args[1])) for mark in item.iter_markers("parametrize")]
    given = {name for names, _ in lists for name in names}
    places = [_place([call.params[name] for name in names], cases) for names, cases in lists]
    return places + [place for name, place in call.indices.items() if name not in given]


def _names(names: str | Sequence[str]) -> list[str]:
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)


def _place(values: Sequence[object], cases: Sequence[Any]) -> int:
    """Where `values` stand in a list of `parametrize`; 0 where they cannot be told from others."""
    for place, case in enumerate(cases):
        one = case.values if hasattr(case, "marks") else case if len(values) > 1 else (case,)
        if all(a is b or (type(a) is type(b) and a == b) for a, b in zip(values, one, strict=True)):
            return place
    return 0


def examples(full: int) -> int:
    """How many examples hypothesis tries: `full` where COSTGUARD_EXAMPLES=full, else a fifth of them."""
    return full if FULL else max(EXAMPLES_MIN, full // SHARE)
