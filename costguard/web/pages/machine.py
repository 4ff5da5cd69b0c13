"""The page of one machine, and what people may do about it. What may destroy something shows first what it would do."""

from __future__ import annotations

import json
from collections.abc import Mapping

from fastapi import APIRouter, Request, Response

from costguard.agents.messages import MessageRefusedError
from costguard.errors import CostguardError
from costguard.services.guarding.ask_links import build_machine_path
from costguard.services.serving.door_messages import PersonReply, StopOffer
from costguard.values.agent import OPERATOR, VIEWER
from costguard.values.web_login import ADMIN
from costguard.web.pages.room import HEADERS, PageReader, PageRoom, build_redirect, read_form

ASKED_TWICE = {"approve-stop", "approve-terminate", "stop"}
"""Acts that show what they would do, and need a second click."""
ROLE_OF = {"stop": ADMIN}
"""What needs more than OPERATOR."""


def build_router(room: PageRoom) -> APIRouter:
    """Return the routes."""
    routes = APIRouter()

    @routes.get("/machine")
    @room.open_to()
    async def show(request: Request, reader: PageReader) -> Response:
        page = await room.run(room.services.load_machine, request.query_params.get("id", ""))
        fleet = await room.run(room.services.load_fleet)
        return room.render(
            "machine.html",
            reader,
            title="Machine",
            here="",
            machine=page,
            late=room.services.list_late(fleet),
            operator=OPERATOR,
            stops=room.link is not None,
        )

    @routes.get("/machine/samples")
    @room.open_to()
    async def samples(request: Request, _: PageReader) -> Response:
        answer = await room.run(room.services.load_samples, request.query_params.get("id", ""))
        return Response(json.dumps(answer), media_type="application/json", headers=HEADERS)

    @routes.post("/machine")
    @room.open_to(VIEWER, changes=True)
    async def change(request: Request, reader: PageReader) -> Response:
        fields = await read_form(request)
        path, do = fields.get("id", ""), fields.get("do", "")
        needed = ROLE_OF.get(do, OPERATOR)
        if not reader.may(needed):
            return room.refuse(403, "Not allowed", f"This needs the role {needed}; you are {reader.role}.", reader=reader)
        if do in ASKED_TWICE and fields.get("sure") != "yes":
            page = await room.run(room.services.load_machine, path)
            lines = room.services.describe_act(page.one, do)
            return room.render("confirm.html", reader, title="Confirm", here="", machine=page, fields=fields, told=lines)
        if do == "stop":
            await _stop(room, reader, path, fields)
            return build_redirect(build_machine_path(path))
        try:
            options = {name: fields.get(name, "") for name in ("length", "why", "life")}
            answer = await room.run(room.services.change, reader.name, do, path, **options)
            document = answer.document
            room.tell_next(reader, "good", (*document.lead, *(n for n in document.notes if not n.startswith("next:"))))
        except CostguardError as error:
            room.tell_next(reader, "bad", tuple(str(error).splitlines()))
        return build_redirect(build_machine_path(path))

    return routes


async def _stop(room: PageRoom, reader: PageReader, path: str, fields: Mapping[str, str]) -> None:
    """Have the watchdog stop a machine, and tell its answer at the head of the reader's next page."""
    if room.link is None or room.services.read_only:
        room.tell_next(reader, "bad", ("Nothing was stopped: no watchdog is running.",))
        return
    why, life = (fields.get(name, "") for name in ("why", "life"))
    try:
        reply = await room.link.ask(StopOffer(reader.session.hash, path, why, life), PersonReply)
    except MessageRefusedError as refused:
        room.tell_next(reader, "bad", (f"Not stopped: {refused.says}",))
        return
    lines = reply.lines or [reply.says or f"the watchdog refused it: {reply.refused}"]
    room.tell_next(reader, "good" if reply.done else "bad", tuple(lines))
    room.services.forget_fleet()
