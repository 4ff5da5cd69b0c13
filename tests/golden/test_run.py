"""The document of a run, to the letter: `costguard run --result FILE`."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from costguard.runs.record import LOST, JobMachine, JobRecord, JobTerms
from costguard.values.interval import Interval
from costguard.values.money import Money, MoneyInterval, Rate
from costguard.views.runs import RunSummary, build_run_data
from tests.runs.test_record import HOUR, TEN, USD, attempt

SAMPLE = Path(__file__).parent / "run.json"


def came() -> RunSummary:
    """The second attempt of a job on a spot machine: it ended well, and taught its speed."""
    machine = JobMachine(
        gpu="H100-SXM",
        count=8,
        hourly=Rate.parse("2.49"),
        source="the ledger's train-1 (aws/1/us-east-1/i-0a1b)",
        provider="aws",
    )
    terms = JobTerms(
        machine=machine, hours=Interval(3.0, 4.0, 6.0), usd=USD, tokens_per_step=8192, steps=1000, share=Fraction(2, 5)
    )
    first = attempt(1, TEN, 2.5, state=LOST, hold="llama.1", last_step=600)
    second = attempt(
        2, TEN + 3 * HOUR, 1, status=0, hold="llama.2", held=Money.parse("5.976"), lease="run-llama.2", first_step=600,
        last_step=1000,
    )  # fmt: skip
    after = MoneyInterval(low=Money.parse("8"), expected=Money.parse("8.8"), high=Money.parse("10"))
    return RunSummary(
        record=JobRecord(job="llama", attempts=(first, second)),
        attempt=second,
        terms=terms,
        budget="lab",
        lease_until="2026-11-22T16:36:00Z",
        tokens_per_s=17203.5,
        after=replace(terms, hours=Interval(3.2, 3.5, 4.0), usd=after),
        notices=("aws: terminate at 2026-11-22T19:02:00Z",),
        then={"act": "stop", "done": False, "why": "it was cancelled by a key press"},
        notes=("calibrated on 1 run: speed x 1.140",),
    )


def test_the_json_of_a_run_is_the_sample_to_the_letter(request: pytest.FixtureRequest) -> None:
    printed = f"{json.dumps(build_run_data(came()), indent=2)}\n"
    if request.config.getoption("--write-golden"):
        SAMPLE.write_text(printed)
    assert printed == SAMPLE.read_text()
