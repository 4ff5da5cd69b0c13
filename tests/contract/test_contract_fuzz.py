"""Answers with anything changed in them: no adapter breaks, loses a machine in silence, or states a figure of its own.

COSTGUARD_FUZZ sets how many answers each adapter is tried with.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from itertools import product
from math import ceil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costguard.errors import InputError, ProviderError
from costguard.metering.observation import Observation
from costguard.providers.ports import BalanceSource, ChargeSource, LiveOfferSource
from costguard.providers.transport import Transport
from costguard.values.calendar import Period
from costguard.values.instant import parse_instant
from costguard.values.resource import INSTANCE
from tests.campaign import examples
from tests.contract import edits
from tests.contract.case import Case, is_complete, items
from tests.fakes.server import Answer, serving

TRIES, TRIES_QUICK = (int(os.environ.get("COSTGUARD_FUZZ") or examples(count)) for count in (50, 300))
"""Of clouds whose answers take long to read, and of the others."""
GIB, NANO = 2**30, 10**9
CLOSE = Fraction(2, NANO)
NO_YEAR = 1980
"""Before it, a time is what somebody made of a number that is none."""
LISTED_ALONE = ("aws", "gcp")
"""Clouds of which the listing alone is changed: their price lists take long to ask for, and have tests of their own."""
WORDS = ("RUNNING", "TERMINATED", "stopped", "active", "unknown", "NaN", "-1", "1e999", "0", "9" * 400, "\0", "\u202e", "H100")
TIMES = ("2026-11-21T09:30:15+05:30", "9999-12-31T23:59:59Z", "2026-13-01T00:00:00Z", 1_795_253_415, 1_795_253_415_000.5)
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.integers(0, 1001),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from((*WORDS, *TIMES, "a\ud800b", [], {}, [None])),
)
CHANGES = st.lists(
    st.tuples(st.integers(0, 10**6), st.sampled_from(("put", "put", "left out", "doubled")), ODD), min_size=1, max_size=4
)
"""Of each: which of the places of the answer, what is done to it, and what is put there."""
Changes = Sequence[tuple[int, str, Any]]


class Spoiler:
    """Changes every answer in the same way, and keeps what was answered."""

    def __init__(self, changes: Changes) -> None:
        self.changes = changes
        self.right, self.sent = list[Any](), list[tuple[edits.Path, Any]]()
        """Everything that was to be answered, and what was, each with its path; an element of XML has none."""

    def __call__(self, right: Answer) -> Answer:
        value = edits.parsed(right)
        answer = spoil_xml(right, self.changes) if value is None else edits.with_body(right, spoil_json(value, self.changes))
        self.right += [inner for _, inner in self._list_scalars(right)]
        self.sent += self._list_scalars(answer)
        return answer

    @staticmethod
    def _list_scalars(answer: Answer) -> list[tuple[edits.Path, Any]]:
        if answer.body.startswith(b"<"):
            return [((), element.text) for element in ET.fromstring(answer.body).iter()]  # noqa: S314 - our own fake's
        return list(scalars(edits.parsed(answer)))

    @property
    def stated(self) -> list[Any]:
        """All that stands in an answer, changed or not."""
        return [*self.right, *(one for _, one in self.sent)]


def spoil_json(value: Any, changes: Changes) -> Any:  # noqa: ANN401 - any JSON
    """`value` with each change made at one of its places."""
    for at, how, new in changes:
        every = list(edits.paths(value))
        if not every:
            return new
        path = every[at % len(every)]
        if how == "doubled":
            value = edits.put(value, path, [_at(value, path)] * 2)
        else:
            value = edits.put(value, path, new if how == "put" else ...)
    return value


def spoil_xml(right: Answer, changes: Changes) -> Answer:
    """The answer with each change made at one of its elements; what is no XML comes as it is."""
    if not right.body.startswith(b"<"):
        return right
    root = ET.fromstring(right.body)  # noqa: S314 - our own fake's
    if root.tag.startswith("{"):
        ET.register_namespace("", root.tag.partition("}")[0][1:])
    for at, how, new in changes:
        pairs = [(parent, child) for parent in root.iter() for child in parent]
        if not pairs:
            break
        parent, child = pairs[at % len(pairs)]
        if how == "put":
            child.text = "".join(letter for letter in str(new) if letter.isprintable() and not "\ud800" <= letter <= "\udfff")
        elif how == "doubled":
            parent.append(child)
        else:
            parent.remove(child)
    return replace(right, body=ET.tostring(root))


def scalars(value: Any) -> Iterator[tuple[edits.Path, Any]]:  # noqa: ANN401 - any JSON
    """All that is no container, with its path; also within JSON that stands in a text, as AWS's price list does."""
    for path in edits.paths(value):
        inner = _at(value, path)
        if not isinstance(inner, dict | list):
            yield path, inner
        if isinstance(inner, str) and inner.startswith("{"):
            yield from scalars(json.loads(inner))


def _at(value: Any, path: edits.Path) -> Any:  # noqa: ANN401 - any JSON
    for key in path:
        value = value[key]
    return value


def numbers(found: Sequence[Any]) -> set[Fraction]:
    """Every number among them, those written as text too."""
    stated = set[Fraction]()
    for one in found:
        try:
            number = Decimal(str(one)) if not isinstance(one, bool) else Decimal("NaN")
        except InvalidOperation:
            continue
        if number.is_finite() and abs(number.adjusted()) < 30:
            stated.add(Fraction(number))
    return stated


def is_stated(rate: Fraction, spoiler: Spoiler) -> bool:
    """Whether dollars an hour were answered: as they are, in cents, for several GPUs, or as a total less its disk."""
    of_disks = [one for path, one in spoiler.sent if any("disk" in str(key) or "stor" in str(key) for key in path)]
    stated, sizes = numbers(spoiler.stated), numbers(of_disks)
    disks = {*sizes, *(a * b / 720 for a, b in product(sizes, repeat=2))}
    held = {*stated, *(one / 100 for one in stated), *(one * n for one in stated for n in range(2, 17))}
    return any(abs(one - rate) <= CLOSE for one in held) or any(abs(one - d - rate) <= CLOSE for one in stated for d in disks)


def list_invented(seen: Observation, right: Sequence[Observation], spoiler: Spoiler) -> Iterator[str]:
    """Figures that neither the changed answers nor the right ones hold."""
    stated = numbers(spoiler.stated)
    times: set[datetime | None] = {None, *(parse_instant(one) for one in spoiler.stated)}
    times |= {at for one in right for at in (one.created_at, one.started_at, one.stopped_at)}
    rates = {price.rate for one in right for price in one.prices}
    for price in seen.prices:
        if price.rate not in rates and price.rate and not is_stated(Fraction(price.rate.nano_per_hour, NANO), spoiler):
            yield f"the price {price.rate}"
    if seen.gpu_count not in {0, 1, *(one.gpu_count for one in right)} and Fraction(seen.gpu_count) not in stated:
        yield f"{seen.gpu_count} GPUs"
    sizes = {size for one in stated for size in (ceil(one), int(one), ceil(one / GIB))} | {d.gb for o in right for d in o.disks}
    yield from (f"a disk of {disk.gb} GB" for disk in seen.disks if disk.gb is not None and disk.gb not in sizes)
    dated = [at for at in (seen.created_at, seen.started_at, seen.stopped_at) if at and at.year > NO_YEAR]
    yield from (f"the time {at}" for at in dated if at not in times)


def ask_the_rest(source: Any, spoiler: Spoiler, period: Period) -> None:  # noqa: ANN401 - an account with any further ports
    """Offers, balance and bill, as far as it has them."""
    if isinstance(source, LiveOfferSource):
        assert all(offer.rate is None or offer.rate.nano_per_hour > 0 for offer in source.list_live_offers(None).offers)
    if isinstance(source, BalanceSource):
        amount = source.fetch_balance().amount
        assert amount is None or Fraction(amount.nano, NANO) in numbers(spoiler.stated)
    if isinstance(source, ChargeSource):
        assert all(line.start < line.end for line in source.fetch_bill_lines(period).lines)


def test_no_answer_however_changed_breaks_an_adapter_or_makes_it_invent_a_figure(case: Case, tmp_path: Path) -> None:
    rig, transport, alone = case.rig, Transport(), case.rig.provider in LISTED_ALONE
    rig.put(2)
    period = Period(start=rig.clock.now() - timedelta(days=1), end=rig.clock.now())

    @settings(max_examples=TRIES if alone else TRIES_QUICK, deadline=None, suppress_health_check=list(HealthCheck))
    @given(CHANGES)
    def play(changes: Changes) -> None:
        rig.fake.faults.clear()
        source: Any = case.source if alone else rig.accounts(base, transport, tmp_path, timeout_s=5)[0]
        scope, spoiler = source.list_scopes()[0], Spoiler(changes)
        rig.fake.fault(rig.lists if alone else ".", "edit", edit=spoiler)
        poll = case.poll(source, scope)
        assert [wrong for seen in items(poll) for wrong in list_invented(seen, right, spoiler)] == []
        sent = {str(one) for _, one in spoiler.sent}
        lost = {one.key.id for one in right if one.kind == INSTANCE and one.key.id in sent} - {
            one.key.id for one in items(poll)
        }
        assert not (lost and is_complete(poll)), f"lost in silence: {lost}"
        if not alone:
            with suppress(ProviderError, InputError):  # the settings name another account than the answer
                ask_the_rest(source, spoiler, period)

    with closing(transport), serving(rig.fake) as base:
        right = items(case.poll())
        play()
