"""The settings that `costguard init` writes: a few lines for the clouds found, added to those of a file that exists.

Only what is missing is added, and no line is changed: a second `costguard init` adds nothing. What is written can be read, or
it is refused. `costguard settings explain KEY` (`settings.example`) explains every key that does not stand there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from costguard.settings.notify import CONSOLE_CHANNEL

TELL, ASK_FIRST, STOP_IDLE = "tell", "ask", "stop"
IDLE_CHOICES = {
    TELL: "a message, and nothing else",
    ASK_FIRST: "a message; an hour later it asks you, and stops the machine only if you approve",
    STOP_IDLE: "a message; an hour later it stops the machine by itself",
}
"""What may be done to machines that idle, as `costguard init` asks for it."""

FIRST_HEADER = """\
# Settings of costguard. `costguard settings explain KEY` explains a key; `costguard settings explain` lists all of them.
# This file holds no key: costguard reads keys from each provider's usual place.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDraft:
    """A policy that `init` can write. `providers` (): of machines with costguard's agent, on any cloud.

    `loses`: what a stop deletes there, so that it needs `allow_irreversible`; "": nothing that the policy must allow.
    """

    text: str
    when: str
    hold: str
    grace: str
    needs: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    loses: str = ""
    severity: str = ""


POLICY_DRAFTS: Mapping[str, PolicyDraft] = {
    "idle-gpu": PolicyDraft(
        text="Idle GPUs of machines with costguard's agent. Where a stop would lose data, a person is asked.",
        when='state == "idle" && confidence >= 0.9',
        hold="45m",
        grace="15m",
        needs=("duty", "cpu", "io"),
    ),
    "hung-job": PolicyDraft(
        text="A job that hangs: GPUs are busy, draw little power, make no step. A stop costs the work since its checkpoint.",
        when='state == "hung" && confidence >= 0.9',
        hold="15m",
        grace="30m",
        severity="page",
    ),
    "idle-vast": PolicyDraft(
        text="Vast measures GPUs and processors: a slow upload or download is not seen, so the waits are long.",
        when='state == "idle" && confidence >= 0.8',
        hold="3h",
        grace="1h",
        needs=("duty", "cpu"),
        providers=("vast",),
    ),
    "idle-runpod": PolicyDraft(
        text="RunPod measures GPUs and processors: a slow upload or download is not seen, so the waits are long.",
        when='state == "idle" && confidence >= 0.8',
        hold="3h",
        grace="1h",
        needs=("duty", "cpu"),
        providers=("runpod",),
        loses="the container disk, that is everything outside the volume",
    ),
    "idle-processors": PolicyDraft(
        text="AWS and Google measure processors, network and disk: a job that computes on the GPU alone is not seen.",
        when='state == "idle" && confidence >= 0.5',
        hold="4h",
        grace="1h",
        needs=("cpu", "io"),
        providers=("aws", "gcp"),
    ),
}
"""Measured on played fleets (`python -m bench.guard_fleets`, docs/START.md): each waits as long as what is measured demands."""

NEEDED_SETTINGS = {("aws", "signals"): '["gpu_util", "gpu_power_w", "cpu_util", "network_bytes_s", "disk_bytes_s"]'}
"""Settings of providers that their policy needs: CloudWatch asks $0.01 for 1,000 series, so they are off else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstChoices:
    """What a person chose. None and (): nothing is written for it.

    - `providers`: whose section is written. `cap`: of one monthly budget. `zone`: time zone of [defaults].
    - `to`: where warnings go, "console" or the source of an address; None: no policy and no route.
    - `idle`: of IDLE_CHOICES. `losses`: a stop may delete what it deletes there.
    - `claims`: providers whose accounts hold no machine of other people. `agents`: machines with an agent get policies too.
    """

    providers: Collection[str] = ()
    cap: str | None = None
    zone: str | None = None
    to: str | None = None
    idle: str = STOP_IDLE
    losses: bool = False
    claims: tuple[str, ...] = ()
    agents: bool = False

    def list_policies(self) -> list[str]:
        """Return the policies that suit the providers: those of agents too where a provider measures too little."""
        drafts = POLICY_DRAFTS.items()
        own = {name for name, draft in drafts if not {*draft.providers}.isdisjoint(self.providers)}
        judged = {provider for name in own for provider in POLICY_DRAFTS[name].providers}
        agents = self.agents or not self.providers or not judged.issuperset(self.providers)
        return [name for name, draft in drafts if name in own or (agents and not draft.providers)]


def extend_settings(text: str, table: Mapping[str, object], choices: FirstChoices) -> str:
    """Return `text`, which holds `table`, with what it lacks of `choices` below it. "": a new file."""
    new = f"{text.rstrip()}\n" if text else FIRST_HEADER
    for section, key, value in _list_plain_keys(choices):
        inner = table.get(section)
        if not isinstance(inner, Mapping) or key not in inner:
            new = _add_key(new, section, f"{key} = {value}")
    if choices.cap and "budget" not in table:
        new += f'\n[[budget]]\nname = "everything"\ncap = {json.dumps(choices.cap)}\nperiod = "month"\n'
    if choices.to is not None:
        policies = table.get("policy")
        names = {one.get("name") for one in policies if isinstance(one, Mapping)} if isinstance(policies, list) else set()
        new += "".join(render_policy(name, choices) for name in choices.list_policies() if name not in names)
        if "notify" not in table:
            console = "\n[notify]\nconsole_is_delivery = true" if choices.to == CONSOLE_CHANNEL else ""
            new += f"{console}\n[[notify.route]]\nto = {json.dumps([choices.to])}\n"
    providers = table.get("providers")
    known_providers = providers if isinstance(providers, Mapping) else {}
    for name in sorted(set(choices.providers) - set(known_providers)):
        new += f"\n[providers.{name}]\n"
        needed = [one for one in NEEDED_SETTINGS.items() if choices.to is not None and one[0][0] == name]
        new += "".join(f"{key} = {value}\n" for (_, key), value in needed)
    return text if new.rstrip() == text.rstrip() else new


def render_policy(name: str, choices: FirstChoices) -> str:
    """Return the text of a policy of POLICY_DRAFTS as far as `choices` let it go."""
    draft = POLICY_DRAFTS[name]
    match = {"gpu": "true", **({"providers": json.dumps([*draft.providers])} if draft.providers else {})}
    act = {TELL: "", ASK_FIRST: 'do = "ask", act = "stop"', STOP_IDLE: 'do = "stop"'}[choices.idle]
    step = f', {{ after = "{draft.grace}", {act} }}' if act else ""
    severity = f', severity = "{draft.severity}"' if draft.severity else ""
    lines = [
        f"\n# {draft.text}",
        "[[policy]]",
        f'name = "{name}"',
        f'arm = "{"stop" if choices.idle == STOP_IDLE else "notify"}"',
        f"match = {{ {', '.join(f'{key} = {value}' for key, value in match.items())} }}",
        *([f"needs = {json.dumps([*draft.needs])}"] if draft.needs else []),
        f"when = '{draft.when}'",
        f'for = "{draft.hold}"',
        *(["allow_irreversible = true"] if draft.loses and choices.losses and choices.idle == STOP_IDLE else []),
        f'then = [{{ do = "notify"{severity} }}{step}]',
    ]
    return "\n".join(lines) + "\n"


def _list_plain_keys(choices: FirstChoices) -> Iterator[tuple[str, str, str]]:
    """Yield the keys of sections: section, key, value."""
    if choices.zone:
        yield "defaults", "timezone", json.dumps(choices.zone)
    if choices.claims:
        yield "watch", "claims", json.dumps([*choices.claims])


def _add_key(text: str, section: str, line: str) -> str:
    """Return `text` with `line` in its section, directly below the header; without such a header the section is added."""
    header = re.compile(rf"^[ \t]*\[[ \t]*{section}[ \t]*\][^\n]*$", re.MULTILINE)
    match = header.search(text)
    return f"{text}\n[{section}]\n{line}\n" if match is None else f"{text[: match.end()]}\n{line}{text[match.end() :]}"
