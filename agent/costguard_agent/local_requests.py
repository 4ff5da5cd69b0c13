"""What this machine asks of the watchdog: to be let be for a phase, for work, or to be kept. Kept until it was answered.

An ask that waits while the watchdog is away grows shorter: three hours asked for an hour ago are two.
"""

from __future__ import annotations

import json
import os
import re
import threading
from pathlib import Path
from typing import Any, NamedTuple

from costguard_agent.printed import make_printable
from costguard_agent.protocol import ASKS, ASKS_MOST, PHASE, TEXT_MOST
from costguard_agent.state_dir import ASKS as FILE
from costguard_agent.state_dir import parse_object, write_file

LEAST_S, MOST_S = 60.0, 7 * 86400.0
ENOUGH = 0.5
"""A hint to be let be is not passed on while this share of it would still be granted under the same name."""
NAME_MOST = 100
ID = re.compile(r"[0-9a-f]{16}")


class LocalRequest(NamedTuple):
    """One ask; `at_ms`: when it was made, Unix milliseconds. `reply_to`: who waits for what becomes of it, "" for nobody."""

    id: str
    what: str
    name: str
    for_s: float
    why: str
    at_ms: int
    reply_to: bytes | str = ""

    def compute_left_s(self, now_ms: int) -> float:
        """Seconds of it that are left."""
        return self.for_s - max(0, now_ms - self.at_ms) / 1000


class LocalRequestQueue:
    """Those that are not answered yet, and until when each kind was asked for last. Safe between threads."""

    def __init__(self, folder: Path) -> None:
        self._lock = threading.Lock()
        self._path = folder / FILE
        self._open: list[LocalRequest] = []
        self.until_ms: dict[str, int] = {}
        """Until when this machine was last asked to be let be, by kind: also where the watchdog never heard of it."""
        self.trouble = ""
        self._load()

    def add_request(self, found: object, now_ms: int, reply_to: bytes | str = "") -> str:
        """Take what somebody on this machine asks for; "" or why not."""
        made = _parse_request(found, now_ms, reply_to)
        if isinstance(made, str):
            return made
        with self._lock:
            if len(self._open) >= ASKS_MOST:
                return f"{ASKS_MOST} asks wait for the watchdog already"
            self._open.append(made)
            self._note(made)
        return ""

    def add_phase_hint(self, name: str, for_s: float, now_ms: int) -> str:
        """A job's phase: as `ask`, but not again while most of it is granted."""
        name = make_printable(name, NAME_MOST)
        if self.until_ms.get(f"{PHASE} {name}", 0) - now_ms >= ENOUGH * for_s * 1000:
            return ""
        return self.add_request({"what": PHASE, "name": name, "for_s": for_s, "why": "a job said so"}, now_ms)

    def list_waiting(self, now_ms: int) -> list[dict[str, Any]]:
        """As a beat carries them."""
        with self._lock:
            self._open = [ask for ask in self._open if ask.compute_left_s(now_ms) >= LEAST_S]
            return [
                {"id": ask.id, "what": ask.what, "name": ask.name, "for_s": round(ask.compute_left_s(now_ms)), "why": ask.why}
                for ask in self._open
            ]

    def mark_answered(self, asked: object, sent: list[dict[str, Any]]) -> list[tuple[LocalRequest, str]]:
        """What became of those that were sent: each with "" or why not."""
        told = asked if isinstance(asked, dict) else {}
        ids = {ask["id"] for ask in sent}
        with self._lock:
            done = [ask for ask in self._open if ask.id in ids]
            self._open = [ask for ask in self._open if ask.id not in ids]
            if done:
                self._save()
        return [(ask, str(told.get(ask.id, "the watchdog did not say"))) for ask in done]

    def __len__(self) -> int:
        return len(self._open)

    def _note(self, ask: LocalRequest) -> None:
        until = ask.at_ms + int(ask.for_s * 1000)
        for kind in {ask.what, f"{ask.what} {ask.name}".strip()}:
            self.until_ms[kind] = max(until, self.until_ms.get(kind, 0))
        if len(self.until_ms) > 10 * ASKS_MOST:
            self.until_ms = {kind: end for kind, end in self.until_ms.items() if end > ask.at_ms}
        self._save()

    def _load(self) -> None:
        try:
            found = parse_object(self._path.read_bytes())
        except OSError:
            return
        waiting = found.get("open")
        for each in waiting if isinstance(waiting, list) else []:
            at_ms = each.get("at_ms") if isinstance(each, dict) else None
            made = _parse_request(each, at_ms, "") if isinstance(at_ms, int) else ""
            if not isinstance(made, str):
                self._open.append(made)
        until = found.get("until_ms")
        if isinstance(until, dict):
            self.until_ms = {str(kind): end for kind, end in until.items() if isinstance(end, int)}

    def _save(self) -> None:
        kept = [{**ask._asdict(), "reply_to": ""} for ask in self._open]
        try:
            write_file(self._path, json.dumps({"open": kept, "until_ms": self.until_ms}).encode())
            self.trouble = ""
        except OSError as error:
            self.trouble = f"what was asked for is lost at a restart: {self._path.parent} cannot be written ({error.strerror})"


def _parse_request(found: object, now_ms: int, reply_to: bytes | str) -> LocalRequest | str:
    if not isinstance(found, dict) or found.get("what") not in ASKS:
        return f"one of {', '.join(ASKS)} can be asked for"
    for_s = found.get("for_s")
    if isinstance(for_s, bool) or not isinstance(for_s, (int, float)):
        return "for how long?"
    if not LEAST_S <= for_s <= MOST_S:  # neither is NaN, nor a whole number that no float holds
        return f"between a minute and {MOST_S / 86400:.0f} days"
    name, why = make_printable(str(found.get("name") or ""), NAME_MOST), make_printable(str(found.get("why") or ""), TEXT_MOST)
    made = str(found.get("id"))
    if not ID.fullmatch(made):
        made = os.urandom(8).hex()
    return LocalRequest(made, str(found["what"]), name, float(for_s), why, now_ms, reply_to)
