"""What a replay asks of the ledger: what was recorded, one resource after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # types and no more
    from costguard.guard.overrides import Override
    from costguard.guard.replay.history import ResourceHistory
    from costguard.metering.spending import PollStretch
    from costguard.values.period import Period
    from costguard.values.resource import ResourceKey, ScopeKey


class Records(Protocol):
    """The ledger as it was at one instant. Nothing is written."""

    def load_stretches(self) -> Mapping[ScopeKey, Sequence[PollStretch]]:
        """How each scope was seen, in order of time."""

    def load_overrides(self) -> list[Override]:
        """All that were ever recorded, whatever became of them."""

    def load_resources(self, period: Period) -> list[ResourceKey]:
        """Those that anything is known of in `period`, in order."""

    def load_history(self, key: ResourceKey, period: Period, interval: timedelta, *, measured: bool = True) -> ResourceHistory:
        """One of them: all that was said of it, what it billed, and (`measured`) its samples as far back as a run looks."""
