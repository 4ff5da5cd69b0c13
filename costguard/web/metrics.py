"""`GET /metrics`: figures for Prometheus, with a reader's token as for `/v1/status`.

A function and not an application, so that whichever process answers HTTP can include it:

    app.include_router(build_metrics_router(reader, board.read))
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fastapi import APIRouter, Request, Response

from costguard.agents.messages import TOO_OFTEN, MessageRefusedError
from costguard.values.agent import WebToken
from costguard.web import schemas
from costguard.web.middleware import RateLimiter
from costguard.web.routes import SECURITY, parse_bearer_token

METRICS_PATH = "/metrics"
TEXT = "text/plain; version=0.0.4; charset=utf-8"
"""Prometheus' text format, which every version of it reads."""
PER_TOKEN, TOKEN_BURST = 2.0, 20.0
"""Scrapes a second with one token; a Prometheus scrapes every 15 s or less often."""


def build_metrics_router(reader: Callable[[str], WebToken], read: Callable[[], bytes]) -> APIRouter:
    """Return the route. `reader`: returns whom a token belongs to, or raises MessageRefusedError. `read`: returns the text."""
    routes, rates = APIRouter(), RateLimiter(PER_TOKEN, TOKEN_BURST)

    @routes.get(
        METRICS_PATH,
        summary="Figures for Prometheus, as of the last run of the guard (docs/METRICS.md).",
        openapi_extra=SECURITY,
        responses=schemas.build_response_schemas({200: "text/plain"}),
    )
    async def metrics(request: Request) -> Response:
        holder = await asyncio.to_thread(reader, parse_bearer_token(request))
        wait_s = rates.take(holder.name)
        if wait_s:
            raise MessageRefusedError(TOO_OFTEN, wait_s=wait_s)
        return Response(await asyncio.to_thread(read), headers={"content-type": TEXT})

    return routes
