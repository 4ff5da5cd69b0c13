"""What the watchdog knows of the usual, learnt from the ledger once an hour, and what is unusual in each guard run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo

from costguard.budgets.hold import Hold
from costguard.guard.alerts.alert import Alert
from costguard.guard.alerts.unusual import build_unusual_alert, list_machine_subjects
from costguard.guard.anomalies import (
    FINDING_KEPT_FOR,
    Subject,
    UsualSpend,
    find_anomalies,
    learn_usual_spend,
    list_burning_lines,
)
from costguard.guard.context import GuardSnapshot
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.spans.spend_history import load_spend_history
from costguard.settings import Settings, resolve_ledger_url
from costguard.system.logs import get_log
from costguard.values.instant import HOUR_US, to_micros

KEPT_FOR = timedelta(hours=FINDING_KEPT_FOR)
NEW_MACHINE = "new"
"""The topic of alerts about machines without an owner that appeared."""


@dataclass(slots=True, kw_only=True)
class AnomalyWatch:
    """Finds anomalies for the guard of the ledger at `url`. `floor`: dollars a day.

    What was found stays for a day after it was last found: see `guard.alerts.unusual`. A process that starts anew forgets that;
    what it finds again is not told again while it holds.
    """

    url: str
    zone: tzinfo
    floor: int
    _hour: int = -1
    _usual: UsualSpend | None = None
    _holds: dict[str, Hold] = field(default_factory=dict)
    _found: dict[tuple[str, Subject], tuple[datetime, Alert, frozenset[str]]] = field(default_factory=dict)

    def add_alerts(self, alerts: Sequence[Alert], snapshot: GuardSnapshot, holds: Sequence[Hold]) -> list[Alert]:
        """Return `alerts` and one for each anomaly at the instant of `snapshot`, which covers those of its new machines.

        `holds`: the open ones. Any error is logged, and `alerts` are returned: it is no reason not to guard.
        """
        try:
            self._find(snapshot, holds)
        except Exception as error:  # noqa: BLE001 - what only advises must not stop the guard
            get_log().warning("usual_spend_unknown", why=f"{type(error).__name__}: {error}")
            return list(alerts)
        machines = {subject for _, _, subjects in self._found.values() for subject in subjects}
        others = (one for one in alerts if one.topic != NEW_MACHINE or one.subject not in machines)
        return [*others, *(alert for _, alert, _ in self._found.values())]

    def _find(self, snapshot: GuardSnapshot, holds: Sequence[Hold]) -> None:
        """Update what was found."""
        usual, now = self._learn(snapshot), snapshot.now
        self._holds |= {one.key: one for one in holds}
        for one in find_anomalies(usual, list_burning_lines(snapshot.live, now), now=now, holds=self._holds.values()):
            self._found[one.kind, one.subject] = now, build_unusual_alert(one, now, self.zone), list_machine_subjects(one)
        self._found = {place: one for place, one in self._found.items() if now - one[0] < KEPT_FOR}

    def _learn(self, snapshot: GuardSnapshot) -> UsualSpend:
        """Return what is usual in this hour, read from the ledger once an hour."""
        hour = to_micros(snapshot.now) // HOUR_US
        if self._usual is None or hour != self._hour:
            with LedgerReader(self.url) as reader, reader.snapshot() as ask:
                history = load_spend_history(ask, hour)
            lines = list_burning_lines(snapshot.live, snapshot.now)
            self._usual = learn_usual_spend(history, lines, now=snapshot.now, zone=self.zone, floor_per_day=self.floor)
            self._hour, self._holds = hour, {one.key: one for one in history.holds}
        return self._usual


def open_anomaly_watch(settings: Settings) -> AnomalyWatch | None:
    """Return what finds anomalies; None where the settings turn it off."""
    if not settings.anomalies.enabled:
        return None
    zone, floor = settings.defaults.timezone, settings.anomalies.floor_usd_per_day
    return AnomalyWatch(url=resolve_ledger_url(settings), zone=zone, floor=floor)
