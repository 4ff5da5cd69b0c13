"""End the hold of a run when the last of its machines has ended: machines name it by their label costguard-hold.

    a machine with the label is listed -> its hold has begun -> none is listed any more -> the hold is committed

While a machine with the label is there, running or stopped, the hold stays, and for `GONE_FOR` after the last one: a spot
machine that was taken back is replaced in that time. A machine in another account or at another provider than the hold's does
not count, nor does a label that is the id of several tokens' holds. What was seen is known to this process alone: after a
restart in between, the hold counts until its time runs out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from costguard.budgets.hold import Hold
from costguard.errors import InputError
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.holds import load_open_holds
from costguard.metering.spending import LiveResource
from costguard.services.report.ledger_answers import open_books
from costguard.services.run_jobs.admit import open_holds
from costguard.settings import Settings, resolve_ledger_url
from costguard.system.logs import get_log
from costguard.values.resource import ENDED, ResourceKey

HOLD_LABEL = "costguard-hold"
"""The label (tag) of a machine that names the hold of its run. Clouds allow no capitals, dots or slashes in it (GCP)."""
CHECK_EVERY = timedelta(minutes=1)
GONE_FOR = timedelta(minutes=30)
"""How long no machine with the label is listed before its hold ends. An assumption, 2026-11."""


@dataclass(slots=True, kw_only=True)
class HoldDuty:
    """Looks at the open holds. `settings`: returns those of the watchdog as they are now. `leads`: whether it may write."""

    settings: Callable[[], Settings]
    clock: Callable[[], datetime]
    leads: Callable[[], bool]
    _seen: dict[str, datetime] = field(default_factory=dict)
    """Key of a hold -> when a machine with its label was listed last."""

    def run(self) -> None:
        """End the holds whose machines have all ended."""
        now, settings = self.clock(), self.settings()
        with LedgerReader(resolve_ledger_url(settings)) as reader, reader.snapshot() as ask:
            holds = load_open_holds(ask, now)
        self._seen = {hold.key: self._seen[hold.key] for hold in holds if hold.key in self._seen}
        if not holds or not self.leads():
            return
        with open_books(settings) as books:
            ended = self.find_ended(holds, books.load_live(now), now)
        if not ended:
            return
        with open_holds(settings) as store:
            for hold in ended:
                try:
                    store.commit(hold.key, None, now)
                except InputError as error:  # somebody ended it in between
                    get_log().info("hold_not_ended", hold=hold.id, why=error.what)
                    continue
                get_log().info("hold_ended", hold=hold.id, why="the last of its machines has ended")

    def find_ended(self, holds: list[Hold], live: list[LiveResource], now: datetime) -> list[Hold]:
        """Return the holds that had a machine in an earlier call, and have had none for `GONE_FOR`."""
        observations = [one.observation for one in live if one.observation.state != ENDED]
        hold_labels = [(dict(observation.labels).get(HOLD_LABEL), observation.key) for observation in observations]
        for hold in holds:
            if any(name == hold.id and _may_be_of(hold, key) for name, key in hold_labels):
                self._seen[hold.key] = now
        ids = Counter(hold.id for hold in holds)
        ended = (hold for hold in holds if hold.key in self._seen and now - self._seen[hold.key] >= GONE_FOR)
        return [hold for hold in ended if ids[hold.id] == 1]


def _may_be_of(hold: Hold, key: ResourceKey) -> bool:
    """Return whether a machine may be one of the hold's run, as far as the hold says where that is."""
    return hold.provider in {"", key.provider} and hold.account in {"", key.account}
