"""The contract of values: what is missing, odd or hostile in a listing is unknown or said, and never invented."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from costguard.metering.inventory import Complete, Failed
from costguard.metering.observation import Observation
from tests.contract import edits
from tests.contract.case import Case, ids, instances, is_complete, said

FIELDS = ("price", "status", "gpu", "gpu_count", "name", "started", "owner")
AT = datetime(2026, 11, 21, 9, 30, 15, tzinfo=UTC)
EPOCH = int(AT.timestamp())
FORMS = {
    "Z": "2026-11-21T09:30:15Z",
    "offset 0": "2026-11-21T09:30:15+00:00",
    "offset east": "2026-11-21T11:30:15+02:00",
    "offset west": "2026-11-21T01:30:15-08:00",
    "offset of a half": "2026-11-21T15:00:15+05:30",
    "millis": "2026-11-21T09:30:15.000Z",
    "micros": "2026-11-21T09:30:15.000000+00:00",
    "nanos": "2026-11-21T09:30:15.000000000Z",
    "blank for T": "2026-11-21 09:30:15+00:00",
    "no zone": "2026-11-21T09:30:15",
    "lower case": "2026-11-21t09:30:15z",
    "epoch": EPOCH,
    "epoch float": EPOCH + 0.0,
    "epoch ms": EPOCH * 1000,
    "epoch text": str(EPOCH),
    "epoch ms text": str(EPOCH * 1000),
    "GMT": "Sat, 21 Nov 2026 09:30:15 GMT",
    "Go's": "2026-11-21 09:30:15 +0000 UTC",
}
NO_TIMES: tuple[Any, ...] = (
    "",
    "yesterday",
    "2026-13-45T99:99:99Z",
    "0000-00-00T00:00:00Z",
    "9" * 400,
    "-1",
    "NaN",
    -1,
    1e300,
    True,
    [],
    {},
)
NO_PRICES: tuple[Any, ...] = (
    0,
    -1,
    "0",
    "-2.5",
    "NaN",
    "Infinity",
    1e9,
    "1e9",
    10**400,
    "9" * 5000,
    "1e999999999",
    "",
    "free",
    None,
    ...,
    True,
)
ODD_NAMES = {
    "quotes": "a'b\"c`d",
    "newline": "a\r\nb\tc",
    "NUL": "a\0b",
    "escape": "a\x1b[31mb",
    "right to left": "a\u202eb\u2066c",
    "emoji": "\U0001f4b8" * 10,
    "long": "x" * 10_000,
    "path": "../../etc/passwd",
    "half a pair": "a\ud800b",
    "markup": "<b>&amp;</b>]]>",
    "SQL": "'; DROP TABLE span; --",
    "blank": " ",
    "empty": "",
    "format": "{0.__class__} %s %n",
}


def _rate(seen: Observation) -> int | None:
    rate = seen.prices[-1].rate if seen.prices else None
    return rate.nano_per_hour if rate else None


def _pair(case: Case) -> tuple[str, str, Observation]:
    """Two machines; the ids of both, and the first as it is seen when all is well."""
    one, two = case.rig.put(2)
    seen = {item.key.id: item for item in instances(case.poll())}
    return one, two, seen[one]


def _spoilt(case: Case, id_: str, other: str) -> Observation | None:
    """What is seen of the spoilt machine; the other one must be there, and neither lost in silence."""
    poll = case.poll()
    assert not isinstance(poll.inventory, Failed), poll.inventory
    assert other in ids(poll), "one bad machine sank the listing"
    assert id_ in ids(poll) or not is_complete(poll), "a machine is missing from a listing that claims to be whole"
    return next((item for item in instances(poll) if item.key.id == id_), None)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", [None, ..., "", -1, 10**30, 1.5, True, [], {}, [None], {"a": 1}, "x" * 5000], ids=str)
def test_a_field_that_is_null_missing_or_of_another_shape_sinks_nothing(case: Case, field: str, value: Any) -> None:  # noqa: ANN401
    one, two, _ = _pair(case)
    case.rig.spoil(one, **{field: value})
    seen = _spoilt(case, one, two)
    assert seen is None or seen.state != "ended"


@pytest.mark.sampled(3)
def test_every_field_null_or_left_out_one_by_one_invents_nothing(case: Case) -> None:
    one, two, right = _pair(case)
    first = edits.Kept()
    case.rig.fake.fault(case.rig.lists, "edit", edit=first, times=1)
    case.poll()
    for name, edit in edits.changes(first.answers[0])[:400]:
        case.rig.fake.faults.clear()
        case.rig.fake.fault(case.rig.lists, "edit", edit=edit)
        poll = case.poll()
        assert not is_complete(poll) or ids(poll) >= {one, two}, f"{name}: a machine is lost in silence"
        for seen in instances(poll):
            assert seen.state not in ("ended", "stopped", "suspended"), f"{name}: {seen.state}"
            assert _rate(seen) in (None, _rate(right)), f"{name}: invented the price {_rate(seen)}"


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "word", ["QUANTUM", "Running?", "", " ", "null", "0", "stopped!", "ended;", "x" * 3000, "\u202egnippots"]
)
def test_a_state_that_nobody_knows_is_unknown_with_its_word(case: Case, word: str) -> None:
    one, two, _ = _pair(case)
    case.rig.spoil(one, status=word)
    seen = _spoilt(case, one, two)
    assert seen is not None
    assert seen.state == "unknown", seen
    assert not word.strip() or word[:20].strip() in seen.why, seen.why


@pytest.mark.parametrize("word", [None, ...], ids=["null", "left out"])
def test_a_state_that_is_not_said_is_unknown(case: Case, word: Any) -> None:  # noqa: ANN401
    one, two, _ = _pair(case)
    case.rig.spoil(one, status=word)
    seen = _spoilt(case, one, two)
    assert seen is None or seen.state == "unknown", seen


@pytest.mark.sampled(6)
@pytest.mark.parametrize("price", NO_PRICES, ids=lambda price: str(price)[:20])
def test_a_price_out_of_bounds_is_unknown_and_said(case: Case, price: Any) -> None:  # noqa: ANN401
    one, two, right = _pair(case)
    case.rig.spoil(one, price=7.5)
    changed = _spoilt(case, one, two)
    assert changed is not None
    if _rate(changed) == _rate(right):
        pytest.skip(f"a listing of {case.rig.provider} states no price")
    assert _rate(changed) == 7_500_000_000
    case.rig.spoil(one, price=price)
    poll = case.poll()
    seen = {item.key.id: item for item in instances(poll)}
    assert two in seen
    assert one in seen, poll.inventory
    assert _rate(seen[one]) is None
    assert said(poll).strip(), "nobody is told"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_time_is_that_time_or_unknown(case: Case, form: str) -> None:
    one, two, right = _pair(case)
    case.rig.spoil(one, started=FORMS[form])
    seen = _spoilt(case, one, two)
    assert seen is not None
    for before, now in ((right.created_at, seen.created_at), (right.started_at, seen.started_at)):
        assert now in (before, AT, None), now
    if form in ("Z", "offset 0", "offset east", "millis", "micros") and seen != right:
        assert AT in (seen.created_at, seen.started_at), "RFC 3339 is not understood"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("value", NO_TIMES, ids=lambda value: str(value)[:20])
def test_what_is_no_time_is_no_time(case: Case, value: Any) -> None:  # noqa: ANN401
    one, two, right = _pair(case)
    case.rig.spoil(one, started=value)
    seen = _spoilt(case, one, two)
    if seen is None:
        return
    for before, now in ((right.created_at, seen.created_at), (right.started_at, seen.started_at)):
        assert now in (before, None) or now.year < 1980, now


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", ODD_NAMES)
@pytest.mark.parametrize("field", ["name", "owner", "gpu"])
def test_odd_characters_are_kept_or_said(case: Case, name: str, field: str) -> None:
    one, two, _ = _pair(case)
    case.rig.spoil(one, **{field: ODD_NAMES[name]})
    poll = case.poll()
    assert {one, two} <= ids(poll) or (not is_complete(poll) and said(poll).strip())


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", [name for name in ODD_NAMES if name != "empty"])
def test_an_odd_id_is_kept_or_said(case: Case, name: str) -> None:
    one, two, _ = _pair(case)
    case.rig.fake.fault(case.rig.lists, "edit", edit=edits.with_id(one, ODD_NAMES[name]))
    poll = case.poll()
    assert name == "half a pair" or two in ids(poll) or isinstance(poll.inventory, Failed), poll.inventory
    assert len(ids(poll)) == 2 or (not is_complete(poll) and said(poll).strip()), poll.inventory


@pytest.mark.sampled(6)
@pytest.mark.parametrize("count", [0, 3, 1000, 1001, 10**12, -3])
def test_a_count_of_gpus_is_right_or_not_claimed(case: Case, count: int) -> None:
    one, two, right = _pair(case)
    case.rig.spoil(one, gpu_count=count)
    seen = _spoilt(case, one, two)
    assert seen is None or seen.gpu_count in (0, count, right.gpu_count)


def test_a_gpu_that_nobody_knows_is_named_as_the_cloud_names_it(case: Case) -> None:
    one, two, right = _pair(case)
    case.rig.spoil(one, gpu="Zebra Z9000")
    seen = _spoilt(case, one, two)
    assert seen is not None
    assert seen.gpu == right.gpu or "zebra" in seen.gpu.lower()
    assert isinstance(case.poll().inventory, Complete)
