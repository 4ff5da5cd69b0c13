"""Reads what a story expects. A moment stands for the minute (the poll) that begins there.

Messages, acts, intents, states, replies, never and how often, and money:

    18:50        notice idle-gpu box [saying "32.77"]     a message on that topic about that machine; also: warning
    18:50        page hung-job box | resolved hung-job box | message
    19:05        stop box | terminate box                 the cloud received it then
    19:07        verified box | unconfirmed box | cancelled box | failed box | planned box    its intent came to that state
    14:00        box is active | idle | hung | unknown | warming     what costguard says
    19:07        box is running | stopping | stopped | ended         the truth
    12:00        refused "renewals" | answer "$5.98"      what the person of that moment was told
    13:00-17:00  never notice idle-gpu box | never stop box | never act    without a stretch: in the whole story
    once stop box | 3 times notice wasted box
    box spent $33.86 idle | compute | disk [from Fri 18:05 to Fri 19:07]
    all spent at most $500.00
    box saved $2,024.53 from Fri 19:07 to Mon 09:00       computing not paid, less the disks that were
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

from costguard.guard.work import ACTIVITY_STATES
from costguard.testing.story import Expectation
from costguard.testing.story_tokens import Moments, money, tokens, wrong

TOLD = ("notice", "page", "warning", "resolved", "message")
ACTS = ("stop", "terminate", "act")
INTENTS = ("verified", "unconfirmed", "cancelled", "failed", "planned")
POWERS = ("running", "stopping", "stopped", "ended")
_SPENT = re.compile(r"(\S+) (spent|saved) (at most )?(\$\S+)(?: (compute|disk|idle))?(?: from (.+) to (.+))?")


def read_expectation(  # noqa: PLR0911 - a table of words
    text: str, line: int, moments: Moments, machines: Collection[str]
) -> Expectation:
    """One expectation. InputError that names the line."""
    if found := _SPENT.fullmatch(text):
        return _sum(found, text, line, moments, machines)
    at, until, rest = moments.read(text, line)
    base = Expectation(what="", line=line, text_of_line=text, at=at, until=until)
    words = tokens(rest)
    match words:
        case ["never", *more] if more:
            return _deed(replace(base, times=0), more, machines)
        case ["once", *more] if more:
            return _deed(replace(base, times=1), more, machines)
        case [number, "times", *more] if number.isdigit() and more:
            return _deed(replace(base, times=int(number)), more, machines)
        case [*_] if at is None:
            raise wrong(line, f"'{text}' has no time", "begin with 18:50, or with never, once, 3 times, or NAME spent $1.00")
        case ["refused" | "answer" as what, said]:
            return replace(base, what=what, text=said)
        case [name, "is", state] if name in machines:
            if state not in ACTIVITY_STATES and state not in POWERS:
                raise wrong(line, f"nothing is ever '{state}'", f"write one of: {', '.join((*ACTIVITY_STATES, *POWERS))}")
            return replace(base, what="is", name=name, topic=state)
        case _:
            return _deed(base, words, machines)


def _deed(base: Expectation, words: list[str], machines: Collection[str]) -> Expectation:
    text = ""
    if len(words) > 2 and words[-2] == "saying":  # noqa: PLR2004 - a deed stays
        words, text = words[:-2], words[-1]
    match words:
        case [what] if what in (*TOLD, *ACTS):
            return replace(base, what=what, text=text)
        case [what, name] if what in (*ACTS, *INTENTS) and name in machines:
            return replace(base, what=what, name=name)
        case [what, name] if what in TOLD and name in machines:
            return replace(base, what=what, name=name, text=text)
        case [what, topic] if what in TOLD:
            return replace(base, what=what, topic=topic, text=text)
        case [what, topic, name] if what in TOLD and name in machines:
            return replace(base, what=what, topic=topic, name=name, text=text)
        case _:
            hint = f"write one of: {', '.join((*TOLD, *ACTS, *INTENTS))}, and of whom"
            raise wrong(base.line, f"nothing is known of '{' '.join(words)}'", hint)


def _sum(found: re.Match[str], text: str, line: int, moments: Moments, machines: Collection[str]) -> Expectation:
    name, what, most, amount, topic, begin, end = found.groups()
    if name != "all" and name not in machines:
        raise wrong(line, f"there is no machine '{name}'", f"write one of: all, {', '.join(machines)}")
    since = until = None
    if begin:
        moments.last = moments.start
        since, until = moments.at(begin, line), moments.at(end, line)
    return Expectation(
        what=what,
        line=line,
        text_of_line=text,
        at=since,
        until=until,
        name="" if name == "all" else name,
        topic=topic or "",
        money=money(amount, line),
        most=bool(most),
    )
