"""The language of conditions, a strict subset of CEL: tokenized, checked and turned into a program in one pass.

    state == "idle" && confidence >= 0.9 && rate >= usd_per_hour(0.30)
    power == "stopped" && stopped_for > duration("168h") && !("keep" in labels)

Allowed are known facts, text in quotes, numbers, true and false, duration("45m"), usd(12.50), usd_per_hour(0.30), && || ! and
brackets, == != < <= > >=, `in` with a list or with labels, labels["key"], on text startsWith, endsWith, contains, matches, and
on the utilisation `mean` over a time: gpu_util.mean("2h") < 0.3.
Arithmetic, macros and `? :` are not allowed. Both sides of a comparison must have the same kind: money with money, rates with
rates, times with times. After the check they are whole numbers (nano-dollars, microseconds), so they are compared exactly.

A value that a fact can never have is refused: `state == "idel"` would never hold, and nobody would notice.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import NoReturn

from costguard.errors import InputError, SeveralInputsError, UnknownNameError, raise_errors, shorten
from costguard.guard.facts import (
    DURATION,
    FACTS,
    LABELS,
    MEAN_LEAST,
    MEAN_MOST,
    MONEY,
    NUMBER,
    RATE,
    TEXT,
    TRUTH,
    UTILIZATION_FACTS,
    name_mean,
    split_mean,
)
from costguard.guard.signals import ACTIVITY_STATES
from costguard.settings.condition_program import (
    COMPARISONS,
    Comparisons,
    Program,
    apply,
    clamp_integer,
    hold_literal,
    join_all,
    join_any,
    make_text_test,
    read_fact,
)
from costguard.settings.fields import parse_duration
from costguard.settings.lines import mark_position
from costguard.values.checks import find_nearest_names, require_one_of
from costguard.values.money import Money
from costguard.values.resource import KINDS, STATES, TIERS

CONDITION_CHARS_MAX = 2000
"""Characters of a condition."""
NESTING_MAX = 32
"""Brackets and `!` within each other."""

TOKEN_PATTERN = re.compile(
    r"""\s*(?:(?P<text>r?"(?:[^"\\\x00-\x1f]|\\.)*"|r?'(?:[^'\\\x00-\x1f]|\\.)*')|(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"""
    r"""|(?P<name>[A-Za-z_]\w*)|(?P<sign>&&|\|\||[=!<>]=|[<>!()\[\],.-])|(?P<end>$))"""
)
WORD_HINTS = {"and": "&&", "or": "||", "not": "!", "True": "true", "False": "false", "AND": "&&", "OR": "||", "NOT": "!"}
SIGN_HINTS = {
    "=": "write == to compare",
    "&": "write && for and",
    "|": "write || for or",
    "?": "? : is not supported; write two policies",
    "%": "numbers take no unit; 15 % is 0.15",
}
NO_ARITHMETIC = "arithmetic is not supported; compare with a number"
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
POSITION_PATTERN = re.compile(r", character (\d+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionTerm:
    """A part of a condition.

    `kind`: the kind of its value. `program`: what evaluates it. `fact`: the name of the fact if the term is a single fact.
    `literal`: the text as written if it is a literal.
    """

    kind: str
    program: Program
    at: int
    fact: str = ""
    literal: str | None = None


@dataclass(frozen=True, slots=True)
class ConditionToken:
    """A token of a condition.

    `kind`: text, number, name, sign or end. `at`: index of its first character, from 0.
    """

    kind: str
    text: str
    at: int


def tokenize_condition(text: str, field: str) -> list[ConditionToken]:
    """Return the tokens of `text`, the last one an end token; raise InputError for a character that starts no token."""
    tokens, at = list[ConditionToken](), 0
    while not tokens or tokens[-1].kind != "end":
        match = TOKEN_PATTERN.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            sign = text[at]
            hint = SIGN_HINTS.get(sign) or (NO_ARITHMETIC if sign in "+*/" else "close the quotes" if sign in "\"'" else None)
            raise InputError(f"'{sign}' was not expected", field=format_position(field, at), hint=hint)
        kind = match.lastgroup or "end"
        tokens.append(ConditionToken(kind, match[kind], match.start(kind)))
        at = match.end()
    return tokens


def format_position(field: str, at: int) -> str:
    """Return the position `at` (from 0) in `field` for error messages, counted from 1."""
    return f"{field}, character {at + 1}"


KIND_NAMES = {RATE: "a rate", NUMBER: "a number", DURATION: "a time", TRUTH: "true or false", LABELS: "all labels"}
KIND_EXAMPLES = {
    TEXT: '== "..."',
    MONEY: "> usd(12.50)",
    RATE: "> usd_per_hour(0.30)",
    DURATION: '> duration("45m")',
    NUMBER: "> 0.5",
    LABELS: '["team"] == "vision"',
}
"""Comparisons with a value of each kind, without their left sides."""
FACT_CHOICES = {
    "state": tuple(ACTIVITY_STATES),
    "group_state": tuple(ACTIVITY_STATES),
    "power": STATES,
    "tier": TIERS,
    "kind": KINDS,
}
SHARE_FACTS = ("confidence", "wasted_share", *UTILIZATION_FACTS)
MEAN = "mean"


def check_word(fact: str, literal: str, field: str) -> None:
    """Raise InputError if `fact` can never equal `literal`."""
    if fact in FACT_CHOICES:
        require_one_of(literal, FACT_CHOICES[fact], field)
    if fact == "gpu" and literal:
        resolve_gpu_name(literal, field)
    if split_mean(fact)[0] in SHARE_FACTS and not 0 <= float(literal) <= 1:
        raise InputError(f"{fact} is from 0 to 1, and {literal} is not", field=field, hint="write 0.9 for 90 %")


def resolve_gpu_name(name: str, field: str) -> str:
    """Return `name` if it is a GPU's canonical name, as used in facts; raise InputError with what to write if not."""
    from costguard.data import ShippedFacts

    gpu = ShippedFacts().get_gpu_names().resolve(name, field=field)
    if gpu.canonical != name:
        raise InputError(f"'{name}' is not the full name of a GPU", field=field, hint=f'write "{gpu.canonical}"')
    return name


def check_condition(text: str, field: str) -> tuple[Program, frozenset[str], frozenset[str], Comparisons]:
    """Return the program of `text`, its facts, the labels that it reads, and the texts that it compares facts with.

    Raise InputError that names `field`, the character, and what to write instead.
    """
    if len(text) > CONDITION_CHARS_MAX:
        raise InputError(
            f"has {len(text)} characters", field=field, hint=f"write at most {CONDITION_CHARS_MAX}, or two policies"
        )
    if not text.strip():
        raise InputError("is empty", field=field, hint="""write when = 'state == "idle"'""")
    try:
        return _ConditionParser(text, field).parse()
    except InputError as error:
        for one in error.errors if isinstance(error, SeveralInputsError) else (error,):
            if match := POSITION_PATTERN.search(one.field or ""):
                one.excerpt = mark_position(text, int(match[1]) - 1)
                one.args = (str(one),)
        raise


class _ConditionParser:
    """Parses one condition from left to right, with one method for each rule of the grammar."""

    def __init__(self, text: str, field: str) -> None:
        self.field, self.text = field, text
        self.names, self.keys = set[str](), set[str]()
        self.comparisons = list[tuple[str, str, str]]()
        self.tokens = tokenize_condition(text, field)
        self.next, self.depth = 0, 0
        self.errors = list[InputError]()

    def parse(self) -> tuple[Program, frozenset[str], frozenset[str], Comparisons]:
        term = self._parse_or()
        raise_errors(self.errors)
        if self._now.kind != "end":
            hint = NO_ARITHMETIC if self._is_next("-") else "join conditions by && or ||"
            self._fail(self._now.at, f"'{shorten(self._now.text, 20)}' was not expected", hint)
        self._require_truth(term)
        if not self.names:
            self._fail(0, "uses no fact about the machine", f"use facts such as {', '.join(list(FACTS)[:4])}")
        return term.program, frozenset(self.names), frozenset(self.keys), tuple(self.comparisons)

    @property
    def _now(self) -> ConditionToken:
        return self.tokens[self.next]

    def _advance(self) -> ConditionToken:
        token = self._now
        self.next = min(self.next + 1, len(self.tokens) - 1)
        return token

    def _is_next(self, *signs: str) -> bool:
        return self._now.kind in ("sign", "name") and self._now.text in signs

    def _expect(self, sign: str) -> None:
        if not self._is_next(sign):
            if self.errors:  # what is missing may be what was skipped
                raise SeveralInputsError(tuple(self.errors))
            got = f"'{shorten(self._now.text, 20)}'" if self._now.kind != "end" else "its end"
            self._fail(self._now.at, f"needs {sign} here, not {got}", f"write {sign}")
        self._advance()

    def _fail(self, at: int, what: str, hint: str | None = None) -> NoReturn:
        raise InputError(what, field=format_position(self.field, at), hint=hint)

    def _parse_or(self) -> ConditionTerm:
        return self._parse_joined("||", self._parse_and)

    def _parse_and(self) -> ConditionTerm:
        return self._parse_joined("&&", self._parse_comparison)

    def _parse_joined(self, sign: str, part: Callable[[], ConditionTerm]) -> ConditionTerm:
        parts = [self._parse_part(part)]
        while self._is_next(sign):
            self._advance()
            parts.append(self._parse_part(part))
        if self._now.kind == "name" and self._now.text in WORD_HINTS:
            self._fail(self._now.at, f"'{self._now.text}' is not a fact or a function", f"write {WORD_HINTS[self._now.text]}")
        if len(parts) == 1:
            return parts[0]
        for one in parts:
            self._require_truth(one)
        join = join_all if sign == "&&" else join_any
        return ConditionTerm(kind=TRUTH, program=join([one.program for one in parts]), at=parts[0].at)

    def _parse_part(self, part: Callable[[], ConditionTerm]) -> ConditionTerm:
        """Return what `part` parses; where it fails, keep the error and go on behind it, so that all of them are shown."""
        try:
            return part()
        except SeveralInputsError:
            raise
        except InputError as error:
            self.errors.append(error)
        while self._now.kind != "end" and not self._is_next("&&", "||", ")"):
            self._advance()
        return ConditionTerm(kind=TRUTH, program=hold_literal(value=True), at=0)  # never run: `parse` raises

    def _require_truth(self, term: ConditionTerm) -> None:
        if term.kind != TRUTH:
            problem = f"{self._describe_term(term)} is {term.kind}, and true or false is needed"
            self._fail(term.at, problem, f"compare it, such as {term.fact or 'age'} {KIND_EXAMPLES[term.kind]}")

    def _parse_comparison(self) -> ConditionTerm:
        left = self._parse_operand()
        if self._is_next("in"):
            return self._parse_membership(left)
        if not self._is_next(*COMPARISONS):
            return left
        sign = self._advance().text
        right = self._parse_operand()
        if self._is_next(*COMPARISONS, "in"):
            self._fail(self._now.at, "chains two comparisons", "write two comparisons, joined by &&")
        self._require_same_kind(left, right)
        if left.kind in (TEXT, TRUTH) and sign not in ("==", "!="):
            self._fail(left.at, f"{left.kind} has no order", "write == or !=")
        self._check_words(left, right)
        return ConditionTerm(kind=TRUTH, program=apply(COMPARISONS[sign], left.program, right.program), at=left.at)

    def _parse_membership(self, left: ConditionTerm) -> ConditionTerm:
        at = self._advance().at
        if self._is_next("labels"):
            right = self._parse_operand()
            if right.kind != LABELS or left.kind != TEXT:
                self._fail(at, "needs a text before it, and labels after it", 'write "team" in labels')
            return ConditionTerm(kind=TRUTH, program=apply(operator.contains, read_fact(LABELS), left.program), at=left.at)
        if not self._is_next("["):
            self._fail(self._now.at, "`in` needs a list or labels", 'write provider in ["aws", "gcp"]')
        self._advance()
        items = list[ConditionTerm]()
        while not self._is_next("]"):
            if items:
                self._expect(",")
            items.append(self._parse_operand())
            if items[-1].literal is None:
                self._fail(items[-1].at, "a list may only contain literals", 'write ["aws", "gcp"]')
            self._require_same_kind(left, items[-1])
            self._check_words(left, items[-1])
        self._advance()
        if not items:
            self._fail(at, "the list is empty, so nothing is in it", 'write ["aws", "gcp"]')
        values = frozenset(one.program({}) for one in items)  # literals need no facts
        return ConditionTerm(kind=TRUTH, program=apply(values.__contains__, left.program), at=left.at)

    def _require_same_kind(self, left: ConditionTerm, right: ConditionTerm) -> None:
        """Raise InputError unless both terms have the same kind and neither is the whole label table."""
        if left.kind == right.kind and left.kind != LABELS:
            return
        fixed, other = (left, right) if left.fact else (right, left)
        cure = KIND_HINTS[fixed.kind].format(other.literal if other.kind == NUMBER and other.literal else "0.50")
        problem = (
            f"{self._describe_term(fixed)} is {KIND_NAMES.get(fixed.kind, fixed.kind)}, and {self._describe_term(other)} is "
            f"{KIND_NAMES.get(other.kind, other.kind)}"
        )
        self._fail(right.at, problem, cure)

    def _check_words(self, left: ConditionTerm, right: ConditionTerm) -> None:
        for fact, other in ((left, right), (right, left)):
            if fact.fact and other.literal is not None:
                check_word(fact.fact, other.literal, format_position(self.field, other.at))
                if fact.kind == TEXT:
                    self.comparisons.append((fact.fact, "", other.literal))

    def _describe_term(self, term: ConditionTerm) -> str:
        return term.fact or (shorten(f"'{term.literal}'", 40) if term.literal is not None else "that")

    def _parse_operand(self) -> ConditionTerm:
        self.depth += 1
        if self.depth > NESTING_MAX:
            self._fail(self._now.at, f"has more than {NESTING_MAX} nested brackets", "write two policies")
        term = self._parse_suffixes(self._parse_primary())
        self.depth -= 1
        return term

    def _parse_primary(self) -> ConditionTerm:
        token = self._advance()
        if token.kind == "text":
            text = self._unquote(token)
            return ConditionTerm(kind=TEXT, program=hold_literal(text), at=token.at, literal=text)
        if token.kind == "number" or token.text == "-":
            return self._parse_number(token)
        if token.text == "!":
            inner = self._parse_operand()
            self._require_truth(inner)
            return ConditionTerm(kind=TRUTH, program=apply(operator.not_, inner.program), at=token.at)
        if token.text == "(":
            inner = self._parse_or()
            self._expect(")")
            return inner
        if token.kind == "name":
            return self._parse_name(token)
        return self._fail_unexpected(token)

    def _fail_unexpected(self, token: ConditionToken) -> NoReturn:
        what = "ends too early" if token.kind == "end" else f"'{token.text}' was not expected"
        self._fail(token.at, what, "write a fact, a text, a number, or a bracket")

    def _unquote(self, token: ConditionToken) -> str:
        if token.text.startswith("r"):
            if token.text[1] in token.text[2:-1]:
                self._fail(token.at, "a quote ends an r-text, after \\ too", "write it in the other quotes")
            return token.text[2:-1]
        odd = next((match[1] for match in ESCAPE_PATTERN.finditer(token.text) if match[1] not in "\\\"'"), None)
        if odd is not None:
            self._fail(token.at, f"\\{odd} is not known in a text", f'write \\\\{odd}, or r"..." for a pattern')
        return ESCAPE_PATTERN.sub(r"\1", token.text[1:-1])

    def _parse_number(self, token: ConditionToken) -> ConditionTerm:
        at, sign = token.at, ""
        if token.text == "-":
            sign, token = "-", self._advance()
            if token.kind != "number":
                self._fail(token.at, "- belongs to a number only", NO_ARITHMETIC)
        if self._is_next("-"):
            self._fail(self._now.at, "'-' was not expected", NO_ARITHMETIC)
        if self._now.kind == "name" and self._now.at == token.at + len(token.text):
            unit = self._now.text
            self._fail(at, f"a number has no unit, and '{token.text}{unit}' has", f'write duration("{token.text}{unit}")')
        value = float(sign + token.text)
        if abs(value) > 1e18:  # noqa: PLR2004 - beyond any quantity here
            self._fail(at, "is too large a number", "check the unit and the zeros")
        return ConditionTerm(kind=NUMBER, program=hold_literal(value), at=at, literal=sign + token.text)

    def _parse_name(self, token: ConditionToken) -> ConditionTerm:
        name = token.text
        if name in ("true", "false"):
            return ConditionTerm(kind=TRUTH, program=hold_literal(name == "true"), at=token.at, literal=name)
        if name in WORD_HINTS:
            self._fail(token.at, f"'{name}' is not a fact or a function", f"write {WORD_HINTS[name]}")
        if self._is_next("("):
            return self._parse_call(token)
        fact = FACTS.get(name)
        if fact is None and any(name in words for words in FACT_CHOICES.values()):
            self._fail(token.at, f"'{name}' is a value, and values stand in quotes", f'write "{name}"')
        if fact is None:
            near = find_nearest_names(name, (*FACTS, *FUNCTIONS))
            hint = "" if near else f"known: {', '.join(FACTS)}"
            raise UnknownNameError("name", name, field=format_position(self.field, token.at), nearest=near, hint=hint)
        if self._is_next(".") and self.tokens[self.next + 1].text == MEAN:
            name = self._parse_mean(name)
        self.names.add(name)
        return ConditionTerm(kind=fact.kind, program=read_fact(name), at=token.at, fact=name)

    def _parse_mean(self, fact: str) -> str:
        """Parse `.mean("2h")` after `fact`; return the name of that mean."""
        self._advance()
        at = self._advance().at
        if fact not in UTILIZATION_FACTS:
            self._fail(at, f"{fact} has no mean", f"means exist of {', '.join(UTILIZATION_FACTS)}")
        self._expect("(")
        operand = self._parse_operand()
        self._expect(")")
        if operand.kind != TEXT or operand.literal is None:
            self._fail(operand.at, "mean takes one literal text, a time", f'write {fact}.mean("2h")')
        window = parse_duration(operand.literal, format_position(self.field, operand.at), least=MEAN_LEAST, most=MEAN_MOST)
        return name_mean(fact, window)

    def _parse_call(self, token: ConditionToken) -> ConditionTerm:
        name, field = token.text, format_position(self.field, token.at)
        if name not in FUNCTIONS:
            hint = f"there are {', '.join(FUNCTIONS)}"
            raise UnknownNameError("function", name, field=field, nearest=find_nearest_names(name, FUNCTIONS), hint=hint)
        self._advance()
        operand = self._parse_operand()
        self._expect(")")
        needed_kind = TEXT if name == "duration" else NUMBER
        if operand.literal is None or operand.kind != needed_kind:
            sample = 'duration("45m")' if name == "duration" else f"{name}(12.50)"
            self._fail(operand.at, f"{name} takes one literal {needed_kind}", f"write {sample}")
        if name == "duration":
            value = parse_duration(operand.literal, field) // timedelta(microseconds=1)
        else:
            value = Money.parse(operand.literal, field=field).nano
        if name == "usd_per_hour" and value < 0:
            self._fail(operand.at, "a rate cannot be negative", "write usd_per_hour(0.30)")
        kind = {"duration": DURATION, "usd": MONEY, "usd_per_hour": RATE}[name]
        program = hold_literal(clamp_integer(value))
        return ConditionTerm(kind=kind, program=program, at=token.at, literal=f"{name}({operand.literal})")

    def _parse_suffixes(self, term: ConditionTerm) -> ConditionTerm:
        while self._is_next(".", "["):
            if term.kind == LABELS:
                term = self._parse_label(term)
            elif self._advance().text == "." and self._now.text in METHODS and term.kind == TEXT:
                term = self._parse_method(term)
            else:
                near = find_nearest_names(self._now.text, METHODS) if term.kind == TEXT else ()
                hint = f"did you mean {near[0]}?" if near else f"only text has methods: {', '.join(METHODS)}"
                hint = f'write {term.fact}.mean("2h")' if term.fact in UTILIZATION_FACTS else hint
                self._fail(
                    self._now.at, f"'{shorten(self._now.text, 20)}' is not a method of {self._describe_term(term)}", hint
                )
        return term

    def _parse_label(self, term: ConditionTerm) -> ConditionTerm:
        if self._advance().text == ".":
            token = self._advance()
            if token.kind != "name" or token.text in METHODS:
                self._fail(token.at, "is not a label's key", KIND_HINTS[LABELS])
            key = token.text
        else:
            token = self._advance()
            if token.kind != "text":
                self._fail(token.at, "a label's key is a text", KIND_HINTS[LABELS])
            key = self._unquote(token)
            self._expect("]")
        self.keys.add(key)
        return ConditionTerm(kind=TEXT, program=apply(lambda labels: labels.get(key), read_fact(LABELS)), at=term.at)

    def _parse_method(self, term: ConditionTerm) -> ConditionTerm:
        method = self._advance().text
        self._expect("(")
        operand = self._parse_operand()
        self._expect(")")
        if operand.kind != TEXT or operand.literal is None:
            self._fail(operand.at, f"{method} takes one literal text", f'write {method}("a")')
        test = make_text_test(method, operand.literal, format_position(self.field, operand.at))
        if term.fact:
            self.comparisons.append((term.fact, method, operand.literal))
        return ConditionTerm(kind=TRUTH, program=apply(test, term.program), at=term.at)
