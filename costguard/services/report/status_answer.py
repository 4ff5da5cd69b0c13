"""Answer from the ledger, or from a poll made now: the status of the fleet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo
from typing import TYPE_CHECKING

from costguard.errors import CostguardError, InputError
from costguard.guard.context import GuardConfig, GuardSnapshot
from costguard.guard.evaluation import evaluate_snapshot
from costguard.guard.overrides import FREEZE, is_override_open
from costguard.guard.run_facts import GuardRun
from costguard.ledger.agents.records import load_agents
from costguard.ledger.db.address import parse_ledger_address
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.audit_log import read_head_text
from costguard.ledger.guard_records import SnapshotRecords
from costguard.ledger.holds import load_counting_holds
from costguard.reporting.status import FleetStatus, annotate_resources, bound_by_hard_caps, forecast_overshoots
from costguard.services import CommandAnswer
from costguard.services.guarding.guard_inputs import PollResults, build_guard_config, read_measurement_lags
from costguard.services.guarding.guard_snapshot import (
    SampleWindow,
    build_guard_snapshot,
    load_recent_overrides,
    read_previous_runs,
)
from costguard.services.guarding.run_view import decode_run_view, explain_unfit_run, list_unasked_providers
from costguard.services.guarding.status import build_status, list_planned_stops
from costguard.services.report import ledger_answers
from costguard.services.report.ledger_answers import choose_zone, open_books
from costguard.settings import Settings, read_settings, resolve_ledger_url
from costguard.views import status as views
from costguard.views.status_line import build_over_budget_error, fold_status
from costguard.views.status_summary import select_due_acts

if TYPE_CHECKING:
    from costguard.reporting.status_filter import StatusFilter
    from costguard.services.poll.poll_now import PollNowResult


def answer_status(
    *,
    zone: str | None = None,
    strict: bool = False,
    offline: bool = False,
    ask: bool = False,
    check: bool = False,
    line: bool = False,
    chosen: StatusFilter | None = None,
    config: str | None = None,
) -> CommandAnswer:
    """Answer `costguard status`: the present burn, the month's cost and forecast, the state of each scope.

    The ledger answers if its last guard run is younger than one interval and read every account; else the configured providers
    are polled first. `ask`: they are polled in any case; `offline`: they are not. `strict`: an incomplete poll is refused.
    `check`: a budget that is over is refused. `line`: people get one line. `chosen`: the machines to show; None: all.
    """
    settings = read_settings(config)
    if check and not settings.budgets:
        raise InputError("there is no budget to check", field="--check", hint="add a [[budget]] table to costguard.toml")
    place = choose_zone(zone, settings)
    looked, doubt, now = None, "", ledger_answers.get_now()
    if settings.providers and not offline:
        doubt = "" if ask else _explain_unfit_ledger(settings, now)
        if ask or doubt:
            from costguard.services.poll.poll_now import poll_providers_now

            looked = poll_providers_now(settings)
            now = ledger_answers.get_now()
    view = load_current_view(settings, place, now, looked)
    status, head = view.status, view.head
    warnings = looked.told if looked else ()
    source = views.describe_status_source(asked_because=doubt, run_at=view.seen_at, at=status.at, offline=offline)
    exchange = settings.display.find_exchange(status.at)
    survey = evaluate_snapshot(view.rules, view.sight)
    document = views.build_status_document(
        status,
        warnings,
        head,
        exchange,
        source,
        due=select_due_acts(
            [one.verdict for one in survey.cases], (*survey.proposals, *(one.proposal for one in survey.starts))
        ),
        shown=chosen.select_machines(status) if chosen else None,
    )
    places = {"settings": settings.file or None, "ledger": parse_ledger_address(resolve_ledger_url(settings)).shown}
    document = replace(document, data={**document.data, **places})
    incomplete = views.build_incomplete_status_error(status, looked.refused if looked else ()) if strict else None
    return CommandAnswer(
        document=fold_status(document, status, exchange) if line else document,
        warnings=tuple(dict.fromkeys((*views.list_status_warnings(status), *warnings))),
        refusal=incomplete or (build_over_budget_error(status.budgets) if check else None),
        value=status,
    )


def _explain_unfit_ledger(settings: Settings, now: datetime) -> str:
    """Explain why the clouds must be asked; "" if the ledger's last guard run tells what they would say."""
    try:
        with LedgerReader(resolve_ledger_url(settings)) as reader, reader.snapshot() as ask, open_books(settings) as books:
            return explain_unfit_run(SnapshotRecords(ask).load_last_run(), books.list_scopes(), settings.providers, now)
    except CostguardError:  # there is none yet, or it must be upgraded: the poll does both, or says what is wrong
        return "no guard run is recorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentView:
    """The fleet as the ledger knows it: its status, what the guard would evaluate, and the last guard run (None: none yet).

    `head`: the head of the audit log. `seen_at`: when the guard run was made that stands for a poll; None: none does.
    """

    status: FleetStatus
    sight: GuardSnapshot
    rules: GuardConfig
    last: GuardRun | None
    head: str
    seen_at: datetime | None = None


def load_current_view(settings: Settings, zone: tzinfo, now: datetime, looked: PollNowResult | None = None) -> CurrentView:
    """Load the fleet as the ledger knows it at `now`, in one snapshot. `looked`: the results of a poll just made.

    Without a poll, what the last guard run saw stands for it while that run is younger than its interval; the handling of
    resources in any case: it is as old as what the ledger has of them.
    """
    url, rules = resolve_ledger_url(settings), build_guard_config(settings)
    with LedgerReader(url) as reader, reader.snapshot() as ask, open_books(settings) as books:
        records = SnapshotRecords(ask)
        last = records.load_last_run()
        last_view = decode_run_view(last) if looked is None else None
        view = last_view if last and timedelta(0) <= now - last.at < last.interval else None
        latest_look = looked or view
        latest = PollResults(  # no measurement is requested
            handling=looked.handling if looked else last_view.handling if last_view else {},
            sources={},
            balances=latest_look.balances if latest_look else (),
            members=latest_look.members if latest_look else (),
            lags=read_measurement_lags(),
            measures=(),
            agents=tuple(load_agents(ask)),
        )
        snapshot = build_guard_snapshot(
            now=now,
            rules=rules,
            books=books,
            records=records,
            latest=latest,
            holds=load_counting_holds(ask, now),
            overrides=load_recent_overrides(records, now),
            previous=read_previous_runs(last, rules, now, guarded_until=last.at if last else None),
            standing_holds=(),
            lookback=SampleWindow(),
        )
        status = build_status(
            books=books,
            now=now,
            zone=zone,
            intents=records.load_open_intents(),
            live=snapshot.live,
            stand=snapshot.standings,
            balances=latest_look.balances if latest_look else None,
            unreached=latest_look.unreached
            if latest_look
            else list_unasked_providers(settings.providers, books.list_scopes(), now),
            ends=list_planned_stops(snapshot.live, snapshot.wishes, now),
            annotate=lambda _: annotate_resources(rules, snapshot),
            overshoots=lambda *_: view.overshoots if view else forecast_overshoots(rules, snapshot, latest.handling),
        )
        is_frozen = any(one.what == FREEZE and is_override_open(one, now) for one in snapshot.wishes)
        if view and not is_frozen:  # a guard acts on them
            status = bound_by_hard_caps(status)
        if reader.where.path is None:  # watchdogs share no file
            from costguard.services.report.watchdog_shares import load_watchdog_shares

            status = replace(status, watchdogs=load_watchdog_shares(ask, now))
        seen_at = last.at if last and view else None
        return CurrentView(status=status, sight=snapshot, rules=rules, last=last, head=read_head_text(ask), seen_at=seen_at)
