"""Reads what happens in a story. A line begins with its moment or stretch, then says what happens to whom.

Machines, clouds, what surrounds costguard, and people:

    16:00        box busy | busy on 1 GPU | quiet [holding] | io 6.1 MB/s | cpu 1 core | hang 80 W | gpu 12 % | no signal
                     starved | jumps     (GPU 3 %, 0.15 cores, 0.5 MB/s; GPU 97 % each third minute, else 2 %)
    16:00        box connected | types | alone | queue 3 jobs           (beside what it measures)
    18:40        box restarts | starts | stops | ends                   (by hand, not by costguard)
    18:41        box label costguard=never | unlabel costguard | replaced by box2 | costs $3.60
    19:00        box deaf [once | 2 times] | lost | unclear | refuses | waits | obeys    (how it takes acts from now on)
    19:00        box look 2 fails | look 2 takes 20s     (the second look at it from now on: as a stop looks twice)
    19:55-20:40  aws down | aws empty | aws partial | aws stale 3 polls | aws hides box
    19:55-20:40  watchdog down | channel down | ledger full
    20:00        clock jumps 1h | clock jumps -1h | watchdog crashes
    18:55        keep box for 2h why "one more run" by ada
    18:55        protect box | unprotect box | snooze idle-gpu for 4h | freeze | thaw | phase download box for 3h
    18:55        plan-stop box in 3h | cancel-stop box | set-until box in 3h
    18:55        approve terminate box | arm idle-gpu stop | hold pod3 $2.99 | run "costguard status"

Reads what a story expects. A moment stands for the minute (the poll) that begins there.

Messages, acts, intents, states, replies, never and how often, and money:

    18:50        notice idle-gpu box [saying "32.77"]     a message on that topic about that machine; also: warning
    18:50        page hung-job box | resolved hung-job box | message
    19:05        stop box | terminate box | start box     the cloud received it then
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
from collections.abc import Collection, Mapping
from dataclasses import replace

from costguard.guard.signals import ACTIVITY_STATES
from costguard.testing.cloud import LISTING_FAULTS
from costguard.testing.machine import ANSWERS
from tests.stories.setup import parse_labels
from tests.stories.story import (
    ANSWER,
    LABEL,
    LISTING,
    LOOK,
    MEASURES,
    PERSON,
    PRICE,
    REPLACED,
    SURROUNDINGS,
    TURNS,
    StoryEvent,
    StoryExpectation,
)
from tests.stories.tokens import (
    MomentReader,
    build_line_error,
    format_amount_plainly,
    parse_amount,
    parse_duration,
    split_tokens,
)

_BYTES: Mapping[str, float] = {"B/s": 1, "kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9}
MANUAL_CHANGES = ("restarts", "starts", "stops", "ends")
_MEASURED = re.compile(
    r"(busy on|busy|quiet|connected|alone|types|no signal|io|cpu|hang|gpu|queue|starved|jumps)"
    r"(?: ([\d.]+) ?(\S+))?(?: (holding))?"
)
_UNITS: Mapping[str, Collection[str]] = {
    "io": _BYTES,
    "cpu": ("core", "cores"),
    "hang": ("W",),
    "gpu": ("%",),
    "busy on": ("GPU", "GPUs"),
    "queue": ("job", "jobs"),
}


def parse_event(
    text: str, line: int, moments: MomentReader, machines: Collection[str], providers: Collection[str]
) -> StoryEvent:
    """One event. InputError that names the line."""
    at, until, rest = moments.read(text, line)
    if at is None:
        raise build_line_error(line, "an event has no time", "begin with 18:05, Fri 18:05, +45m or 19:55-20:40")
    words = split_tokens(rest)
    if not words:
        raise build_line_error(line, "nothing happens", "say what: box quiet")
    if words[0] in machines:
        kind, what, amount, name = _parse_machine_event(words, line)
        read = StoryEvent(at=at, kind=kind, what=what, line=line, name=words[0], amount=amount, text=name)
        read = replace(read, length=parse_duration(name, line) if kind == LOOK and name else None)
    elif words[0] in ("watchdog", "channel", "ledger", "clock"):
        read = _parse_surroundings(StoryEvent(at=at, kind=SURROUNDINGS, what="", line=line), words)
    elif words[0] in providers:
        read = _parse_listing_event(StoryEvent(at=at, kind=LISTING, what="", line=line, name=words[0]), words, machines)
    else:
        read = _parse_person_event(StoryEvent(at=at, kind=PERSON, what=words[0], line=line), words, machines)
    needs_end = read.kind == LISTING or (read.kind == SURROUNDINGS and read.what in ("down", "full"))
    if needs_end != (until is not None):
        what, hint = ("needs an end", "19:55-20:40") if needs_end else ("happens at one moment", "18:05")
        raise build_line_error(line, f"'{rest}' {what}", f"write {hint} {rest}")
    return replace(read, until=until)


def _parse_machine_event(words: list[str], line: int) -> tuple[str, str, float, str]:  # noqa: C901, PLR0911, PLR0912 - a table of words
    """Kind, word, amount and text."""
    said = " ".join(words[1:])
    if found := _MEASURED.fullmatch(said):
        what, number, unit = found[1], found[2], found[3] or ""
        if bool(number) != (what in _UNITS) or (number and unit not in _UNITS[what]):
            raise build_line_error(
                line, f"'{said}' has a wrong amount or unit", "write: io 6.1 MB/s, cpu 1 core, hang 80 W, gpu 12 %, busy"
            )
        return MEASURES, what, float(number or 0) * _BYTES.get(unit, 1), found[4] or ""
    match words[1:]:
        case [turn] if turn in MANUAL_CHANGES:
            return TURNS, turn, 0, ""
        case ["label", *pairs] if pairs:
            return LABEL, "label", 0, "\n".join("=".join(pair) for pair in parse_labels(pairs, line))
        case ["unlabel", key]:
            return LABEL, "unlabel", 0, key
        case ["replaced", "by", name]:
            return REPLACED, "replaced", 0, name
        case ["costs", amount]:
            return PRICE, "costs", 0, format_amount_plainly(parse_amount(amount, line))
        case ["look", number, "fails"] if number.isdigit():
            return LOOK, "fails", float(number), ""
        case ["look", number, "takes", length] if number.isdigit():
            return LOOK, "takes", float(number), length
        case [how] if how in ANSWERS:
            return ANSWER, how, 0, ""
        case [how, "once"] if how in ANSWERS:
            return ANSWER, how, 1, ""
        case [how, number, "times"] if how in ANSWERS:
            return ANSWER, how, float(number), ""
        case _:
            raise build_line_error(
                line, f"nothing is known of '{said}'", "write: box quiet, box restarts, box label k=v, box deaf"
            )


def _parse_surroundings(event: StoryEvent, words: list[str]) -> StoryEvent:
    match words:
        case ["watchdog" | "channel" as name, "down"]:
            return replace(event, name=name, what="down")
        case ["ledger", "full"]:
            return replace(event, name="ledger", what="full")
        case ["watchdog", "crashes"]:
            return replace(event, name="watchdog", what="crashes")
        case ["clock", "jumps", by]:
            back = by.startswith("-")
            found = parse_duration(by.removeprefix("-"), event.line)
            return replace(event, name="clock", what="jumps", length=-found if back else found)
        case _:
            raise build_line_error(
                event.line, f"nothing is known of '{' '.join(words)}'", "write: watchdog down, clock jumps 1h"
            )


def _parse_listing_event(event: StoryEvent, words: list[str], machines: Collection[str]) -> StoryEvent:
    match words[1:]:
        case ["stale", polls, "polls"]:
            return replace(event, what="stale", amount=float(polls))
        case ["hides", name] if name in machines:
            return replace(event, what="hides", text=name)
        case [fault] if fault in LISTING_FAULTS and fault not in ("stale", "hides"):
            return replace(event, what=fault)
        case _:
            hint = f"write {words[0]} down, empty, partial, stale 3 polls or hides NAME"
            raise build_line_error(event.line, f"nothing is known of '{' '.join(words)}'", hint)


def _parse_person_event(event: StoryEvent, words: list[str], machines: Collection[str]) -> StoryEvent:  # noqa: PLR0911 - a table of words
    words, who, why = _split_who_and_why(words)
    event = replace(event, who=who, text=why)
    match words:
        case ["keep", name, "for", time] | ["plan-stop" | "set-until", name, "in", time] if name in machines:
            return replace(event, name=name, length=parse_duration(time, event.line))
        case ["protect" | "unprotect" | "cancel-stop", name] if name in machines:
            return replace(event, name=name)
        case ["approve", act, name] if name in machines:
            return replace(event, name=name, text=act)
        case ["snooze", topic, "for", time]:
            return replace(event, name=topic, length=parse_duration(time, event.line))
        case ["freeze" | "thaw" | "accept"]:
            return event
        case ["phase", phase, name, "for", time] if name in machines:
            return replace(event, name=name, text=phase, length=parse_duration(time, event.line))
        case ["arm", policy, level]:
            return replace(event, name=policy, text=level)
        case ["hold", name, amount]:
            return replace(event, name=name, money=parse_amount(amount, event.line))
        case ["run", command]:
            return replace(event, text=command)
        case _:
            what = f"nobody can '{' '.join(words)}'"
            raise build_line_error(
                event.line, what, "write: keep NAME for 2h, protect NAME, freeze, approve ACT NAME, arm POLICY LEVEL, run"
            )


def _split_who_and_why(words: list[str]) -> tuple[list[str], str, str]:
    """`words` without `by ada` and `why "..."` at their end, and those two."""
    who = why = ""
    while len(words) > 2 and words[-2] in ("by", "why"):
        who, why = (words[-1], why) if words[-2] == "by" else (who, words[-1])
        words = words[:-2]
    return words, who or "ada", why


MESSAGE_WORDS = ("notice", "page", "warning", "resolved", "message")
ACTION_WORDS = ("stop", "terminate", "start", "act")
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
    if len(words) > 2 and words[-2] == "saying":
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
