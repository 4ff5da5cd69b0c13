"""Real shapes with something wrong in them, for hypothesis. COSTGUARD_FUZZ sets how many; 200 unless told otherwise."""

from __future__ import annotations

import copy
import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.campaign import examples

FUZZ = settings(
    max_examples=int(os.environ.get("COSTGUARD_FUZZ") or examples(200)),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)

ODD: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(
        ["0", "-1", "NaN", "Infinity", "1e999", "0.0000000001", "2026-13-01T00:00:00Z", "9" * 400, "\x00", "OnDemand"]
    ),
    st.lists(st.none(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def mutated(data: st.DataObject, value: Any, most: int = 3) -> Any:  # noqa: ANN401 - any shape
    """`value` with up to `most` of its places overwritten, doubled or left out."""
    made = copy.deepcopy(value)
    for _ in range(data.draw(st.integers(0, most))):
        places = list(_places(made))
        if not places:
            break
        where, key = data.draw(st.sampled_from(places))
        if data.draw(st.booleans()):
            where[key] = data.draw(ODD)
        elif isinstance(where, dict):
            del where[key]
        else:
            where.append(where[key])
    return made


def _places(value: Any) -> Any:  # noqa: ANN401 - any shape
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])
