"""Vast: the instance stops or destroys itself with the key that Vast puts into its container (CONTAINER_API_KEY).

Vast's FAQ (docs.vast.ai, instances): "A special instance API key is pre-installed", with `vastai stop instance $CONTAINER_ID`.
The id is CONTAINER_ID, else VAST_CONTAINERLABEL without its "C."; login shells lack these variables, the first process and
/etc/environment have them. Sources: the provider notes (vast.md, sections 1 to 3).
"""

from __future__ import annotations

import re
from typing import Any

from costguard_agent.host import HostView, find_variables
from costguard_agent.http_client import HttpReply, UnansweredError, send_request
from costguard_agent.shutdown import (
    ACCEPTED,
    ENDED,
    REFUSED,
    RUNNING,
    STOP,
    TERMINATE,
    UNKNOWN,
    MachineIdentity,
    ShutdownOutcome,
    ShutdownWay,
)

NAME = "vast"
ADDRESS, VARIABLE = "https://console.vast.ai", "COSTGUARD_VAST_API"
NUMBER, LABEL, KEY = "CONTAINER_ID", "VAST_CONTAINERLABEL", "CONTAINER_API_KEY"
LABELLED = re.compile(r"C\.(\d{1,19})")
WITHIN_S = 10.0
OK = 200
HOW = "Vast's API with the container's own key"
NO_MORE = "stopped"


def detect_machine(around: HostView) -> MachineIdentity | None:
    """Return this container, identified by Vast's variables; None if they are missing.

    Another cloud's CONTAINER_ID alone is not accepted.
    """
    had = find_variables(around, NUMBER, LABEL, KEY)
    labelled = LABELLED.fullmatch(had[LABEL])
    if not labelled and not (had[NUMBER] and had[KEY]):
        return None
    number = labelled[1] if labelled else had[NUMBER]
    if not number.isdigit() or (had[NUMBER] and had[NUMBER] != number):
        return MachineIdentity(NAME, "", f"{NUMBER} and {LABEL} do not name one instance")
    return MachineIdentity(NAME, number, "" if had[KEY] else f"{KEY} is set neither here nor for the container's first process")


def list_ways(place: MachineIdentity, around: HostView) -> list[ShutdownWay]:
    """Return stop and destroy, certain if the key can read this instance."""
    if place.why or not place.id:
        return []
    fields, why = _read_instance(place, around)
    hourly = fields.get("storage_total_cost")
    disk = f"its disk, about USD {hourly:.4f} an hour" if isinstance(hourly, (int, float)) else "its disk"
    bid = "; a bid that wins again starts it by itself" if fields.get("is_bid") is True else ""
    stop = ShutdownWay(
        STOP,
        HOW,
        "its disk",
        f"memory contents; the GPU may be taken when it is to start again{bid}",
        f"{disk}, without end, until it is destroyed",
        certain=not why,
        why=why,
        place=place,
    )
    terminate = stop._replace(
        act=TERMINATE,
        keeps="volumes of their own, and nothing else",
        loses="its disk permanently",
        bills_after="volumes of their own",
    )
    return [stop, terminate]


def send_shutdown(way: ShutdownWay, around: HostView) -> ShutdownOutcome:
    """Send the request once; the id is in the path, so a truncated request matches no other instance."""
    try:
        if way.act == STOP:
            reply = _send_request(way.place, around, "PUT", b'{"state":"stopped"}')
        else:
            reply = _send_request(way.place, around, "DELETE")
    except UnansweredError as error:
        return ShutdownOutcome(UNKNOWN if error.sent else REFUSED, str(error))
    answer = reply.parse_json()
    success = answer.get("success") if isinstance(answer, dict) else None
    if reply.status == OK and success is True:
        return ShutdownOutcome(ACCEPTED, f"Vast accepted the {way.act}")
    surely = success is False or reply.status in (400, 401, 403, 404, 410, 429)
    return ShutdownOutcome(
        REFUSED if surely else UNKNOWN, f"Vast answered the {way.act} with {reply.status}{_find_error_code(answer)}"
    )


def read_state(place: MachineIdentity, around: HostView) -> str:
    """Return the state that Vast intends for this instance."""
    fields, why = _read_instance(place, around)
    if why:
        return UNKNOWN
    return ENDED if fields.get("intended_status") == NO_MORE else RUNNING


def _read_instance(place: MachineIdentity, around: HostView) -> tuple[dict[str, Any], str]:
    """Return Vast's fields of this instance and ""; or {} and why they cannot be read."""
    try:
        reply = _send_request(place, around, "GET")
    except UnansweredError as error:
        return {}, f"Vast did not answer: {error}"
    answer = reply.parse_json()
    one = answer.get("instances") if isinstance(answer, dict) else None
    if reply.status != OK or not isinstance(one, dict) or str(one.get("id")) != place.id:
        return {}, f"Vast answered {reply.status}{_find_error_code(answer)}: the container's own key cannot read this instance"
    return one, ""


def _send_request(place: MachineIdentity, around: HostView, method: str, body: bytes = b"") -> HttpReply:
    base = around.env.get(VARIABLE, ADDRESS).rstrip("/")
    headers = {"Authorization": f"Bearer {find_variables(around, KEY)[KEY]}", "User-Agent": "costguard-agent"}
    return send_request(f"{base}/api/v0/instances/{place.id}/", method=method, headers=headers, body=body, within_s=WITHIN_S)


def _find_error_code(answer: object) -> str:
    code = answer.get("error") if isinstance(answer, dict) else None
    return f" ({code})" if isinstance(code, str) and re.fullmatch(r"\w{1,60}", code) else ""
