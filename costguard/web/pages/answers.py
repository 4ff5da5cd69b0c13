"""The pages that show a command's answer: budgets, report, quote, policies, accounts, log."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from typing import cast
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from markupsafe import Markup, escape

from costguard.errors import CostguardError, InputError, NoAnswerError, to_one_line
from costguard.guard.policy import LEVELS
from costguard.renderers.html import draw_charts
from costguard.renderers.html.markup import PATTERN_DEFINITIONS
from costguard.reporting.statement.groups import GROUP_KEYS
from costguard.services import CommandAnswer
from costguard.services.serving import web_answers
from costguard.services.serving.person_acts import TEST_ROUTE
from costguard.services.serving.policy_draft import TEXT_CHARS_MAX, simulate_policy_change, write_policy_text
from costguard.sizing.job_flags import build_job_table, parse_hours, parse_number
from costguard.values.web_login import ADMIN
from costguard.views.document import Document
from costguard.web.pages.room import HEADERS, PageReader, PageRoom, build_redirect, read_form

LOG_SINCE = "7d"
REPORT_FIELDS = ("month", "week", "day", "from", "to", "by", "only")
VALUE_CHARS_MAX = 80
NARROWED_BY, NARROWED_MOST = ("owner", "provider", "gpu"), 12
"""Keys of which a report offers values to narrow it to, and how many values of each."""
PERIODS_OFFERED = ("day", "week", "month", "quarter", "year", "rolling 7d", "rolling 30d", "total")
LIST_FIELDS = ("region", "gpu")
"""Flags that may be given several times."""


def build_router(room: PageRoom) -> APIRouter:
    """Return the routes."""
    routes, services = APIRouter(), room.services

    @routes.get("/budgets")
    @room.open_to()
    async def budgets(request: Request, reader: PageReader) -> Response:
        query, draft, wrong = _read_query(request, web_answers.BUDGET_FIELDS), None, ""
        fleet = await room.load_fleet()
        if query:
            try:
                draft = await room.computer.compute(request, reader.name, web_answers.build_budget_draft, query)
            except (InputError, NoAnswerError) as error:
                wrong = str(error)
        return room.render(
            "budgets.html",
            reader,
            title="Budgets",
            here="/budgets",
            document=web_answers.build_budgets(fleet),
            fleet=fleet,
            late=services.list_late(fleet),
            query=query,
            draft=draft,
            keep_lines=_keep_lines,
            wrong=wrong,
            periods=PERIODS_OFFERED,
        )

    @routes.get("/report")
    @room.open_to()
    async def report(request: Request, reader: PageReader) -> Response:
        query, document, wrong = _read_query(request, REPORT_FIELDS), None, ""
        try:
            document = await room.computer.compute(request, reader.name, web_answers.answer_page_report, query)
        except (InputError, NoAnswerError) as error:
            wrong = str(error)
        return room.render(
            "report.html",
            reader,
            title="Report",
            here="/report",
            document=document,
            charts=_draw_charts(document) if document else "",
            wrong=wrong,
            query=query,
            exports=tuple(web_answers.EXPORTS),
            presets=_list_presets(services.clock().astimezone(services.settings.defaults.timezone).date(), query),
            narrower=tuple(_list_narrower(document, query)) if document else (),
            group_keys=GROUP_KEYS,
        )

    @routes.get("/report/export")
    @room.open_to()
    async def export(request: Request, reader: PageReader) -> Response:
        query, chosen = _read_query(request, REPORT_FIELDS), request.query_params.get("format", "")
        text, kind = await room.computer.compute(request, reader.name, web_answers.export_report, query, chosen)
        ending = {"markdown": "md"}.get(chosen, chosen)
        headers = {**HEADERS, "content-disposition": f'attachment; filename="costguard-report.{ending}"'}
        return Response(text, media_type=kind, headers=headers)

    @routes.get("/quote")
    @room.open_to()
    async def quote(request: Request, reader: PageReader) -> Response:
        query, answer, wrong = _read_query(request, web_answers.QUOTE_FIELDS), None, ""
        if query:
            try:
                answer = await room.run(_answer_quote, room, query)
                wrong = str(answer.refusal or "")
            except CostguardError as error:
                wrong = str(error)
        return room.render("quote.html", reader, title="Quote", here="/quote", query=query, answer=answer, wrong=wrong)

    _add_policies(routes, room)
    _add_accounts(routes, room)
    return routes


def _list_presets(today: date, query: dict[str, str]) -> list[tuple[str, str, bool]]:
    """Return what people ask most, each with the address of its report, grouped as this one, and whether it is this one."""
    last_month = today.replace(day=1) - timedelta(days=1)
    periods: dict[str, dict[str, str]] = {
        "This month": {},
        "Last month": {"month": f"{last_month:%Y-%m}"},
        "Last 7 days": {"from": f"{today - timedelta(days=6)}"},
        "Last 30 days": {"from": f"{today - timedelta(days=29)}"},
        "This year": {"from": f"{today.year}-01-01"},
    }
    others = {name: query[name] for name in ("by", "only") if name in query}
    period_now = {name: value for name, value in query.items() if name not in others}
    return [(label, _build_report_path(period | others), period == period_now) for label, period in periods.items()]


def _list_narrower(document: Document, query: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield the values by which the report can be narrowed: the key, the value, and the address. The largest come first."""
    narrowed = query["only"].split(",") if query.get("only") else []
    groups = cast("list[dict[str, dict[str, str]]]", document.data["groups"])
    values = dict.fromkeys((key, group["by"][key]) for key in NARROWED_BY for group in groups if group["by"].get(key))
    for key in NARROWED_BY:
        for value in [value for of, value in values if of == key][:NARROWED_MOST]:
            only = ",".join((*narrowed, f"{key}={value}"))
            is_alone = not any(one.startswith(f"{key}=") for one in narrowed)
            if is_alone and "," not in value and len(only) <= VALUE_CHARS_MAX:
                yield key, value, _build_report_path(query | {"only": only})


def _build_report_path(query: dict[str, str]) -> str:
    return f"/report?{urlencode(query)}" if query else "/report"


def _draw_charts(document: Document) -> Markup:
    """Return the charts that the file of `--format html` has, with the patterns of their parts."""
    return Markup(PATTERN_DEFINITIONS + draw_charts(document)) if document.charts else Markup()  # noqa: S704 - of make_element, which escapes


def _keep_lines(text: str) -> Markup:
    """Return a text of several lines for a form, cleaned line by line."""
    return escape("\n").join(escape(to_one_line(line)) for line in text.splitlines())


def _add_policies(routes: APIRouter, room: PageRoom) -> None:
    services = room.services

    @routes.get("/policies")
    @room.open_to()
    async def policies(request: Request, reader: PageReader) -> Response:
        query = _read_query(request, ("policy", "since"))
        draft_text = request.query_params.get("text", "").strip()[: TEXT_CHARS_MAX + 1]
        name, wrong, tests, text = query.get("policy", ""), "", None, draft_text
        document = await room.run(web_answers.explain_page_policies, services)
        try:
            text = draft_text or await room.run(write_policy_text, services, name)
            if draft_text:
                since = query.get("since", "")
                tests = await room.computer.compute(request, reader.name, simulate_policy_change, name, draft_text, since)
        except CostguardError as error:
            wrong = str(error)
        return room.render(
            "policies.html",
            reader,
            title="Policies",
            here="/policies",
            document=document,
            explained=document.data["policies"],
            query=query,
            text=text,
            text_most=TEXT_CHARS_MAX,
            keep_lines=_keep_lines,
            tests=tests,
            wrong=wrong,
            levels=LEVELS,
            admin=ADMIN,
        )

    @routes.post("/policies")
    @room.open_to(ADMIN, changes=True)
    async def arm(request: Request, reader: PageReader) -> Response:
        fields = await read_form(request)
        name, level, why = (fields.get(one, "") for one in ("policy", "level", "why"))
        await room.act(reader, "arm", name, value=level, why=why)
        return build_redirect("/policies")


def _add_accounts(routes: APIRouter, room: PageRoom) -> None:
    services = room.services

    @routes.get("/accounts")
    @room.open_to()
    async def accounts(_: Request, reader: PageReader) -> Response:
        fleet = await room.load_fleet()
        late = services.list_late(fleet)
        return room.render(
            "accounts.html",
            reader,
            title="Accounts",
            here="/accounts",
            fleet=fleet,
            late=late,
            routes=web_answers.list_page_routes(services),
            admin=ADMIN,
        )

    @routes.post("/accounts")
    @room.open_to(ADMIN, changes=True)
    async def test_route(request: Request, reader: PageReader) -> Response:
        await room.act(reader, TEST_ROUTE, (await read_form(request)).get("route", ""))
        return build_redirect("/accounts")

    @routes.get("/log")
    @room.open_to()
    async def log(request: Request, reader: PageReader) -> Response:
        since = request.query_params.get("since", LOG_SINCE)[:VALUE_CHARS_MAX]
        since = "" if services.read_only else since  # a demo's entries are of its own time
        shown, checked, wrong = await room.run(web_answers.read_log, services, since)
        return room.render(
            "log.html", reader, title="Log", here="/log", document=shown, checked=checked, wrong=wrong, since=since
        )


def _read_query(request: Request, names: tuple[str, ...]) -> dict[str, str]:
    """Return the stated fields of `names`, without blanks and not longer than a form allows."""
    fields = {name: request.query_params.get(name, "").strip()[:VALUE_CHARS_MAX] for name in names}
    return {name: value for name, value in fields.items() if value}


def _answer_quote(room: PageRoom, query: dict[str, str]) -> CommandAnswer:
    """Return the quote for the form's fields, read as the command reads its flags."""
    flags: dict[str, object] = {name: [value] if name in LIST_FIELDS else value for name, value in query.items()}
    table = build_job_table(flags)
    count = parse_number(query["count"], "count") if "count" in query else None
    hours = parse_hours(query["hours"], "hours") if "hours" in query else None
    return web_answers.answer_page_quote(room.services, table, count, hours)
