"""The acts of the dead-man switch: stored state, last call, the one request, and its settlement.

deadman_policy.py decides.

    deadman.json           what was chosen and checked at install; missing: off
    deadman-told.json      the watchdog's last answer: protected, kept until
    deadman-intent.json    written before the request, with its outcome after

An intent that a restart finds open is settled by reading the machine's state: it is never sent again. The next one needs hours
of silence and idleness again, and after two attempts without an answer of the watchdog none follows.
"""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from costguard_agent import clouds
from costguard_agent.clock import Moment, explain_gap
from costguard_agent.deadman_policy import (
    AFTER_LEAST_S,
    AFTER_S,
    IDLE_LEAST_S,
    IDLE_MOST_S,
    IDLE_S,
    LAST_CALL_S,
    UNCHECKED,
    DeadmanFacts,
    DeadmanSettings,
    IdleHistory,
    ShutdownDecision,
    compute_delay_s,
    decide_shutdown,
    parse_settings,
)
from costguard_agent.diagnostics import AgentError
from costguard_agent.host import HostView, is_alive, list_command_lines, read_text
from costguard_agent.shutdown import ACCEPTED, RUNNING, MachineIdentity
from costguard_agent.state_dir import parse_object, write_file
from costguard_agent.user_sessions import write_to_terminals

SETTINGS, TOLD, INTENT = "deadman.json", "deadman-told.json", "deadman-intent.json"
BETWEEN_MOST_S = 180.0
"""Looks come once a minute; after a longer pause silence and idleness count anew."""
MOMENT_MOST = 2**53
PLACED_S = 3600.0
"""Where the metadata service did not say which machine this is, it is asked again after this."""
BOOT_ID = ("proc", "sys", "kernel", "random", "boot_id")


def arm_switch(
    folder: Path,
    act: str,
    around: HostView,
    *,
    after_s: float = AFTER_S,
    idle_s: float = IDLE_S,
    shutdown_means: str = "",
    agent_id: str = "",
) -> str:
    """Arm the switch if the way of `act` is certain now, and return a description of the result; raises AgentError."""
    if not after_s >= AFTER_LEAST_S:
        raise AgentError(
            f"--dead-man-after: {after_s / 3600:g} h of silence is too short; write {AFTER_LEAST_S / 3600:g}h or more"
        )
    if not IDLE_LEAST_S <= idle_s <= IDLE_MOST_S:
        raise AgentError(f"--dead-man-idle: write between {IDLE_LEAST_S / 3600:g}h and {IDLE_MOST_S / 3600:g}h")
    place = clouds.locate_machine(around)
    if shutdown_means:
        clouds.save_shutdown_meaning(place, shutdown_means, around)
    way, why = clouds.choose_shutdown_way(place, act, around)
    if way is None:
        raise AgentError(f"the dead-man switch stays off: {why}")
    settings = {"act": act, "provider": place.provider, "id": place.id, "how": way.how, "after_s": after_s, "idle_s": idle_s}
    try:
        write_file(folder / SETTINGS, json.dumps(settings).encode(), sure=True)
    except OSError as error:
        raise AgentError(f"cannot keep the dead-man switch in {folder}: {error.strerror}") from error
    delay = f"{compute_delay_s(agent_id) / 60:.0f} min" if agent_id else "up to 30 min"
    wait = f"after {after_s / 3600:g} h and {delay} of silence, and {idle_s / 3600:g} h idle"
    return f"{wait}: {act} by {way.how}. It loses {way.loses}. What bills on: {way.bills_after}"


def disarm_switch(folder: Path) -> bool:
    """Disarm the switch and return whether it was armed; raises OSError."""
    try:
        (folder / SETTINGS).unlink()
    except FileNotFoundError:
        return False
    return True


class DeadmanSwitch:
    """An armed switch, created by `load_armed`; its methods do not raise."""

    def __init__(self, folder: Path, settings: DeadmanSettings, around: HostView) -> None:
        self._folder, self._settings, self._around = folder, settings, around
        self._quiet = IdleHistory(os.cpu_count() or 1)
        self._steady_s: float | None = None
        self._looked: Moment | None = None
        self._called_s: float | None = None
        self._told = _read_json(folder / TOLD)
        self._leased_s: float | None = None
        """When the lease that was told last began to be counted."""
        self._wished: dict[tuple[str, int], float] = {}
        """Wishes, and until when each is in force."""
        self._place, self._placed_s = MachineIdentity(""), float("-inf")
        self._news: deque[str] = deque()
        self._lock = threading.Lock()
        self.judgement = ShutdownDecision("", "")
        self._asking = threading.Thread(target=self._begin, name="dead-man switch", daemon=True)
        self._asking.start()

    @classmethod
    def load_armed(cls, folder: Path, agent_id: str, around: HostView) -> DeadmanSwitch | None:
        """Return the switch armed in `folder`; None if it is off."""
        settings = parse_settings(_read_json(folder / SETTINGS), agent_id)
        return None if settings is None else cls(folder, settings, around)

    def add_record(self, moment: Moment, over_s: float, signals: Mapping[str, float], unknown: Iterable[str] = ()) -> None:
        """Add a record of `over_s` seconds that ends at `moment`.

        `unknown`: signals that exist here and could not be measured.
        """
        self._quiet.add(moment.boot_s, over_s, signals, unknown)

    def handle_answer(self, moment: Moment, answer: Mapping[str, Any]) -> None:
        """Handle a verified answer of the watchdog, which ends the silence."""
        self._steady_s = self._leased_s = moment.boot_s
        protected, until, at = (
            answer.get("protected"),
            _parse_unix_ms(answer.get("kept_until")),
            _parse_unix_ms(answer.get("guard_at")),
        )
        facts = {"protected": protected if isinstance(protected, bool) else None, "kept_until": until}
        changed = facts != {name: self._told.get(name) for name in facts}
        self._told = {**facts, "kept_s": None if until is None else (until - (moment.wall_ms if at is None else at)) / 1000}
        if changed or self._read_intent().get("attempts"):
            self._save(TOLD, self._told)
            self._save(INTENT, {})

    def handle_refusal(self, moment: Moment) -> None:
        """Handle a refusal of this agent by a watchdog that is up (revoked, replaced, another life, busy).

        That is no silence. It guards this machine without the agent, and a person may have protected the machine since, so its
        earlier answers are dropped.
        """
        self.handle_gap(moment)
        if self._told:
            self._told = {}
            self._save(TOLD, self._told)

    def handle_gap(self, moment: Moment) -> None:
        """Restart the count of silence and idleness: the machine slept, its clock was set, or the agent did not run."""
        self._steady_s = moment.boot_s
        self._quiet.forget()

    def look(self, moment: Moment, requests: Mapping[str, int]) -> list[str]:
        """Decide, perform what is due, and return lines for the log.

        `requests`: the end of each request, in Unix milliseconds.
        """
        lines = [self._news.popleft() for _ in range(len(self._news))]
        self._find_silence_start(moment)
        judged = decide_shutdown(self._collect_facts(moment, requests), self._settings)
        changed, self.judgement = judged.reason != self.judgement.reason, judged
        if judged.reason == UNCHECKED and moment.boot_s - self._placed_s > PLACED_S and not self._asking.is_alive():
            self._placed_s, self._asking = moment.boot_s, threading.Thread(target=self._find, daemon=True)
            self._asking.start()
        if not judged.end:
            if self._called_s is not None:
                self._called_s = None
                lines += self._announce(f"costguard: the {self._settings.act} of this machine is cancelled: {judged.text}")
            return lines + ([f"dead-man switch: {judged.text}"] if changed else [])
        if self._called_s is None:
            self._called_s = moment.boot_s
            self._save(INTENT, {**self._read_intent(), "state": "called", "at_ms": moment.wall_ms})
            return lines + self._announce(
                f"costguard: this machine will be ended ({self._settings.act}) in {LAST_CALL_S / 60:.0f} min: {judged.text}. "
                "To keep it: costguard-agent keep --for 4h --why '...'"
            )
        return lines + (self._end_machine(moment, judged) if moment.boot_s - self._called_s >= LAST_CALL_S else [])

    def _end_machine(self, moment: Moment, judged: ShutdownDecision) -> list[str]:
        """Write the intent, send the request, write the outcome; in any case silence and idleness count from zero after it."""
        self._called_s, self._steady_s = None, moment.boot_s
        self._quiet.forget()
        place = clouds.locate_machine(self._around)
        way, why = clouds.choose_shutdown_way(place, self._settings.act, self._around)
        if (place.provider, place.id) != (self._settings.provider, self._settings.id):
            way, why = None, place.why or "it is not the machine for which the switch was armed"
        if way is None:
            return self._announce(f"costguard: this machine is not ended: {why}")
        attempts = self._count_attempts() + 1
        intent = {"state": "sending", "act": way.act, "how": way.how, "reason": judged.text, "at_ms": moment.wall_ms}
        intent.update(boot_id=self._read_boot_id(), attempts=attempts, provider=self._settings.provider, id=self._settings.id)
        if not self._save(INTENT, intent):
            return self._announce("costguard: this machine is not ended: the intent cannot be written to disk")
        outcome = clouds.end_machine(way, self._around)
        self._save(INTENT, {**intent, "state": "sent", "outcome": outcome.result, "text": outcome.text})
        line = f"dead-man switch: {way.act} by {way.how}: {outcome.result} ({outcome.text})"
        return [line] if outcome.result == ACCEPTED else self._announce(f"costguard: {line}")

    def _collect_facts(self, moment: Moment, requests: Mapping[str, int]) -> DeadmanFacts:
        kept_s, protected = self._told.get("kept_s"), self._told.get("protected")
        silent_s = moment.boot_s - (self._steady_s if self._steady_s is not None else moment.boot_s)
        return DeadmanFacts(
            silent_s=silent_s,
            evidence=self._quiet.collect_evidence(moment.boot_s, self._settings.idle_s),
            checked=(self._place.provider, self._place.id) == (self._settings.provider, self._settings.id),
            protected=protected if isinstance(protected, bool) else None,
            wishes=tuple(sorted(self._list_wishes_in_force(moment, requests))),
            job=silent_s <= self._settings.after_s or self._has_job(),
            lease_left_s=kept_s - moment.boot_s + (self._leased_s or 0.0) if isinstance(kept_s, (int, float)) else None,
            attempts=self._count_attempts(),
        )

    def _list_wishes_in_force(self, moment: Moment, requests: Mapping[str, int]) -> list[str]:
        """Return the requests that have not ended by the boot clock or the wall clock.

        Setting the wall clock forwards ends none of them.
        """
        left = {ask: self._wished.get(ask, moment.boot_s + (ask[1] - moment.wall_ms) / 1000) for ask in requests.items()}
        self._wished = left
        return [name for (name, until), end_s in left.items() if end_s > moment.boot_s or until > moment.wall_ms]

    def _find_silence_start(self, moment: Moment) -> None:
        """Update the start of the silence: the first look, the last answer, or the last gap."""
        if self._looked is not None and explain_gap(self._looked, moment, most_s=BETWEEN_MOST_S):
            self.handle_gap(moment)
        self._steady_s = moment.boot_s if self._steady_s is None else self._steady_s
        self._leased_s = moment.boot_s if self._leased_s is None else self._leased_s
        self._looked = moment

    def _has_job(self) -> bool:
        """Return whether a `costguard run` runs here; also True if processes cannot be seen."""
        if is_alive(self._around, os.getpid()) is None:
            return True
        return any(is_costguard_run(words) for _, words in list_command_lines(self._around))

    def wait(self, within_s: float) -> None:
        """Wait for the answers to the queries of the start, at most `within_s` seconds."""
        self._asking.join(within_s)

    def _begin(self) -> None:
        """Locate the machine, settle an open intent, and check that the act would work.

        It runs in a thread, because providers are slow.
        """
        self._find()
        self._news.extend(self._settle_open_intent())
        way, why = clouds.choose_shutdown_way(self._place, self._settings.act, self._around)
        if way is None:
            self._news.append(f"dead-man switch: it is armed and would not work as this user, here and now: {why}")

    def _find(self) -> None:
        self._place = clouds.locate_machine(self._around)

    def _settle_open_intent(self) -> list[str]:
        """Settle an intent that a restart finds open by reading the machine's state; returns lines for the log."""
        intent = self._read_intent()
        if intent.get("state") == "called":
            self._save(INTENT, {"attempts": self._count_attempts()})
        if intent.get("state") not in ("sending", "sent") or intent.get("settled"):
            return []
        if intent.get("boot_id") != self._read_boot_id():
            self._save(INTENT, {**intent, "settled": "the machine was off in between"})
            return [f"dead-man switch: the {intent.get('act')} worked, or the machine was restarted since; it runs again now"]
        state = clouds.read_machine_state(self._place, self._around)
        self._save(INTENT, {**intent, "settled": state})
        outcome = "it still runs" if state == RUNNING else f"its provider says: {state}"
        return [f"dead-man switch: the {intent.get('act')} before this start is not confirmed, {outcome}; it is not sent again"]

    def _count_attempts(self) -> int:
        count = self._read_intent().get("attempts")
        return count if isinstance(count, int) and count >= 0 else 0

    def _read_intent(self) -> dict[str, Any]:
        return _read_json(self._folder / INTENT)

    def _save(self, name: str, what: Mapping[str, Any]) -> bool:
        with self._lock:
            try:
                write_file(self._folder / name, json.dumps(what).encode(), sure=True)
            except OSError:
                return False
        return True

    def _announce(self, line: str) -> list[str]:
        write_to_terminals(self._around, line)
        return [line]

    def _read_boot_id(self) -> str:
        return (read_text(self._around.build_path(*BOOT_ID)) or "").strip()


def is_costguard_run(words: list[str]) -> bool:
    """Return whether a command line is a `costguard run`, directly or through python."""
    names = [word.rpartition("/")[2] for word in words[:4]]
    return any(name == "costguard" and "run" in words[at + 1 : at + 8] for at, name in enumerate(names))


def _parse_unix_ms(value: object) -> int | None:
    """Return Unix milliseconds; None if `value` is not a possible time."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MOMENT_MOST else None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return parse_object(path.read_bytes())
    except OSError:
        return {}
