"""The dead-man switch: ends an idle machine whose watchdog has been silent for hours. Off unless a person switched it on.

    switch = Switch.armed(folder, joined.agent, around)    # switch.py; None where it is off
    switch.measured(moment, over_s, signals, unknown)      # each record, once it is finished; `unknown` as around.look() has it
    switch.answered(moment, answer)                        # each verified answer of the watchdog
    switch.refused(moment)                                 # the watchdog is there, and does not hear this agent
    switch.disturbed(moment)                               # after a gap: it slept, its clock was set, the agent stood still
    for text in switch.look(moment, asks.until_ms):        # once a minute; lines for the log
        log(text)

So the agent's loop calls it; `moment` is clock.now(). `asks.until_ms` are the wishes of this machine, whether or not the
watchdog knows of them: `costguard-agent keep` in the ten minutes of the last call cancels it. It ends the machine after

    silence of more than `after_s` and a delay of this agent's own (0 to 30 min), by the boot clock, without a suspension or a
    set clock in it, where the machine was idle for `idle_s` with every family measured, or the lease that it was last told
    has ended and nothing showed work for as long; and the watchdog said that it is not protected, no wish is in force, no
    `costguard run` lives here, and the way of ending it was tried at install and is the same now.

Example: six hours of silence, a delay of 11 minutes, idle since yesterday: at 6:11 all terminals are told, at 6:21 it is
stopped. An ended lease stands in for signals that are missing, never against work that is seen. `deadman` judges, and is pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from costguard_agent.quiet import CPU, IdleEvidence

HOUR_S = 3600.0
AFTER_S, AFTER_LEAST_S, IDLE_S, IDLE_LEAST_S, IDLE_MOST_S = 6 * HOUR_S, HOUR_S, HOUR_S, HOUR_S, 23 * HOUR_S
DELAY_MOST_S, LAST_CALL_S = 1800.0, 600.0
ATTEMPTS_MOST = 2
"""Attempts without a word of the watchdog in between; after them a person is needed."""

(
    SILENT_TOO_SHORT,
    UNCHECKED,
    PROTECTION_UNKNOWN,
    PROTECTED,
    WISHED,
    JOB,
    TRIED,
    WORKING,
    BLIND,
    NOT_IDLE_YET,
    IDLE,
    LEASE_ENDED,
) = (
    "silent_too_short",
    "unchecked",
    "protection_unknown",
    "protected",
    "wished",
    "job",
    "tried",
    "working",
    "blind",
    "not_idle_yet",
    "idle",
    "lease_ended",
)
ENDING = frozenset((IDLE, LEASE_ENDED))


class DeadmanSettings(NamedTuple):
    """What a person chose and what was tried then: `act` by `how` at `provider`'s machine `id`; seconds."""

    act: str
    provider: str
    id: str
    after_s: float = AFTER_S
    idle_s: float = IDLE_S
    delay_s: float = 0.0


class DeadmanFacts(NamedTuple):
    """What is known now. `lease_left_s`: of the lease last told, None where none was; a wish by what it is and its name."""

    silent_s: float
    evidence: IdleEvidence
    checked: bool
    protected: bool | None
    wishes: tuple[str, ...] = ()
    job: bool = True
    lease_left_s: float | None = None
    attempts: int = 0


class ShutdownDecision(NamedTuple):
    """A named reason, and the evidence for it in words."""

    reason: str
    text: str

    @property
    def end(self) -> bool:
        """Whether this machine is to be ended."""
        return self.reason in ENDING


def decide_shutdown(facts: DeadmanFacts, settings: DeadmanSettings) -> ShutdownDecision:  # noqa: PLR0911 - one line a reason
    """Whether this machine is to be ended, and why or why not: the first that holds of what keeps it, then what ends it."""
    wait_s, seen = settings.after_s + settings.delay_s, facts.evidence
    if not facts.silent_s > wait_s:
        return ShutdownDecision(
            SILENT_TOO_SHORT,
            f"the watchdog was silent for {_format_hours(facts.silent_s)}, it acts after {_format_hours(wait_s)}",
        )
    if not facts.checked:
        return ShutdownDecision(UNCHECKED, "this is not the machine, or not the way, that was tried when the switch was armed")
    if facts.protected is None:
        return ShutdownDecision(PROTECTION_UNKNOWN, "the watchdog never said whether this machine is protected")
    if facts.protected:
        return ShutdownDecision(PROTECTED, "this machine is protected")
    if facts.wishes:
        return ShutdownDecision(WISHED, f"it was asked to be let be: {', '.join(facts.wishes)}")
    if facts.lease_left_s is not None and facts.lease_left_s > 0:
        return ShutdownDecision(WISHED, f"it is kept for another {_format_hours(facts.lease_left_s)}")
    if facts.job:
        return ShutdownDecision(JOB, "a `costguard run` lives here, or processes cannot be seen")
    if facts.attempts >= ATTEMPTS_MOST:
        return ShutdownDecision(TRIED, f"{facts.attempts} attempts did not end it: a person is needed")
    if seen.working:
        return ShutdownDecision(WORKING, f"work is seen in {', '.join(seen.working)}")
    return _decide_by_idleness(facts, settings)


def _decide_by_idleness(facts: DeadmanFacts, settings: DeadmanSettings) -> ShutdownDecision:
    seen = facts.evidence
    if not seen.missing and seen.over_s >= settings.idle_s:
        return ShutdownDecision(
            IDLE, f"idle for {_format_hours(seen.over_s)}, and the watchdog silent for {_format_hours(facts.silent_s)}"
        )
    if (
        facts.lease_left_s is not None
        and facts.lease_left_s <= 0
        and CPU not in seen.missing
        and seen.covered_s >= settings.idle_s
    ):
        return ShutdownDecision(
            LEASE_ENDED, f"its lease ended {_format_hours(-facts.lease_left_s)} ago, and nothing shows work"
        )
    if seen.missing:
        return ShutdownDecision(BLIND, f"not measured: {', '.join(seen.missing)}")
    return ShutdownDecision(
        NOT_IDLE_YET, f"idle for {_format_hours(seen.over_s)}, it must be for {_format_hours(settings.idle_s)}"
    )


def compute_delay_s(agent_id: str) -> float:
    """Seconds by which this agent waits longer, 0 to 1800, the same at each start: a fleet does not end at once."""
    return int.from_bytes(hashlib.sha256(agent_id.encode()).digest()[:4], "big") / 2**32 * DELAY_MOST_S


def parse_settings(said: Mapping[str, Any], agent_id: str) -> DeadmanSettings | None:
    """The settings as they were kept; None where they are torn or out of bounds: then the switch is off."""
    act, provider, id_, after_s, idle_s = (said.get(name) for name in ("act", "provider", "id", "after_s", "idle_s"))
    if not (isinstance(act, str) and isinstance(provider, str) and isinstance(id_, str) and act and provider and id_):
        return None
    if not (isinstance(after_s, (int, float)) and isinstance(idle_s, (int, float))):
        return None
    if not (after_s >= AFTER_LEAST_S and IDLE_LEAST_S <= idle_s <= IDLE_MOST_S):
        return None
    return DeadmanSettings(act, provider, id_, float(after_s), float(idle_s), compute_delay_s(agent_id))


def _format_hours(seconds: float) -> str:
    return f"{seconds / HOUR_S:.1f} h" if seconds >= HOUR_S else f"{max(0.0, seconds) / 60:.0f} min"
