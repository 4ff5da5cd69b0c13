"""An admin policy of SkyPilot that has costguard admit every launch of GPUs (docs/SKYPILOT.md).

    sky launch -> server -> this policy: what may be launched, hours -> POST /v1/admit -> held: launched; refused: rejected

In SkyPilot's configuration of the API server: `admin_policy: costguard_skypilot.CostguardPolicy`. Where a task names several
kinds of resources, each is asked for: those that a budget refuses are taken away, the largest hold stays, the others are ended.
A dry run asks under an id of its own, and ends that hold at once.

Example: a task with H100:8 for 12 h under a budget that has $200 left is rejected with the budget's name and what would fit.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import sky
from costguard_admission import HELD_BEFORE, HTTP_BAD_REQUEST, NO_PRICE, AdmissionClient, Answer, parse_hours

HOURS_VARIABLE, HOLD_VARIABLE = "COSTGUARD_HOURS", "COSTGUARD_HOLD"
"""Of a task's `envs`: how long it runs at most, stated by whoever launches it; and the id of its hold, which the task finds."""
HOURS_DEFAULT = 24.0
"""Where a task states none; COSTGUARD_HOURS of the API server's environment states another one. An assumption, 2026-11."""
BUDGET_LABELS = ("project", "team")
"""The labels that a budget may select by."""
LAUNCHES = ("cluster_launch", "jobs_launch", "serve_up", "jobs_pool_apply")
"""Names of SkyPilot's `AdminPolicyRequestName` (0.14) at which machines are asked for; the others validate, or follow these."""
DRY_RUN_S = 60
"""How long the hold of a dry run counts, should nobody end it."""
PLAIN = re.compile(r"[^a-z0-9-]+")
HOLD_LABEL = "costguard-hold"
"""Of the machines: the hold ends with the last of them, if the watchdog lists their cloud. GCP's labels have no capitals."""


class CostguardPolicy(sky.AdminPolicy):  # type: ignore[misc]  # SkyPilot is not installed where this is checked
    """Rejects launches that break a budget; holds the money of the others."""

    @classmethod
    def validate_and_mutate(cls, user_request: Any) -> Any:  # noqa: ANN401 - SkyPilot's UserRequest and MutatedUserRequest
        """Return the request with the resources that were admitted. Raises RuntimeError if none was."""
        task, options = user_request.task, user_request.request_options
        same = sky.MutatedUserRequest(task, user_request.skypilot_config)
        resources = [one for one in task.resources if one.accelerators]
        if user_request.at_client_side or not resources or not is_launch(user_request) or has_hold(task.envs):
            return same
        client, hours = AdmissionClient.from_environment(), find_hours(task.envs)
        cluster = str((options.cluster_name if options else "") or "")
        owner = str(user_request.user.name or "") if user_request.user else ""
        dryrun = bool(options and options.dryrun)
        bodies = [build_request(one, nodes=task.num_nodes or 1, hours=hours, owner=owner, cluster=cluster) for one in resources]
        if dryrun:
            bodies = [build_dry_run(body) for body in bodies]
        answers = [admit_at_any_price(client, body) for body in bodies]
        admitted = [one for one, answer in zip(resources, answers) if answer.may_launch]  # noqa: B905 - Python 3.9
        for answer in answers:
            print(f"costguard: {answer.says}")  # noqa: T201 - SkyPilot's log
        if not admitted:
            raise RuntimeError(f"costguard: {answers[0].says}")
        hold = keep_largest_hold(client, answers, dryrun=dryrun)
        if hold:
            admitted = [one.copy(labels={**(one.labels or {}), HOLD_LABEL: hold}) for one in admitted]
            task.update_envs({HOLD_VARIABLE: hold})
        if hold or len(admitted) < len(resources):
            task.set_resources(type(task.resources)(admitted))
        return same


def is_launch(user_request: Any) -> bool:  # noqa: ANN401 - as above
    """Return whether the request asks for machines, and not for a check of what a later one asks for."""
    name = user_request.request_name
    return str(getattr(name, "name", name)).lower() in LAUNCHES


def has_hold(envs: Mapping[str, str]) -> bool:
    """Return whether a task has the hold that the environment of this process names, as `costguard submit` sets it.

    What a task alone says proves nothing: whoever launches it can type it.
    """
    hold = os.environ.get(HOLD_VARIABLE)
    return bool(hold) and envs.get(HOLD_VARIABLE) == hold


def find_hours(envs: Mapping[str, str]) -> float:
    """Return the hours that a task states, else the environment, else HOURS_DEFAULT. Raises RuntimeError for others."""
    text = envs.get(HOURS_VARIABLE) or os.environ.get(HOURS_VARIABLE) or str(HOURS_DEFAULT)
    try:
        return parse_hours(text)
    except ValueError as error:
        raise RuntimeError(f"costguard: envs.{HOURS_VARIABLE} {error}") from None


def build_request(resources: Any, *, nodes: int, hours: float, owner: str, cluster: str) -> dict[str, object]:  # noqa: ANN401 - SkyPilot's Resources
    """Return the body of POST /v1/admit for one kind of resources. What SkyPilot leaves open stays open."""
    gpu, count = next(iter(resources.accelerators.items()))
    body: dict[str, object] = {"gpu": str(gpu), "count": math.ceil(count), "hours": hours, "machines": nodes, "owner": owner}
    if resources.cloud is not None:
        body["provider"] = str(resources.cloud).lower()
    if resources.use_spot:
        body["tier"] = "spot"
    if resources.labels:
        body["labels"] = {key: str(value) for key, value in resources.labels.items() if key in BUDGET_LABELS}
    body = {key: value for key, value in body.items() if value != ""}
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:8]
    suffix = f"{PLAIN.sub('-', cluster.lower())[:40]}-{digest}" if cluster else secrets.token_hex(6)
    return {**body, "id": f"sky-{suffix}"}


def build_dry_run(body: Mapping[str, object]) -> dict[str, object]:
    """Return the body of a dry run: the cluster may run already, and its hold has the id that a launch would ask for."""
    return {**body, "id": f"sky-dry-{secrets.token_hex(6)}", "for_s": DRY_RUN_S}


def admit_at_any_price(client: AdmissionClient, body: dict[str, object]) -> Answer:
    """Ask for a hold: at any provider's price where costguard knows none of this one."""
    answer = client.admit(body)
    unknown = answer.reason == NO_PRICE or (answer.status == HTTP_BAD_REQUEST and "provider" in answer.says)
    if unknown and "provider" in body:
        return client.admit({key: value for key, value in body.items() if key != "provider"})
    return answer


def keep_largest_hold(client: AdmissionClient, answers: Sequence[Answer], *, dryrun: bool) -> str:
    """End all holds but the largest, which is returned; of a dry run all. "": there is none.

    One that was held already is left: it may be that of the cluster, which runs.
    """
    holds = sorted((one for one in answers if one.hold), key=lambda one: one.money, reverse=True)
    for answer in holds if dryrun else holds[1:]:
        if answer.reason not in HELD_BEFORE:
            client.end(answer.hold, started=False)
    return holds[0].hold if holds and not dryrun else ""
