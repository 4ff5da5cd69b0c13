"""Turning the machine off by its operating system, for the clouds where that ends it.

`shutdown -h now` powers off; `halt` would stop the processor and leave the machine running and billed (RELIABILITY, H36).
COSTGUARD_SHUTDOWN names another command, for an agent that is not root: "sudo -n /sbin/shutdown -h now".
"""

from __future__ import annotations

import os
import shlex

from costguard_agent import commands
from costguard_agent.host import HostView
from costguard_agent.http_client import UnansweredError
from costguard_agent.shutdown import ACCEPTED, REFUSED, RUNNING, UNKNOWN, MachineIdentity, ShutdownOutcome

SHUTDOWN_VARIABLE = "COSTGUARD_SHUTDOWN"
WITHIN_S = 20.0
CONTAINERS = (".dockerenv", "run/.containerenv")


def build_shutdown_command(around: HostView) -> list[str]:
    """The words that turn this machine off; none where nothing is known to."""
    stated = around.env.get(SHUTDOWN_VARIABLE, "")
    if stated:
        return shlex.split(stated)
    path = commands.find_command("shutdown", around)
    return [path, "-h", "now"] if path and os.geteuid() == 0 else []


def explain_hindrance(around: HostView) -> str:
    """Why this process cannot turn the machine off; "" where it can."""
    if any(around.build_path(name).exists() for name in CONTAINERS):
        return "the agent runs in a container, and turning that off leaves the machine running"
    try:
        words = build_shutdown_command(around)
    except ValueError:
        return f"{SHUTDOWN_VARIABLE} has a quote too many"
    if not words:
        return f"only root may turn the machine off, or a command that {SHUTDOWN_VARIABLE} names"
    return "" if commands.find_command(words[0], around) else f"there is no command {words[0]}"


def run_shutdown(around: HostView) -> ShutdownOutcome:
    """The command, started once."""
    reason = explain_hindrance(around)
    if reason:
        return ShutdownOutcome(REFUSED, reason)
    try:
        done = commands.run_command(build_shutdown_command(around), around, within_s=WITHIN_S)
    except UnansweredError as error:
        return ShutdownOutcome(UNKNOWN if error.sent else REFUSED, str(error))
    if done.code != 0:
        return ShutdownOutcome(REFUSED, f"{build_shutdown_command(around)[0]} ended with {done.code}: {done.complaint}")
    return ShutdownOutcome(ACCEPTED, "the operating system shuts down")


def report_running(_: MachineIdentity, __: HostView) -> str:
    """Whoever can ask is running."""
    return RUNNING


def read_firmware(around: HostView, *names: str) -> str:
    """What the maker of the (virtual) machine wrote into it, as one line."""
    from costguard_agent.host import read_text

    return " ".join((read_text(around.build_path("sys", "class", "dmi", "id", name)) or "").strip() for name in names)
