"""The program of a condition that `condition_syntax` has checked: small functions in each other, made once and then evaluated.

    confidence >= 0.9 && "keep" in labels

becomes a `join_all` of `apply(ge, read_fact("confidence"), hold_literal(0.9))` and `apply(contains, read_fact("labels"), ...)`.
A program takes the facts by name, as `conditions` converts them, and returns its value; None is unknown, and so is every fact
that is not given. `&&` and `||` are those of CEL and of Kleene's logic: what settles one, on either side, wins over what is
unknown.

The check has made sure that both sides of a comparison have the same kind, so Python compares them as CEL does: doubles with
doubles, 64-bit numbers with 64-bit numbers, texts by their characters. An evaluation costs one step for each part of a
condition of at most 2,000 characters, and the length of a text for each method on it; patterns are RE2's, whose time grows
linearly with the text (decision 0061). `tests/settings/test_conditions_against_cel.py` holds all of it against the CEL
project's own runtime.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from costguard.errors import InputError, shorten, to_one_line

Program = Callable[[Mapping[str, Any]], Any]
"""Facts by name -> the value: a text, a number, a truth, a table of labels; None: unknown."""

COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
PATTERN_BYTES_MAX = 8 * 2**20
"""Memory of a compiled pattern and of its search: the limit that RE2 has by itself, and CEL with it."""


INTEGER_MAX = 2**63 - 1
Comparisons = tuple[tuple[str, str, str], ...]
"""The texts that a condition compares facts with: (fact, method or "" for equality, text)."""


def read_fact(name: str) -> Program:
    """Return the program for the fact `name`."""
    return lambda facts: facts.get(name)


def hold_literal(value: object) -> Program:
    """Return the program for a literal."""
    return lambda _facts: value


def apply(function: Callable[..., Any], term: Program, other: Program | None = None) -> Program:
    """Return the program for `function` of the values of `term` and `other`; unknown where one of them is."""
    if other is None:

        def evaluate_one(facts: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as the function returns
            value = term(facts)
            return None if value is None else function(value)

        return evaluate_one

    def evaluate(facts: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as the function returns
        value, second = term(facts), other(facts)
        return None if value is None or second is None else function(value, second)

    return evaluate


def join_all(terms: Sequence[Program]) -> Program:
    """Return the program for terms joined by `&&`: false if one is false, else unknown if one is unknown."""
    return _join(terms, settled=False)


def join_any(terms: Sequence[Program]) -> Program:
    """Return the program for terms joined by `||`: true if one is true, else unknown if one is unknown."""
    return _join(terms, settled=True)


def _join(terms: Sequence[Program], *, settled: bool) -> Program:
    """Return the program that is `settled` as soon as one term is."""

    def evaluate(facts: Mapping[str, Any]) -> bool | None:
        otherwise: bool | None = not settled
        for term in terms:
            value: bool | None = term(facts)
            if value is settled:
                return settled
            if value is None:
                otherwise = None
        return otherwise

    return evaluate


def make_text_test(method: str, literal: str, place: str) -> Callable[[str], bool]:
    """Return `text.method("literal")` as a function of the text; `place` names the literal in errors.

    Raise InputError if it is not a pattern of RE2 and `method` is `matches`.
    """
    tests: Mapping[str, Callable[[str], bool]] = {
        "startsWith": lambda text: text.startswith(literal),
        "endsWith": lambda text: text.endswith(literal),
        "contains": lambda text: literal in text,
    }
    return compile_pattern(literal, place) if method == "matches" else tests[method]


def compile_pattern(pattern: str, place: str) -> Callable[[str], bool]:
    """Return whether a text has a part that matches `pattern`, as a function of the text. Only patterns import RE2."""
    try:
        import re2
    except (
        ImportError
    ):  # some systems have no wheel of it; Python's `re` can take hours for one pattern, so it is no substitute
        hint = "in a clone of costguard: pip install '.[patterns]'; or use contains, startsWith or endsWith"
        raise InputError("matches needs google-re2, which is not installed", field=place, hint=hint) from None

    options = re2.Options()
    options.log_errors = False  # else it writes to stderr by itself
    options.max_mem = PATTERN_BYTES_MAX
    try:
        search = re2.compile(pattern, options).search
    except re2.error as broken:
        problem = shorten(to_one_line(broken.args[0].decode(errors="replace")), 100)
        raise InputError(f"is not a pattern: {problem}", field=place, hint="write a regular expression (RE2)") from None
    except UnicodeEncodeError:
        raise InputError("is not a pattern: invalid UTF-8", field=place, hint="write a text in UTF-8") from None
    return lambda text: search(text) is not None


def quote_text(text: str) -> str:
    """`text` as a CEL literal."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def clamp_integer(value: int) -> int:
    """Return `value` limited to 64 bits.

    The limit of an amount is about nine billion dollars; larger amounts compare in the same way.
    """
    return max(-INTEGER_MAX, min(INTEGER_MAX, value))
