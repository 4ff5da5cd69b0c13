"""Terminate one instance: one check, at most one request, and a second check if the answer is not sufficient.

Lambda has no protection to lift. It states beforehand whether an instance can be terminated (`actions.terminate.available`),
which is often not possible while it boots; then nothing is sent.
"""

from __future__ import annotations

from costguard.errors import ConflictError, MissingError, ProviderError, shorten, to_one_line
from costguard.providers.transport import Deadline
from costguard.values.provider import ACCEPTED, ALREADY, REFUSED, UNCLEAR, ActionResponse, interpret_act_error
from costguard_lambda.api import LambdaApi
from costguard_lambda.translation import OVER

LOOK_S = 8.0
"""Seconds for each of the two looks: with the act's own 20 s they stay near the 30 s after which an intent expires."""
REPEATED = "global/unknown"
"""What a second terminate of one instance was answered with, as a 500 (skypilot, pull request 3410)."""


def terminate_instance(api: LambdaApi, id_: str, timeout_s: float) -> ActionResponse:
    """Send the request to terminate `id_` at most once, and return Lambda's response."""
    response = _look_before(api, id_, timeout_s)
    if response is not None:
        return response
    try:
        listed = api.terminate(id_)
    except ProviderError as broken:
        return _look_after(api, id_, timeout_s, broken)
    if not listed:
        return ActionResponse(said=UNCLEAR, why="the answer does not name this instance among those that were ended")
    return ActionResponse(said=ACCEPTED)


def _look_before(api: LambdaApi, id_: str, timeout_s: float) -> ActionResponse | None:
    """Return why nothing must be sent; None if the instance exists and can be terminated."""
    try:
        one = api.fetch_instance(id_, Deadline(min(LOOK_S, timeout_s)))
    except ProviderError as broken:
        return interpret_act_error(broken, sent=False)
    act = one.actions.terminate if one.actions else None
    reason = to_one_line(shorten(act.reason_code or "", 60)) if act else ""
    if one.status in OVER or reason == "vm-is-terminating":
        return ActionResponse(said=ALREADY, why=f"it is {'terminating' if reason else one.status}")
    if act and act.available is False:
        return ActionResponse(said=REFUSED, why=f"Lambda cannot end it now ({reason or 'no reason given'}); nothing was sent")
    return None


def _look_after(api: LambdaApi, id_: str, timeout_s: float, broken: ProviderError) -> ActionResponse:
    """Return the result of a request without a clear answer.

    The state is checked again only for the codes of a repeated request.
    """
    if not isinstance(broken, ConflictError) and broken.code != REPEATED:
        return interpret_act_error(broken)
    try:
        over = api.fetch_instance(id_, Deadline(min(LOOK_S, timeout_s))).status in OVER
    except MissingError:
        over = True
    except ProviderError:
        return ActionResponse(said=UNCLEAR, why=to_one_line(broken.what))
    if over:
        return ActionResponse(said=ALREADY, why=f"it is terminating; Lambda said {to_one_line(broken.what)}")
    return interpret_act_error(broken)
