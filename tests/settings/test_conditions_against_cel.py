"""Conditions held against the CEL project's own runtime: what costguard takes is CEL, and has CEL's value.

Every token stands twice, as costguard writes it and as CEL does (`usd(1.5)` and 1500000000), so that CEL's own parser says
what precedes what. A result of CEL that is no truth (an unknown, or a key that is not there) is an unknown of costguard. No
fact here has a NUL: cel-expr-python 0.1.3 ends a text there, against CEL's definition.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from fractions import Fraction
from functools import cache

import pytest
from cel_expr_python import cel
from hypothesis import given, settings
from hypothesis import strategies as st

from costguard.errors import InputError
from costguard.settings.conditions import read_condition
from costguard.values.money import Money, Rate
from tests.campaign import examples

WHERE = "when"
INTEGER_MAX = 2**63 - 1
Token = tuple[str, str]
TYPES = {
    **dict.fromkeys(("name", "owner"), cel.Type.STRING),
    **dict.fromkeys(("disk_gb", "gpu_count"), cel.Type.DOUBLE),
    **dict.fromkeys(("leased", "protected"), cel.Type.BOOL),
    **dict.fromkeys(("age", "spent_day", "waste", "rate"), cel.Type.INT),
    "labels": cel.Type.Map(cel.Type.STRING, cel.Type.STRING),
}


@cache
def environment() -> cel.Env:
    return cel.NewEnv(variables=TYPES)


def cel_value(text: str, known: Mapping[str, object]) -> object:
    """What CEL makes of it; None: an unknown or an error."""
    found = environment().compile(text).eval(data=dict(known))
    return found.plain_value() if found.type() == cel.Type.BOOL else None


# Tokens of each kind, as costguard and as CEL write them.
WORDS = ("", "train-7", "a", "naïve", "東", "x\\y", 'q"')
AMOUNTS = (0, 1, 1_500_000_000, -1_500_000_000, INTEGER_MAX)
NUMBERS = ("0", "1", "0.5", "-0.5", "1e3", "8", "0.30000000000000004", "1e18", "-1e18")
MINUTES = (0, 1, 45, 60)
PATTERNS = ("", "^train-[0-9]+$", "(?i)TRAIN", "^.$", "(a|b)*c?$", "[^a]", "\\\\bx", "é|東", "\\\\pL\\\\PL", "^a.b$")


def quoted(word: str) -> str:
    return "'" + word.replace("\\", "\\\\") + "'"


texts = st.sampled_from([(word, word) for word in ("name", "owner")] + [(quoted(word),) * 2 for word in WORDS])
numbers = st.sampled_from([(one, one) for one in ("disk_gb", "gpu_count")] + [(one, repr(float(one))) for one in NUMBERS])
MONEY = {"0": 0, "0.000000001": 1, "1.5": 1_500_000_000, "-1.5": -1_500_000_000, "99999999999999": INTEGER_MAX}
money = st.sampled_from([(one, one) for one in ("spent_day", "waste")] + [(f"usd({one})", str(MONEY[one])) for one in MONEY])
times = st.sampled_from([("age", "age")] + [(f'duration("{one}m")', str(one * 60_000_000)) for one in MINUTES])
rates = st.sampled_from([("rate", "rate"), ("usd_per_hour(0)", "0"), ("usd_per_hour(1.5)", "1500000000")])
keys = st.sampled_from([(quoted(word),) * 2 for word in ("team", "", "東")])
SAME = {sign: (sign, sign) for sign in ("&&", "||", "!", "(", ")", "==", "!=", "<", "<=", ">", ">=", "in", "[", "]", ",", ".")}


@st.composite
def labels(draw: st.DrawFn) -> list[Token]:
    """The value of one label."""
    if draw(st.booleans()):
        return [("labels.team", "labels.team")]
    return [("labels", "labels"), SAME["["], draw(keys), SAME["]"]]


@st.composite
def methods(draw: st.DrawFn) -> list[Token]:
    term = draw(labels()) if draw(st.booleans()) else [draw(texts)]
    name = draw(st.sampled_from(("startsWith", "endsWith", "contains", "matches")))
    given_text = f"'{draw(st.sampled_from(PATTERNS))}'" if name == "matches" else quoted(draw(st.sampled_from(WORDS)))
    return [*term, (f".{name}({given_text})",) * 2]


@st.composite
def comparisons(draw: st.DrawFn) -> list[Token]:
    kind = draw(st.sampled_from((texts, numbers, money, times, rates)))
    ordered = kind is not texts
    left, right = [draw(kind)], [draw(kind)]
    if kind is texts and draw(st.booleans()):
        left = draw(labels())
    sign = draw(st.sampled_from(("==", "!=", "<", "<=", ">", ">=") if ordered else ("==", "!=")))
    return [*left, SAME[sign], *right]


@st.composite
def memberships(draw: st.DrawFn) -> list[Token]:
    if draw(st.booleans()):
        return [draw(texts), SAME["in"], ("labels", "labels")]
    kind = draw(st.sampled_from((texts, numbers, money, times)))
    items = draw(st.lists(kind.filter(lambda one: one[0] not in TYPES), min_size=1, max_size=4))
    listed = [token for one in items for token in (SAME[","], one)]
    return [draw(kind), SAME["in"], SAME["["], *listed[1:], SAME["]"]]


truths = st.sampled_from(["leased", "protected", "true", "false"]).map(lambda word: [(word, word)])


@st.composite
def conditions(draw: st.DrawFn, depth: int = 3) -> list[Token]:
    """Parts joined without more brackets than somebody would write, so that precedence counts."""
    parts = list[Token]()
    for number in range(draw(st.integers(1, 4))):
        if number:
            parts.append(SAME[draw(st.sampled_from(("&&", "||")))])
        shape = draw(st.integers(0, 9))
        if shape < 2 and depth:
            parts += [*[SAME["!"]] * draw(st.integers(0, 2)), SAME["("], *draw(conditions(depth - 1)), SAME[")"]]
        elif shape < 5:
            parts += draw(comparisons())
        elif shape < 6:
            parts += draw(memberships())
        elif shape < 8:
            parts += [*[SAME["!"]] * draw(st.integers(0, 2)), *draw(methods())]
        else:
            parts += [*[SAME["!"]] * draw(st.integers(0, 2)), *draw(truths)]
            if draw(st.booleans()):
                parts += [SAME[draw(st.sampled_from(("==", "!=")))], *draw(truths)]
    return parts


@st.composite
def facts(draw: st.DrawFn) -> dict[str, tuple[object, object]]:
    """Facts by name, as costguard and as CEL take them; some are missing."""
    number = st.sampled_from([float(one) for one in NUMBERS])
    nano = st.sampled_from(AMOUNTS) | st.integers(-(10**20), 10**20)
    word = st.sampled_from(WORDS) | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
    made = {
        "name": draw(word.map(lambda one: (one, one))),
        "owner": draw(word.map(lambda one: (one, one))),
        "disk_gb": draw(number.map(lambda one: (one, one))),
        "gpu_count": draw(number.map(lambda one: (Fraction(one), one))),
        "leased": draw(st.booleans().map(lambda one: (one, one))),
        "protected": draw(st.booleans().map(lambda one: (one, one))),
        "age": draw(st.sampled_from(MINUTES).map(lambda one: (timedelta(minutes=one), one * 60_000_000))),
        "spent_day": draw(nano.map(lambda one: (Money(nano=one), clamp(one)))),
        "waste": draw(nano.map(lambda one: (Money(nano=one), clamp(one)))),
        "rate": draw(st.sampled_from(AMOUNTS[1:3]).map(lambda one: (Rate(nano_per_hour=one), one))),
        "labels": draw(st.dictionaries(st.sampled_from(("team", "", "東")), word, max_size=3).map(lambda one: (one, one))),
    }
    return {name: pair for name, pair in made.items() if draw(st.integers(0, 4))}


def clamp(value: int) -> int:
    return max(-INTEGER_MAX, min(INTEGER_MAX, value))


def ours_and_cels(tokens: list[Token], known: Mapping[str, tuple[object, object]]) -> tuple[object, object]:
    """Both values; raise InputError if costguard refuses the condition."""
    condition = read_condition(" ".join(ours for ours, _ in tokens), WHERE)
    ours = condition.evaluate({name: one for name, (one, _) in known.items()})
    assert (ours.value is None) == bool(ours.missing)
    return ours.value, cel_value(" ".join(theirs for _, theirs in tokens), {name: one for name, (_, one) in known.items()})


def names_a_fact(tokens: list[Token]) -> bool:
    return any(ours.startswith(tuple(TYPES)) for ours, _ in tokens)


@settings(deadline=None, max_examples=examples(250))
@given(conditions().filter(names_a_fact), facts())
def test_a_condition_has_cels_value(tokens: list[Token], known: Mapping[str, tuple[object, object]]) -> None:
    ours, cels = ours_and_cels(tokens, known)
    assert ours is cels


@settings(deadline=None, max_examples=examples(150))
@given(conditions().filter(names_a_fact), facts(), st.data())
def test_what_is_taken_after_a_slip_is_cel_too(
    tokens: list[Token], known: Mapping[str, tuple[object, object]], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(tokens) - 1))
    other = data.draw(st.sampled_from([*SAME.values(), *tokens]))
    slipped = data.draw(
        st.sampled_from(
            ([*tokens[:at], *tokens[at + 1 :]], [*tokens[:at], other, *tokens[at:]], [*tokens[:at], other, *tokens[at + 1 :]])
        )
    )
    try:
        ours, cels = ours_and_cels(slipped, known)
    except InputError:
        return
    assert ours is cels


LETTERS = "\\\\\"'nrtxu0a .é"


@settings(deadline=None, max_examples=examples(150))
@given(st.sampled_from(("", "r")), st.sampled_from("\"'"), st.text(LETTERS, max_size=6), st.text(LETTERS, max_size=3))
def test_a_text_is_what_cel_reads(prefix: str, quote: str, inner: str, other: str) -> None:
    literal = f"{prefix}{quote}{inner}{quote}"
    try:
        condition = read_condition(f"name == {literal}", WHERE)
    except InputError:
        return
    text = environment().compile(literal).eval(data={}).plain_value()
    assert condition.evaluate({"name": text}).value is True
    assert condition.evaluate({"name": text + other}).value is (other == "")


@settings(deadline=None, max_examples=examples(150))
@given(st.text(r"ab.*+?|()[]^$\dwpLN{2},-éX:i<>P", max_size=10), st.text("ab1é\nX, ", max_size=6))
def test_a_pattern_is_taken_and_matches_as_in_cel(pattern: str, text: str) -> None:
    literal = '"' + pattern.replace("\\", "\\\\") + '"'
    try:
        ours = read_condition(f"name.matches({literal})", WHERE).evaluate({"name": text}).value
    except InputError:
        ours = None
    assert ours is cel_value(f"name.matches({literal})", {"name": text})


@pytest.mark.parametrize(
    "text",
    [
        *("!name == 'a'", "!disk_gb > 1.0", "leased == !name", "leased && name", "name in 'a'", "'a' in name", "labels == 'a'"),
        *("name.matches('(a')", "name.matches('a**')", "name.matches('a(?=b)')", r"name.matches('(a)\\1')", "name < 1.0"),
        *(
            *(r'name == r"a\"b"', r"name == r'\''", r'name == "\d"', "name == 'a", "name == 'a'b'", "name == a'b'"),
            *("leased)", "(leased"),
        ),
        *("leased & protected", "leased and protected", "leased ||", "&& leased", "!", "()", "name in [1.0]", "age == 'a'"),
    ],
)
def test_what_cel_refuses_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        read_condition(text, WHERE)
    try:
        assert cel_value(text, {"name": "a"}) is None
    except RuntimeError:
        return


def test_the_deepest_and_the_longest_condition_are_cel_too() -> None:
    deepest = "!(" * 15 + "!leased" + ")" * 15
    longest = " || ".join(["leased"] * 200)
    for text in (deepest, longest):
        assert read_condition(text, WHERE).evaluate({"leased": True}).value is cel_value(text, {"leased": True})
