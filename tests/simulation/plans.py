"""Plans of worlds: machines, what they do, what people wish, what goes wrong. A run only carries a plan out.

A plan is plain values, and `papers` writes it as JSON and reads it back; a world knows its plan and no seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

CALM, STORM, CAP, TURNED, DRILL, WIRED, BOOKS = "calm", "storm", "cap", "turned", "drill", "wired", "books"
ACTIVITIES = ("busy", "quiet", "io", "cpu", "silent")
LISTING = ("down", "partial", "empty", "stale", "hides", "forgets")
ON_WIRE = ("wire", "loops", "twice", "zero", "unmeasured", "date")
"""What goes wrong with a cloud that is spoken to over HTTP alone: wire is "FAULT WHICH EVERY" of its requests."""
AFTERNOON, MONTHS_END = "2026-11-06T16:00", "2026-11-30T23:30"


class Does(NamedTuple):
    """From minute `at` on the machine does `what`, of ACTIVITIES."""

    at: int
    what: str


@dataclass(frozen=True, slots=True)
class Box:
    """A machine. `guard`: "" or what keeps it from all acts: controller, handling, unstoppable, unarmed, label, wish, slip."""

    name: str
    cloud: str
    rate: str
    does: tuple[Does, ...]
    guard: str = ""
    few: bool = False
    age_min: int = 24 * 60
    at: int = 0


class Happens(NamedTuple):
    """`what` happens at minute `at`, to `name`, for `minutes`."""

    at: int
    what: str
    name: str = ""
    minutes: int = 0
    how: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """A world. `meddles`: at which look, counted from 1, what happens. `cap_hours`: of burning until the cap is reached.

    `minutes`: of trouble; all that is wrong ends after them, and the world goes on for some polls. `start`: in UTC.
    `wired`: costguard's own adapters speak to the five fakes.
    """

    seed: int
    kind: str
    minutes: int
    boxes: tuple[Box, ...]
    events: tuple[Happens, ...]
    rails: Mapping[str, Any]
    meddles: Mapping[int, str] = field(default_factory=dict)
    twin: bool = False
    cap_hours: float = 0.0
    start: str = AFTERNOON
    wired: bool = False
