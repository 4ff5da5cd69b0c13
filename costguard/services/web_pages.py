"""What the pages show and do: the fleet built once a guard run for all readers, one machine's life, and people's acts.

Everything is read from the ledger, and every act is the function of the command of the same name, recorded under the name of
the person who is logged in. No provider is asked, and nothing is stopped here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import InitVar, dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from threading import Lock, Thread
from time import monotonic
from typing import cast

from costguard.errors import CostguardError, InputError, NoAnswerError
from costguard.guard.action_intents import Intent
from costguard.guard.evaluation import evaluate_snapshot
from costguard.guard.overrides import Override, is_override_open
from costguard.guard.replay.history import ResourceHistory
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.ask_links import AskLinkStore
from costguard.ledger.guard.guard_state import load_last_run
from costguard.ledger.guard_records import SnapshotRecords
from costguard.ledger.spans.observations import HistoryReader
from costguard.reporting.status import FleetStatus, ResourceBurn
from costguard.services import CommandAnswer, overrides
from costguard.services.ask_links import choose_keep_length, hash_secret
from costguard.services.guard import GuardRunResult
from costguard.services.ledger_answers import CurrentView, load_current_view
from costguard.services.web_backend import LATE_AFTER_RUNS
from costguard.settings import Settings, read_settings, resolve_ledger_url
from costguard.settings.fields import format_duration
from costguard.values.ask_link import AskLink
from costguard.values.calendar import Period
from costguard.values.money import Money
from costguard.values.resource import ResourceKey
from costguard.views.document import Document
from costguard.views.plan import build_plan_document
from costguard.views.status import build_status_document, list_status_warnings

FLEET_AGE_MAX_S = 60.0
"""Seconds after which the fleet is built anew although no guard run followed: without a watchdog, time goes on."""
BUILD_INLINE_S = 2.0
"""A fleet that took longer to build is built beside the readers, who get the previous one."""
HISTORY_BACK, OVERRIDES_BACK = timedelta(days=14), timedelta(days=90)
SAMPLES_SHOWN_MAX = 2_000
"""Samples of a signal that a chart gets: more than pixels of a wide screen."""
GAP_MIN = timedelta(minutes=15)
"""Shorter times between two complete listings are no gap: as long as a scope may go unseen (`reporting/status.py`)."""
NO_TEAM = "nobody known"
DEMO_HINT = "run costguard watch with your accounts"


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamBurn:
    """The machines of one team, or of one owner where no label names a team. Money in dollars."""

    name: str
    machines: int
    burn: Money
    spent: Money


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRow:
    """One machine of the list. `sought`: what a search looks in. `row`: its cells in the table of `costguard status`."""

    path: str
    name: str
    row: Mapping[str, object]
    team: str
    sought: str
    one: ResourceBurn


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPage:
    """The fleet as of one guard run. `late`: why what is shown may be old, or the watchdog is down; empty if neither."""

    view: CurrentView
    rows: tuple[MachineRow, ...]
    teams: tuple[TeamBurn, ...]
    status: Document
    plan: Document
    verdicts: Mapping[tuple[str, ...], tuple[Mapping[str, object], ...]]
    warnings: tuple[str, ...]
    run_id: str

    @property
    def found(self) -> FleetStatus:
        """Return the status."""
        return self.view.status

    @property
    def acting_rows(self) -> list[Mapping[str, object]]:
        """Return the verdicts that have steps, in the order of `costguard plan`."""
        return [row for rows in self.verdicts.values() for row in rows if row["steps"]]

    def search(self, text: str) -> Sequence[MachineRow]:
        """Return the machines in which every word of `text` occurs, the highest burn first."""
        words = text.casefold().split()
        return self.rows if not words else [row for row in self.rows if all(word in row.sought for word in words)]

    def find_row(self, path: str) -> MachineRow | None:
        """Return the machine whose full key is `path`; None if it is not listed."""
        return next((row for row in self.rows if row.path == path), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePage:
    """One machine's recorded life. `row`: None if it is not listed any more. `gaps`: when its account was not seen."""

    key: ResourceKey
    row: MachineRow | None
    past: ResourceHistory
    gaps: tuple[tuple[datetime, datetime], ...]
    intents: tuple[Intent, ...]
    wishes: tuple[Override, ...]
    verdicts: tuple[Mapping[str, object], ...]
    at: datetime

    def is_open(self, wish: Override) -> bool:
        """Return whether `wish` is in force."""
        return is_override_open(wish, self.at)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskPage:
    """What a link asks. `approves`: what an approval means, a sentence each. `keeps_for`: how long a denial keeps it."""

    link: AskLink
    row: MachineRow | None
    approves: tuple[str, ...]
    keeps_for: str


@dataclass(slots=True, kw_only=True)
class PageServices:
    """What the pages are served with. `config`: the settings file; None: the usual one. `clock`: a demo's stands still.

    `stated`: the settings as they were read already; they count until the file is read anew. None: it is read at once.

    `read_only`: nothing is changed, as in a demo. `secure`: cookies are sent over TLS only.
    """

    config: str | None = None
    stated: InitVar[Settings | None] = None
    clock: Callable[[], datetime] = overrides.get_now
    read_only: bool = False
    secure: bool = False
    _fleet: FleetPage | None = None
    _made_s: float = 0.0
    _took_s: float = 0.0
    _lock: Lock = field(default_factory=Lock)
    _settings: Settings | None = None
    _read_s: float = 0.0

    def __post_init__(self, stated: Settings | None) -> None:
        """Take the stated settings."""
        self._settings, self._read_s = stated, monotonic()

    def find_ask(self, secret: str) -> AskPage:
        """Return what the link of `secret` asks, and change nothing. Raises NoAnswerError unless it waits for an answer."""
        with AskLinkStore(resolve_ledger_url(self.settings)) as book:
            link, _ = book.find(hash_secret(secret), self.clock())
        row = self.load_fleet().find_row("/".join(link.key))
        return AskPage(
            link=link,
            row=row,
            approves=tuple(self.describe_act(row, f"approve-{link.act}")),
            keeps_for=format_duration(choose_keep_length(self.settings, link.policy)),
        )

    @property
    def settings(self) -> Settings:
        """Return the settings, read anew once a minute."""
        if self._settings is None or monotonic() - self._read_s > FLEET_AGE_MAX_S:
            self._settings, self._read_s = read_settings(self.config), monotonic()
        return self._settings

    def read_run_id(self) -> str:
        """Return the id of the last guard run; "" before the first."""
        with LedgerReader(resolve_ledger_url(self.settings)) as reader, reader.snapshot() as ask:
            last = load_last_run(ask)
        return last.id if last else ""

    def load_fleet(self) -> FleetPage:
        """Return the fleet as of the last guard run, built once for all readers.

        Of a large fleet readers get the previous one while another thread builds the next: its time is on every page.
        """
        run, there = self.read_run_id(), self._fleet
        if there is not None and there.run_id == run and monotonic() - self._made_s < FLEET_AGE_MAX_S:
            return there
        if there is not None and self._took_s > BUILD_INLINE_S:
            if self._lock.acquire(blocking=False):
                Thread(target=self._build_and_release, name="fleet", daemon=True).start()
            return there
        with self._lock:
            if self._fleet is None or self._fleet is there:
                self._build()
            assert self._fleet is not None  # noqa: S101 - built above
            return self._fleet

    def _build(self) -> None:
        began = monotonic()
        made = build_fleet_page(self.settings, self.clock())
        self._fleet, self._made_s, self._took_s = made, monotonic(), monotonic() - began

    def _build_and_release(self) -> None:
        try:
            with suppress(CostguardError):  # the next reader tries again
                self._build()
        finally:
            self._lock.release()

    def forget_fleet(self) -> None:
        """Build the fleet anew for the next reader: somebody changed what the guard may do."""
        self._made_s = monotonic() - FLEET_AGE_MAX_S

    def list_late(self, fleet: FleetPage) -> list[str]:
        """Return why what is shown may be old, a sentence each; nothing where a guard run is recent."""
        last, now = fleet.view.last, self.clock()
        if last is None:
            return ["No guard run is recorded: no watchdog runs on this ledger, so nothing is stopped and nobody is told."]
        age = now - last.at
        if age <= LATE_AFTER_RUNS * last.interval:
            return []
        minutes = int(age.total_seconds() // 60)
        return [f"The last guard run was {minutes} minutes ago: the watchdog is down or late, and what follows may be old."]

    def load_machine(self, path: str) -> MachinePage:
        """Return the life of the machine whose full key is `path`. Raises InputError if the ledger does not know it."""
        parts = path.split("/", 3)
        if len(parts) != len(ResourceKey._fields):
            raise InputError("is not provider/account/region/id", field="the machine", hint="open it from the list")
        key, now = ResourceKey(*parts), self.clock()
        fleet = self.load_fleet()
        with LedgerReader(resolve_ledger_url(self.settings)) as reader, reader.snapshot() as ask:
            history, records = HistoryReader(ask), SnapshotRecords(ask)
            period = Period(start=now - HISTORY_BACK, end=now + timedelta(seconds=1))
            if key not in history.load_resources(Period(start=datetime.min.replace(tzinfo=now.tzinfo), end=period.end)):
                raise InputError("is not in this ledger", field="the machine", hint="open it from the list")
            past = history.load_history(key, period, self.settings.watch.every)
            stretches = history.load_stretches().get(past.scope, ())
            intents = [one for one in records.load_intents_since(now - OVERRIDES_BACK) if one.life.key == key]
            wishes = [one for one in records.load_overrides_since(now - OVERRIDES_BACK) if one.key == key]
        ends = [(one.start, one.end) for one in stretches if one.outcome == "complete" and one.end > period.start]
        usual = fleet.view.last.interval if fleet.view.last else self.settings.watch.every
        pause = max(GAP_MIN, LATE_AFTER_RUNS * usual)
        gaps = [(a[1], b[0]) for a, b in pairwise(ends) if b[0] - a[1] > pause]
        return MachinePage(
            key=key,
            row=fleet.find_row(path),
            past=past,
            gaps=tuple(gaps),
            intents=tuple(reversed(intents)),
            wishes=tuple(reversed(wishes)),
            verdicts=fleet.verdicts.get(key, ()),
            at=now,
        )

    def load_samples(self, path: str) -> dict[str, object]:
        """Return the recorded samples of a machine for charts: seconds since 1970 and values, by signal."""
        past = self.load_machine(path).past
        found = dict[str, object]()
        for signal, (ats, values) in sorted(past.samples.items()):
            thin = max(1, -(-len(ats) // SAMPLES_SHOWN_MAX))
            found[signal] = {"at": [at // 1_000_000 for at in ats[::thin]], "value": list(values[::thin])}
        return {"signals": found}

    def describe_act(self, row: MachineRow | None, do: str) -> list[str]:
        """Return what an approval or a stop of this machine means, a sentence each. `row`: None if it is not listed."""
        act = "terminate" if do == "approve-terminate" else "stop"
        if row is None:
            return ["It is not listed any more: there is nothing to do."]
        seen = row.one.live.observation
        loses = seen.handling.stop_loses if act == "stop" else seen.handling.terminate_loses
        lines = [f"Lost for good: {', '.join(loses)}." if loses else overrides.LOSS_UNKNOWN]
        if do.startswith("approve"):
            lines.append(f"The guard may {act} it within a day, in its present run, where a policy asks for it.")
        return lines

    def require_changes(self) -> None:
        """Raise NoAnswerError where nothing may be changed."""
        if self.read_only:
            raise NoAnswerError(
                "changes nothing: it is a demo", field="this page", hint="run costguard watch with your accounts"
            )

    def change(self, who: str, do: str, path: str, *, length: str, why: str) -> CommandAnswer:
        """Do what the command `do` does, in the name of `who`. Raises the command's errors."""
        self.require_changes()
        act = ACTS.get(do)
        if act is None:
            raise InputError("is not an act of this page", field=do[:20], hint=", ".join(ACTS))
        with overrides.act_for(f"{who} (page)"):
            answer = act(path, length, why, self.config)
        self.forget_fleet()
        return answer


Act = Callable[[str, str, str, str | None], CommandAnswer]
ACTS: Mapping[str, Act] = {
    "keep": lambda path, length, why, config: overrides.keep_resource(path, length=length, why=why, config=config),
    "unkeep": lambda path, _, __, config: overrides.keep_resource(path, length=None, why=None, lift=True, config=config),
    "protect": lambda path, _, why, config: overrides.protect_resource(path, why=why, config=config),
    "unprotect": lambda path, _, why, config: overrides.protect_resource(path, why=why, lift=True, config=config),
    "snooze": lambda path, length, why, config: overrides.snooze_alerts(path, length=length, why=why, config=config),
    "unsnooze": lambda path, _, __, config: overrides.snooze_alerts(path, length=None, lift=True, config=config),
    "approve-stop": lambda path, _, why, config: overrides.approve_action(path, "stop", why=why, config=config),
    "approve-terminate": lambda path, _, why, config: overrides.approve_action(path, "terminate", why=why, config=config),
}
"""What the page of a machine can do: name -> (key, length, reason, settings file) to the answer of the command."""


def build_fleet_page(settings: Settings, now: datetime) -> FleetPage:
    """Build the fleet from the ledger as of `now`."""
    from costguard.services.watch import build_plan_view  # which imports the server's services, and so this module

    view = load_current_view(settings, settings.defaults.zone, now)
    survey = evaluate_snapshot(view.rules, view.sight)
    guarded = GuardRunResult(at=now, committed=False, acting=False, survey=survey, sight=view.sight)
    plan = build_plan_document(build_plan_view(guarded, view.rules, ()))
    status = build_status_document(view.status, (), view.head, settings.display.find_exchange(now))
    table = next((one for one in status.tables if "resource" in one.columns), None)
    cells = [dict(zip(table.columns, row, strict=True)) for row in table.rows] if table else []
    rows = tuple(_build_row(one, row) for one, row in zip(view.status.resources, cells, strict=False))
    verdicts: dict[tuple[str, ...], list[Mapping[str, object]]] = {}
    for one in cast("list[Mapping[str, str]]", plan.data["rows"]):
        verdicts.setdefault((one["provider"], one["account"], one["region"], one["id"]), []).append(one)
    return FleetPage(
        view=view,
        rows=rows,
        teams=tuple(_sum_teams(rows)),
        status=status,
        plan=plan,
        verdicts={key: tuple(found) for key, found in verdicts.items()},
        warnings=tuple(dict.fromkeys(list_status_warnings(view.status))),
        run_id=view.last.id if view.last else "",
    )


def _build_row(one: ResourceBurn, row: Mapping[str, str]) -> MachineRow:
    seen = one.live.observation
    team = next((value for key, value in seen.labels if key.casefold() == "team" and value.strip()), one.owner or NO_TEAM)
    sought = " ".join((*seen.key, seen.name, seen.gpu, seen.kind, one.owner, one.state, one.work.state, team)).casefold()
    return MachineRow(path="/".join(seen.key), name=seen.name or seen.key.id, row=row, team=team, sought=sought, one=one)


def _sum_teams(rows: Iterable[MachineRow]) -> list[TeamBurn]:
    """Return the teams, the highest burn first."""
    found: dict[str, list[MachineRow]] = {}
    for row in rows:
        found.setdefault(row.team, []).append(row)
    teams = [
        TeamBurn(
            name=name,
            machines=len(of),
            burn=Money(nano=sum(row.one.get_burn().stated.nano for row in of)),
            spent=Money(nano=sum(r.one.live.spent.expected.nano for r in of if r.one.live.spent.expected.currency == "USD")),
        )
        for name, of in found.items()
    ]
    return sorted(teams, key=lambda team: (-team.burn.nano, team.name))
