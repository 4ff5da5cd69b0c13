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
from costguard.testing.story import StoryExpectation
from costguard.testing.story_tokens import MomentReader, build_line_error, parse_amount, split_tokens

MESSAGE_WORDS = ("notice", "page", "warning", "resolved", "message")
ACTION_WORDS = ("stop", "terminate", "act")
INTENT_WORDS = ("verified", "unconfirmed", "cancelled", "failed", "planned")
POWER_WORDS = ("running", "stopping", "stopped", "ended")
_SPENT = re.compile(r"(\S+) (spent|saved) (at most )?(\$\S+)(?: (compute|disk|idle))?(?: from (.+) to (.+))?")


def parse_expectation(  # noqa: PLR0911 - a table of words
    text: str, line: int, moments: MomentReader, machines: Collection[str]
) -> StoryExpectation:
    """One expectation. InputError that names the line."""
    if found := _SPENT.fullmatch(text):
        return _parse_sum(found, text, line, moments, machines)
    at, until, rest = moments.read(text, line)
    base = StoryExpectation(what="", line=line, text_of_line=text, at=at, until=until)
    words = split_tokens(rest)
    match words:
        case ["never", *more] if more:
            return _parse_occurrence(replace(base, times=0), more, machines)
        case ["once", *more] if more:
            return _parse_occurrence(replace(base, times=1), more, machines)
        case [number, "times", *more] if number.isdigit() and more:
            return _parse_occurrence(replace(base, times=int(number)), more, machines)
        case [*_] if at is None:
            raise build_line_error(
                line, f"'{text}' has no time", "begin with 18:50, or with never, once, 3 times, or NAME spent $1.00"
            )
        case ["refused" | "answer" as what, said]:
            return replace(base, what=what, text=said)
        case [name, "is", state] if name in machines:
            if state not in ACTIVITY_STATES and state not in POWER_WORDS:
                raise build_line_error(
                    line, f"nothing is ever '{state}'", f"write one of: {', '.join((*ACTIVITY_STATES, *POWER_WORDS))}"
                )
            return replace(base, what="is", name=name, topic=state)
        case _:
            return _parse_occurrence(base, words, machines)


def _parse_occurrence(base: StoryExpectation, words: list[str], machines: Collection[str]) -> StoryExpectation:
    text = ""
    if len(words) > 2 and words[-2] == "saying":  # noqa: PLR2004 - a deed stays
        words, text = words[:-2], words[-1]
    match words:
        case [what] if what in (*MESSAGE_WORDS, *ACTION_WORDS):
            return replace(base, what=what, text=text)
        case [what, name] if what in (*ACTION_WORDS, *INTENT_WORDS) and name in machines:
            return replace(base, what=what, name=name)
        case [what, name] if what in MESSAGE_WORDS and name in machines:
            return replace(base, what=what, name=name, text=text)
        case [what, topic] if what in MESSAGE_WORDS:
            return replace(base, what=what, topic=topic, text=text)
        case [what, topic, name] if what in MESSAGE_WORDS and name in machines:
            return replace(base, what=what, topic=topic, name=name, text=text)
        case _:
            hint = f"write one of: {', '.join((*MESSAGE_WORDS, *ACTION_WORDS, *INTENT_WORDS))}, and of whom"
            raise build_line_error(base.line, f"nothing is known of '{' '.join(words)}'", hint)


def _parse_sum(
    found: re.Match[str], text: str, line: int, moments: MomentReader, machines: Collection[str]
) -> StoryExpectation:
    name, what, most, amount, topic, begin, end = found.groups()
    if name != "all" and name not in machines:
        raise build_line_error(line, f"there is no machine '{name}'", f"write one of: all, {', '.join(machines)}")
    since = until = None
    if begin:
        moments.last = moments.start
        since, until = moments.at(begin, line), moments.at(end, line)
    return StoryExpectation(
        what=what,
        line=line,
        text_of_line=text,
        at=since,
        until=until,
        name="" if name == "all" else name,
        topic=topic or "",
        money=parse_amount(amount, line),
        most=bool(most),
    )
