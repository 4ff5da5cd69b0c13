"""What `GET /v1/activity/MACHINE` answers: whether a machine works, by the last run of the guard; unknown means active.

    {"state": "idle", "active": false, "why": ["GPU under 5 % for 2 h"], "since": "...", "at": "..."}

`active` is what a caller acts on: it is false only for a machine that runs, was listed lately, and was found idle by a run of
the guard that is not late. A machine that nobody knows, two of one name, a ledger that cannot be read, missing metrics: the
state is unknown, and `active` is true.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from costguard.agents.messages import MessageRefusedError
from costguard.errors import CostguardError
from costguard.guard.signals import ACTIVE, IDLE, UNKNOWN
from costguard.reporting.status import SCOPE_STALE_AFTER
from costguard.services.report.run_board import RunBoard
from costguard.values.resource import RUNNING

ACTIVITY_SCHEMA = "costguard.activity/1"
MACHINE_CHARS_MAX = 500


@dataclass(slots=True, kw_only=True)
class ActivityBoard:
    """Answers from the status on `board`. `health`: as in `WebServices`. `stale_after`: of a machine's last listing."""

    board: RunBoard
    health: Callable[[], tuple[float | None, bool]]
    clock: Callable[[], datetime]
    stale_after: timedelta = SCOPE_STALE_AFTER
    _index: tuple[str, Mapping[str, list[dict[str, Any]]]] = ("", {})

    def answer(self, machine: str) -> dict[str, object]:
        """Return the activity of the machine with this id, name, or whole key (provider/account/region/id)."""
        try:
            age_s, late = self.health()
            index = self._load_index()
            machines = index.get(machine[:MACHINE_CHARS_MAX], [])
        except MessageRefusedError as refused:
            return _build_unknown(machine, refused.says)
        except CostguardError as error:
            return _build_unknown(machine, error.what)
        if len(machines) != 1:
            several = "several machines have this name: write provider/account/region/id"
            return _build_unknown(machine, several if machines else "no machine has this name")
        if late or age_s is None:
            return _build_unknown(machine, "the guard is late: its last result may be outdated")
        return self._judge(machine, machines[0], age_s)

    def _judge(self, machine: str, row: dict[str, Any], age_s: float) -> dict[str, object]:
        """Return the answer for one listed machine."""
        if row["state"] != RUNNING:
            return _build_unknown(machine, f"its state is {row['state']}")
        if not timedelta(0) <= self.clock() - datetime.fromisoformat(row["seen_at"]) <= self.stale_after:
            return _build_unknown(machine, f"it was last listed at {row['seen_at']}")
        work = row["work"]
        state = work["state"] if work["state"] in (ACTIVE, IDLE) else UNKNOWN
        return {
            "schema": ACTIVITY_SCHEMA,
            "machine": _join_key(row),
            "state": state,
            "active": state != IDLE,
            "why": list(work["reasons"]),
            "since": work["since"],
            "guard_age_s": round(age_s, 1),
        }

    def _load_index(self) -> Mapping[str, list[dict[str, Any]]]:
        """Return the machines of the last run by each of their names; read anew after each run."""
        text, mark = self.board.read_newest()
        if self._index[0] != mark:
            index = dict[str, list[dict[str, Any]]]()
            for row in json.loads(text)["resources"]:
                for name in {row["id"], row["name"], _join_key(row)} - {""}:
                    index.setdefault(name, []).append(row)
            self._index = mark, index
        return self._index[1]


def _join_key(row: Mapping[str, Any]) -> str:
    return "/".join(str(row[name]) for name in ("provider", "account", "region", "id"))


def _build_unknown(machine: str, why: str) -> dict[str, object]:
    """Return the answer where nothing is known: it means active."""
    return {
        "schema": ACTIVITY_SCHEMA,
        "machine": machine[:MACHINE_CHARS_MAX],
        "state": UNKNOWN,
        "active": True,
        "why": [why],
        "since": None,
        "guard_age_s": None,
    }
