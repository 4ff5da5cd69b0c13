"""The program of a condition that `condition_syntax` has checked: small functions in each other, made once and then evaluated.

    confidence >= 0.9 && "keep" in labels

becomes `join_all([compare(">=", read_fact("confidence"), hold_literal(0.9)), find_label(hold_literal("keep"))])`. A program
takes the facts by name, as `conditions` converts them, and returns its value; None is unknown, and so is every fact that is not
given. `&&` and `||` are those of CEL and of Kleene's logic: what settles one, on either side, wins over what is unknown.

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


def read_fact(name: str) -> Program:
    """Return the program for the fact `name`."""
    return lambda facts: facts.get(name)


def read_label(key: str) -> Program:
    """Return the program for the label `key`; unknown if a machine does not have it."""

    def evaluate(facts: Mapping[str, Any]) -> str | None:
        labels = facts.get("labels")
        return None if labels is None else labels.get(key)

    return evaluate


def hold_literal(value: object) -> Program:
    """Return the program for a literal."""
    return lambda _facts: value


def compare(sign: str, left: Program, right: Program) -> Program:
    """Return the program for a comparison of two values of one kind."""
    is_true = COMPARISONS[sign]

    def evaluate(facts: Mapping[str, Any]) -> bool | None:
        one, other = left(facts), right(facts)
        return None if one is None or other is None else is_true(one, other)

    return evaluate


def find_in_list(term: Program, values: Sequence[Any]) -> Program:
    """Return the program for `term in [...]`."""
    known = frozenset(values)

    def evaluate(facts: Mapping[str, Any]) -> bool | None:
        value = term(facts)
        return None if value is None else value in known

    return evaluate


def find_label(key: Program) -> Program:
    """Return the program for `key in labels`."""

    def evaluate(facts: Mapping[str, Any]) -> bool | None:
        wanted, labels = key(facts), facts.get("labels")
        return None if wanted is None or labels is None else bool(wanted in labels)

    return evaluate


def negate(term: Program) -> Program:
    """Return the program for `!term`."""

    def evaluate(facts: Mapping[str, Any]) -> bool | None:
        value = term(facts)
        return None if value is None else not value

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


def apply_method(method: str, term: Program, literal: str, place: str) -> Program:
    """Return the program for `term.method("literal")`; `place` names the literal in errors.

    Raise InputError if it is not a pattern of RE2 and `method` is `matches`.
    """
    holds: Callable[[str], bool] = {
        "startsWith": lambda text: text.startswith(literal),
        "endsWith": lambda text: text.endswith(literal),
        "contains": lambda text: literal in text,
        "matches": compile_pattern(literal, place) if method == "matches" else bool,
    }[method]

    def evaluate(facts: Mapping[str, Any]) -> bool | None:
        text = term(facts)
        return None if text is None else holds(text)

    return evaluate


def compile_pattern(pattern: str, place: str) -> Callable[[str], bool]:
    """Return whether a text has a part that matches `pattern`, as a function of the text. Only patterns import RE2."""
    import re2

    options = re2.Options()
    options.log_errors = False  # else it writes to stderr by itself
    options.max_mem = PATTERN_BYTES_MAX
    try:
        search = re2.compile(pattern, options).search
    except re2.error as broken:
        told = shorten(to_one_line(broken.args[0].decode(errors="replace")), 100)
        raise InputError(f"is not a pattern: {told}", field=place, hint="write a regular expression (RE2)") from None
    except UnicodeEncodeError:
        raise InputError("is not a pattern: half a letter", field=place, hint="write a text in UTF-8") from None
    return lambda text: search(text) is not None
