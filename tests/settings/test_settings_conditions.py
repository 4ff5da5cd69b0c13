"""Conditions: what they say of facts, that a missing fact makes them unknown and no more, and how slips in them are told."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costguard.errors import InputError
from costguard.guard.facts import FACTS
from costguard.guard.policy import ConditionResult
from costguard.settings.conditions import read_condition
from costguard.values.money import Money, Rate

WHERE = "costguard.toml: policy 1 (p).when"
IDLE = 'state == "idle" && confidence >= 0.9 && rate >= usd_per_hour(0.30)'
ALL: dict[str, object] = {
    "state": "idle",
    "confidence": 0.97,
    "time_in_state": timedelta(hours=1),
    "power": "running",
    "age": timedelta(days=3),
    "leased": False,
    "rate": Rate.parse("32.77"),
    "spent_run": Money.parse("12.50"),
    "spent_day": Money.parse("-1.25"),
    "provider": "aws",
    "name": "train-7",
    "gpu": "A100-80GB-SXM",
    "gpu_count": Fraction(1, 2),
    "owner": "",
    "labels": {"team": "vision", 'a"b': "x"},
}


def holds(text: str, **facts: object) -> ConditionResult:
    return read_condition(text, WHERE).evaluate(ALL | facts)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (IDLE, True),
        ("confidence >= 1", False),
        ("confidence < 1", True),
        ("gpu_count == 0.5", True),
        ("gpu_count in [0.5, 1, 8]", True),
        ('"idle" == state', True),
        ("state != 'idle'", False),
        ('!(state == "idle") || leased == false', True),
        ("!leased", True),
        ("!!leased", False),
        ("leased == true", False),
        ('age > duration("2d23h")', True),
        ('age == duration("72h")', True),
        ('age > duration("1w")', False),
        ("rate == usd_per_hour(32.77)", True),
        ("rate < usd_per_hour(32.770000001)", True),
        ("spent_run == usd(12.5)", True),
        ("spent_run > usd(12.499999999)", True),
        ("spent_day < usd(0)", True),
        ("spent_day == usd(-1.25)", True),
        ("spent_day < spent_run", True),
        ("spent_run < usd(99999999999999)", True),
        ('provider in ["aws", "gcp"]', True),
        ('"team" in labels', True),
        ('"owner" in labels', False),
        ('labels["team"] == "vision" && labels.team.startsWith("vis")', True),
        ('labels["a\\"b"] == "x"', True),
        ('name.startsWith("train-") && name.endsWith("7") && name.contains("in")', True),
        ('name.matches(r"^train-\\d+$")', True),
        ('owner == ""', True),
        ('gpu == "A100-80GB-SXM"', True),
        ('state == "hung" && name == "x" || leased == false', True),
    ],
)
def test_a_condition_says_what_it_reads_like(text: str, value: bool) -> None:  # noqa: FBT001 - the answer
    assert holds(text) == ConditionResult(value=value)


@pytest.mark.parametrize("left", ['state == "idle"', "confidence >= 0.9"])
def test_a_missing_fact_is_unknown_and_false_where_the_rest_is_false(left: str) -> None:
    found = read_condition(f'{left} && budget_fraction > 0.9 && name == "train-7"', WHERE)
    assert found.evaluate(ALL) == ConditionResult(value=None, missing=("budget_fraction",))
    assert found.evaluate(ALL | {"name": "other"}) == ConditionResult(value=False)
    assert holds('budget_fraction > 0.9 || name == "train-7"') == ConditionResult(value=True)
    assert holds("!(budget_fraction > 0.9)") == ConditionResult(value=None, missing=("budget_fraction",))


def test_a_label_that_is_not_there_is_a_missing_fact() -> None:
    assert holds('labels["env"] == "dev"') == ConditionResult(value=None, missing=('labels["env"]',))
    assert holds('labels["env"] != "dev"').value is None
    assert holds('"env" in labels && labels["env"] == "dev"') == ConditionResult(value=False)
    assert holds('labels["env"] == "dev"', labels=None).missing == ("labels",)


@pytest.mark.parametrize("text", ["120m", "2h", "7200s", "1h60m", " 2h "])
def test_a_mean_is_a_fact_of_its_own_whose_name_has_one_spelling(text: str) -> None:
    condition = read_condition(f'gpu_util.mean("{text}") < 0.3 && gpu_util < 0.9', WHERE)
    name = 'gpu_util.mean("2h")'
    assert condition.names == {"gpu_util", name}
    assert condition.evaluate({"gpu_util": 0.5, name: 0.29}).value is True
    assert condition.evaluate({"gpu_util": 0.5, name: 0.31}).value is False
    assert condition.evaluate({"gpu_util": 0.1}) == ConditionResult(value=None, missing=(name,))


@pytest.mark.parametrize(
    ("text", "name", "value", "why"),
    [
        ("rate > usd_per_hour(1)", "rate", Rate.parse("5", "EUR"), "rate is in EUR, but conditions use USD"),
        ("spent_run > usd(1)", "spent_run", Money.parse("5", "EUR"), "spent_run is in EUR, but conditions use USD"),
        ("spent_run > usd(1)", "spent_run", 5, "spent_run is not of type money"),
        ("confidence > 0.5", "confidence", float("nan"), "confidence is not of type number"),
        ("confidence > 0.5", "confidence", True, "confidence is not of type number"),
        ('age > duration("1h")', "age", 5, "age is not of type duration"),
        ('"a" in labels', "labels", {"a": 5}, "labels is not of type labels"),
    ],
)
def test_a_fact_of_another_kind_is_missing_and_says_why(text: str, name: str, value: object, why: str) -> None:
    assert holds(text, **{name: value}) == ConditionResult(value=None, missing=(name,), why=why)


def test_every_fact_can_be_asked_for() -> None:
    right = {
        "text": 'in ["idle", "running", "", "spot", "instance"]',
        "number": "> 0.5",
        "truth": "== true",
        "duration": '> duration("1m")',
        "money": "> usd(1)",
        "rate": "> usd_per_hour(1)",
    }
    words = {"state": "idle", "group_state": "idle", "power": "running", "tier": "spot", "kind": "instance", "gpu": ""}
    for name, fact in FACTS.items():
        text = f'"x" in {name}' if fact.kind == "labels" else f"{name} {right[fact.kind]}"
        text = f'{name} == "{words.get(name, "x")}"' if fact.kind == "text" else text
        assert read_condition(text, WHERE).evaluate({}) == ConditionResult(value=None, missing=(name,))


@pytest.mark.parametrize(
    ("text", "character", "said"),
    [
        ("", 0, "is empty"),
        ("x" * 2001, 0, "has 2001 characters"),
        ('stat == "idle"', 1, "did you mean state"),
        ('state == "idel"', 10, "did you mean idle"),
        ("state == idle", 10, 'write "idle"'),
        ('state in ["idle", "hang"]', 19, "warming, active, idle, hung, unknown"),
        ('power == "off"', 10, "running"),
        ('tier == "spott"', 9, "did you mean spot"),
        ('gpu == "H1000"', 8, "unknown GPU"),
        ('gpu == "H100"', 8, 'write "H100-SXM"'),
        ("confidence > 90", 14, "is from 0 to 1"),
        ("gpu_util < 30", 12, "gpu_util is from 0 to 1, and 30 is not"),
        ('gpu_util.mean("2h") < 30', 23, 'mean("2h") is from 0 to 1, and 30 is not'),
        ("gpu_utl < 0.3", 1, "did you mean gpu_util"),
        ('gpu_utl.mean("2h") < 0.3', 1, "did you mean gpu_util"),
        ('gpu_util.mean("soon") < 0.3', 15, "must be a duration, not 'soon'"),
        ('gpu_util.mean("0s") < 0.3', 15, "must be at least 5m, not '0s'"),
        ('gpu_util.mean("400d") < 0.3', 15, "must be at most 2d, not '400d'"),
        ("gpu_util.mean(2) < 0.3", 15, "mean takes one literal text"),
        ("gpu_util.mean() < 0.3", 15, "was not expected"),
        ('gpu_util.max("2h") < 0.3', 10, 'write gpu_util.mean("2h")'),
        ('age.mean("2h") < 0.3', 5, "means exist of gpu_util, gpu_mem, sm_active, power_share"),
        ('gpu_util.mean("2h").mean("2h") < 0.3', 21, "is not a method of"),
        ("spent_day > 5", 13, "write usd(5)"),
        ("rate > 0.3", 8, "write usd_per_hour(0.3)"),
        ("rate > usd(3)", 8, "rate is a rate, and 'usd(3)' is money"),
        ("spent_day > rate", 13, "spent_day is money, and rate is a rate"),
        ("age > 30", 7, 'write duration("45m")'),
        ("age > 45m", 7, 'write duration("45m")'),
        ('age > "45m"', 7, "age is a time, and '45m' is text"),
        ('age > duration("45")', 7, "must have a unit, not"),
        ("age > duration(45)", 16, "duration takes one literal text"),
        ('spent_day > usd("5")', 17, "usd takes one literal number"),
        ("rate > usd_per_hour(-1)", 21, "cannot be negative"),
        ("spent_day > usd(0.00000000001)", 13, "is not an amount of money"),
        ("labels == 5", 11, 'write labels["team"]'),
        ("labels[team] == 5", 8, "a label's key is a text"),
        ("provider in []", 10, "the list is empty"),
        ('provider in "aws"', 13, "needs a list"),
        ("provider in [name]", 14, "literal"),
        ('provider in ["aws" "gcp"]', 20, "needs , here"),
        ('state = "idle"', 7, "write =="),
        ('leased & state == "idle"', 8, "write &&"),
        ("leased and protected", 8, "write &&"),
        ("not leased", 1, "write !"),
        ("0.1 < confidence < 0.9", 18, "two comparisons"),
        ("age", 1, "true or false is needed"),
        ("age && leased", 1, "true or false is needed"),
        ('!state == "idle"', 2, "true or false is needed"),
        ("true", 1, "uses no fact about the machine"),
        ("name < 'b'", 1, "text has no order"),
        ('name.matches("(a")', 14, "is not a pattern"),
        ("name.matches(owner)", 14, "literal"),
        ('name.startswith("a")', 6, "did you mean startsWith"),
        ('age.contains("a")', 5, "only text has methods:"),
        ("spent_day + usd(1) > usd(2)", 11, "arithmetic is not supported"),
        ("disk_gb - 3 > 5", 9, "arithmetic is not supported"),
        ("disk_gb > 5 - 3", 13, "arithmetic is not supported"),
        ("gpu_count > 8 * 2", 15, "arithmetic is not supported"),
        ("has(labels.team)", 1, "unknown function 'has'"),
        ("size(labels) > 0", 1, "unknown function 'size'"),
        ("[1, 2].exists(x, x > 1)", 1, "was not expected"),
        ("leased ? true : false", 8, "? : is not supported; write two policies"),
        ('name == "a\nb"', 9, "close the quotes"),
        ('name == "abc', 9, "close the quotes"),
        (r'name == "a\d"', 9, r"write \\d"),
        ("(leased", 8, "needs ) here, not its end"),
        ("leased)", 7, "was not expected"),
        ("leased ||", 10, "ends too early"),
        ("(" * 40 + "leased" + ")" * 40, 33, "more than 32 nested brackets"),
        ("!" * 40 + "leased", 33, "more than 32 nested brackets"),
        ("disk_gb > 1e300", 11, "too large"),
        ("leased; true", 7, "was not expected"),
    ],
    ids=str,
)
def test_a_slip_says_at_which_character_and_what_to_write(text: str, character: int, said: str) -> None:
    with pytest.raises(InputError) as error:
        read_condition(text, WHERE)
    place = f"{WHERE}, character {character}: " if character else f"{WHERE}: "
    assert str(error.value).startswith(place)
    assert said in str(error.value)
    assert len(str(error.value).splitlines()) <= 5


@settings(deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_a_condition_or_a_slip(text: str) -> None:
    try:
        found = read_condition(text, WHERE)
    except InputError:
        return
    assert found.evaluate({}).value is None or found.names
