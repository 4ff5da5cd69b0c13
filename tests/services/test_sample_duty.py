"""The watchdog keeps samples that no policy looks back to by the hour, so that its ledger does not grow with every poll."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from costguard.data import ShippedFacts
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import SAMPLE_RETENTION, LedgerWriter
from costguard.services.guarding.watchdog_context import open_watchdog_context
from costguard.services.watch_loop import watch
from costguard.settings import check_settings
from costguard.testing import FakeClock
from costguard.values.calendar import Period
from costguard.values.sample import Sample
from tests.ledger.fleet import CEILINGS, HOUR, MINUTE, START, key, machine, poll

WHOLE = Period(start=START, end=START + 99 * HOUR)


@pytest.mark.parametrize("leads", [True, False])
def test_old_samples_are_kept_by_the_hour_by_the_watchdog_that_leads(
    tmp_path: Path,
    leads: bool,  # noqa: FBT001 - a case of the table
) -> None:
    url, rules = f"sqlite:///{tmp_path}/ledger.db", ShippedFacts().get_billing_rules()
    with LedgerWriter(url, rules=rules, ceilings=CEILINGS) as ledger:
        ledger.record_polls([poll(0, machine("i-1"))])
        ledger.record_samples([Sample(key=key("i-1"), signal="gpu_util", at=START + n * MINUTE, value=n) for n in range(150)])
    settings = check_settings(f'[ledger]\nurl = "{url}"\n', "costguard.toml")
    with open_watchdog_context(settings) as made:
        made.clock = FakeClock(START + 2 * HOUR + SAMPLE_RETENTION)  # type: ignore[assignment]  # a clock
        if not leads:
            made.guard.dry_run = True
        duties = {duty.name: duty for duty in watch._build_duties(made, partial(print), timedelta(minutes=1)).others}
        duties["samples"].run()
    with SpendingReader(url, rules=rules) as books:
        kept = len(books.samples(key("i-1"), "gpu_util", WHOLE))
        counts = [hour.count for hour in books.hours(key("i-1"), "gpu_util", WHOLE)]
    assert kept == (30 if leads else 150)
    assert counts == [60, 60, 30]
