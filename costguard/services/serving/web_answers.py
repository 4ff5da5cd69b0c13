"""The answers of commands for the pages: report, quote, budgets, policies, accounts and the audit log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from costguard.errors import InputError
from costguard.providers.plugins import load_renderer
from costguard.reporting.statement.groups import parse_group_keys
from costguard.reporting.statement.period import parse_report_period
from costguard.services import CommandAnswer
from costguard.services.guarding.ask_links import format_channel_name
from costguard.services.guarding.audit import show_audit, verify_audit
from costguard.services.guarding.policy import explain_policies
from costguard.services.quote.file_limit import refuse_files
from costguard.services.quote.quote_commands import answer_quote
from costguard.services.report.ledger_answers import build_report, load_standings_now, open_books
from costguard.services.serving.fleet_page import FleetPage
from costguard.services.serving.policy_draft import format_toml_table
from costguard.services.serving.web_pages import PageServices
from costguard.settings.budgets import parse_filter, parse_match_table, read_budgets
from costguard.views.budget_status import build_budget_table
from costguard.views.document import Document

EXPORTS = {"html": "text/html", "csv": "text/csv", "json": "application/json", "markdown": "text/plain"}
"""Formats that the page of a report offers -> their media types."""
QUOTE_FIELDS = ("model", "method", "tokens", "seq_len", "precision", "gpu", "count", "hours", "max_usd", "region")
"""What the form of a quote asks: flags of `costguard quote`."""
BUDGET_FIELDS = ("name", "cap", "period", "only", "hard")
"""What the form of a budget asks."""


def answer_page_report(services: PageServices, query: Mapping[str, str]) -> Document:
    """Return the report that `costguard report` gives for `month`, `day`, `week`, or `from` and `to`, grouped by `by`.

    `only`: of which spending, "owner=vision,team=cv".
    """
    settings, now = services.settings, services.clock()
    period = {name: query[name] or None for name in ("month", "day", "week", "from", "to") if query.get(name)}
    zone = settings.defaults.timezone
    of, by = parse_report_period(period, now, zone), parse_group_keys(query.get("by") or None)
    match = parse_filter(query["only"].split(",") if query.get("only") else (), "only")
    document = build_report(settings, of, by=by, zone=zone, now=now, drawn=True, match=match)[1]
    return replace(document, items=None)  # which are read while a file of them is written: no format of the page is one


def export_report(services: PageServices, query: Mapping[str, str], format_name: str) -> tuple[str, str]:
    """Return the report as text in a format of EXPORTS, and its media type."""
    if format_name not in EXPORTS:
        raise InputError("is not a format of this page", field=format_name[:20], hint=", ".join(EXPORTS))
    return load_renderer(format_name)(answer_page_report(services, query)), EXPORTS[format_name]


def answer_page_quote(
    services: PageServices, flags: Mapping[str, object], count: float | None, hours: float | None
) -> CommandAnswer:
    """Return the quote that `costguard quote` gives for these flags, as `job_flags.build_job_table` builds them."""
    with refuse_files():
        return answer_quote(flags=dict(flags), count=count, hours=hours, config=services.config)


def build_budgets(fleet: FleetPage) -> Document:
    """Return the budgets as they stand."""
    status = fleet.found
    table = build_budget_table(status.budgets, status.overshoots, status.at)
    lead = () if status.budgets else ("The settings have no [[budget]]: spending is not limited.",)
    notes = tuple(f"Budget {one.budget.name}: {note}." for one in status.budgets for note in one.notes)
    return Document(data={}, lead=lead, tables=(table,) if status.budgets else (), notes=notes)


def build_budget_draft(services: PageServices, query: Mapping[str, str]) -> tuple[Document, str]:
    """Return how a budget of these fields (BUDGET_FIELDS) would stand now, and its table for the settings file.

    `only`: of which spending, "owner=vision,team=cv". Raises InputError for what a settings file may not say.
    """
    settings, now = services.settings, services.clock()
    table: dict[str, object] = {name: query[name] for name in ("name", "cap", "period") if query.get(name)}
    table |= {"hard": True} if query.get("hard") else {}
    match = parse_match_table(query["only"].split(",") if query.get("only") else (), "only")
    table |= {"match": match} if match else {}
    budgets = read_budgets([table], "the form", settings.defaults.timezone, settings.display)
    with open_books(settings) as books:
        standings = load_standings_now(settings, budgets, books, now)
    (standing,) = standings
    notes = tuple(f"{note}." for note in standing.notes)
    if standing.budget.hard:
        notes += ("Machines that it counts may be stopped to keep it, where a policy is armed and their stop loses no data.",)
    shown = replace(build_budget_table(standings, None, now), title="As it would stand now")
    document = Document(data={}, tables=(shown,), notes=notes)
    return document, format_toml_table("[[budget]]", table)


def list_page_routes(services: PageServices) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the routes of the settings by name, each with its channels as messages name them: an address is not shown."""
    return tuple((one.name, tuple(map(format_channel_name, one.channels))) for one in services.settings.routes)


def explain_page_policies(services: PageServices) -> Document:
    """Return the policies in words, as `costguard policy explain` does."""
    return explain_policies(config=services.config).document


def read_log(services: PageServices, since: str) -> tuple[Document, Document, str]:
    """Return the log's rows, the newest first, its verification, and why it does not verify ("" if it does)."""
    shown = show_audit(since=since or None, config=services.config).document
    checked = verify_audit(config=services.config, check=services.audit.check)
    tables = tuple(replace(table, rows=tuple(reversed(table.rows))) for table in shown.tables)
    return replace(shown, tables=tables), checked.document, str(checked.refusal or "")
