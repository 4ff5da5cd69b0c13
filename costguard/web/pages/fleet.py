"""The page Now: the month, what waits for an answer, what the guard will do next and what it holds back, and every machine."""

from __future__ import annotations

from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response

from costguard.renderers.csv_text import render as render_csv
from costguard.services.serving.fleet_page import CHIPS, SORTS, build_machine_list
from costguard.values.agent import OPERATOR
from costguard.web.pages.room import HEADERS, PageReader, PageRoom

ROWS_A_PAGE = 50
NEXT_MAX = 20
"""Machines that the guard is about to act on, as many as a page shows; the plan has the others."""
SEARCH_CHARS_MAX = 100
NUMBERS = frozenset(("use", "up", "rate", "spent"))
"""Columns of numbers, of which the largest are wanted first."""


class TableQuery:
    """Which machines of the table are wanted: its address says so, and `link` returns the address of a change of it."""

    def __init__(self, request: Request) -> None:
        query = request.query_params
        self.sought = query.get("q", "")[:SEARCH_CHARS_MAX].strip()
        self.chips = [chip for chip in CHIPS if chip in query.getlist("only")]
        self.sort = query.get("sort", "")[:SEARCH_CHARS_MAX]
        self.page = _parse_number(query.get("page", ""))

    def link(self, path: str = "/", **changes: object) -> str:
        """Return the address of these machines with `changes`, on the first page."""
        fields = {"q": self.sought, "only": self.chips, "sort": self.sort} | changes
        query = urlencode({name: value for name, value in fields.items() if value}, doseq=True)
        return f"{path}?{query}" if query else path

    def toggle(self, chip: str) -> str:
        """Return the address with or without `chip`."""
        return self.link(only=[one for one in CHIPS if (one in self.chips) != (one == chip)])

    def turn(self, column: str) -> str:
        """Return the address of the table by `column`; by the column that it has, the other way round."""
        first, second = (f"-{column}", column) if column in NUMBERS else (column, f"-{column}")
        return self.link(sort=second if self.sort == first else first)

    def get_direction(self, column: str) -> str:
        """Return how the table is sorted by `column`, as ARIA calls it."""
        return {column: "ascending", f"-{column}": "descending"}.get(self.sort, "none")


def build_router(room: PageRoom) -> APIRouter:
    """Return the routes."""
    routes = APIRouter()

    @routes.get("/")
    @room.open_to()
    async def now(request: Request, reader: PageReader) -> Response:
        fleet, query = await room.load_fleet(), TableQuery(request)
        rows = fleet.search(query.sought, query.chips, query.sort)
        pages = max(1, -(-len(rows) // ROWS_A_PAGE))
        page = min(max(1, query.page), pages)
        return room.render(
            "now.html",
            reader,
            title="Now",
            here="/",
            fleet=fleet,
            late=room.services.list_late(fleet),
            rows=rows[(page - 1) * ROWS_A_PAGE : page * ROWS_A_PAGE],
            found=len(rows),
            query=query,
            columns=tuple(SORTS),
            chips={name: label for name, (label, _) in CHIPS.items()},
            page=page,
            pages=pages,
            acting=[*fleet.head.going, *fleet.head.blocked][:NEXT_MAX],
            acting_more=max(0, fleet.head.counts["going"] + fleet.head.counts["blocked"] - NEXT_MAX),
            questions=fleet.head.questions[:NEXT_MAX],
            answers=not room.services.read_only and reader.may(OPERATOR),
        )

    @routes.get("/machines.csv")
    @room.open_to()
    async def machines(request: Request, _: PageReader) -> Response:
        fleet, query = await room.load_fleet(), TableQuery(request)
        text = render_csv(build_machine_list(fleet.search(query.sought, query.chips, query.sort)))
        headers = {**HEADERS, "content-disposition": 'attachment; filename="costguard-machines.csv"'}
        return Response(text, media_type="text/csv; charset=utf-8", headers=headers)

    return routes


def _parse_number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 7 else 1  # noqa: PLR2004 - a million pages
