"""The page Now: what runs and costs, what the guard will do next and what it holds back, and every machine."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from costguard.web.pages.room import PageReader, PageRoom

ROWS_A_PAGE = 50
NEXT_MAX = 20
"""Machines that the guard is about to act on, as many as a page shows; the plan has the others."""
SEARCH_CHARS_MAX = 100


def build_router(room: PageRoom) -> APIRouter:
    """Return the routes."""
    routes = APIRouter()

    @routes.get("/")
    @room.open_to()
    async def now(request: Request, reader: PageReader) -> Response:
        fleet = await room.load_fleet()
        sought = request.query_params.get("q", "")[:SEARCH_CHARS_MAX].strip()
        rows = fleet.search(sought)
        pages = max(1, -(-len(rows) // ROWS_A_PAGE))
        page = min(max(1, _parse_number(request.query_params.get("page", ""))), pages)
        return room.render(
            "now.html",
            reader,
            title="Now",
            here="/",
            fleet=fleet,
            late=room.services.list_late(fleet),
            rows=rows[(page - 1) * ROWS_A_PAGE : page * ROWS_A_PAGE],
            found=len(rows),
            sought=sought,
            page=page,
            pages=pages,
            acting=[*fleet.head.going, *fleet.head.held][:NEXT_MAX],
            acting_more=max(0, fleet.head.counts["going"] + fleet.head.counts["held"] - NEXT_MAX),
        )

    return routes


def _parse_number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 7 else 1  # noqa: PLR2004 - a million pages
