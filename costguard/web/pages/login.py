"""Logging in by a one-time link, and out. Opening a link shows a button; only the button uses the link up."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response

from costguard.errors import CostguardError
from costguard.services.serving.door_messages import ActOffer, LoginOffer
from costguard.services.serving.person_acts import LOGOUT
from costguard.services.serving.web_logins import LOGIN_PATH
from costguard.values.agent import VIEWER
from costguard.values.web_login import SESSION_VALID_FOR
from costguard.web.pages.room import OIDC_LOGIN_PATH, PageReader, PageRoom, build_redirect, is_same_origin


def build_router(room: PageRoom) -> APIRouter:
    """Return the routes."""
    routes = APIRouter()

    @routes.get(LOGIN_PATH + "{code}")
    async def ask(code: str) -> Response:
        try:
            invite = await asyncio.to_thread(room.desk.find_invite, code)
        except CostguardError as error:
            return room.refuse(403, "This link does not log in", str(error))
        return room.render("login.html", None, title="Log in", invite=invite)

    @routes.post(LOGIN_PATH + "{code}")
    async def enter(code: str, request: Request) -> Response:
        if not is_same_origin(request):
            return room.refuse(403, "Wrong origin", "Open the link itself and click the button.")
        try:
            await asyncio.to_thread(room.desk.find_invite, code)  # a stranger's guess costs the watchdog nothing
        except CostguardError as error:
            return room.refuse(403, "This link does not log in", str(error))
        reply = await room.ask(LoginOffer(code))
        if not reply.done:
            return room.refuse(503 if reply.refused else 403, "This link does not log in", "\n".join(reply.lines))
        answer = build_redirect("/")
        set_session_cookie(answer, room, reply.secret)
        return answer

    @routes.post("/logout")
    @room.open_to(VIEWER, changes=True)
    async def leave(_: Request, reader: PageReader) -> Response:
        logout_url, reply = room.find_provider_logout(reader), await room.ask(ActOffer(reader.secret, LOGOUT))
        text = "Your session has ended."
        if not reply.done:
            text = "\n".join(("This browser has left your session, which itself goes on until it expires:", *reply.lines))
        answer = room.refuse(
            200 if reply.done else 503,
            "Logged out",
            text,
            login=OIDC_LOGIN_PATH if room.oidc else "",
            logout_url=logout_url,
        )
        set_session_cookie(answer, room, "")
        return answer

    return routes


def set_session_cookie(answer: Response, room: PageRoom, secret: str) -> None:
    """Set the cookie of a session, or remove it where `secret` is ""."""
    lasts_s = int(SESSION_VALID_FOR.total_seconds()) if secret else 0
    answer.set_cookie(
        room.cookie, secret, max_age=lasts_s, path="/", secure=room.services.secure, httponly=True, samesite="strict"
    )
