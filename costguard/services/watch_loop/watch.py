"""`watch`: the process that polls, runs the guard and delivers messages, once or until a signal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial

from costguard.data import ShippedFacts
from costguard.errors import (
    MOST_HINT_LINES,
    CostguardError,
    ExposedError,
    IncompleteError,
    InputError,
    LedgerError,
    to_one_line,
)
from costguard.guard.overrides import find_freeze, find_owner
from costguard.guard.policy import CANNOT_SAY, DESTRUCTIVE, Proposal
from costguard.guard.policy_evaluation import compute_burn_rate
from costguard.ledger.db.address import parse_ledger_address
from costguard.ledger.db.disk import describe_disk_risk
from costguard.metering.spending import LiveResource
from costguard.providers.ports import InstanceSource
from costguard.reporting.schedule import find_next_report
from costguard.services.guarding.guard import GuardRunResult
from costguard.services.guarding.guard_inputs import build_guard_config
from costguard.services.guarding.plan_view import list_cap_shortfalls, list_unarmed, to_hourly_money
from costguard.services.guarding.status import build_totals
from costguard.services.guarding.void_settings import list_void_settings
from costguard.services.guarding.watchdog_context import (
    HEARTBEAT_LIMIT_S,
    WatchdogContext,
    name_sources,
    open_watchdog_context,
    send_heartbeat,
)
from costguard.services.poll.poll import PollCycleResult
from costguard.services.quote.price_refresh import CHECK_EVERY
from costguard.services.report.bill_duty import CHECK_EVERY as BILLS_EVERY
from costguard.services.report.bill_duty import BillDuty
from costguard.services.report.commitment_duty import CHECK_EVERY as COMMITMENTS_EVERY
from costguard.services.report.commitment_duty import CommitmentDuty
from costguard.services.report.report_delivery import check_report_formats, compose_report_messages, queue_due_reports
from costguard.services.run_jobs.hold_duty import CHECK_EVERY as HOLDS_EVERY
from costguard.services.run_jobs.hold_duty import HoldDuty
from costguard.services.serving.agent_desk import OpenDoor, serve_while_watching
from costguard.settings import Settings, read_settings, resolve_ledger_url
from costguard.settings.fields import parse_duration
from costguard.settings.section_values import INTERVAL_MAX, INTERVAL_MIN
from costguard.settings.sections import DAILY
from costguard.system.logs import configure_logging, get_log
from costguard.system.process import is_on_terminal
from costguard.system.tracing import open_tracing
from costguard.values.checks import require
from costguard.values.resource import INSTANCE, ResourceKey
from costguard.values.text_format import encode_plain
from costguard.views.watch import WatchedAction, WatchedBudget, WatchedMachine, WatchedNotice, WatchView
from costguard.watchdog import UNFINISHED, Duties, Duty, Watchdog
from costguard.watchdog.heartbeat import Heartbeat

ShowWatchView = Callable[[WatchView], None]
CONFIGURE_HINT = "costguard init writes [providers.NAME] for each key that it finds; --config names another file"
OUTBOX_EVERY, REPORTS_EVERY, RETENTION_EVERY = timedelta(seconds=5), timedelta(minutes=1), timedelta(hours=1)


def run_watch(
    *,
    once: bool,
    strict: bool = False,
    interval: str | None,
    dry_run: bool,
    show: ShowWatchView,
    config: str | None,
    json_log: bool,
    offline: bool,
    open_door: OpenDoor | None = None,
) -> int:
    """Run `costguard watch`: poll, evaluate, alert and act, once or until a signal; return the exit code.

    `strict`: a single run ends with IncompleteError if not every account was listed completely. `open_door`: has agents
    and readers served in the meantime, if the settings state an address; not in a single run.
    """
    hint = "add --once; without --once it alerts about accounts that it cannot read"
    require(once or not strict, "--strict", "is only for a single run", hint)
    settings = read_settings(config)
    every = (
        parse_duration(interval, "--interval", least=INTERVAL_MIN, most=INTERVAL_MAX)
        if interval is not None
        else settings.watch.interval
    )
    check_report_formats(settings)
    configure_logging(as_json=json_log)
    with (
        open_tracing(settings.telemetry.traces),
        open_watchdog_context(
            settings, interval=every, dry_run=dry_run, resident=not once, offline=offline, open_bills=open_bill_duty
        ) as context,
    ):
        _check_key_exposure(context.sources)
        risk, hint, _ = describe_disk_risk(parse_ledger_address(resolve_ledger_url(settings)))
        if risk:
            get_log().warning("ledger_disk", why=risk, hint=hint)
        for why in list_unarmed(context.guard.rules):
            get_log().warning("not_armed", why=why)
        _log_void_settings(settings)
        if not context.sources and not offline:
            get_log().warning("nothing_watched", why="no provider is configured", hint=CONFIGURE_HINT)
        polled = context.poll() if context.shared is None else None
        if polled is not None:
            context.log_polled(polled)
        heartbeat = Heartbeat(partial(send_heartbeat, lambda: context.settings), log=get_log())
        if once:
            _run_once(context, show, heartbeat)
            if not offline and polled is not None:
                _check_answers(context, polled, strict=strict)
            return 0
        if context.shared is not None:
            context.shared.start()
        with serve_while_watching(context, open_door, config=config):
            code = Watchdog(
                _build_duties(context, show, every),
                log=get_log(),
                reload=None if is_on_terminal() else partial(_reload_settings, context, show, interval, config),
                heartbeat=partial(_beat_after_run, context, heartbeat),
            ).run()
        if code != UNFINISHED:
            context.release_leadership()
        return code


def _log_void_settings(settings: Settings) -> None:
    for one in list_void_settings(settings):
        get_log().warning("setting_without_effect" if one.certain else "setting_in_doubt", why=one.says)


def _check_key_exposure(sources: tuple[InstanceSource, ...]) -> None:
    """Raise InputError for the first account whose key other users can read: they could act as the watchdog."""
    for source in sources:
        error = getattr(source, "error", None)  # of what stands for an account that could not be opened
        if isinstance(error, ExposedError):
            raise InputError(error.what, field=error.field, hint=error.hint)


def _beat_after_run(context: WatchdogContext, heartbeat: Heartbeat) -> None:
    """Send a heartbeat if the run is in the ledger: not after a dry run, nor if another watchdog leads."""
    if context.recorded:
        heartbeat.beat()


def _run_once(context: WatchdogContext, show: ShowWatchView, heartbeat: Heartbeat) -> None:
    guarded = context.run_guard()
    _beat_after_run(context, heartbeat)
    unmade = _queue_reports(context)
    _deliver_messages(context)
    heartbeat.wait(HEARTBEAT_LIMIT_S)
    context.end_hooks()
    context.release_leadership()
    if unmade:
        raise unmade[0]
    if guarded.broken:
        raise LedgerError(guarded.broken, field="the ledger", hint="nothing was done; repair the ledger and run it again")
    show(build_watch_view(guarded, context))


def _check_answers(context: WatchdogContext, polled: PollCycleResult, *, strict: bool) -> None:
    """Raise an error if a single run saw too little, after it did all that it could.

    IncompleteError with `strict` if not every account was listed completely. CostguardError if none was listed at all: a timer
    must not report success for a run that saw nothing.
    """
    why = [*(f"{'/'.join(one.state.scope)}: {one.why}" for one in polled.unseen), *polled.refused]
    if strict and (why or not context.sources):
        count = f"{len(why)} accounts" if len(why) > 1 else "an account"
        what = f"{count} could not be read completely" if context.sources else "no provider is configured"
        raise IncompleteError(what, hint="\n".join(map(to_one_line, why[:MOST_HINT_LINES])) or CONFIGURE_HINT)
    if not context.sources:
        raise CostguardError("no account was polled: no provider is configured", hint=CONFIGURE_HINT)
    if not polled.answered:
        raise CostguardError(
            "no machine was listed: no provider could be queried", hint="\n".join(map(to_one_line, why)) or None
        )


def _build_duties(context: WatchdogContext, show: ShowWatchView, every: timedelta) -> Duties:
    spread = min(context.settings.watch.jitter, every / 2)
    polls = tuple(
        Duty(name=name, run=partial(_poll_source, context, source), every=every, jitter=spread)
        for name, source in (() if context.shared else name_sources(context.sources))
    )
    prices = context.prices if context.settings.prices.refresh == DAILY else None
    return Duties(
        polls=polls,
        guard=Duty(name="guard", run=partial(_run_guard, context, show), every=every),
        outbox=Duty(name="outbox", run=partial(_deliver_messages, context), every=OUTBOX_EVERY),
        others=(
            Duty(name="reports", run=partial(_run_reports, context), every=REPORTS_EVERY),
            Duty(name="samples", run=partial(_keep_samples_bounded, context), every=RETENTION_EVERY),
            Duty(name="holds", run=_build_hold_duty(context).run, every=HOLDS_EVERY),
            Duty(name="commitments", run=_build_commitment_duty(context).run, every=COMMITMENTS_EVERY),
            *((Duty(name="prices", run=prices.run, every=CHECK_EVERY),) if prices else ()),
            *((Duty(name="bills", run=context.check_bills, every=BILLS_EVERY),) if context.check_bills else ()),
        ),
    )


def open_bill_duty(context: WatchdogContext) -> Callable[[], object]:
    """Return what asks the providers of `context` for bills, if it leads."""
    duty = BillDuty(
        resolve_ledger_url(context.settings),
        rules=ShippedFacts().get_billing_rules(),
        sources=lambda: context.collect_poll_results().sources,
        leads=context.may_lead,
        clock=context.clock,
        log=get_log(),
    )
    return duty.run


def _build_hold_duty(context: WatchdogContext) -> HoldDuty:
    return HoldDuty(settings=lambda: context.settings, clock=context.clock.now, leads=context.may_lead)


def _build_commitment_duty(context: WatchdogContext) -> CommitmentDuty:
    return CommitmentDuty(settings=lambda: context.settings, clock=context.clock.now, leads=context.may_lead)


def _poll_source(context: WatchdogContext, source: InstanceSource) -> None:
    context.log_polled(context.poll([source]))


def _run_guard(context: WatchdogContext, show: ShowWatchView) -> bool:
    guarded = context.run_guard()
    if guarded.broken:
        get_log().error("observing_only", why=guarded.broken)
        return False
    if guarded.sight is None:  # another watchdog plans, and this one only polls
        return guarded.committed
    _log_actions(guarded)
    show(build_watch_view(guarded, context))
    return guarded.committed


def _log_actions(guarded: GuardRunResult) -> None:
    """Log hooks and intents of the run as facts."""
    for note in guarded.notes:
        get_log().info("held", why=note)
    for run in guarded.sight.hooks if guarded.sight else ():
        if run.ended_at is not None and run.ended_at >= guarded.at:
            get_log().info(
                "hook",
                hook=run.hook,
                instance_id=run.life.key.id,
                state=run.state,
                status=run.status,
                why=run.why,
                said=encode_plain(run.output),
            )
    for intent in guarded.intents:
        if intent.moved_at >= guarded.at:
            key = intent.life.key
            get_log().info(
                "intent",
                instance_id=key.id,
                provider=key.provider,
                act=intent.act,
                state=intent.state,
                policy=intent.policy,
                why=intent.outcome or intent.why,
            )


def _deliver_messages(context: WatchdogContext) -> None:
    if context.guard.dry_run or context.guard.clock_doubt():
        return
    result = context.postman.deliver()
    for message, why in result.later:
        get_log().warning("message_not_sent", channel=message.channel, why=why)


def _run_reports(context: WatchdogContext) -> None:
    """Queue due reports in a duty of its own, because building one takes seconds and must not delay the guard."""
    unmade = _queue_reports(context)
    if unmade:
        raise unmade[0]


def _keep_samples_bounded(context: WatchdogContext) -> None:
    """Keep one row an hour of samples that no policy looks back to any more, and give the room back to the disk."""
    if context.may_lead():
        result = context.ledger.keep_samples_bounded(context.clock.now())
        get_log().info("samples_rolled_up", samples=result.samples, hours_removed=result.hours, bytes_freed=result.freed_bytes)


def _queue_reports(context: WatchdogContext) -> list[Exception]:
    """Queue the due reports; return the exceptions of those that could not be built."""
    settings, now = context.settings, context.clock.now()
    if not context.may_lead():
        return []
    zone = settings.defaults.timezone
    reports = queue_due_reports(
        settings.reports,
        book=context.reports,
        now=now,
        zone=zone,
        compose=lambda schedule, owed: compose_report_messages(settings, schedule, owed, now),
    )
    for schedule in reports.seen:
        first, at = find_next_report(schedule, now, zone)
        get_log().info("report_scheduled", report=schedule.name, first=first.label, at=at.isoformat())
    for schedule, owed in reports.put:
        get_log().info(
            "report_put_out", report=schedule.name, period=owed.of.label, late=owed.is_late(now), skipped=owed.skipped
        )
    for schedule, wrong in reports.failed:
        get_log().error("report_not_made", report=schedule.name, error=f"{type(wrong).__name__}: {wrong}")
    return [wrong for _, wrong in reports.failed]


def _reload_settings(context: WatchdogContext, show: ShowWatchView, interval: str | None, config: str | None) -> Duties:
    """Return the duties of the current settings. Policies, budgets and limits change; accounts and ledger need a restart."""
    settings: Settings = read_settings(config)
    old_settings = context.settings
    same = (settings.providers, settings.ledger, settings.web) == (
        old_settings.providers,
        old_settings.ledger,
        old_settings.web,
    )
    check_report_formats(settings)
    hint = "restart the watchdog: these settings cannot change while it runs"
    require(same, "SIGHUP", "the accounts, the ledger or [web] changed", hint)
    every = (
        parse_duration(interval, "--interval", least=INTERVAL_MIN, most=INTERVAL_MAX)
        if interval is not None
        else settings.watch.interval
    )
    _log_void_settings(settings)
    context.adopt(settings, build_guard_config(settings, every))
    return _build_duties(context, show, every)


RECENT_ACTIONS = timedelta(hours=24)


def build_watch_view(guarded: GuardRunResult, context: WatchdogContext) -> WatchView:
    """Build the view at the instant of this run."""
    snapshot, survey, at = guarded.sight, guarded.survey, guarded.at
    with context.guard.books() as books:
        live = snapshot.live if snapshot else books.load_live(at)
        usd, scopes = build_totals(
            books=books, now=at, zone=context.guard.rules.zone, live=live, unreached=context.list_unreached()
        )
    acts: dict[ResourceKey, list[Proposal]] = defaultdict(list)
    for one in survey.proposals if survey else ():
        if one.step.do in DESTRUCTIVE and one.verdict.finding != CANNOT_SAY:  # what cannot be judged has nothing coming
            acts[one.verdict.life.key].append(one)
    hold = find_freeze(snapshot.wishes, None, at) if snapshot else None
    machine = partial(_build_machine_view, guarded=guarded, context=context, acts=acts)
    running = [one for one in (live if snapshot else ()) if one.observation.kind == INSTANCE and one.absent_at is None]
    return WatchView(
        at=at,
        mode="dry run"
        if context.guard.dry_run
        else "acting"
        if guarded.acting and not (snapshot and snapshot.held)
        else "observing",
        burn=usd.burn.bounds.expected,
        month=usd.to_date,
        scopes=scopes,
        machines=tuple(sorted(map(machine, running), key=lambda one: (-(one.rate.nano if one.rate else 0), one.key))),
        budgets=_build_budget_views(guarded),
        acts=tuple(
            WatchedAction(
                at=intent.moved_at,
                subject=intent.life.key.id,
                act=intent.act,
                state=intent.state,
                why=intent.outcome or intent.why,
            )
            for intent in guarded.intents
            if at - intent.moved_at <= RECENT_ACTIONS
        ),
        notices=tuple(_list_notices(guarded)),
        frozen=f"{hold.who}: {hold.why}" if hold else "",
        committed=guarded.committed,
    )


def _list_notices(guarded: GuardRunResult) -> Iterator[WatchedNotice]:
    for one in guarded.notices:
        due = f"{one.due:%Y-%m-%d %H:%M}" if one.due else ""
        yield WatchedNotice(id=f"{one.topic} {one.subject} {one.owner} {one.severity} {one.stage} {due}", what=one.what)
    yield from (WatchedNotice(id=text, what=text) for text in list_cap_shortfalls(guarded))


def _build_machine_view(
    live: LiveResource, guarded: GuardRunResult, context: WatchdogContext, acts: dict[ResourceKey, list[Proposal]]
) -> WatchedMachine:
    observation, survey = live.observation, guarded.survey
    assert survey is not None  # noqa: S101 - where there are machines there is a survey
    coming = min(acts.get(observation.key, ()), key=lambda one: (bool(one.held_by), one.due_at), default=None)
    gpus = f"{observation.gpu_count:g}x{observation.gpu}" if observation.gpu else observation.instance_type or observation.kind
    return WatchedMachine(
        key=observation.key,
        name=observation.name,
        owner=find_owner(observation, context.guard.rules.owner_from),
        told=gpus,
        power=observation.state,
        rate=to_hourly_money(compute_burn_rate(live, guarded.at)),
        work=survey.works[observation.key],
        next_act=coming.step.do if coming else "",
        next_at=coming.due_at if coming else None,
        held_by=tuple(reason for reason, _ in coming.held_by if reason != "grace") if coming else (),
    )


def _build_budget_views(guarded: GuardRunResult) -> tuple[WatchedBudget, ...]:
    foreseen = {one.standing.budget.name: one for one in (guarded.survey.foresights if guarded.survey else ())}
    watched_budgets = []
    for one in guarded.sight.standings if guarded.sight else ():
        ahead, hours = foreseen.get(one.budget.name), one.time_to_cap_hours
        watched_budgets.append(
            WatchedBudget(
                name=one.budget.name,
                cap=one.budget.cap,
                spent=one.spent,
                time_to_cap=None if hours is None else timedelta(hours=float(hours)),
                overshoot=ahead.overshoot if ahead else None,
                unit="/h" if one.budget.is_rate else "",
            )
        )
    return tuple(watched_budgets)
