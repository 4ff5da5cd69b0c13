"""Holds what happened in a story against what it expects, and the ledger against the truth."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from fractions import Fraction

from costguard.guard.action_intents import CANCELLED, DONE, FAILED, PLANNED, UNCONFIRMED
from costguard.guard.alerts.alert import PAGE, RESOLVED, WARNING
from costguard.guard.signals import ACTIVITY_STATES
from costguard.testing.doubles import RecordedNotification
from costguard.testing.machine import COMPUTE, DISKS, SimulatedMachine
from costguard.values.money import NANO
from tests.stories.events import ACTION_WORDS, INTENT_WORDS, MESSAGE_WORDS
from tests.stories.player import StoryOutcome
from tests.stories.story import StoryExpectation

INTENT_STATES = {"verified": DONE, "unconfirmed": UNCONFIRMED, "cancelled": CANCELLED, "failed": FAILED, "planned": PLANNED}
CENT = NANO // 100


def find_faults(outcome: StoryOutcome) -> list[str]:
    """What was not as expected, a sentence each, in the order of the lines; then what the ledger gets wrong."""
    wanted = outcome.stage.story.expectations
    found = [f"line {one.line}: '{one.text_of_line}': {why}" for one in wanted if (why := _find_reason(one, outcome))]
    return [*found, *_find_ledger_faults(outcome)]


def _find_ledger_faults(outcome: StoryOutcome) -> Iterator[str]:
    """Every machine whose truth lies outside what the ledger says at the end."""
    from costguard.ledger.spans.books import SpendingReader

    stage = outcome.stage
    now = stage.clock.now()
    with SpendingReader(stage.ledger_url, rules=stage.rules) as books:
        spent = {one.key: one.money for one in books.spent(now)}
    for machine in _list_machines(outcome):
        truth = machine.spent(machine.created_at, outcome.end)
        said = spent.get(machine.key)
        if said is None:
            yield f"the ledger does not know {machine.name}, which cost {_format_dollars(truth)}"
        elif not said.low.nano - 1 <= truth <= said.high.nano + 1:
            between = f"{said.low.format()} to {said.high.format()}"
            yield f"the ledger says that {machine.name} cost {between}, and it cost {_format_dollars(truth)}"


def _list_machines(outcome: StoryOutcome) -> list[SimulatedMachine]:
    """Every machine of every cloud."""
    return [one for cloud in outcome.stage.clouds.values() for one in cloud.machines.values()]


def _format_dollars(nano: Fraction) -> str:
    """An exact amount as people read it."""
    return f"${round(nano / CENT) / 100:,.2f}"


def _find_reason(one: StoryExpectation, outcome: StoryOutcome) -> str:
    """Why it is not as expected; empty where it is."""
    if one.what in ("spent", "saved"):
        return _check_sum(one, outcome)
    if one.what == "is":
        return _check_state(one, outcome)
    if one.what in ("refused", "answer"):
        return _check_reply(one, outcome)
    times = list(_list_times(one, outcome))
    begin, end = _get_window(one, outcome)
    inside = [at for at in times if (begin is None or begin <= at) and (end is None or at < end)]
    if len(inside) == one.times or (one.times is None and inside):
        return ""
    shown = ", ".join(_format_clock(at, outcome) for at in times[:6]) or "never"
    counted = f"{len(inside)} times" if one.times is not None else "not then"
    return f"{counted}; it happened at: {shown}"


def _get_window(one: StoryExpectation, outcome: StoryOutcome) -> tuple[datetime | None, datetime | None]:
    if one.at is None:
        return None, None
    return one.at, one.until or one.at + outcome.stage.story.poll


def _list_times(one: StoryExpectation, outcome: StoryOutcome) -> Iterator[datetime]:
    """When it happened."""
    if one.what in MESSAGE_WORDS:
        yield from (told.at for told in outcome.told if _matches_message(one, told))
    elif one.what in ACTION_WORDS:
        yield from (act.at for act in outcome.acts if one.what in ("act", act.act) and one.name in ("", act.name))
    elif one.what in INTENT_WORDS:
        state = INTENT_STATES[one.what]
        yield from (at for at, name, intent in outcome.intents if name == one.name and intent.state == state)


def _matches_message(one: StoryExpectation, told: RecordedNotification) -> bool:
    message = told.message
    if one.what == "resolved" and message.why_now != RESOLVED:
        return False
    if one.what in ("notice", "page", "warning") and message.why_now == RESOLVED:
        return False
    if one.what in (PAGE, WARNING) and message.severity != one.what:
        return False
    about = [
        notice
        for notice in message.notices
        if (not one.topic or one.topic in (notice.topic, *notice.topic.split(":")))
        and (not one.name or f"i-{one.name}" in notice.subject.replace("/", " ").split())
    ]
    said = " ".join([message.title, *(f"{n.what} {' '.join(map(' '.join, n.facts))} {n.keep}" for n in about)])
    return bool(about) and one.text in said


def _check_state(one: StoryExpectation, outcome: StoryOutcome) -> str:
    begin = one.at or outcome.stage.story.start
    if one.topic not in ACTIVITY_STATES:
        machine = next((m for m in _list_machines(outcome) if m.name == one.name), None)
        here = machine.now(begin) if machine else None
        return "" if here and here.state == one.topic else f"it was {here.state if here else 'not there'}"
    changes = [(at, work.state) for at, name, work in outcome.works if name == one.name]
    before = [state for at, state in changes if at <= begin][-1:]
    inside = [state for at, state in changes if one.until and begin < at < one.until]
    wrong = [state for state in (*before, *inside) if state != one.topic]
    if not before:
        return "nothing was said of it by then"
    return f"it was {', '.join(wrong)}" if wrong else ""


def _check_reply(one: StoryExpectation, outcome: StoryOutcome) -> str:
    replies = [reply for at, _, reply in outcome.replies if at == one.at]
    if not replies:
        return "nobody asked for anything then"
    last = replies[-1]
    if one.text in last.text and (one.what == "answer") == last.done:
        return ""
    return f"it was {'done' if last.done else 'refused'}: {last.text}"


def _check_sum(one: StoryExpectation, outcome: StoryOutcome) -> str:
    story = outcome.stage.story
    begin, end = one.at or story.start, one.until or story.end
    chosen = [m for m in _list_machines(outcome) if one.name in ("", m.name)]
    what = {"": (COMPUTE, DISKS), "idle": (COMPUTE,)}.get(one.topic, (one.topic,))
    if one.what == "spent":
        truth = sum((m.spent(begin, end, what, idle=one.topic == "idle") for m in chosen), Fraction(0))
    else:
        truth = sum((_compute_saving(m, begin, end) for m in chosen), Fraction(0))
    wanted = one.money.nano if one.money else 0
    good = truth <= wanted if one.most else abs(truth - wanted) <= Fraction(CENT, 2)
    return "" if good else f"it was {_format_dollars(truth)}"


def _compute_saving(machine: SimulatedMachine, begin: datetime, end: datetime) -> Fraction:
    """What computing would have cost, less what it and the disks did."""
    hours = Fraction(int((end - begin).total_seconds()), 3600)
    would = (machine.rate.nano_per_hour if machine.rate else 0) * hours
    return would - machine.spent(begin, end)


def _format_clock(at: datetime, outcome: StoryOutcome) -> str:
    return f"{at.astimezone(outcome.stage.story.zone):%a %H:%M:%S}"
