"""Turning the machine off by its operating system, for the clouds where that ends it.

`shutdown -h now` powers off; `halt` would stop the processor and leave the machine running and billed (RELIABILITY, H36).
COSTGUARD_SHUTDOWN names another command, for an agent that is not root: "sudo -n /sbin/shutdown -h now".
"""

from __future__ import annotations

import os
import shlex

from costguard_agent import commands
from costguard_agent.host import Surroundings
from costguard_agent.http_client import UnansweredError
from costguard_agent.shutdown import ACCEPTED, REFUSED, RUNNING, UNKNOWN, Outcome, Place

VARIABLE = "COSTGUARD_SHUTDOWN"
WITHIN_S = 20.0
CONTAINERS = (".dockerenv", "run/.containerenv")


def command(around: Surroundings) -> list[str]:
    """The words that turn this machine off; none where nothing is known to."""
    stated = around.env.get(VARIABLE, "")
    if stated:
        return shlex.split(stated)
    path = commands.found("shutdown", around)
    return [path, "-h", "now"] if path and os.geteuid() == 0 else []


def hindrance(around: Surroundings) -> str:
    """Why this process cannot turn the machine off; "" where it can."""
    if any(around.at(name).exists() for name in CONTAINERS):
        return "the agent runs in a container, and turning that off leaves the machine running"
    try:
        words = command(around)
    except ValueError:
        return f"{VARIABLE} has a quote too many"
    if not words:
        return f"only root may turn the machine off, or a command that {VARIABLE} names"
    return "" if commands.found(words[0], around) else f"there is no command {words[0]}"


def turned_off(around: Surroundings) -> Outcome:
    """The command, started once."""
    reason = hindrance(around)
    if reason:
        return Outcome(REFUSED, reason)
    try:
        done = commands.said(command(around), around, within_s=WITHIN_S)
    except UnansweredError as error:
        return Outcome(UNKNOWN if error.sent else REFUSED, str(error))
    if done.code != 0:
        return Outcome(REFUSED, f"{command(around)[0]} ended with {done.code}: {done.complaint}")
    return Outcome(ACCEPTED, "the operating system shuts down")


def state(_: Place, __: Surroundings) -> str:
    """Whoever can ask is running."""
    return RUNNING


def firmware(around: Surroundings, *names: str) -> str:
    """What the maker of the (virtual) machine wrote into it, as one line."""
    from costguard_agent.host import text

    return " ".join((text(around.at("sys", "class", "dmi", "id", name)) or "").strip() for name in names)
