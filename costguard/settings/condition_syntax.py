"""The words of conditions: how a text falls into tokens, what its parts are, and what to say of words it does not have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from costguard.errors import InputError
from costguard.guard.condition import DURATION, LABELS, MONEY, NUMBER, RATE, TEXT, TRUTH

CONDITION_CHARS_MAX = 2000
"""Characters of a condition."""
NESTING_MAX = 32
"""Brackets and `!` within each other."""
INTEGER_MAX = 2**63 - 1

TOKEN_PATTERN = re.compile(
    r"""\s*(?:(?P<text>r?"(?:[^"\\\x00-\x1f]|\\.)*"|r?'(?:[^'\\\x00-\x1f]|\\.)*')|(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"""
    r"""|(?P<name>[A-Za-z_]\w*)|(?P<sign>&&|\|\||[=!<>]=|[<>!()\[\],.-])|(?P<end>$))"""
)
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
WORD_HINTS = {"and": "&&", "or": "||", "not": "!", "True": "true", "False": "false", "AND": "&&", "OR": "||", "NOT": "!"}
SIGN_HINTS = {
    "=": "write == to compare",
    "&": "write && for and",
    "|": "write || for or",
    "?": "there is no ? : here; write two policies",
    "%": "numbers have no unit; 15 % is 0.15",
}
NO_ARITHMETIC = "there is no arithmetic here; compare with the number itself"
FUNCTIONS = ("duration", "usd", "usd_per_hour")
METHODS = ("startsWith", "endsWith", "contains", "matches")
KIND_HINTS = {
    MONEY: "write usd({})",
    RATE: "write usd_per_hour({})",
    DURATION: 'write duration("45m")',
    TEXT: 'write it in "quotes"',
    TRUTH: "write true or false",
    NUMBER: "write a number such as 0.9",
    LABELS: 'write labels["team"] == "vision", or "team" in labels',
}
ESCAPE_PATTERN = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionTerm:
    """A part of a condition: of which `kind`, as `cel`. `fact`: it is nothing but that one. `literal`: what was written."""

    kind: str
    cel: str
    at: int
    fact: str = ""
    literal: str | None = None


@dataclass(frozen=True, slots=True)
class ConditionToken:
    """`kind`: text, number, name, sign or end. `at`: its first character, from 0."""

    kind: str
    text: str
    at: int


def tokenize_condition(text: str, field: str) -> list[ConditionToken]:
    """`text` in tokens, the last one its end; InputError for the first character that starts none."""
    found, at = list[ConditionToken](), 0
    while not found or found[-1].kind != "end":
        match = TOKEN_PATTERN.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            sign = text[at]
            hint = SIGN_HINTS.get(sign) or (NO_ARITHMETIC if sign in "+*/" else "close the quotes" if sign in "\"'" else None)
            raise InputError(f"'{sign}' was not expected", field=format_position(field, at), hint=hint)
        kind = match.lastgroup or "end"
        found.append(ConditionToken(kind, match[kind], match.start(kind)))
        at = match.end()
    return found


def format_position(field: str, at: int) -> str:
    """The character `at` (from 0) of `field`, as errors name it."""
    return f"{field}, character {at + 1}"


def quote_text(text: str) -> str:
    """`text` as a CEL literal."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def clamp_integer(value: int) -> int:
    """`value` as near as 64 bits come to it: nine billion dollars, which compare as any larger sum would."""
    return max(-INTEGER_MAX, min(INTEGER_MAX, value))


def describe_kind(kind: str) -> str:
    """`kind` as an error says it."""
    return {RATE: "a rate", NUMBER: "a number", DURATION: "a time", TRUTH: "true or false", LABELS: "all labels"}.get(
        kind, kind
    )


def format_example(kind: str) -> str:
    """A comparison of something of `kind`, less its left side."""
    samples: Mapping[str, str] = {
        TEXT: '== "..."',
        MONEY: "> usd(12.50)",
        RATE: "> usd_per_hour(0.30)",
        DURATION: '> duration("45m")',
        NUMBER: "> 0.5",
    }
    return samples.get(kind, '["team"] == "vision"')
