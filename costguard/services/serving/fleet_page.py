"""The fleet as the pages show it: a few texts for each machine, which searching and paging go through, and its whole record."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from costguard.guard.policy import ASK
from costguard.guard.run_facts import GuardRun
from costguard.guard.signals import IDLE
from costguard.reporting.status import FleetStatus, ResourceBurn
from costguard.services.guarding.ask_links import choose_keep_length
from costguard.services.guarding.audit import find_rollback_marker
from costguard.services.guarding.plan_view import build_plan_view, evaluate_as_plan, list_unarmed
from costguard.services.report.status_answer import load_current_view
from costguard.services.serving.month_chart import MonthChart, load_month_chart
from costguard.settings import Settings
from costguard.settings.fields import format_duration
from costguard.system.process import pause_gc
from costguard.values.money import Money
from costguard.views.document import Document
from costguard.views.plan import PlanRow, PlanView, build_plan_row_data, group_plan_rows
from costguard.views.status import build_status_document, list_status_warnings
from costguard.views.utilization import explain_usage

ACTING_MAX = 1_000
"""Verdicts of each group that are kept for the page Now, which shows the first of them and counts the others."""
NO_TEAM = "nobody known"
Verdict = Mapping[str, object]
CHIPS: Mapping[str, tuple[str, Callable[[ResourceBurn], bool]]] = {
    "idle": ("idle", lambda one: one.work.state == IDLE),
    "unowned": ("no owner", lambda one: not one.owner),
    "dear": ("over $1/h", lambda one: one.get_burn().stated.nano > 10**9),
}
"""What the table of machines can be narrowed to: the name in its address -> what people read, and which machines it keeps."""
SORTS: Mapping[str, Callable[[ResourceBurn], Any]] = {
    "machine": lambda one: (one.live.observation.name or one.live.observation.key.id).casefold(),
    "place": lambda one: tuple(one.live.observation.key),
    "gpu": lambda one: (one.live.observation.gpu, one.live.observation.gpu_count),
    "state": lambda one: one.state,
    "work": lambda one: one.work.state,
    "use": lambda one: one.beside.usage.mean if one.beside.usage else -1.0,
    "owner": lambda one: one.owner.casefold(),
    "up": lambda one: -(one.live.observation.started_at or one.live.first_seen_at).timestamp(),
    "rate": lambda one: one.get_burn().stated.nano,
    "spent": lambda one: one.live.spent.expected.nano,
}
"""What it can be sorted by; with `-` in front the largest comes first."""
EXPORTED = ("path", "name", "gpu", "state", "work", "use", "note", "owner", "team", "up", "rate", "spent")
"""Columns of the table as a file: fields of MachineRow."""


class MachineRow(NamedTuple):
    """One machine of the list. `path`: its whole key. `sought`: what a search looks in.

    `shown_state` to `spent`: as in the table of `costguard status`. `advice`: why its GPUs are used little; "" for nothing.
    `note`: protected, kept or "".
    """

    path: str
    name: str
    place: str
    gpu: str
    state: str
    shown_state: str
    work: str
    use: str
    advice: str
    note: str
    owner: str
    up: str
    rate: str
    spent: str
    team: str
    sought: str


class Question(NamedTuple):
    """A question of the guard that waits for an answer: whether to do `act`. `keeps_for`: how long a denial keeps it."""

    verdict: Verdict
    act: str
    says: str
    keeps_for: str


class TeamBurn(NamedTuple):
    """The machines of one team, or of one owner where no label names a team. Money in dollars."""

    name: str
    machines: int
    burn: Money
    spent: Money


class MachineFacts(NamedTuple):
    """What the status and the plan say about one machine. `told_at`: when notices of what is to come were delivered."""

    one: ResourceBurn
    verdicts: tuple[Verdict, ...]
    told_at: tuple[datetime, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetHead:
    """What is shown about the whole fleet. `found`: the status without its machines. `last`: the guard run; None: none yet.

    `plan`: its notes, and why it must be accepted first. `going`, `blocked`, `unknown`: its verdicts by what follows from
    them, in the order of `costguard plan`, at most ACTING_MAX each. `counts`: how many verdicts each of them has.
    `questions`: what waits for an answer.
    """

    found: FleetStatus
    last: GuardRun | None
    teams: tuple[TeamBurn, ...]
    plan: PlanView
    going: tuple[Verdict, ...]
    blocked: tuple[Verdict, ...]
    unknown: tuple[Verdict, ...]
    counts: Mapping[str, int]
    questions: tuple[Question, ...]
    month: MonthChart
    warnings: tuple[str, ...]


class FleetPage:
    """The fleet as of one guard run."""

    def __init__(self, head: FleetHead, rows: Sequence[MachineRow], facts: Sequence[MachineFacts]) -> None:
        self.head, self.rows, self._facts = head, rows, facts
        self._places = {row.path: place for place, row in enumerate(rows)}
        self._orders = dict[str, Sequence[int]]()

    @property
    def found(self) -> FleetStatus:
        """Return the status, without its machines."""
        return self.head.found

    @property
    def last(self) -> GuardRun | None:
        """Return the guard run; None: none is recorded."""
        return self.head.last

    @property
    def run_id(self) -> str:
        """Return the id of the guard run; "" before the first."""
        return self.last.id if self.last else ""

    def search(self, text: str, chips: Collection[str] = (), sort: str = "") -> Sequence[MachineRow]:
        """Return the machines in which every word of `text` occurs and that all `chips` keep, the highest burn first.

        `sort`: a name of SORTS, with `-` for the largest first; another one is ignored.
        """
        words, tests = text.casefold().split(), [CHIPS[chip][1] for chip in chips if chip in CHIPS]
        return [
            self.rows[place]
            for place in self._order(sort)
            if all(word in self.rows[place].sought for word in words) and all(test(self._facts[place].one) for test in tests)
        ]

    def _order(self, sort: str) -> Sequence[int]:
        """Return the places of the machines in this order, which is kept for the next reader."""
        value = SORTS.get(sort.removeprefix("-"))
        if value is None:
            return range(len(self.rows))
        if sort not in self._orders:
            places = sorted(
                range(len(self.rows)), key=lambda place: value(self._facts[place].one), reverse=sort.startswith("-")
            )
            self._orders[sort] = places
        return self._orders[sort]

    def find_row(self, path: str) -> MachineRow | None:
        """Return the row of the machine whose whole key is `path`; None if it is not listed."""
        place = self._places.get(path)
        return None if place is None else self.rows[place]

    def load_facts(self, path: str) -> MachineFacts | None:
        """Return what is known about the machine whose whole key is `path`; None if it is not listed."""
        place = self._places.get(path)
        return None if place is None else self._facts[place]


def build_fleet_page(settings: Settings, now: datetime) -> FleetPage:
    """Build the fleet from the ledger as of `now`, the highest burn first."""
    with pause_gc():
        return FleetPage(*_build_fleet(settings, now))


def _build_fleet(settings: Settings, now: datetime) -> tuple[FleetHead, list[MachineRow], list[MachineFacts]]:
    view = load_current_view(settings, settings.defaults.timezone, now)
    guarded = evaluate_as_plan(view.rules, view.sight, view.last, find_rollback_marker(settings).describe_doubt())
    plan = build_plan_view(guarded, view.rules, list_unarmed(view.rules))
    status = build_status_document(view.status, (), view.head, settings.display.find_exchange(now))
    table = next((one for one in status.tables if "resource" in one.columns), None)
    cells = [dict(zip(table.columns, row, strict=True)) for row in table.rows] if table else []
    rows = [_build_row(one, row) for one, row in zip(view.status.resources, cells, strict=False)]
    verdicts: dict[tuple[str, ...], list[Verdict]] = {}
    for of in plan.rows:
        verdicts.setdefault(of.verdict.life.key, []).append(build_plan_row_data(of, plan.at))
    deliveries = dict[tuple[str, ...], list[datetime]]()
    for case in guarded.survey.cases if guarded.survey else ():
        if case.climb is not None and case.climb.delivered_at is not None:
            deliveries.setdefault(case.verdict.life.key, []).append(case.climb.delivered_at)
    keys = [one.live.observation.key for one in view.status.resources]
    facts = [
        MachineFacts(one, tuple(verdicts.get(key, ())), tuple(deliveries.get(key, ())))
        for key, one in zip(keys, view.status.resources, strict=True)
    ]
    groups = group_plan_rows(plan)._asdict()
    shown = {name: tuple(build_plan_row_data(row, plan.at) for row in of[:ACTING_MAX]) for name, of in groups.items()}
    head = FleetHead(
        found=replace(view.status, resources=()),
        last=view.last,
        teams=tuple(_sum_teams(zip(rows, view.status.resources, strict=True))),
        plan=replace(plan, rows=()),
        going=shown["going"],
        blocked=shown["blocked"],
        unknown=shown["unknown"],
        counts={name: len(of) for name, of in groups.items()},
        questions=tuple(_list_questions(settings, [*groups["going"], *groups["blocked"]], plan.at)),
        month=load_month_chart(settings, view.status),
        warnings=tuple(dict.fromkeys(list_status_warnings(view.status))),
    )
    return head, rows, facts


def _list_questions(settings: Settings, rows: Iterable[PlanRow], at: datetime) -> Iterator[Question]:
    """Yield the questions that were asked and not answered."""
    for row in rows:
        for proposal in row.proposals:
            question = next((says for reason, says in proposal.held_by if reason == "asked"), "")
            if proposal.step.do == ASK and question:
                keeps_for = format_duration(choose_keep_length(settings, row.verdict.policy.name))
                yield Question(build_plan_row_data(row, at), proposal.step.act, question, keeps_for)


def build_machine_list(rows: Iterable[MachineRow]) -> Document:
    """Return `rows` as records, for a file."""
    return Document(data={}, records=tuple({name: getattr(row, name) for name in EXPORTED} for row in rows))


def _build_row(one: ResourceBurn, row: Mapping[str, str]) -> MachineRow:
    observation = one.live.observation
    team = next(
        (value for key, value in observation.labels if key.casefold() == "team" and value.strip()), one.owner or NO_TEAM
    )
    sought = " ".join(
        (*observation.key, observation.name, observation.gpu, observation.kind, one.owner, one.state, one.work.state, team)
    ).casefold()
    return MachineRow(
        path="/".join(observation.key),
        name=observation.name or observation.key.id,
        place=f"{row['provider']}/{row['account']}/{row['region']}",
        gpu=row["GPU"],
        state=observation.state,
        shown_state=row["state"],
        work=one.work.state,
        use=row["use>"],
        advice=explain_usage(one),
        note="protected" if one.beside.protected else "kept" if one.beside.lease else "",
        owner=row["owner"],
        up=row["up>"],
        rate=row["$/h>"],
        spent=row["spent>"],
        team=team,
        sought=sought,
    )


def _sum_teams(machines: Iterable[tuple[MachineRow, ResourceBurn]]) -> list[TeamBurn]:
    """Return the teams, the highest burn first."""
    by_team: dict[str, list[ResourceBurn]] = {}
    for row, one in machines:
        by_team.setdefault(row.team, []).append(one)
    teams = [
        TeamBurn(
            name=name,
            machines=len(of),
            burn=Money(nano=sum(one.get_burn().stated.nano for one in of)),
            spent=Money(nano=sum(one.live.spent.expected.nano for one in of if one.live.spent.expected.currency == "USD")),
        )
        for name, of in by_team.items()
    ]
    return sorted(teams, key=lambda team: (-team.burn.nano, team.name))
