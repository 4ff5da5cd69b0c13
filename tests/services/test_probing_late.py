"""Right before an act, measures that a provider publishes late are looked at as far back as they are late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

from costguard.guard.policy import Rails
from costguard.ledger.guard.store import GuardStore
from costguard.metering.observation import Observation
from costguard.providers.ports import InstanceSource
from costguard.services.guarding.act.recheck import recheck_activity
from costguard.values.calendar import Period
from costguard.values.sample import GPU_UTIL, Sample, UtilizationSamples
from tests.guard.cases import machine

MIN = timedelta(minutes=1)
NOW = datetime(2026, 11, 21, 12, 14, tzinfo=UTC)
BUCKET, LATE = 5 * MIN, 10 * MIN


@dataclass
class Buckets:
    """An account whose measures come as CloudWatch's do: each five minutes, ten minutes late; only the newest is `last`."""

    last: float

    def fetch_utilization(self, observations: Sequence[Observation], period: Period) -> UtilizationSamples:
        newest = datetime(2026, 11, 21, 12, tzinfo=UTC)
        ats = [newest - n * BUCKET for n in range(9) if newest - n * BUCKET >= period.start]
        duty = {at: self.last if at == newest else 0.0 for at in ats}
        return UtilizationSamples(
            samples=tuple(Sample(key=one.key, signal=GPU_UTIL, at=at, value=duty[at]) for one in observations for at in ats)
        )


@pytest.mark.parametrize(("last", "told"), [(90.0, "it works: GPU duty 90 % just now"), (0.0, "")])
def test_work_in_the_newest_measure_there_is_speaks_against_the_act(tmp_path: Path, last: float, told: str) -> None:
    seen, account = machine().observation, cast("InstanceSource", Buckets(last))
    with GuardStore(f"sqlite:///{tmp_path / 'ledger.db'}", rails=Rails()) as book:
        found = recheck_activity(
            seen, None, (), book=book, source_of=lambda _: account, interval=MIN, lags={seen.key.provider: LATE}, now=NOW
        )
    assert found == told
