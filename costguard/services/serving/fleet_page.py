"""The fleet as the pages show it: a few texts for each machine, which searching and paging go through, and its whole record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from costguard.guard.run_facts import GuardRun
from costguard.reporting.status import FleetStatus, ResourceBurn
from costguard.services.guarding.audit import find_rollback_marker
from costguard.services.guarding.plan_view import build_plan_view, evaluate_as_plan, list_unarmed
from costguard.services.report.status_answer import load_current_view
from costguard.settings import Settings
from costguard.system.process import pause_gc
from costguard.values.money import Money
from costguard.views.plan import PlanView, build_plan_row_data, group_plan_rows
from costguard.views.status import build_status_document, list_status_warnings
from costguard.views.utilization import explain_usage

ACTING_MAX = 1_000
"""Verdicts of each group that are kept for the page Now, which shows the first of them and counts the others."""
NO_TEAM = "nobody known"
Verdict = Mapping[str, object]


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


class TeamBurn(NamedTuple):
    """The machines of one team, or of one owner where no label names a team. Money in dollars."""

    name: str
    machines: int
    burn: Money
    spent: Money


class MachineFacts(NamedTuple):
    """What the status and the plan say about one machine."""

    one: ResourceBurn
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetHead:
    """What is shown about the whole fleet. `found`: the status without its machines. `last`: the guard run; None: none yet.

    `plan`: its notes, and why it must be accepted first. `going`, `held`, `unknown`: its verdicts by what follows from them, in
    the order of `costguard plan`, at most ACTING_MAX each. `counts`: how many verdicts each of them has.
    """

    found: FleetStatus
    last: GuardRun | None
    teams: tuple[TeamBurn, ...]
    plan: PlanView
    going: tuple[Verdict, ...]
    held: tuple[Verdict, ...]
    unknown: tuple[Verdict, ...]
    counts: Mapping[str, int]
    warnings: tuple[str, ...]


class FleetPage:
    """The fleet as of one guard run."""

    def __init__(self, head: FleetHead, rows: Sequence[MachineRow], facts: Sequence[MachineFacts]) -> None:
        self.head, self.rows, self._facts = head, rows, facts
        self._places = {row.path: place for place, row in enumerate(rows)}

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

    def search(self, text: str) -> Sequence[MachineRow]:
        """Return the machines in which every word of `text` occurs, the highest burn first."""
        words = text.casefold().split()
        return self.rows if not words else [row for row in self.rows if all(word in row.sought for word in words)]

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
    facts = [MachineFacts(one, tuple(verdicts.get(one.live.observation.key, ()))) for one in view.status.resources]
    groups = group_plan_rows(plan)._asdict()
    shown = {name: tuple(build_plan_row_data(row, plan.at) for row in of[:ACTING_MAX]) for name, of in groups.items()}
    head = FleetHead(
        found=replace(view.status, resources=()),
        last=view.last,
        teams=tuple(_sum_teams(zip(rows, view.status.resources, strict=True))),
        plan=replace(plan, rows=()),
        going=shown["going"],
        held=shown["held"],
        unknown=shown["unknown"],
        counts={name: len(of) for name, of in groups.items()},
        warnings=tuple(dict.fromkeys(list_status_warnings(view.status))),
    )
    return head, rows, facts


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
