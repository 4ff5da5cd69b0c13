"""The page of one machine, and what people may do about it.

What may destroy something shows first what it would do; before a stop the watchdog asks the cloud.
"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from costguard.errors import InputError
from costguard.guard.policy import STOP
from costguard.services.guarding.ask_links import build_machine_path
from costguard.services.serving.door_messages import ActOffer
from costguard.services.serving.machine_timeline import LENGTHS
from costguard.services.serving.person_acts import ACTS, PREVIEW_STOP
from costguard.values.agent import OPERATOR, VIEWER
from costguard.values.web_login import ADMIN
from costguard.web.pages.room import PageReader, PageRoom, build_redirect, read_form

ASKED_TWICE = {"approve-stop", "approve-terminate", STOP}
"""Acts that show what they would do, and need a second click."""


def build_router(room: PageRoom) -> APIRouter:
    """Return the routes."""
    routes = APIRouter()

    @routes.get("/machine")
    @room.open_to()
    async def show(request: Request, reader: PageReader) -> Response:
        length = request.query_params.get("length", "2d")
        page = await room.run(room.services.load_machine, request.query_params.get("id", ""), length)
        fleet = await room.run(room.services.load_fleet)
        return room.render(
            "machine.html",
            reader,
            title="Machine",
            here="",
            machine=page,
            late=room.services.list_late(fleet),
            operator=OPERATOR,
            stops=room.has_watchdog,
            lengths=tuple(LENGTHS),
            length=length if length in LENGTHS else "2d",
        )

    @routes.post("/machine")
    @room.open_to(VIEWER, changes=True)
    async def change(request: Request, reader: PageReader) -> Response:
        fields = await read_form(request)
        path, do = fields.get("id", ""), fields.get("do", "")
        if do not in ACTS and do != STOP:
            raise InputError("is not an act of this page", field=do[:20], hint=", ".join((*ACTS, STOP)))
        needed = ADMIN if do == STOP else OPERATOR
        if not reader.may(needed):
            return room.refuse(403, "Not allowed", f"This needs the role {needed}; you are {reader.role}.", reader=reader)
        if do in ASKED_TWICE and fields.get("sure") != "yes":
            page = await room.run(room.services.load_machine, path)
            lines, is_possible = room.services.describe_act(page.one, do), True
            if do == STOP and room.has_watchdog and not room.services.read_only:
                reply = await room.ask(ActOffer(reader.secret, PREVIEW_STOP, path, life=page.life))
                lines, is_possible = reply.lines, reply.done
            return room.render(
                "confirm.html",
                reader,
                title="Confirm",
                here="",
                machine=page,
                fields=fields,
                told=lines,
                is_possible=is_possible,
            )
        if do == STOP and (not room.has_watchdog or room.services.read_only):
            room.tell_next(reader, "bad", ("Nothing was stopped: no watchdog is running.",))
        else:
            facts = {name: fields.get(name, "") for name in ("why", "life")}
            await room.act(reader, do, path, value=fields.get("length", ""), **facts)
        return build_redirect(build_machine_path(path))

    return routes
