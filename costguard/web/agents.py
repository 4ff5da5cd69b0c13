"""Where agents join and report. A beat is answered after the commit that counts it, and the answer is signed."""

from __future__ import annotations

import asyncio
import json

from costguard_agent.protocol import AT_HEADER, BEATS_PATH, JOIN_PATH, SEQ_HEADER, SIGNATURE_HEADER, build_signed_answer
from fastapi import APIRouter, Request, Response

from costguard.agents.refusals import TOO_OFTEN, MessageRefusedError
from costguard.services.agent_gateway import AgentEnvelope, AgentGateway
from costguard.services.agents import Seal
from costguard.web import schemas
from costguard.web.rates import RateLimiter

JSON = "application/json"
PER_AGENT, AGENT_BURST = 1.0, 40.0
"""Beats a second of one agent; after an outage it has more to say at once."""
JOINS, JOINS_BURST = 20.0, 100.0
"""Joins a second of all together: each is a look into the ledger."""
SIGNED_HEADERS = [
    {"name": name, "in": "header", "required": True, "schema": {"type": "string"}}
    for name in (SEQ_HEADER, AT_HEADER, SIGNATURE_HEADER)
]


def build_agent_router(desk: AgentGateway, seal: Seal) -> APIRouter:
    """The routes of agents."""
    routes, beats_of, joins = APIRouter(), RateLimiter(PER_AGENT, AGENT_BURST), RateLimiter(JOINS, JOINS_BURST)

    @routes.post(
        JOIN_PATH,
        summary="An agent joins, with a one-time code and the public half of a key that it made.",
        openapi_extra=schemas.build_request_schema(schemas.JOINING),
        responses=schemas.build_response_schemas({200: schemas.JOINED}),
    )
    async def join(request: Request) -> Response:
        wait_s = joins.take("")
        if wait_s:
            raise MessageRefusedError(TOO_OFTEN, wait_s=wait_s)
        said = await asyncio.to_thread(desk.join, await request.body())
        return Response(json.dumps(said), media_type=JSON)

    @routes.post(
        BEATS_PATH.format("{agent}"),
        summary="An agent reports, and asks for its own machine; signed by its key.",
        openapi_extra={**schemas.build_request_schema(schemas.BEAT), "parameters": SIGNED_HEADERS},
        responses=schemas.build_response_schemas({200: schemas.ANSWER}),
    )
    async def beats(agent: str, request: Request) -> Response:
        envelope = AgentEnvelope(
            method=request.method,
            path=request.url.path,
            agent=agent,
            seq=request.headers.get(SEQ_HEADER, ""),
            at=request.headers.get(AT_HEADER, ""),
            signature=request.headers.get(SIGNATURE_HEADER, ""),
            body=await request.body(),
        )
        if not desk.is_known(agent):
            await asyncio.to_thread(desk.load_agent, agent)
        incoming = desk.check_message(envelope)
        wait_s = beats_of.take(incoming.agent.id)
        if wait_s:
            raise MessageRefusedError(TOO_OFTEN, wait_s=wait_s)
        try:
            asked = await asyncio.wrap_future(desk.commits.submit(incoming))
        except MessageRefusedError:
            desk.forget(incoming.agent.id)
            raise
        said = desk.answer(incoming, asked)
        body, at_ms = json.dumps(said).encode(), int(str(said["guard_at"]))
        signature = seal.sign(build_signed_answer(agent=incoming.agent.id, seq=incoming.seq, at_ms=at_ms, body=body))
        return Response(body, media_type=JSON, headers={AT_HEADER: str(at_ms), SIGNATURE_HEADER: signature})

    return routes
