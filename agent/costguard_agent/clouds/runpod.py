"""RunPod: the pod stops or deletes itself with the pod-scoped key in its environment (RUNPOD_API_KEY).

The permissions of that key are not documented beyond "pod-scoped". Reported: it may stop its own pod by GraphQL, as the
installed `runpodctl stop pod` does (live, 2026-08-02), and its stop over REST v1 was refused with 403. GraphQL goes away in
early 2027. So both are tested by reading this pod; those that can read it are the channels. If one channel refuses definitely
(401, 403, 410), the other is tried. No other request is ever sent twice. Sources: the provider notes (runpod.md, sections 3 to
6); docs.runpod.io/pods/templates/environment-variables.
"""

from __future__ import annotations

import json
import re
from typing import Any

from costguard_agent.host import FIRST_PID, HostView, find_variables, read_process_variables
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

NAME = "runpod"
REST, GRAPHQL = "https://api.runpod.io/v2", "https://api.runpod.io/graphql"
REST_VARIABLE, GRAPHQL_VARIABLE = "COSTGUARD_RUNPOD_REST", "COSTGUARD_RUNPOD_GRAPHQL"
POD, KEY, ENDPOINT = "RUNPOD_POD_ID", "RUNPOD_API_KEY", "RUNPOD_ENDPOINT_ID"
ID = re.compile(r"[A-Za-z0-9]{6,40}")
BOOTED = ("run", "systemd", "system")
"""sd_booted(3). A pod is a container."""
WITHIN_S = 10.0
BY_REST, BY_GRAPHQL = "REST v2 with the pod's own key", "GraphQL with the pod's own key"
READ = "query Pod($input: PodFilter!) { pod(input: $input) { id desiredStatus networkVolumeId volumeInGb } }"
STOP_IT = "mutation Stop($input: PodStopInput!) { podStop(input: $input) { id desiredStatus } }"
TERMINATE_IT = "mutation Terminate($input: PodTerminateInput!) { podTerminate(input: $input) }"
OK, NO_CONTENT = 200, 204
SURELY_NOT = (401, 403, 410)
FAILED_CODES = ("INTERNAL_SERVER_ERROR", "TIMEOUT", "")
STATES = {"RUNNING": RUNNING, "EXITED": ENDED, "TERMINATED": ENDED}


def detect_machine(around: HostView) -> MachineIdentity | None:
    """Return this pod, identified by the variables that RunPod sets; None if they are missing."""
    had = find_variables(around, POD, KEY, ENDPOINT)
    if not had[POD]:
        return None
    if not ID.fullmatch(had[POD]):
        return MachineIdentity(NAME, "", f"{POD} is not a pod's id")
    first = read_process_variables(around, int(FIRST_PID)).get(POD, had[POD])
    if first != had[POD]:
        return MachineIdentity(NAME, "", f"{POD} names another pod than that of the first process here")
    if around.build_path(*BOOTED).exists():
        return MachineIdentity(NAME, "", f"{POD} is set, and this is a whole machine (systemd runs it) and no pod")
    if had[ENDPOINT]:
        return MachineIdentity(NAME, had[POD], "it is a serverless worker: RunPod starts and ends it")
    return MachineIdentity(NAME, had[POD], "" if had[KEY] else f"{KEY} is set neither here nor for the pod's first process")


def list_ways(place: MachineIdentity, around: HostView) -> list[ShutdownWay]:
    """Return stop and terminate, through the channels that can read this pod."""
    if place.why or not place.id:
        return []
    read = {BY_GRAPHQL: _read_by_graphql(place, around), BY_REST: _read_by_rest(place, around)}
    channels = [channel for channel, fields in read.items() if fields]
    fields = {**read[BY_GRAPHQL], **read[BY_REST]}
    where = place._replace(
        facts={"channels": channels, "network_volume": fields.get("network_volume"), "volume": fields.get("volume")}
    )
    how = " or ".join(channels) or "the pod's own key"
    pods_own = "its container disk, and memory contents"
    stop = ShutdownWay(
        STOP,
        how,
        "the volume at /workspace, or the network volume",
        f"{pods_own}; the GPU may be taken when it is to start again",
        "the pod's volume at twice the rate (USD 0.20 per GB-month), a network volume as before",
        certain=bool(channels),
        place=where,
    )
    terminate = ShutdownWay(
        TERMINATE,
        how,
        "a network volume, and nothing else",
        f"{pods_own}, and the pod's volume permanently",
        "a network volume as before",
        certain=bool(channels),
        place=where,
    )
    if not channels:
        reason = "neither GraphQL nor REST let the pod's own key read this pod"
        return [way._replace(why=reason) for way in (stop, terminate)]
    return [_judge_way(way, fields) for way in (stop, terminate)]


def send_shutdown(way: ShutdownWay, around: HostView) -> ShutdownOutcome:
    """Send the request through one channel; through the other only if the first refused definitely."""
    outcome = ShutdownOutcome(REFUSED, "no channel could read this pod")
    for channel in way.place.facts.get("channels", ()):
        send = _end_by_rest if channel == BY_REST else _end_by_graphql
        try:
            outcome = send(way, around)
        except UnansweredError as error:
            return ShutdownOutcome(UNKNOWN if error.sent else REFUSED, f"{channel}: {error}")
        if outcome.result != REFUSED:
            return outcome
    return outcome


def read_state(place: MachineIdentity, around: HostView) -> str:
    """Return RunPod's state of this pod."""
    fields = _read_by_rest(place, around) or _read_by_graphql(place, around)
    return STATES.get(str(fields.get("status")), UNKNOWN)


def _judge_way(way: ShutdownWay, fields: dict[str, Any]) -> ShutdownWay:
    """Return the way; certain only if RunPod allows it now (v2 `actions`) or, without that list, no exception is known."""
    if "actions" in fields:
        allowed = way.act in fields["actions"]
        return (
            way if allowed else way._replace(certain=False, why=f"RunPod does not allow {way.act} now (locked, or a cluster's)")
        )
    if way.act == STOP and fields.get("network_volume"):
        return way._replace(
            certain=False, why="older pods with a network volume can only be terminated; REST v2 did not return this"
        )
    return way


def _read_by_rest(place: MachineIdentity, around: HostView) -> dict[str, Any]:
    """Return this pod's fields from REST v2; empty if they cannot be read."""
    try:
        reply = _send_rest(place, around, "GET")
    except UnansweredError:
        return {}
    pod = reply.parse_json()
    if reply.status != OK or not isinstance(pod, dict) or pod.get("id") != place.id:
        return {}
    mounts, actions = pod.get("mounts"), pod.get("actions")
    mounts = mounts if isinstance(mounts, dict) else {}
    return {
        "status": pod.get("status"),
        "actions": actions if isinstance(actions, list) else [],
        "network_volume": bool(mounts.get("network")),
        "volume": bool(mounts.get("persistent")),
    }


def _read_by_graphql(place: MachineIdentity, around: HostView) -> dict[str, Any]:
    try:
        answer = _send_graphql(place, around, READ).parse_json()
    except UnansweredError:
        return {}
    pod = (answer.get("data") or {}).get("pod") if isinstance(answer, dict) else None
    if not isinstance(pod, dict) or pod.get("id") != place.id:
        return {}
    return {
        "status": pod.get("desiredStatus"),
        "network_volume": bool(pod.get("networkVolumeId")),
        "volume": bool(pod.get("volumeInGb")),
    }


def _end_by_rest(way: ShutdownWay, around: HostView) -> ShutdownOutcome:
    if way.act == STOP:
        reply = _send_rest(way.place, around, "POST", "/action", b'{"action":"stop"}')
    else:
        reply = _send_rest(way.place, around, "DELETE")
    if reply.status in (OK, NO_CONTENT):
        return ShutdownOutcome(ACCEPTED, f"RunPod accepted the {way.act} ({reply.status})")
    surely = reply.status < 500 and reply.status not in (408, 429)  # noqa: PLR2004 - RFC 9110: a server's own failure
    return ShutdownOutcome(REFUSED if surely else UNKNOWN, f"RunPod answered the {way.act} with {reply.status}")


def _end_by_graphql(way: ShutdownWay, around: HostView) -> ShutdownOutcome:
    reply = _send_graphql(way.place, around, STOP_IT if way.act == STOP else TERMINATE_IT)
    answer = reply.parse_json()
    if reply.status in SURELY_NOT:
        return ShutdownOutcome(REFUSED, f"RunPod answered the {way.act} with {reply.status}")
    if reply.status != OK or not isinstance(answer, dict):
        return ShutdownOutcome(UNKNOWN, f"RunPod answered the {way.act} with {reply.status}")
    errors = answer.get("errors")
    if errors:
        codes = {str((one.get("extensions") or {}).get("code", "")) if isinstance(one, dict) else "" for one in errors}
        surely = not codes & set(FAILED_CODES)
        return ShutdownOutcome(
            REFUSED if surely else UNKNOWN, f"RunPod refused the {way.act} ({', '.join(sorted(codes)) or 'no code'})"
        )
    stopped = (answer.get("data") or {}).get("podStop")
    if way.act == STOP and not (isinstance(stopped, dict) and stopped.get("id") == way.place.id):
        return ShutdownOutcome(UNKNOWN, "RunPod answered the stop with another pod, or none")
    return ShutdownOutcome(ACCEPTED, f"RunPod accepted the {way.act}")


def _send_rest(place: MachineIdentity, around: HostView, method: str, path: str = "", body: bytes = b"") -> HttpReply:
    """Send a REST request; the id is in the path, so a truncated request matches no other pod."""
    base = around.env.get(REST_VARIABLE, REST).rstrip("/")
    return send_request(
        f"{base}/pods/{place.id}{path}", method=method, headers=_build_headers(around), body=body, within_s=WITHIN_S
    )


def _send_graphql(place: MachineIdentity, around: HostView, query: str) -> HttpReply:
    body = json.dumps({"query": query, "variables": {"input": {"podId": place.id}}}).encode()
    address = around.env.get(GRAPHQL_VARIABLE, GRAPHQL)
    return send_request(address, method="POST", headers=_build_headers(around), body=body, within_s=WITHIN_S)


def _build_headers(around: HostView) -> dict[str, str]:
    return {"Authorization": f"Bearer {find_variables(around, KEY)[KEY]}", "User-Agent": "costguard-agent"}
