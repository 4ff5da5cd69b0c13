"""Routes for launchers: a run is admitted, its hold ends, and whether a machine works.

    token -> role -> rate -> request parsed and quoted here -> watchdog (token again, hold, commit) -> 200 held, 409 refused

Nothing of a body is parsed before its token is known.
"""

from __future__ import annotations

import asyncio
import json

from fastapi import APIRouter, Request, Response

from costguard.agents.messages import MALFORMED, TOO_OFTEN, MessageRefusedError
from costguard.errors import NoAnswerError
from costguard.services.guarding.overrides import get_now
from costguard.services.serving.door_messages import HOLD_ID_MATCH, AdmitReply, HoldEndOffer, HoldEndReply
from costguard.services.serving.web_admissions import pack_admission
from costguard.services.serving.web_backend import LauncherServices
from costguard.values.agent import OPERATOR, TOKEN_ROLES
from costguard.views.admit import ADMIT_SCHEMA
from costguard.web import schemas
from costguard.web.middleware import RateLimiter
from costguard.web.routes import JSON, SECURITY, parse_bearer_token
from costguard.web.watchdog_client import WatchdogClient

PER_TOKEN, TOKEN_BURST = 50.0, 300.0
"""Requests a second with one token: a scheduler asks for a whole queue at once."""
ADMIT_PATH, HOLD_END_PATH, ACTIVITY_PATH = "/v1/admit", "/v1/admit/end", "/v1/activity/{machine:path}"


def build_admission_router(services: LauncherServices, link: WatchdogClient) -> APIRouter:
    """Return the routes. `link`: the channel to the watchdog, which alone writes."""
    routes, rates = APIRouter(), RateLimiter(PER_TOKEN, TOKEN_BURST)

    async def authorize(request: Request, roles: tuple[str, ...]) -> tuple[str, str]:
        """Return the name of the request's token, and the token. Raises MessageRefusedError without a role for it."""
        token = parse_bearer_token(request)
        holder = await asyncio.to_thread(services.authorize, token, roles)
        wait_s = rates.take(holder.name)
        if wait_s:
            raise MessageRefusedError(TOO_OFTEN, wait_s=wait_s)
        return holder.name, token

    @routes.post(
        ADMIT_PATH,
        summary="Hold what a run may cost, as `costguard admit --json` does; 409: a budget refuses it, or it has no price.",
        openapi_extra={**SECURITY, **schemas.build_request_schema(schemas.ADMISSION)},
        responses=schemas.build_response_schemas({200: schemas.ADMITTED, 409: schemas.ADMITTED}),
    )
    async def admit(request: Request) -> Response:
        who, token = await authorize(request, (OPERATOR,))
        now = get_now()
        try:
            hold, kept_quote = await asyncio.to_thread(services.quoter.price, await request.body(), who, now)
        except NoAnswerError as none:
            refusal = {
                "schema": ADMIT_SCHEMA,
                "held": False,
                "reason": "no_price",
                "says": none.what,
                "hold": None,
                "would_fit": [],
            }
            return Response(json.dumps(refusal), status_code=409, media_type=JSON)
        reply = await link.ask(pack_admission(hold, token, now), AdmitReply)
        if reply.refused:
            raise MessageRefusedError(reply.refused, reply.says, wait_s=reply.wait_s)
        answer = await asyncio.to_thread(services.quoter.build_answer, hold, kept_quote, reply)
        return Response(json.dumps(answer), status_code=200 if reply.admitted else 409, media_type=JSON)

    @routes.post(
        HOLD_END_PATH,
        summary="End a hold that this token took: its run has ended, or was never launched.",
        openapi_extra={**SECURITY, **schemas.build_request_schema(schemas.HOLD_END)},
        responses=schemas.build_response_schemas({200: schemas.HOLD_ENDED}),
    )
    async def end(request: Request) -> Response:
        _, token = await authorize(request, (OPERATOR,))
        hold, started = _parse_hold_end(await request.body())
        reply = await link.ask(HoldEndOffer(token, hold, started), HoldEndReply)
        if reply.refused:
            raise MessageRefusedError(reply.refused, reply.says, wait_s=reply.wait_s)
        return Response(json.dumps({"hold": hold, "ended_by": reply.ended_by}), media_type=JSON)

    @routes.get(
        ACTIVITY_PATH,
        summary="Whether a machine works: active, idle or unknown. `active` is false only if it is known to be idle.",
        openapi_extra=SECURITY,
        responses=schemas.build_response_schemas({200: schemas.ACTIVITY}),
    )
    async def activity(machine: str, request: Request) -> Response:
        await authorize(request, TOKEN_ROLES)
        return Response(json.dumps(await asyncio.to_thread(services.activity.answer, machine)), media_type=JSON)

    return routes


def _parse_hold_end(body: bytes) -> tuple[str, bool]:
    try:
        table = json.loads(body)
    except (ValueError, RecursionError):
        table = None
    hold = table.get("hold") if isinstance(table, dict) else None
    started = table.get("started", True) if isinstance(table, dict) else None
    if not isinstance(hold, str) or not HOLD_ID_MATCH.fullmatch(hold) or not isinstance(started, bool):
        raise MessageRefusedError(MALFORMED, 'the request must be {"hold": "ID", "started": true or false}')
    return hold, started
