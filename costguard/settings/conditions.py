"""Evaluates conditions, which `condition_syntax` checks and the CEL library compiles once.

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
from functools import cache

from cel_expr_python import cel

from costguard.errors import InputError, shorten, to_one_line
from costguard.guard.policy import DURATION, FACTS, LABELS, MONEY, NUMBER, RATE, TEXT, TRUTH, ConditionResult
from costguard.settings.condition_syntax import check_condition, clamp_integer, quote_text
from costguard.values.money import Money, Rate

CURRENCY = "USD"
CACHED_CONDITIONS = 5000
"""Answers of one condition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CelCondition:
    """A compiled condition.

    `names`: the facts it uses. `keys`: the labels it reads.
    """

    text: str
    names: frozenset[str]
    keys: frozenset[str]
    program: cel.Expression = field(repr=False, compare=False)
    answers: dict[tuple[object, ...], ConditionResult] = field(default_factory=dict, repr=False, compare=False)
    """What was answered to which facts: of a fleet many have the same."""

    def evaluate(self, facts: Mapping[str, object]) -> ConditionResult:
        """Return the result for `facts`; `missing` lists labels as `labels["team"]`."""
        given = [facts.get(name) for name in self.names]
        asked = (*[tuple(one.items()) if isinstance(one, dict) else one for one in given], *map(type, given))
        try:
            answer = self.answers.get(asked)
        except TypeError:  # a fact of no kind that there is
            return self._answer(facts)
        if answer is None:
            if len(self.answers) >= CACHED_CONDITIONS:
                self.answers.clear()
            answer = self.answers[asked] = self._answer(facts)
        return answer

    def _answer(self, facts: Mapping[str, object]) -> ConditionResult:
        known, odd = dict[str, object](), list[str]()
        for name in self.names:
            if facts.get(name) is not None:
                value, why = _convert_fact(name, facts[name])
                if value is not None:
                    known[name] = value
                if why:
                    odd.append(why)
        odd.sort()
        try:
            answer = self.program.eval(data=dict(known))
            value = answer.plain_value() if answer.type() == cel.Type.BOOL else None
            why = "" if isinstance(value, bool) else to_one_line(str(answer.plain_value()))
        except (RuntimeError, TypeError, ValueError) as broken:
            value, why = None, to_one_line(str(broken))
        if isinstance(value, bool):
            return ConditionResult(value=value)
        missing = self._missing(known)
        return ConditionResult(value=None, missing=missing, why="; ".join(odd) or ("" if missing else shorten(why, 200)))

    def _missing(self, known: Mapping[str, object]) -> tuple[str, ...]:
        labels = known.get("labels")
        lacking = [f"labels[{quote_text(key)}]" for key in sorted(self.keys) if isinstance(labels, dict) and key not in labels]
        return (*sorted(self.names - set(known)), *lacking)


def read_condition(text: str, where: str) -> CelCondition:
    """Return the condition `text`, checked and compiled.

    Raise InputError that names `where`, the character, and what to write instead.
    """
    checked = check_condition(text, where)
    for pattern, place in checked.patterns:
        tried = _build_environment().compile(f'"".matches({quote_text(pattern)})').eval(data={})
        if tried.type() != cel.Type.BOOL:
            told = shorten(to_one_line(str(tried.plain_value())), 100)
            raise InputError(f"is not a pattern: {told}", field=place, hint="write a regular expression (RE2)")
    try:
        program = _build_environment().compile(checked.cel)
    except RuntimeError as broken:  # what was checked compiles; a limit of the library's own may still say no
        told = shorten(to_one_line(str(broken)), 150)
        raise InputError(f"is refused by CEL: {told}", field=where, hint="write it shorter") from None
    return CelCondition(text=text.strip(), names=checked.names, keys=checked.keys, program=program)


@cache
def _build_environment() -> cel.Env:
    """Return the CEL environment that all conditions share.

    Amounts and times are whole numbers in it; `condition_syntax` has already checked that only equal kinds are compared.
    """
    types = {
        TEXT: cel.Type.STRING,
        NUMBER: cel.Type.DOUBLE,
        TRUTH: cel.Type.BOOL,
        DURATION: cel.Type.INT,
        MONEY: cel.Type.INT,
        RATE: cel.Type.INT,
        LABELS: cel.Type.Map(cel.Type.STRING, cel.Type.STRING),
    }
    return cel.NewEnv(variables={name: types[fact.kind] for name, fact in FACTS.items()})


def _convert_fact(name: str, value: object) -> tuple[object, str]:
    """Return (the value of the fact `name` for CEL, ""); (None, the reason) if it cannot be converted."""
    kind = FACTS[name].kind
    if isinstance(value, Money | Rate) and value.currency != CURRENCY:
        return None, f"{name} is in {value.currency}, but conditions use {CURRENCY}"
    plain = CONVERTERS[kind](value)
    return plain, "" if plain is not None else f"{name} is not of type {kind}"


def _convert_number(value: object) -> float | None:
    known = isinstance(value, int | float | Fraction) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if known else None  # type: ignore[arg-type]  # seen in the line above


def _convert_labels(value: object) -> dict[object, object] | None:
    known = isinstance(value, Mapping) and all(isinstance(one, str) for pair in value.items() for one in pair)
    return dict(value) if known else None  # type: ignore[call-overload]  # seen in the line above


CONVERTERS: Mapping[str, Callable[[object], object]] = {
    TEXT: lambda value: value if isinstance(value, str) else None,
    TRUTH: lambda value: value if isinstance(value, bool) else None,
    NUMBER: _convert_number,
    DURATION: lambda value: clamp_integer(value // timedelta(microseconds=1)) if isinstance(value, timedelta) else None,
    MONEY: lambda value: clamp_integer(value.nano) if isinstance(value, Money) else None,
    RATE: lambda value: clamp_integer(value.nano_per_hour) if isinstance(value, Rate) else None,
    LABELS: _convert_labels,
}
"""Kind of fact -> its value as CEL takes it; None where it is none of that kind."""
