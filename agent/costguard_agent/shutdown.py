"""Shutdown from inside: types, the operating system's shutdown, and its effect on this machine.

`shutdown -h now` powers off; `halt` would stop the processor and leave the machine running and billed (RELIABILITY, H36).
COSTGUARD_SHUTDOWN names another command, for an agent that is not root: "sudo -n /sbin/shutdown -h now".

Whether a shutdown stops or terminates the machine cannot be read from inside, so a person states it:

    /etc/costguard-shutdown-means     i-0123456789abcdef0 stop

It is valid for that one instance only, because an image carries the file, and the environment too, to machines on which a
shutdown means something else. COSTGUARD_SHUTDOWN_MEANS in the environment, with the same two words, takes precedence.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from costguard_agent import host
from costguard_agent.diagnostics import AgentError
from costguard_agent.host import HostView, read_text
from costguard_agent.http_client import UnansweredError

STOP, TERMINATE = "stop", "terminate"
ACTS = (STOP, TERMINATE)
ACCEPTED, REFUSED, UNKNOWN = "accepted", "refused", "unknown"
RUNNING, ENDED = "running", "ended"


class MachineIdentity(NamedTuple):
    """`provider`: "" if unknown; `id`: the provider's id of this machine; `why`: why it cannot be ended from inside."""

    provider: str
    id: str = ""
    why: str = ""
    facts: Mapping[str, Any] = {}


class ShutdownWay(NamedTuple):
    """One way to end this machine.

    `certain`: its effect here is known, and all was checked but the act itself; if not, `why` is the reason.
    """

    act: str
    how: str
    keeps: str
    loses: str
    bills_after: str
    certain: bool
    why: str = ""
    place: MachineIdentity = MachineIdentity("")


class ShutdownOutcome(NamedTuple):
    """The result of the one request: accepted; refused (nothing happened); unknown (check before anything else)."""

    result: str
    text: str


SHUTDOWN_VARIABLE = "COSTGUARD_SHUTDOWN"
WITHIN_S = 20.0
CONTAINERS = (".dockerenv", "run/.containerenv")


def build_shutdown_command(around: HostView) -> list[str]:
    """Return the command that turns this machine off; empty if none is known."""
    command = around.env.get(SHUTDOWN_VARIABLE, "")
    if command:
        return shlex.split(command)
    path = host.find_command("shutdown", around)
    return [path, "-h", "now"] if path and os.geteuid() == 0 else []


def explain_hindrance(around: HostView) -> str:
    """Return why this process cannot turn the machine off; "" if it can."""
    if any(around.build_path(name).exists() for name in CONTAINERS):
        return "the agent runs in a container, and turning that off leaves the machine running"
    try:
        words = build_shutdown_command(around)
    except ValueError:
        return f"{SHUTDOWN_VARIABLE} has a quote too many"
    if not words:
        return f"only root may turn the machine off, or a command that {SHUTDOWN_VARIABLE} names"
    return "" if host.find_command(words[0], around) else f"there is no command {words[0]}"


def run_shutdown(around: HostView) -> ShutdownOutcome:
    """Run the shutdown command once."""
    reason = explain_hindrance(around)
    if reason:
        return ShutdownOutcome(REFUSED, reason)
    try:
        result = host.run_command(build_shutdown_command(around), around, within_s=WITHIN_S)
    except UnansweredError as error:
        return ShutdownOutcome(UNKNOWN if error.sent else REFUSED, str(error))
    if result.code != 0:
        return ShutdownOutcome(REFUSED, f"{build_shutdown_command(around)[0]} ended with {result.code}: {result.complaint}")
    return ShutdownOutcome(ACCEPTED, "the operating system shuts down")


def report_running(_: MachineIdentity, __: HostView) -> str:
    """Return running: this code runs on the machine itself."""
    return RUNNING


def read_firmware(around: HostView, *names: str) -> str:
    """Return the manufacturer's fields of the (virtual) machine's firmware as one line."""
    from costguard_agent.host import read_text

    return " ".join((read_text(around.build_path("sys", "class", "dmi", "id", name)) or "").strip() for name in names)


MEANING_FILE, MEANING_VARIABLE = "/etc/costguard-shutdown-means", "COSTGUARD_SHUTDOWN_MEANS"


def read_shutdown_meaning(place: MachineIdentity, around: HostView) -> str:
    """Return stop or terminate as stated for this machine; "" if nothing was stated, or for another machine."""
    for text in (around.env.get(MEANING_VARIABLE, ""), read_text(around.rebase_path(MEANING_FILE)) or ""):
        words = text.split()
        if len(words) == 2 and words[0] == place.id and words[1] in ACTS:  # noqa: PLR2004 - an id and a word
            return words[1]
    return ""


def save_shutdown_meaning(place: MachineIdentity, means: str, around: HostView) -> None:
    """Store the statement; raises AgentError."""
    if means not in ACTS:
        raise AgentError(f"--shutdown-means {means!r}: write stop or terminate")
    if not place.id:
        raise AgentError(f"--shutdown-means is stored with the instance's id, which is unknown: {place.why}")
    try:
        around.rebase_path(MEANING_FILE).write_text(f"{place.id} {means}\n", "utf-8")
    except OSError as error:
        raise AgentError(
            f"cannot write {MEANING_FILE}: {error.strerror}; run this as root, or set {MEANING_VARIABLE}='{place.id} {means}'"
        ) from error
