"""`costguard reconcile`: bills fetched or read from files, imported into the ledger, and compared with its charges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from costguard.bills.bill_line import BillImport
from costguard.bills.drift import (
    BEYOND,
    DEFAULT_TOLERANCE,
    DriftResult,
    ReconciliationRecord,
    Tolerance,
    build_drift_alert,
    is_already_notified,
    parse_tolerance,
)
from costguard.data import ShippedFacts
from costguard.errors import InputError, NoLedgerError, OlderLedgerError, to_one_line
from costguard.guard.alerts.alert import Notification
from costguard.guard.alerts.dispatch import dispatch_alerts
from costguard.ledger.bills.reader import BillLedgerReader
from costguard.ledger.bills.staging import StagedStatement
from costguard.ledger.bills.store import BillStore, GatheredStatement
from costguard.ledger.db.maintenance import describe_ledger_path
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.guard_state import load_leader_lease, load_open_overrides
from costguard.ledger.spans.books import SpendingReader
from costguard.metering.billing import BillingRule
from costguard.reporting.statement.period import parse_month
from costguard.services import CommandAnswer
from costguard.services.guarding.overrides import describe_user, get_now, open_guard_store
from costguard.services.poll.bill_files import BillFileKinds, ListAccounts, list_installed_kinds, open_bill
from costguard.services.poll.configured_providers import SystemClock, list_sources
from costguard.services.poll.configured_providers import open_providers as opened_clouds
from costguard.services.poll.listing_validation import may_speak_for
from costguard.services.poll.market_prices import read_price_ceilings
from costguard.services.report.bill_summary import NO_ACCOUNT, summarize_bills
from costguard.services.report.reconcile import (
    BillAnswer,
    BillComparison,
    ask_for_bills,
    find_bill_month,
    import_answers,
    reconcile_bills,
)
from costguard.settings import Settings, expand_path, read_settings, resolve_ledger_url
from costguard.values import calendar
from costguard.values.calendar import Period
from costguard.values.money import Money
from costguard.views.bill_files_read import BillFileReading, list_reading_notes
from costguard.views.bill_summary import build_bill_summary_document, build_uncompared_error, describe_missing_ledger
from costguard.views.bills import Reconciliation, build_reconciliation_document, build_reconciliation_error

LEFT_OUT_SHOWN_MAX = 5


def answer_reconcile(
    *,
    month: str | None,
    only: Sequence[str],
    files: Sequence[str],
    tolerance: str | None,
    account: str | None,
    complete: bool,
    strict: bool,
    offline: bool,
    config: str | None,
) -> CommandAnswer:
    """Answer `costguard reconcile`: a month's bills compared with the charges, and the causes of the difference."""
    settings, now = read_settings(config), get_now()
    if complete and not files:
        raise InputError("means that the files are the complete bill", field="--whole", hint="name them with --file")
    period = calendar.find_month(now, UTC) if month is None else calendar.make_month(*parse_month(month), UTC)
    if period.start > now:
        raise InputError("is in the future: there is no bill yet", field="--month", hint="name a month that has begun")
    allowed = _read_tolerance(tolerance, settings)
    url, rules = resolve_ledger_url(settings), ShippedFacts().get_billing_rules()
    if not _has_ledger(url, needed=not files):
        return _answer_without_ledger(
            files, _list_kinds(only, account or NO_ACCOUNT, lambda _: ()), url, period, allowed, strict=strict
        )
    with BillStore(url, rules=rules) as bills:
        if files:
            kinds = _list_kinds(only, account or "", partial(_list_known_accounts, url))
            (imports, readings), answers = _import_files(bills, files, kinds, now, complete=complete), list[BillAnswer]()
            notes = [*list_reading_notes(readings), *_list_left_out_rows(kinds), *_list_lacking_lines(imports)]
        else:
            readings = []
            answers = [] if offline else _ask_accounts(settings, only, period, now, rules)
            imports, notes = import_answers(bills, answers, who=describe_user(), now=now), _list_foreign_rows(answers)
        ceilings = partial(read_price_ceilings, settings)
        with (
            BillLedgerReader(url) as bill_reader,
            SpendingReader(url, rules=rules, ceilings=ceilings) as books,
        ):
            old_records = bill_reader.load_reconciliations(period)
            providers = _choose_providers(bill_reader.list_billed_providers(period), answers, only)
            months = {provider: find_bill_month(rules, provider, period) for provider in providers}
            evidence = [bills.apply_evidence(provider, month, now=now) for provider, month in months.items()]
            comparison = reconcile_bills(
                bills=bill_reader,
                charges=books,
                providers=providers,
                period=period,
                now=now,
                tolerance=allowed,
                missing={name: one.why for one in answers if one.billed and one.why for name in one.providers},
                periods={name: one.period for one in answers if one.billed and not one.why for name in one.providers},
                rules=rules,
                rates=settings.display.rates,
            )
        messages, notified_results = _build_messages(comparison.results, old_records, url, settings, now)
        bills.record_results(comparison.results, who=describe_user(), messages=messages, announced=notified_results)
    if messages and not offline:
        _deliver_messages(settings, url, now)
    answer = Reconciliation(
        period=period,
        label=f"{period.start:%Y-%m}",
        at=now,
        tolerance=allowed,
        results=comparison.results,
        imports=tuple(imports),
        readings=tuple(readings),
        not_asked=tuple((one.name, one.why) for one in answers if one.billed is None),
        notes=(*notes, *_list_other_months(imports, period), *_list_notes(comparison, settings, files, offline=offline)),
        told=len({notice.subject for message in messages for notice in message.notices}),
        evidence=tuple(one for result in evidence for one in result.summaries),
        unused=tuple(one for result in evidence for one in result.findings),
    )
    warnings = tuple(f"{name} was not queried: {to_one_line(why)}" for name, why in answer.not_asked)
    return CommandAnswer(
        document=build_reconciliation_document(answer),
        warnings=warnings,
        refusal=build_reconciliation_error(answer, strict=strict),
    )


def _answer_without_ledger(
    files: Sequence[str], kinds: BillFileKinds, url: str, period: Period, allowed: Tolerance, *, strict: bool
) -> CommandAnswer:
    """Answer with what the files hold, where there is nothing to compare them with."""
    now, place = get_now(), describe_ledger_path(url)
    bills, readings = summarize_bills(files, kinds, now)
    notes = [*list_reading_notes(readings), *_list_left_out_rows(kinds)]
    return CommandAnswer(
        document=build_bill_summary_document(
            bills, readings, ledger=place, period=period, at=now, tolerance=allowed.format(), notes=notes
        ),
        warnings=(describe_missing_ledger(place),),
        refusal=build_uncompared_error(place) if strict else None,
    )


def _read_tolerance(option: str | None, settings: Settings) -> Tolerance:
    if option is not None:
        return parse_tolerance(option, "--tolerance")
    setting = settings.reconcile.tolerance
    return DEFAULT_TOLERANCE if setting is None else parse_tolerance(setting, "reconcile.tolerance")


def _has_ledger(url: str, *, needed: bool) -> bool:
    """Return whether there is a ledger; raise InputError if there is none and it is `needed`.

    An older one is upgraded by the first write.
    """
    try:
        LedgerReader(url).close()
    except OlderLedgerError:
        return True
    except NoLedgerError:
        if needed:
            raise
        return False
    return True


def _list_known_accounts(url: str, provider: str) -> list[str]:
    with BillLedgerReader(url) as books:
        return books.list_accounts_of(provider)


def _list_kinds(only: Sequence[str], account: str, accounts: ListAccounts) -> BillFileKinds:
    if len(only) > 1:
        raise InputError(
            "names the provider of the files: give it once", field="--provider", hint="reconcile one after another"
        )
    kinds = list_installed_kinds(only[0] if only else "", account, accounts)
    if only and only[0] not in kinds.known:
        known_names = ", ".join(kinds.known)
        raise InputError(
            f"no provider has the name '{to_one_line(only[0])}'", field="--provider", hint=f"installed: {known_names}"
        )
    return kinds


def _import_files(
    bills: BillStore, files: Sequence[str], kinds: BillFileKinds, now: datetime, *, complete: bool
) -> tuple[list[BillImport], list[BillFileReading]]:
    """Read every file to its end, then import all in one transaction, in the order in which they were made.

    `complete`: each file is complete for the bills that it has lines of.
    """
    with ExitStack() as stack:
        statements, readings = list[GatheredStatement](), list[BillFileReading]()
        for name in dict.fromkeys(files):
            bill, staged = open_bill(expand_path(name), kinds, now), stack.enter_context(StagedStatement())
            staged.add(bill.parts, sums=bill.sums)
            source = f"{Path(name).name} ({bill.kind})"
            statements.append(GatheredStatement(staged=staged, source=source, stated_at=bill.stated_at, whole=complete))
            readings.append(BillFileReading(source=source, lines=staged.sum_amounts(), tally=bill.tally))
        statements.sort(key=lambda one: one.stated_at)
        if complete:
            _check_bills_distinct(statements)
        return bills.import_statements(statements, who=describe_user(), now=now), readings


def _check_bills_distinct(statements: Sequence[GatheredStatement]) -> None:
    """Raise InputError if a file is of no bill that is delivered whole, or if two files are of one bill.

    Two files of one bill would withdraw each other's lines.
    """
    file_of_bill = dict[tuple[str, str, str], str]()
    for one in statements:
        bills = [(provider, *bill) for provider in one.staged.list_providers() for bill in one.staged.list_bills(provider)]
        if not bills:
            what = f"does not apply to {one.source}, a bill that is not delivered completely"
            raise InputError(what, field="--whole", hint="use --whole only for FOCUS and Cost and Usage Reports")
        for bill in bills:
            if bill in file_of_bill:
                what = f"cannot apply to both {file_of_bill[bill]} and {one.source}: they belong to one bill"
                raise InputError(what, field="--whole", hint="put the parts of the bill into a folder and name the folder")
            file_of_bill[bill] = one.source


def _list_lacking_lines(imports: Sequence[BillImport]) -> Iterator[str]:
    """Yield notes on lines of a bill that a file lacks: they may be withdrawn, or in another piece."""
    for one in imports:
        if one.lacking:
            kept_text = "1 line, which was kept" if one.lacking == 1 else f"{one.lacking} lines, which were kept"
            yield (
                f"{one.provider}: {to_one_line(one.source)} does not contain, of the same bill in the ledger, {kept_text}: "
                "if it is the complete bill, add --whole to remove them"
            )


def _ask_accounts(
    settings: Settings, only: Sequence[str], period: Period, now: datetime, rules: Mapping[str, BillingRule]
) -> list[BillAnswer]:
    if not settings.providers and not only:
        return []
    with opened_clouds(settings, only=tuple(only) or None) as clouds:
        sources = [(cloud.name, source) for cloud in clouds for source in list_sources((cloud,))]
        return ask_for_bills(sources, period, now, rules=rules)


def _choose_providers(billed: Sequence[str], answers: Sequence[BillAnswer], only: Sequence[str]) -> list[str]:
    """Return providers with lines in the ledger, and those that answered; with `only`, those of these names."""
    names = {*billed, *(name for one in answers if one.billed and not one.why for name in one.providers)}
    chosen_names = {name for one in answers for name in one.providers if one.name in only}
    return sorted(name for name in names if not only or name in chosen_names or any(may_speak_for(own, name) for own in only))


def _build_messages(
    results: Sequence[DriftResult], old_records: Sequence[ReconciliationRecord], url: str, settings: Settings, now: datetime
) -> tuple[tuple[Notification, ...], list[DriftResult]]:
    """Return messages on drift beyond tolerance that is new, if the settings have routes; and all notified results."""
    beyond = [one for one in results if one.outcome == BEYOND]
    notified_results = [one for one in beyond if is_already_notified(one, old_records)]
    new = [one for one in beyond if not is_already_notified(one, old_records)]
    if not settings.routes or not new:
        return (), notified_results
    with LedgerReader(url) as reader, reader.snapshot() as ask:
        snoozes = load_open_overrides(ask, now)
    notices = [replace(build_drift_alert(one), at=now) for one in new]
    messages, _ = dispatch_alerts(
        notices, (), now=now, routes=settings.routes, snoozes=snoozes, zone=settings.defaults.timezone
    )
    subjects = {notice.subject for message in messages for notice in message.notices}
    return messages, [*notified_results, *(one for one in new if build_drift_alert(one).subject in subjects)]


def _deliver_messages(settings: Settings, url: str, now: datetime) -> None:
    """Send due messages, unless a watchdog runs that will send them."""
    with LedgerReader(url) as reader, reader.snapshot() as ask:
        turn = load_leader_lease(ask)
    if turn is not None and turn.is_held(now):
        return
    from costguard.services.guarding.dispatch import open_dispatcher

    with open_guard_store(settings) as book:
        open_dispatcher(settings, book, SystemClock()).deliver()


def _list_left_out_rows(kinds: BillFileKinds) -> list[str]:
    """Return notes on rows of a FOCUS file of providers that are not installed or were not requested."""
    why = f"--provider asks for {kinds.only}" if kinds.only else "no installed provider has this name (set it with --provider)"
    first_names, others = (
        kinds.left_out.most_common()[part] for part in (slice(LEFT_OUT_SHOWN_MAX), slice(LEFT_OUT_SHOWN_MAX, None))
    )
    notes = [f"{count} rows of {to_one_line(name)} were left out: {why}" for name, count in first_names]
    rest = sum(count for _, count in others)
    return [*notes, f"{rest} rows of {len(others)} more providers were left out: {why}"] if others else notes


def _list_foreign_rows(answers: Sequence[BillAnswer]) -> list[str]:
    """Return notes on rows of other providers in an account's files."""
    return [
        f"{count} rows of {to_one_line(name)} were left out of the bill of {one.name}"
        for one in answers
        if one.billed
        for name, count in one.billed.left_out[:LEFT_OUT_SHOWN_MAX]
    ]


def _list_other_months(imports: Sequence[BillImport], period: Period) -> Iterator[str]:
    """Yield notes on imports outside of the period, none of which was compared."""
    for one in imports:
        if one.lines and not (one.start < period.end and period.start < one.end):
            month = f"{one.start:%Y-%m}"
            yield (
                f"{one.provider}: nothing of {to_one_line(one.source)} is of this month: it begins in {month} (--month {month})"
            )


def _list_notes(comparison: BillComparison, settings: Settings, files: Sequence[str], *, offline: bool) -> Iterator[str]:
    if not files and not offline and not settings.providers:
        yield "No provider is configured: bills in the ledger were compared. --file reads a bill"
    yield from (f"lines in another currency were converted {rate}" for rate in comparison.rates)
    for provider, account in comparison.unstated:
        yield f"{provider}/{to_one_line(account)} has charges, but no bill covers it"
    for provider, one, counted in comparison.set_aside:
        name, other = one.name or "its billing API", counted.name or "its billing API"
        more = Money(nano=abs(one.micros - counted.micros) * 1000).format()
        than = f"{more} {'more' if one.micros > counted.micros else 'less'} than {other}"
        whose = f"{provider}/{to_one_line(one.account)}"
        yield f"{whose}: {one.lines} lines of {name} repeat the same time and were ignored: {than}"
    for provider, count in comparison.straddling.items():
        if count:
            yield f"{provider}: {count} lines cross a month boundary and were not compared"
