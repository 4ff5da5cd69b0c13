"""Evaluates conditions, which `condition_syntax` checks and turns into a `condition_program` once.

Evaluation is three-valued: a missing fact makes only its own expression unknown. For a machine without a confidence, `state ==
"idle" && confidence >= 0.9` is unknown while it is idle and false while it is active. A label that a machine does not have is a
missing fact too: `labels["team"] == "vision"` is then unknown, and `"team" in labels && labels["team"] == "vision"` is false.

Money is compared in USD. An amount in another currency is a missing fact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from fractions import Fraction

from costguard.guard.facts import DURATION, LABELS, MONEY, NUMBER, RATE, TEXT, TRUTH, find_fact
from costguard.guard.policy import ConditionResult
from costguard.settings.condition_program import Comparisons, Program, clamp_integer, quote_text
from costguard.settings.condition_syntax import check_condition
from costguard.values.money import Money, Rate

CURRENCY = "USD"
CACHED_CONDITIONS = 5000
"""Answers of one condition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledCondition:
    """A compiled condition.

    `names`: the facts it uses. `keys`: the labels it reads. `comparisons`: the texts that it compares facts with.
    """

    text: str
    names: frozenset[str]
    keys: frozenset[str]
    program: Program = field(repr=False, compare=False)
    comparisons: Comparisons = field(default=(), repr=False, compare=False)
    answers: dict[tuple[object, ...], ConditionResult] = field(default_factory=dict, repr=False, compare=False)
    """What was answered to which facts: of a fleet many have the same."""

    def evaluate(self, facts: Mapping[str, object]) -> ConditionResult:
        """Return the result for `facts`; `missing` lists labels as `labels["team"]`."""
        values = [facts.get(name) for name in self.names]
        kinds = map(type, values)
        if LABELS in self.names:  # the only fact that is a dict
            values = [tuple(one.items()) if isinstance(one, dict) else one for one in values]
        question = (*values, *kinds)
        try:
            answer = self.answers.get(question)
        except TypeError:  # a fact of no kind that there is
            return self._answer(facts)
        if answer is None:
            if len(self.answers) >= CACHED_CONDITIONS:
                self.answers.clear()
            answer = self.answers[question] = self._answer(facts)
        return answer

    def _answer(self, facts: Mapping[str, object]) -> ConditionResult:
        values, odd = dict[str, object](), list[str]()
        for name in self.names:
            if facts.get(name) is not None:
                value, why = _convert_fact(name, facts[name])
                if value is not None:
                    values[name] = value
                if why:
                    odd.append(why)
        odd.sort()
        value = self.program(values)
        if value is not None:
            return ConditionResult(value=value)
        return ConditionResult(value=None, missing=self._missing(values), why="; ".join(odd))

    def _missing(self, values: Mapping[str, object]) -> tuple[str, ...]:
        labels = values.get("labels")
        lacking = [f"labels[{quote_text(key)}]" for key in sorted(self.keys) if isinstance(labels, dict) and key not in labels]
        return (*sorted(self.names - set(values)), *lacking)


def read_condition(text: str, where: str) -> CompiledCondition:
    """Return the condition `text`, checked and compiled.

    Raise InputError that names `where`, the character, and what to write instead.
    """
    program, names, keys, comparisons = check_condition(text, where)
    return CompiledCondition(text=text.strip(), names=names, keys=keys, program=program, comparisons=comparisons)


def _convert_fact(name: str, value: object) -> tuple[object, str]:
    """Return (the value of the fact `name` as programs take it, ""); (None, the reason) if it cannot be converted."""
    fact = find_fact(name)
    kind = fact.kind if fact else TEXT
    if isinstance(value, Money | Rate) and value.currency != CURRENCY:
        return None, f"{name} is in {value.currency}, but conditions use {CURRENCY}"
    plain = CONVERTERS[kind](value)
    return plain, "" if plain is not None else f"{name} is not of type {kind}"


def _convert_text(value: object) -> str | None:
    """Return `value` if it is a text that UTF-8 can write; a half of a surrogate pair is none."""
    return value if isinstance(value, str) and _is_unicode(value) else None


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def _convert_number(value: object) -> float | None:
    is_number = isinstance(value, int | float | Fraction) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else None  # type: ignore[arg-type]  # seen in the line above


def _convert_labels(value: object) -> dict[object, object] | None:
    is_valid = isinstance(value, Mapping) and all(
        isinstance(one, str) and _is_unicode(one) for pair in value.items() for one in pair
    )
    return dict(value) if is_valid else None  # type: ignore[call-overload]  # seen in the line above


CONVERTERS: Mapping[str, Callable[[object], object]] = {
    TEXT: _convert_text,
    TRUTH: lambda value: value if isinstance(value, bool) else None,
    NUMBER: _convert_number,
    DURATION: lambda value: clamp_integer(value // timedelta(microseconds=1)) if isinstance(value, timedelta) else None,
    MONEY: lambda value: clamp_integer(value.nano) if isinstance(value, Money) else None,
    RATE: lambda value: clamp_integer(value.nano_per_hour) if isinstance(value, Rate) else None,
    LABELS: _convert_labels,
}
"""Kind of fact -> its value as programs take it; None where it is none of that kind."""
