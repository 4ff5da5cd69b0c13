"""The language of conditions: a strict subset of CEL, checked here word by word, and handed to the CEL library as plain CEL.

    state == "idle" && confidence >= 0.9 && rate >= usd_per_hour(0.30)
    power == "stopped" && stopped_for > duration("168h") && !("keep" in labels)

Known facts, text in quotes, numbers, true and false, duration("45m"), usd(12.50), usd_per_hour(0.30), && || ! and brackets,
== != < <= > >=, `in` with a list or with labels, labels["key"], and on text startsWith, endsWith, contains, matches. No
arithmetic, no macros, no `? :`. Every comparison is between things of one kind: money with money, rates with rates, times with
times. They are whole numbers (nano-dollars, microseconds) once they are checked, so that CEL compares them exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import NoReturn

from costguard.errors import InputError, UnknownNameError, shorten
from costguard.guard.condition import DURATION, FACTS, LABELS, MONEY, NUMBER, RATE, TEXT, TRUTH
from costguard.settings.condition_syntax import (
    COMPARISONS,
    CURE,
    DEEPEST,
    ESCAPE,
    FUNCTIONS,
    LONGEST,
    METHODS,
    NO_ARITHMETIC,
    WORDS,
    Term,
    Token,
    example,
    named,
    placed,
    quoted,
    tokens,
    within,
)
from costguard.settings.lasting import lasting
from costguard.settings.vocabulary import check_word
from costguard.values.checks import find_nearest_names
from costguard.values.money import Money


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A condition that was checked. `cel`: what CEL evaluates. `names`: its facts. `keys`: the labels it reads."""

    cel: str
    names: frozenset[str]
    keys: frozenset[str]
    patterns: tuple[tuple[str, str], ...]


def check_condition(text: str, field: str) -> Checked:
    """`text` checked; InputError names `field`, the character, and what to write instead."""
    if len(text) > LONGEST:
        raise InputError(f"has {len(text)} characters", field=field, hint=f"write at most {LONGEST}, or two policies")
    if not text.strip():
        raise InputError("is empty", field=field, hint="""write when = 'state == "idle"'""")
    return _Reader(text, field).whole()


class _Reader:
    """Reads one condition from left to right, a method for each rule of its grammar."""

    def __init__(self, text: str, field: str) -> None:
        self.field, self.text = field, text
        self.names, self.keys = set[str](), set[str]()
        self.patterns: list[tuple[str, str]] = []
        self.tokens = tokens(text, field)
        self.next, self.depth = 0, 0

    def whole(self) -> Checked:
        term = self._either()
        if self._now.kind != "end":
            hint = NO_ARITHMETIC if self._is("-") else "join conditions by && or ||"
            self._fail(self._now.at, f"'{shorten(self._now.text, 20)}' was not expected", hint)
        self._truth(term)
        if not self.names:
            self._fail(0, "says nothing of the machine", f"use facts such as {', '.join(list(FACTS)[:4])}")
        return Checked(cel=term.cel, names=frozenset(self.names), keys=frozenset(self.keys), patterns=tuple(self.patterns))

    @property
    def _now(self) -> Token:
        return self.tokens[self.next]

    def _take(self) -> Token:
        token = self._now
        self.next = min(self.next + 1, len(self.tokens) - 1)
        return token

    def _is(self, *signs: str) -> bool:
        return self._now.kind in ("sign", "name") and self._now.text in signs

    def _want(self, sign: str) -> None:
        if not self._is(sign):
            got = f"'{shorten(self._now.text, 20)}'" if self._now.kind != "end" else "its end"
            self._fail(self._now.at, f"needs {sign} here, not {got}", f"write {sign}")
        self._take()

    def _fail(self, at: int, what: str, hint: str | None = None) -> NoReturn:
        raise InputError(what, field=placed(self.field, at), hint=hint)

    def _either(self) -> Term:
        return self._joined("||", self._all)

    def _all(self) -> Term:
        return self._joined("&&", self._compared)

    def _joined(self, sign: str, part: Callable[[], Term]) -> Term:
        parts = [part()]
        while self._is(sign):
            self._take()
            parts.append(part())
        if self._now.kind == "name" and self._now.text in WORDS:
            self._fail(self._now.at, f"'{self._now.text}' is no word of it", f"write {WORDS[self._now.text]}")
        if len(parts) == 1:
            return parts[0]
        for one in parts:
            self._truth(one)
        return Term(kind=TRUTH, cel=f"({f' {sign} '.join(one.cel for one in parts)})", at=parts[0].at)

    def _truth(self, term: Term) -> None:
        if term.kind != TRUTH:
            told = f"{self._told(term)} is {term.kind}, and true or false is needed"
            self._fail(term.at, told, f"compare it, such as {term.fact or 'age'} {example(term.kind)}")

    def _compared(self) -> Term:
        left = self._part()
        if self._is("in"):
            return self._within(left)
        if not self._is(*COMPARISONS):
            return left
        sign = self._take().text
        right = self._part()
        if self._is(*COMPARISONS, "in"):
            self._fail(self._now.at, "compares twice in a row", "write two comparisons, joined by &&")
        self._alike(left, right)
        if left.kind in (TEXT, TRUTH) and sign not in ("==", "!="):
            self._fail(left.at, f"{left.kind} has no order", "write == or !=")
        self._words(left, right)
        return Term(kind=TRUTH, cel=f"({left.cel} {sign} {right.cel})", at=left.at)

    def _within(self, left: Term) -> Term:
        at = self._take().at
        if self._is("labels"):
            right = self._part()
            if right.kind != LABELS or left.kind != TEXT:
                self._fail(at, "needs a text before it, and labels after it", 'write "team" in labels')
            return Term(kind=TRUTH, cel=f"({left.cel} in labels)", at=left.at)
        if not self._is("["):
            self._fail(self._now.at, "`in` needs a list or labels", 'write provider in ["aws", "gcp"]')
        self._take()
        items = list[Term]()
        while not self._is("]"):
            if items:
                self._want(",")
            items.append(self._part())
            if items[-1].literal is None:
                self._fail(items[-1].at, "a list holds what is written out", 'write ["aws", "gcp"]')
            self._alike(left, items[-1])
            self._words(left, items[-1])
        self._take()
        if not items:
            self._fail(at, "the list is empty, which nothing is in", 'write ["aws", "gcp"]')
        return Term(kind=TRUTH, cel=f"({left.cel} in [{', '.join(one.cel for one in items)}])", at=left.at)

    def _alike(self, left: Term, right: Term) -> None:
        """Both of one kind, and no labels as a whole."""
        if left.kind == right.kind and left.kind != LABELS:
            return
        fixed, other = (left, right) if left.fact else (right, left)
        cure = CURE[fixed.kind].format(other.literal if other.kind == NUMBER and other.literal else "0.50")
        told = f"{self._told(fixed)} is {named(fixed.kind)}, and {self._told(other)} is {named(other.kind)}"
        self._fail(right.at, told, cure)

    def _words(self, left: Term, right: Term) -> None:
        for fact, other in ((left, right), (right, left)):
            if fact.fact and other.literal is not None:
                check_word(fact.fact, other.literal, placed(self.field, other.at))

    def _told(self, term: Term) -> str:
        return term.fact or (shorten(f"'{term.literal}'", 40) if term.literal is not None else "that")

    def _part(self) -> Term:
        self.depth += 1
        if self.depth > DEEPEST:
            self._fail(self._now.at, f"has more than {DEEPEST} brackets within each other", "write two policies")
        term = self._dotted(self._one())
        self.depth -= 1
        return term

    def _one(self) -> Term:
        token = self._take()
        if token.kind == "text":
            text = self._unquoted(token)
            return Term(kind=TEXT, cel=quoted(text), at=token.at, literal=text)
        if token.kind == "number" or token.text == "-":
            return self._number(token)
        if token.text == "!":
            inner = self._part()
            self._truth(inner)
            return Term(kind=TRUTH, cel=f"(!{inner.cel})", at=token.at)
        if token.text == "(":
            inner = self._either()
            self._want(")")
            return inner
        if token.kind == "name":
            return self._named_one(token)
        return self._odd(token)

    def _odd(self, token: Token) -> NoReturn:
        what = "ends too early" if token.kind == "end" else f"'{token.text}' was not expected"
        self._fail(token.at, what, "write a fact, a text, a number, or a bracket")

    def _unquoted(self, token: Token) -> str:
        if token.text.startswith("r"):
            return token.text[2:-1]
        odd = next((found[1] for found in ESCAPE.finditer(token.text) if found[1] not in "\\\"'"), None)
        if odd is not None:
            self._fail(token.at, f"\\{odd} is not known in a text", f'write \\\\{odd}, or r"..." for a pattern')
        return ESCAPE.sub(r"\1", token.text[1:-1])

    def _number(self, token: Token) -> Term:
        at, sign = token.at, ""
        if token.text == "-":
            sign, token = "-", self._take()
            if token.kind != "number":
                self._fail(token.at, "- belongs to a number only", NO_ARITHMETIC)
        if self._is("-"):
            self._fail(self._now.at, "'-' was not expected", NO_ARITHMETIC)
        if self._now.kind == "name" and self._now.at == token.at + len(token.text):
            unit = self._now.text
            self._fail(at, f"a number has no unit, and '{token.text}{unit}' has", f'write duration("{token.text}{unit}")')
        value = float(sign + token.text)
        if abs(value) > 1e18:  # noqa: PLR2004 - beyond any quantity here
            self._fail(at, "is too large a number", "check the unit and the zeros")
        return Term(kind=NUMBER, cel=repr(value), at=at, literal=sign + token.text)

    def _named_one(self, token: Token) -> Term:
        name = token.text
        if name in ("true", "false"):
            return Term(kind=TRUTH, cel=name, at=token.at, literal=name)
        if name in WORDS:
            self._fail(token.at, f"'{name}' is no word of it", f"write {WORDS[name]}")
        if self._is("("):
            return self._called(token)
        fact = FACTS.get(name)
        if fact is None:
            near = find_nearest_names(name, (*FACTS, *FUNCTIONS))
            hint = "" if near else f"known: {', '.join(FACTS)}"
            raise UnknownNameError("name", name, field=placed(self.field, token.at), nearest=near, hint=hint)
        self.names.add(name)
        return Term(kind=fact.kind, cel=name, at=token.at, fact=name)

    def _called(self, token: Token) -> Term:
        name, field = token.text, placed(self.field, token.at)
        if name not in FUNCTIONS:
            hint = f"there are {', '.join(FUNCTIONS)}"
            raise UnknownNameError("function", name, field=field, nearest=find_nearest_names(name, FUNCTIONS), hint=hint)
        self._take()
        given = self._part()
        self._want(")")
        wanted = TEXT if name == "duration" else NUMBER
        if given.literal is None or given.kind != wanted:
            sample = 'duration("45m")' if name == "duration" else f"{name}(12.50)"
            self._fail(given.at, f"{name} takes one {wanted} that is written out", f"write {sample}")
        if name == "duration":
            value = lasting(given.literal, field) // timedelta(microseconds=1)
        else:
            value = Money.parse(given.literal, field=field).nano
        if name == "usd_per_hour" and value < 0:
            self._fail(given.at, "a rate is never negative", "write usd_per_hour(0.30)")
        kind = {"duration": DURATION, "usd": MONEY, "usd_per_hour": RATE}[name]
        return Term(kind=kind, cel=str(within(value)), at=token.at, literal=f"{name}({given.literal})")

    def _dotted(self, term: Term) -> Term:
        while self._is(".", "["):
            if term.kind == LABELS:
                term = self._label(term)
            elif self._take().text == "." and self._now.text in METHODS and term.kind == TEXT:
                term = self._asked(term)
            else:
                near = find_nearest_names(self._now.text, METHODS) if term.kind == TEXT else ()
                hint = f"did you mean {near[0]}?" if near else f"text has {', '.join(METHODS)}; nothing else has such"
                self._fail(self._now.at, f"'{shorten(self._now.text, 20)}' is nothing that {self._told(term)} has", hint)
        return term

    def _label(self, term: Term) -> Term:
        if self._take().text == ".":
            token = self._take()
            if token.kind != "name" or token.text in METHODS:
                self._fail(token.at, "is no label's key", CURE[LABELS])
            key = token.text
        else:
            token = self._take()
            if token.kind != "text":
                self._fail(token.at, "a label's key is a text", CURE[LABELS])
            key = self._unquoted(token)
            self._want("]")
        self.keys.add(key)
        return Term(kind=TEXT, cel=f"labels[{quoted(key)}]", at=term.at)

    def _asked(self, term: Term) -> Term:
        method = self._take().text
        self._want("(")
        given = self._part()
        self._want(")")
        if given.kind != TEXT or given.literal is None:
            self._fail(given.at, f"{method} takes one text that is written out", f'write {method}("a")')
        if method == "matches":
            self.patterns.append((given.literal, placed(self.field, given.at)))
        return Term(kind=TRUTH, cel=f"{term.cel}.{method}({given.cel})", at=term.at)
