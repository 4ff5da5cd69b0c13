"""The page of a link in a message that asks: what would happen, and two buttons.

Nobody has to be logged in: who has the link was sent the question. Opening it changes nothing, so that a mail scanner or the
preview of a chat answers nothing; the form carries a token that is computed from the link's secret, and the browser must say
that it comes from this host. The watchdog looks the link up again, and answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from hmac import compare_digest

from fastapi import APIRouter, Request, Response

from costguard.errors import CostguardError, LedgerError
from costguard.services.guarding.ask_links import ASK_PATH
from costguard.services.serving.door_messages import HASH_LENGTH, AskOffer
from costguard.services.serving.web_logins import compute_form_token
from costguard.web.pages.room import PageRoom, is_same_origin, read_form

NO_ANSWER = "This link cannot be used"
ANSWERS = {"approve": True, "deny": False}


def build_router(room: PageRoom) -> APIRouter:
    """Return the routes."""
    routes = APIRouter()

    @routes.get(ASK_PATH + "{secret}")
    async def show(secret: str) -> Response:
        try:
            ask_page = await room.run(room.services.find_ask, secret)
        except CostguardError as error:
            return _refuse_link(room, error)
        token = compute_form_token(secret)
        return room.render(
            "ask.html", None, title="Question from the guard", asked=ask_page, token=token, answers=room.has_watchdog
        )

    @routes.post(ASK_PATH + "{secret}")
    async def answer(secret: str, request: Request) -> Response:
        fields = await read_form(request)
        refused = _refuse_form(room, secret, request, fields)
        if refused is not None:
            return refused
        try:
            await room.run(room.services.find_link, secret)  # a stranger's guess costs the watchdog nothing
        except CostguardError as error:
            return _refuse_link(room, error)
        return await _pass_on(room, secret, approve=ANSWERS[fields["do"]])

    return routes


def _refuse_link(room: PageRoom, error: CostguardError) -> Response:
    if isinstance(error, LedgerError):
        return room.refuse(503, "The ledger cannot be read", str(error))
    return room.refuse(403, NO_ANSWER, str(error))


def _refuse_form(room: PageRoom, secret: str, request: Request, fields: Mapping[str, str]) -> Response | None:
    """Return why a form answers nothing; None if it may."""
    sent = fields.get("token", "").encode()
    if not is_same_origin(request) or not compare_digest(sent, compute_form_token(secret).encode()):
        return room.refuse(403, "Wrong origin", "Your answer was not recorded: open the link itself and click the button.")
    if fields.get("do") not in ANSWERS or len(secret) > HASH_LENGTH:
        return room.refuse(422, NO_ANSWER, "Your answer was not recorded: open the link itself and click the button.")
    if not room.has_watchdog or room.services.read_only:
        return room.refuse(503, "Not answered", "Your answer was not recorded: no watchdog is running.")
    return None


async def _pass_on(room: PageRoom, secret: str, *, approve: bool) -> Response:
    """Have the watchdog give the answer, and show what became of it."""
    reply = await room.ask(AskOffer(secret, approve))
    if reply.refused:
        return room.refuse(503, "Not answered", f"Your answer was not recorded: {' '.join(reply.lines)}")
    room.services.forget_fleet()
    title = ("Approved" if approve else "Denied") if reply.done else "Not answered"
    return room.refuse(200 if reply.done else 403, title, "\n".join(reply.lines))
