"""Routes: agents join and report; readers get the status with a token, health and the agent's program without one.

An agent's message is answered after the commit that records it, and the answer is signed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from costguard_agent.protocol import (
    AT_HEADER,
    BEATS_PATH,
    HELLO_PATH,
    JOIN_PATH,
    NONCE_HEADER,
    SEQ_HEADER,
    SIGNATURE_HEADER,
    build_signed_answer,
)
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from costguard.agents.messages import BAD_CODE, NOT_READY, TOO_OFTEN, MessageRefusedError
from costguard.services.poll.ports import Seal
from costguard.services.serving.agent_enrolment import JoinProof, answer_hello, sign_join_answer
from costguard.services.serving.agent_gateway import AgentEnvelope, AgentGateway
from costguard.services.serving.door_messages import BeatReply, JoinReply
from costguard.services.serving.web_backend import WebServices
from costguard.web import schemas
from costguard.web.middleware import RateLimiter, name_client
from costguard.web.watchdog_client import WatchdogClient

JSON = "application/json"
PER_AGENT, AGENT_BURST = 1.0, 40.0
"""Beats a second of one agent; after an outage it has more to say at once."""
BAD_PER_ADDRESS, BAD_BURST = 0.5, 30.0
"""Codes a second of one address that were none. Whoever has a code gets in beside who guesses: a code has 78 bits."""
JOINS_OF_CODE, JOINS_BURST = 1.0, 10.0
"""Joins a second with one code: its answer may be lost."""
AGENT_THREADS = 2
"""Threads that look agents up: of their own, as readers who wait for a status may take all the usual ones."""
_Found = TypeVar("_Found")
SIGNED_HEADERS = [
    {"name": name, "in": "header", "required": True, "schema": {"type": "string"}}
    for name in (SEQ_HEADER, AT_HEADER, SIGNATURE_HEADER)
]


def build_agent_router(desk: AgentGateway, seal: Seal, link: WatchdogClient) -> APIRouter:
    """Return the routes for agents. `link`: the channel to the watchdog."""
    routes, beats_of = APIRouter(), RateLimiter(PER_AGENT, AGENT_BURST)
    threads = ThreadPoolExecutor(AGENT_THREADS, "agents")

    async def look_up(task: Callable[[], _Found]) -> _Found:
        return await asyncio.get_running_loop().run_in_executor(threads, task)

    guesses, joins = RateLimiter(BAD_PER_ADDRESS, BAD_BURST), RateLimiter(JOINS_OF_CODE, JOINS_BURST)

    @routes.post(
        JOIN_PATH,
        summary="An agent joins, with a one-time code and the public half of a key that it made.",
        openapi_extra=schemas.build_request_schema(schemas.JOINING),
        responses=schemas.build_response_schemas({200: schemas.JOINED}),
    )
    async def join(request: Request) -> Response:
        request_body = await request.body()
        proof = JoinProof(request.headers.get(NONCE_HEADER, ""), request.headers.get(SIGNATURE_HEADER, ""))
        try:
            offer = await look_up(partial(desk.check_join, request_body, proof))
        except MessageRefusedError as refused:
            wait_s = guesses.take(name_client(request.client.host if request.client else ""))
            if wait_s and refused.name == BAD_CODE:
                raise MessageRefusedError(TOO_OFTEN, wait_s=wait_s) from None
            raise
        wait_s = joins.take(offer.code_hash)
        if wait_s:
            raise MessageRefusedError(TOO_OFTEN, wait_s=wait_s)
        reply = await link.ask(offer, JoinReply)
        body, headers = sign_join_answer(desk.build_join_answer(reply), request_body, proof, seal)
        return Response(body, media_type=JSON, headers=headers)

    @routes.get(
        HELLO_PATH,
        summary="The watchdog proves that it has its key, before an agent sends anything: the answer is signed over the nonce.",
        openapi_extra={"parameters": [schemas.NONCE]},
        responses=schemas.build_response_schemas({200: schemas.HELLO}),
    )
    async def hello(request: Request) -> Response:
        body, headers = answer_hello(request.query_params.get("nonce", ""), seal)
        return Response(body, media_type=JSON, headers=headers)

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
            await look_up(partial(desk.load_agent, agent))
        incoming = desk.check_message(envelope)
        wait_s = beats_of.take(incoming.agent.id)
        if wait_s:
            raise MessageRefusedError(TOO_OFTEN, wait_s=wait_s)
        answer = desk.build_answer(incoming, await link.ask(incoming.pack(), BeatReply))
        body, at_ms = json.dumps(answer).encode(), int(str(answer["guard_at"]))
        signature = seal.sign(build_signed_answer(agent=incoming.agent.id, seq=incoming.seq, at_ms=at_ms, body=body))
        return Response(body, media_type=JSON, headers={AT_HEADER: str(at_ms), SIGNATURE_HEADER: signature})

    return routes


JSON, ZIP = "application/json", "application/octet-stream"
PER_TOKEN, TOKEN_BURST = 20.0, 100.0
"""Readings a second with one token."""
PIECE = 32 * 1024
BEARER = "bearer "
AGE_HEADER = "costguard-guard-age"
"""Seconds since the last run of the guard that is in the ledger: a status is old where the watchdog is down."""
SECURITY: dict[str, object] = {"security": [{"token": []}]}


def build_reader_router(parts: WebServices, agent_zip: Callable[[], bytes]) -> APIRouter:
    """Return the routes for readers.

    `agent_zip`: returns the agent as one file that Python runs; raises MessageRefusedError if there is none.
    """
    routes, rates = APIRouter(), RateLimiter(PER_TOKEN, TOKEN_BURST)

    @routes.get(
        "/healthz",
        summary="Whether the guard runs: seconds since its last run that is in the ledger. 503 where that is too long ago.",
        responses=schemas.build_response_schemas({200: schemas.HEALTH, 503: schemas.HEALTH}),
    )
    async def healthz() -> Response:
        age_s, late = await asyncio.to_thread(parts.health)
        state = "never" if age_s is None else "late" if late else "ok"
        health = {"state": state, "guard_age_s": None if age_s is None else round(age_s, 1)}
        return Response(json.dumps(health), status_code=503 if late else 200, media_type=JSON)

    @routes.get(
        "/v1/status",
        summary="What runs and costs, as `costguard status --json` prints it, as of the last run of the guard.",
        openapi_extra=SECURITY,
        responses=schemas.build_response_schemas({200: schemas.STATUS, 304: JSON}),
    )
    async def status(request: Request) -> Response:
        reader = await asyncio.to_thread(parts.reader, parse_bearer_token(request))
        wait_s = rates.take(reader.name)
        if wait_s:
            raise MessageRefusedError(TOO_OFTEN, wait_s=wait_s)
        body, mark = await asyncio.to_thread(parts.board.read)
        age_s, _ = await asyncio.to_thread(parts.health)
        headers = {"etag": f'"{mark}"', **({} if age_s is None else {AGE_HEADER: f"{age_s:.1f}"})}
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
        return StreamingResponse(_cut_pieces(body), media_type=ZIP, headers={"content-length": str(len(body))})

    return routes


def parse_bearer_token(request: Request) -> str:
    """Return the token that a request states, "" if it states none."""
    authorization = request.headers.get("authorization", "")
    return authorization[len(BEARER) :].strip() if authorization.lower().startswith(BEARER) else ""


async def _cut_pieces(body: bytes) -> AsyncIterator[bytes]:
    """Yield `body` in pieces: whoever does not read them holds one, and not 0.6 MB."""
    for start in range(0, len(body), PIECE):
        yield body[start : start + PIECE]


def build_agent_zip_once() -> Callable[[], bytes]:
    """Return a function that builds the agent as one file on its first call, and returns the same file afterwards."""
    archives = list[bytes]()

    def build() -> bytes:
        if not archives:
            archives.append(_build_agent_zip())
        return archives[0]

    return build


def _build_agent_zip() -> bytes:
    try:
        from costguard_agent.installation import build_archive
    except ImportError as error:
        raise MessageRefusedError(NOT_READY, f"this installation cannot build the agent: {error}") from None
    return build_archive()
