"""Vast's words for what a contract does, four of them a contract, to one of ours.

`actual_status` is of the container, by its last heartbeat; `intended_status` what was asked for; `cur_state` and `next_state`
are of the contract, which is what bills. Where the two differ the contract may still hold its GPU, and the state is one that
nobody is sure of. Source: the project's provider notes (vast.md, section 3, 2026-11-21).

Example: container "exited", contract "running": the process died and the GPU is still held, so `failed`, which may bill.
"""

from __future__ import annotations

from costguard_vast.wire import Instance

HELD = {"running": "running", "rebooting": "running", "recycling": "running", "frozen": "paused", "exited": "failed"}
ARRIVING = frozenset(("", "loading", "created", "scheduling"))
OFF = frozenset(("stopped", "unloaded"))
LONGEST_WORD = 80
WAITING = "waits for its GPU, and then starts and bills by itself"
MAY_RESUME = "interruptible: it resumes by itself when its bid wins"


def find_state(one: Instance) -> tuple[str, str]:
    """Our state, and Vast's word for it where that says more."""
    actual, wanted = normalise_word(one.actual_status), normalise_word(one.intended_status)
    state = _find_base_state(actual, wanted, one)
    shown = (one.actual_status or "").strip()[:LONGEST_WORD] if actual != state else ""
    if state == "stopped" and wanted == "running":
        return state, f"{shown or 'stopped'}, {WAITING}"
    if state == "stopped" and one.is_bid:
        return state, f"{shown or 'stopped'}, {MAY_RESUME}"
    return state, shown


def is_settled(one: Instance) -> bool:
    """Whether contract and intention both say stopped, and nothing else is on its way."""
    return (
        normalise_word(one.cur_state) in OFF
        and normalise_word(one.intended_status) == "stopped"
        and normalise_word(one.next_state) in (*OFF, "")
    )


def normalise_word(text: str | None) -> str:
    """A state as it is compared: some carry spaces and newlines."""
    return (text or "").strip().lower()[:LONGEST_WORD]


def _find_base_state(actual: str, wanted: str, one: Instance) -> str:
    contract = normalise_word(one.cur_state)
    if actual == "offline":
        return "repairing"
    if is_settled(one):
        return "stopped"
    if actual in ARRIVING:
        return _find_arriving_state(actual, contract, wanted)
    if actual == "stopped":
        return _find_stopped_state(contract, wanted)
    if actual in HELD:
        return _find_held_state(actual, contract, wanted)
    return "unknown"


def _find_arriving_state(actual: str, contract: str, wanted: str) -> str:
    """No container yet. Where nothing says anything, that is no statement either."""
    if contract in OFF:
        return "stopped"
    return "starting" if actual or contract == "running" or wanted in ("running", "stopped") else "unknown"


def _find_stopped_state(contract: str, wanted: str) -> str:
    """The container is stopped, but the contract may hold its GPU still or again."""
    if contract in OFF or not contract:
        return "stopped"
    return "starting" if wanted == "running" else "stopping"


def _find_held_state(actual: str, contract: str, wanted: str) -> str:
    if contract in OFF:
        return "stopped" if actual == "exited" else "stopping"
    return "stopping" if wanted == "stopped" else HELD[actual]
