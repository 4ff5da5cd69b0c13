"""The vendored scripts, the pages' own script and their style, from memory."""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import files

from fastapi import APIRouter, Request, Response

from costguard.renderers.html import read_chart_style
from costguard.web.pages.room import PageRoom

CHARTS = "charts.css"
"""The style of the charts of reports, which the file of `--format html` has as well."""
TYPES = {
    CHARTS: "text/css; charset=utf-8",
    "htmx-4.0.1.min.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "page.js": "text/javascript; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
}
"""File -> its type; nothing else is served."""
CACHED_S = 300
"""After it a browser asks again, with the mark of what it has: a new version is seen within minutes."""


def build_router(_: PageRoom) -> APIRouter:
    """Return the routes."""
    routes = APIRouter()
    folder = files("costguard.web") / "static"
    bodies = {name: (folder / name).read_bytes() for name in TYPES if name != CHARTS}
    bodies[CHARTS] = read_chart_style().encode()
    marks = {name: f'"{sha256(body).hexdigest()[:16]}"' for name, body in bodies.items()}

    @routes.get("/static/{name}")
    async def static(name: str, request: Request) -> Response:
        if name not in bodies:
            return Response("not found", status_code=404, media_type="text/plain")
        headers = {"etag": marks[name], "cache-control": f"private, max-age={CACHED_S}"}
        if request.headers.get("if-none-match") == marks[name]:
            return Response(status_code=304, headers=headers)
        return Response(bodies[name], media_type=TYPES[name], headers=headers)

    return routes
