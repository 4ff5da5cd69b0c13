"""The head of `costguard status`: one line, then what needs somebody; and what holds or ends each machine.

Example: `OK  $16.99/h  lab $546.20 of $3,000.00 (18 %)  nothing due`, and beside a machine `kept 2 h` or `stops 19:15 UTC`.
What is due is taken from the evaluation that `costguard plan` shows: of a machine that it cannot judge, nothing is due.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from costguard.budgets.budget_status import BudgetStatus
from costguard.errors import shorten, to_one_line
from costguard.guard.policy import CANNOT_SAY, NOTIFY, OBSERVE, STEP_LEVELS, Proposal, Verdict
from costguard.metering.inventory import COMPLETE
from costguard.metering.spending import LiveResource
from costguard.reporting.status import FleetStatus, ResourceBurn
from costguard.values.resource import STOPPED, ResourceKey
from costguard.values.text_format import format_amount, format_length, format_local_time, format_near_time, get_currency_sign
from costguard.views.status_line import describe_share, is_over

ACTS_SHOWN = 5
REASON_CHARS_MAX = 60
AT_REST = (STOPPED, "suspended")
VERBS = {"stop": "stops", "terminate": "ends", "start": "starts"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DueActs:
    """What the guard will do.

    `by_key`: the next act on each machine, of those that nothing holds, by time. `unmeasured`: machines not judged yet.
    """

    by_key: dict[ResourceKey, Proposal]
    unmeasured: int = 0


def select_due_acts(verdicts: Iterable[Verdict], proposals: Iterable[Proposal]) -> DueActs:
    """Return the acts that the plan would do, now or later, the earliest of each machine, by time."""
    acts = [
        one
        for one in proposals
        if not one.held_by and one.verdict.finding != CANNOT_SAY and STEP_LEVELS[one.step.do] not in (OBSERVE, NOTIFY)
    ]
    by_key: dict[ResourceKey, Proposal] = {}
    for one in sorted(acts, key=get_time):
        by_key.setdefault(one.verdict.life.key, one)
    judged, unjudged = set[ResourceKey](), set[ResourceKey]()
    for verdict in verdicts:
        (unjudged if verdict.finding == CANNOT_SAY else judged).add(verdict.life.key)
    return DueActs(by_key=by_key, unmeasured=len(unjudged - judged))


def get_time(proposal: Proposal) -> datetime:
    """Return when it is expected to be done."""
    return proposal.expected_at or proposal.due_at


def list_head_lines(status: FleetStatus, due: DueActs, warnings: int) -> Iterator[str]:
    """Yield the headline, and a line for each thing that needs somebody; `warnings`: how many more lines there are."""
    needs = list(_list_needs(status, due))
    over = any(one.spent.low > one.budget.cap for one in status.budgets)
    tightest = max(status.budgets, key=lambda one: one.spent.expected.nano / one.budget.cap.nano, default=None)
    sign = get_currency_sign(status.usd.burn.stated.currency)
    parts = (
        "OVER BUDGET" if over else "LOOK" if needs or warnings else "OK",
        f"{sign}{format_amount(status.usd.burn.stated)}/h",
        describe_share(tightest) if tightest else f"{sign}{format_amount(status.usd.to_date.expected)} this month",
        _describe_due(status, due),
    )
    yield "  ".join(parts)
    yield from needs


def _describe_due(status: FleetStatus, due: DueActs) -> str:
    times = [at for at, _ in _list_coming_acts(status, due)]
    if not times:
        return "nothing due"
    return f"{len(times)} act{'s' if len(times) > 1 else ''} due {_format_when(times[0], status.at)}"


def _list_coming_acts(status: FleetStatus, due: DueActs) -> list[tuple[datetime, str]]:
    """Return the time of each act with a line about it: those of the plan, and the stops that people planned, by time."""
    lines = []
    for one in status.resources:
        key, name = one.live.observation.key, one.live.observation.name or one.live.observation.key.id
        act, stops_at = due.by_key.get(key), one.beside.stops_at
        name = shorten(to_one_line(name), REASON_CHARS_MAX)
        if act is not None:
            when = _format_when(get_time(act), status.at)
            lines.append((get_time(act), f"{act.step.do} {name} {when} (policy {act.verdict.policy.name})"))
        elif stops_at is not None:
            lines.append((stops_at, f"stop {name} {_format_when(stops_at, status.at)} (planned by hand)"))
    return sorted(lines)


def _format_when(at: datetime, now: datetime) -> str:
    return "now" if at <= now else format_near_time(at, now)


def _describe_over(standing: BudgetStatus) -> str:
    """Return that a budget is over its cap, as certain as it is: what is spent may be less than expected."""
    name, cap = standing.budget.name, standing.budget.cap.nano
    if standing.spent.low.nano > cap:
        return f"Budget {name} is over its cap: {describe_share(standing)}."
    low, high = (100 * end.nano // cap for end in (standing.spent.low, standing.spent.high))
    return f"Budget {name} may be over its cap: {describe_share(standing)} is expected, between {low} and {high} %."


def _list_needs(status: FleetStatus, due: DueActs) -> Iterator[str]:
    if not status.scopes:
        yield "Nothing has been polled yet: the ledger has no account."
    yield from map(_describe_over, filter(is_over, status.budgets))
    unread = [one for one in status.scopes if one.state != COMPLETE]
    if unread:
        why = next((shorten(to_one_line(one.now.why), REASON_CHARS_MAX) for one in unread if one.now.why), "")
        read_times = [one.now.last_complete_at for one in unread if one.now.last_complete_at]
        age = f"; figures are {format_length(status.at - min(read_times))} old" if read_times else ""
        read = f"{len(status.scopes) - len(unread)} of {len(status.scopes)} accounts read"
        yield f"{read}{f' ({why})' if why else ''}{age}."
    acts = _list_coming_acts(status, due)
    yield from (line for _, line in acts[:ACTS_SHOWN])
    if len(acts) > ACTS_SHOWN:
        yield f"and {len(acts) - ACTS_SHOWN} more acts: costguard plan lists them"
    if due.unmeasured:
        yield f"{due.unmeasured} machines are not measured yet, so nothing is due on them: costguard plan says why"


def format_hold(one: ResourceBurn, due: DueActs, at: datetime) -> str:
    """Return what keeps the machine, or what comes next: `kept 2 h, protected`, `stops 19:15 UTC`; "-": nothing."""
    lease, parts = one.beside.lease, []
    if lease is not None:
        parts.append(f"kept {format_length(lease.until - at)}" if lease.until else "kept")
    parts += ["protected"] if one.beside.protected else []
    act = due.by_key.get(one.live.observation.key)
    parts += [f"stops {_format_when(one.beside.stops_at, at)}"] if one.beside.stops_at else []
    if act is not None and act.step.do in VERBS:
        parts += [f"{VERBS[act.step.do]} {_format_when(get_time(act), at)}"]
    elif one.beside.starts_at:
        parts += [f"starts {_format_when(one.beside.starts_at, at)}"]
    return ", ".join(dict.fromkeys(parts)) or "-"


def format_state(one: ResourceBurn, at: datetime) -> str:
    """Return `running`, `stopped 14 d`, or since when listings lack it."""
    if one.live.absent_at:
        return f"absent since {format_local_time(one.live.absent_at)}"
    stopped_at = one.live.observation.stopped_at
    is_dated = one.state in AT_REST and stopped_at is not None
    return f"{one.state} {format_length(at - stopped_at)}" if is_dated and stopped_at else one.state


def format_uptime(live: LiveResource, at: datetime) -> str:
    """Return since when it runs: `3 h`, `over 3 h` where its start is unknown, `-` where it does not."""
    started_at = live.observation.started_at
    if live.observation.state in AT_REST:
        return "-"
    return format_length(at - started_at) if started_at else f"over {format_length(at - live.first_seen_at)}"
