"""A plug-in of dstack's server that has costguard admit every run with GPUs (docs/DSTACK.md).

    dstack apply -> server -> this plug-in: what may be launched, hours -> POST /v1/admit -> held: goes on; refused: ValueError

dstack asks its plug-ins when a run is planned and again when it is applied, and says neither which nor whether the plan was
taken: both ask for a hold under one id, made of project, run name and request, so a run is held once. Each group of nodes or
replicas is asked for, with all the replicas that it may grow to. Of several kinds of GPUs those that a budget refuses are taken
away, and the largest hold stays; of an open number (`gpu: H100` is one or more) the lowest.

Example: a task with H100:8 and `max_duration: 12h` under a budget that has $200 left is refused with what would fit.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from costguard_admission import HELD_BEFORE, HTTP_BAD_REQUEST, NO_PRICE, AdmissionClient, Answer, clean_text, give_up
from dstack.plugins import ApplyPolicy, Plugin, get_plugin_logger

LOG = get_plugin_logger("costguard")
HOURS_VARIABLE, GPU_VARIABLE = "COSTGUARD_HOURS", "COSTGUARD_GPU"
"""Of the server's environment: hours of a run without `max_duration`; the GPU of a run that names none."""
PROJECT_LABEL_VARIABLE = "COSTGUARD_PROJECT_LABEL"
"""Of the server's environment: the budgets' label that dstack's project is: `project` (the default) or `team`."""
HOURS_DEFAULT, HOURS_MAX = 24.0, 8784.0
"""Where neither the run nor the server states hours. An assumption, 2026-11."""
BUDGET_LABELS = ("project", "team")
"""The labels that a budget may select by."""
KINDS_MOST, GROUPS_MOST = 8, 8
"""How many kinds of GPUs and how many groups are asked for, one after the other; none after one that took 5 s in vain."""
HOLDS_KNOWN = 4096
HOLD_LABEL = "costguard-hold"
"""Tag of the machines: the hold ends with the last of them, if the watchdog lists their cloud."""
PLAIN = re.compile(r"[^a-z0-9-]+")
PROVIDERS = {"vastai": "vast", "datacrunch": "verda"}
"""Clouds that costguard names otherwise than dstack (0.22.5)."""
SIZES = {"a100": ((40, "A100-40GB"), (80, "A100-80GB")), "v100": ((16, "V100-16GB"), (32, "V100-32GB"))}
"""GPUs that dstack sells under one name with several memories, in GB, smallest first."""
OFFER_COMMANDS, OFFER_S = [":"], 60
"""What `dstack offer` plans (0.22.5): it has no name. Should somebody apply it, it ends after a minute."""
UNREACHED = "costguard cannot be asked"
"""How the client begins where no answer came."""


class CostguardPlugin(Plugin):  # type: ignore[misc]  # dstack is not installed where this is checked
    """What dstack's server loads: `plugins: [costguard]` in its config.yml."""

    def __init__(self) -> None:
        """Make the policy once: dstack asks for it at every plan, and it remembers holds."""
        self._policy = CostguardPolicy()

    def get_apply_policies(self) -> list[Any]:
        """Return the policy that admits runs."""
        return [self._policy]


class CostguardPolicy(ApplyPolicy):  # type: ignore[misc]  # as above
    """Rejects what breaks a budget; holds the money of the rest."""

    def __init__(self) -> None:
        """Know no hold yet."""
        self._renewed: dict[str, str] = {}

    def on_run_apply(self, user: str, project: str, spec: Any) -> Any:  # noqa: ANN401 - dstack's RunSpec
        """Return the run with the GPUs that were admitted. Raises ValueError, which dstack shows, if a group has none."""
        groups = [one for one in list_groups(spec) if asks_for_gpus(one, spec)]
        name = str(spec.run_name or spec.configuration.name or "")
        if groups and not name and is_offer(spec):
            return limit_offer(spec)
        state_hold(spec, self._admit(groups, user=user, project=project, name=name, spec=spec) if groups else [])
        return spec

    def on_fleet_apply(self, user: str, project: str, spec: Any) -> Any:  # noqa: ANN401 - dstack's FleetSpec
        """Return the fleet, whose machines start at once. Raises as for a run."""
        if getattr(spec.configuration, "ssh_config", None) is None:
            groups = [one for one in list_groups(spec) if count_machines(one) and asks_for_gpus(one, spec)]
            if groups:
                name = str(spec.configuration.name or "")
                self._admit(groups, user=user, project=project, name=name and f"fleet-{name}", spec=spec)
        state_hold(spec, [])
        return spec

    def _admit(self, groups: Sequence[Any], *, user: str, project: str, name: str, spec: Any) -> list[Answer]:  # noqa: ANN401
        """Return the holds of the groups. Raises ValueError if one is refused; then there is none."""
        if not name:
            raise ValueError("costguard: state a name, as `name: train-1`: by it the plan of a run and the run have one hold")
        if len(groups) > GROUPS_MOST:
            raise ValueError(f"costguard: state at most {GROUPS_MOST} groups with GPUs")
        client, hours = AdmissionClient.from_environment(), find_hours(spec)
        common = {"hours": hours, "owner": user, "labels": find_labels(spec, project), "name": name[:100]}
        holds: list[Answer] = []
        silent: Answer | None = None
        for number, group in enumerate(groups):
            bound = find_price_bound(group, spec, hours)
            kinds = list_kinds(group)
            bodies = [build_request(kind, group, spec, common) for kind in kinds]
            ids = [build_id(body, project=project, name=name, group=number) for body in bodies]
            answers: list[Answer] = []
            for body, one in zip(bodies, ids):  # noqa: B905 - Python 3.9
                answers.append(silent or self._ask(client, {**body, "id": one}, bound))
                if answers[-1].says.startswith(UNREACHED):
                    silent = answers[-1]  # nor does it answer the next: a plan waits for one of them
            admitted = [kind for kind, answer in zip(kinds, answers) if answer.may_launch]  # noqa: B905
            holds += keep_largest_hold(client, answers)
            if not admitted:
                end_holds(client, holds)
                raise ValueError(clean_text(f"costguard: {answers[0].says}"))
            narrow_gpus(group, admitted if len(admitted) < len(kinds) else None)
        return holds

    def _ask(self, client: AdmissionClient, body: dict[str, object], bound: float | None) -> Answer:
        """Ask for a hold. `bound`: USD that it costs at most, None where that is open.

        Where the id was that of a hold that has ended, the client makes a new one, which is asked for from then on: else a plan
        and its run would have a hold each.
        """
        hold_id = str(body["id"])
        answer = admit_at_any_price(client, {**body, "id": self._renewed.get(hold_id, hold_id)}, bound)
        if answer.hold and answer.hold != hold_id:
            if len(self._renewed) >= HOLDS_KNOWN:
                self._renewed.clear()
            self._renewed[hold_id] = answer.hold
        LOG.info("costguard: %s", clean_text(answer.says))
        return answer


def read_setting(spec: Any, key: str) -> Any:  # noqa: ANN401 - dstack's
    """Return a setting of the configuration, else of its profile: as dstack merges them, but after other plug-ins' changes."""
    value = getattr(spec.configuration, key, None)
    return getattr(spec.profile, key, None) if value is None else value


def list_groups(spec: Any) -> list[Any]:  # noqa: ANN401 - dstack's
    """Return what has resources of its own: the groups of a task or a service, else the whole."""
    return list(getattr(spec.configuration, "groups", None) or [spec.configuration])


def asks_for_gpus(group: Any, spec: Any) -> bool:  # noqa: ANN401 - dstack's
    """Return whether a group gets GPUs. `gpu: 0..` is what dstack has for a run that says nothing of them: it does not."""
    gpu = getattr(group.resources, "gpu", None)
    if gpu is not None and gpu.count.max == 0:
        return False
    if read_setting(spec, "instance_types"):
        return True
    return gpu is not None and is_stated(gpu)


def is_stated(gpu: Any) -> bool:  # noqa: ANN401 - dstack's GPUSpec
    """Return whether anything is said of the GPUs."""
    return bool(gpu.name or gpu.memory or gpu.total_memory or gpu.compute_capability or gpu.count.min or gpu.count.max)


def count_machines(group: Any) -> int:  # noqa: ANN401 - dstack's
    """Return the machines of a group: its nodes, the replicas that it may grow to, or those a fleet starts with."""
    nodes, replicas = getattr(group, "nodes", None), getattr(group, "replicas", None)
    if nodes is not None:
        return int(nodes if isinstance(nodes, int) else max(nodes.min or 0, nodes.target or 0))
    return 1 if replicas is None else int(replicas.max)


def list_kinds(group: Any) -> list[str]:  # noqa: ANN401 - dstack's
    """Return the GPUs that a group names; "" where it names none. Raises ValueError if there are too many."""
    gpu = getattr(group.resources, "gpu", None)
    names = [str(one) for one in (gpu.name if gpu else None) or ()]
    if len(names) > KINDS_MOST:
        raise ValueError(f"costguard: resources.gpu: state at most {KINDS_MOST} kinds, not {len(names)}")
    return names or [""]


def count_gpus(group: Any) -> int:  # noqa: ANN401 - dstack's
    """Return the GPUs of a machine at most, of an open number the lowest; 0 where nothing is said of them."""
    gpu = getattr(group.resources, "gpu", None)
    return int(gpu.count.max or max(gpu.count.min or 0, 1)) if gpu and is_stated(gpu) else 0


def narrow_gpus(group: Any, kinds: Sequence[str] | None) -> None:  # noqa: ANN401 - dstack's
    """Leave of a group what was admitted: of named GPUs no more than were asked for, and only `kinds`, if there are any."""
    gpu = getattr(group.resources, "gpu", None)
    if gpu and gpu.name and gpu.count.max is None:
        gpu.count = gpu.count.model_copy(update={"max": count_gpus(group)})
    if gpu and kinds:
        gpu.name = list(kinds)


def name_gpu(kind: str, group: Any) -> str:  # noqa: ANN401 - dstack's
    """Return costguard's name of a kind: of one that is sold in several sizes the largest that the memory admits."""
    sizes = SIZES.get(kind.lower())
    if not sizes:
        return kind
    memory = group.resources.gpu.memory
    most = memory.max if memory is not None and memory.max is not None else sizes[-1][0]
    return next((name for size, name in reversed(sizes) if size <= most), sizes[0][1])


def find_hours(spec: Any) -> float:  # noqa: ANN401 - dstack's
    """Return the hours of `max_duration`, else of the server, else HOURS_DEFAULT. Raises ValueError for what are none."""
    seconds = read_setting(spec, "max_duration")
    if isinstance(seconds, int) and seconds > 0:
        field, text = "max_duration", str(seconds / 3600)
    else:
        field, text = f"{HOURS_VARIABLE} of dstack's server", os.environ.get(HOURS_VARIABLE) or str(HOURS_DEFAULT)
    try:
        hours = float(text)
    except ValueError:
        hours = 0.0
    if not 0 < hours < HOURS_MAX:
        raise ValueError(f"costguard: {field} must be more than 0 and less than {HOURS_MAX:g} hours, not {text[:40]!r}")
    return hours


def find_labels(spec: Any, project: str) -> dict[str, str]:  # noqa: ANN401 - dstack's
    """Return the labels that budgets select by: those of the tags, and the project, which no tag replaces."""
    tags = read_setting(spec, "tags") or {}
    labels = {key: str(value) for key, value in tags.items() if key in BUDGET_LABELS and value}
    return {**labels, os.environ.get(PROJECT_LABEL_VARIABLE) or "project": project}


def find_price_bound(group: Any, spec: Any, hours: float) -> float | None:  # noqa: ANN401 - dstack's
    """Return the USD that `max_price`, which is of a machine and hour, lets a group cost at most; None without it."""
    price = read_setting(spec, "max_price")
    return None if price is None else float(price) * hours * count_machines(group)


def build_request(kind: str, group: Any, spec: Any, common: Mapping[str, object]) -> dict[str, object]:  # noqa: ANN401 - dstack's
    """Return the body of POST /v1/admit for one kind of GPU, without an id. Without `gpu`: kind or number is open."""
    body = dict(common)
    name, count = name_gpu(kind, group), count_gpus(group)
    if not kind and read_setting(spec, "max_price") is None:
        name = os.environ.get(GPU_VARIABLE, "")
    if name and count:
        body.update(gpu=name, count=count, machines=count_machines(group))
    backends = [str(getattr(one, "value", one)) for one in read_setting(spec, "backends") or ()]
    if len(backends) == 1:
        body["provider"] = PROVIDERS.get(backends[0], backends[0])
    policy = getattr(group, "spot_policy", None) or read_setting(spec, "spot_policy")
    if getattr(policy, "value", policy) == "spot":
        body["tier"] = "spot"
    return body


def build_id(body: Mapping[str, object], *, project: str, name: str, group: int) -> str:
    """Return the id of a hold: the same when a run is planned and applied."""
    digest = hashlib.sha256(json.dumps([project, name, group, body], sort_keys=True).encode()).hexdigest()[:12]
    return "-".join(("dstack", PLAIN.sub("-", project.lower())[:24], PLAIN.sub("-", name.lower())[:40], digest))


def admit_at_any_price(client: AdmissionClient, body: dict[str, object], bound: float | None) -> Answer:
    """Ask for a hold: at any provider's price where costguard knows none of this one, then of `bound`."""
    money = {key: value for key, value in body.items() if key not in ("gpu", "count", "machines", "provider", "tier")}
    money["usd"] = f"{bound or 0:.2f}"
    if "gpu" not in body:
        if bound is not None:
            return client.admit(money)
        hint = f"state a name, or max_price, or `gpu: 0`; or {GPU_VARIABLE} of dstack's server"
        return give_up(f"what GPUs it gets is open ({hint})", client.fails)
    answer = client.admit(body)
    unknown = answer.reason == NO_PRICE or (answer.status == HTTP_BAD_REQUEST and "provider" in answer.says)
    if unknown and "provider" in body:
        answer = client.admit({key: value for key, value in body.items() if key != "provider"})
    return client.admit(money) if answer.reason == NO_PRICE and bound is not None else answer


def keep_largest_hold(client: AdmissionClient, answers: Sequence[Answer]) -> list[Answer]:
    """End all holds but the largest, which is returned. One that was held already is left: its run may be active."""
    holds = sorted((one for one in answers if one.hold), key=lambda one: one.money, reverse=True)
    end_holds(client, holds[1:])
    return holds[:1]


def end_holds(client: AdmissionClient, holds: Sequence[Answer]) -> None:
    """End the holds that were taken just now."""
    for answer in holds:
        if answer.reason not in HELD_BEFORE:
            client.end(answer.hold, started=False)


def state_hold(spec: Any, holds: Sequence[Answer]) -> None:  # noqa: ANN401 - dstack's
    """Tag the machines with their hold, and with none that somebody typed.

    Not those of a service, which has none while it is scaled to zero, and whose tags cannot be changed while it is active.
    """
    tags = dict(read_setting(spec, "tags") or {})
    typed = tags.pop(HOLD_LABEL, None)
    is_tagged = len(holds) == 1 and spec.configuration.type != "service"
    if is_tagged:
        tags[HOLD_LABEL] = holds[0].hold
    if is_tagged or typed is not None:
        spec.configuration.tags = tags


def is_offer(spec: Any) -> bool:  # noqa: ANN401 - dstack's
    """Return whether this is what `dstack offer` plans."""
    return spec.configuration.type == "task" and getattr(spec.configuration, "commands", None) == OFFER_COMMANDS


def limit_offer(spec: Any) -> Any:  # noqa: ANN401 - dstack's
    """Return the spec so that it costs next to nothing if it is applied all the same."""
    spec.configuration.max_duration, spec.configuration.idle_duration, spec.configuration.retry = OFFER_S, 0, False
    for part in (spec.configuration, spec.profile):
        if getattr(part, "schedule", None) is not None:
            part.schedule = None
    return spec
