"""What may be read: the status with a token, health and the agent itself without one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from fastapi import APIRouter, Request, Response

from costguard.agents.refusals import NOT_READY, TOO_OFTEN, MessageRefusedError
from costguard.services.web_backend import WebServices
from costguard.web import schemas
from costguard.web.rates import RateLimiter

JSON, ZIP = "application/json", "application/octet-stream"
PER_TOKEN, TOKEN_BURST = 20.0, 100.0
"""Readings a second with one token."""
BEARER = "bearer "
SECURITY: dict[str, object] = {"security": [{"token": []}]}


def build_reader_router(parts: WebServices, agent_zip: Callable[[], bytes]) -> APIRouter:
    """The routes of readers. `agent_zip`: the agent as one file that Python runs; RefusedError where there is none."""
    routes, rates = APIRouter(), RateLimiter(PER_TOKEN, TOKEN_BURST)

    @routes.get(
        "/healthz",
        summary="Whether the guard runs: seconds since its last run that is in the ledger. 503 where that is too long ago.",
        responses=schemas.build_response_schemas({200: schemas.HEALTH, 503: schemas.HEALTH}),
    )
    async def healthz() -> Response:
        age_s, late = parts.health()
        state = "never" if age_s is None else "late" if late else "ok"
        said = {"state": state, "guard_age_s": None if age_s is None else round(age_s, 1)}
        return Response(json.dumps(said), status_code=503 if late else 200, media_type=JSON)

    @routes.get(
        "/v1/status",
        summary="What runs and costs, as `costguard status --json` prints it, as of the last run of the guard.",
        openapi_extra=SECURITY,
        responses=schemas.build_response_schemas({200: schemas.STATUS, 304: JSON}),
    )
    async def status(request: Request) -> Response:
        stated = request.headers.get("authorization", "")
        token = stated[len(BEARER) :].strip() if stated.lower().startswith(BEARER) else ""
        reader = await asyncio.to_thread(parts.reader, token)
        wait_s = rates.take(reader.name)
        if wait_s:
            raise MessageRefusedError(TOO_OFTEN, wait_s=wait_s)
        body, mark = await asyncio.to_thread(parts.board.read)
        headers = {"etag": f'"{mark}"'}
        if request.headers.get("if-none-match", "").strip() == f'"{mark}"':
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=JSON, headers=headers)

    @routes.get(
        "/costguard-agent.pyz",
        summary="The agent that fits this watchdog, as one file: python3 costguard-agent.pyz join URL CODE.",
        responses=schemas.build_response_schemas({200: ZIP}),
    )
    async def agent() -> Response:
        body = await asyncio.to_thread(agent_zip)
        return Response(body, media_type=ZIP)

    return routes


def build_agent_zip_once() -> Callable[[], bytes]:
    """The agent as one file, built when it is first asked for."""
    made = list[bytes]()

    def build() -> bytes:
        if not made:
            made.append(_build_agent_zip())
        return made[0]

    return build


def _build_agent_zip() -> bytes:
    try:
        from costguard_agent.installation import build_archive
    except ImportError as error:
        raise MessageRefusedError(NOT_READY, f"this installation cannot build the agent: {error}") from None
    return build_archive()
