"""How use is said: only samples that jump or stay level have a reason, unknown is said, and what is not measured is no use."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costguard.guard.signals import ACTIVE, IDLE, Activity
from costguard.guard.utilization import JUMPING, STEADY, GpuUsage
from costguard.reporting.statement.groups import CostGroup, CurrencySums
from costguard.reporting.statement.waste import Waste
from costguard.reporting.status import ResourceAnnotations, ResourceBurn
from costguard.values.instant import HOUR_US
from costguard.views.utilization import (
    build_usage_data,
    build_use_data,
    explain_usage,
    format_usage,
    format_use_cell,
    list_usage_lines,
    list_use_notes,
    list_use_sentences,
)
from tests.books import attribution, live, meter, money

WORKS = Activity(state=ACTIVE, confidence=0.97, reasons=())


def burn(usage: GpuUsage | None, work: Activity = WORKS, gpus: float = 4) -> ResourceBurn:
    one = live("i-1", meter(1_000_000_000))
    one = replace(one, observation=replace(one.observation, gpu="H100-SXM", gpu_count=gpus, name="train-1"))
    return ResourceBurn(live=one, burns=(), beside=ResourceAnnotations(work=work, usage=usage))


def test_a_jumping_use_is_said_with_its_probable_reason_and_what_to_try() -> None:
    one = burn(GpuUsage(mean=0.314, pattern=JUMPING))
    (line,) = list_usage_lines([one, burn(None)])
    assert line == (
        "train-1: the busiest of 4 GPUs at 31 % for 2 h, jumping between 0 and 100 %: it probably waits for data or requests. "
        "Try more data loader workers, pinned memory, a copy of the data on a local disk."
    )
    data = build_usage_data(one)
    assert data is not None
    assert (data["mean"], data["window_seconds"], data["pattern"]) == (0.314, 7200, JUMPING)


@pytest.mark.parametrize(
    ("one", "begin"),
    [
        (burn(GpuUsage(mean=0.31, pattern=STEADY), gpus=1), "GPU at 31 % for 2 h, steady"),
        (burn(GpuUsage(mean=0.31)), ""),
        (burn(GpuUsage(mean=0.31, pattern=JUMPING), work=Activity(state=IDLE, confidence=0.9, reasons=())), ""),
        (burn(None), ""),
    ],
)
def test_only_a_pattern_of_a_machine_that_works_has_a_sentence(one: ResourceBurn, begin: str) -> None:
    assert explain_usage(one).startswith(begin)
    assert bool(explain_usage(one)) == bool(begin)


def test_a_use_that_is_not_known_is_a_dash_and_null() -> None:
    assert (format_usage(None), format_usage(GpuUsage(mean=0)), format_usage(GpuUsage(mean=0.314))) == ("-", "0 %", "31 %")
    assert build_usage_data(burn(None)) is None


def sums(measured_h: float | None, used_h: float = 0) -> CurrencySums:
    """1,240 paid GPU-hours, so many of them measured and used; None: nothing is."""
    waste = None
    if measured_h is not None:
        waste = Waste(attribution=attribution(), currency="USD", judged=0, idle=0, partly=0)
        waste = replace(waste, measured_gpu_us=measured_h * HOUR_US, used_gpu_us=used_h * HOUR_US)
    group = CostGroup(by={}, money=money("1"), us=155 * HOUR_US, gpu_milli_us=1_240_000 * HOUR_US, waste=waste)
    return CurrencySums(total=group.money, groups=(group,))


@pytest.mark.parametrize(
    ("usd", "sentences", "cell"),
    [
        (sums(1240, 410), ["GPUs: paid 1,240.0 GPU-hours, used 410.0 (33 % of those measured)."], "410.0"),
        (
            sums(820, 410),
            ["GPUs: paid 1,240.0 GPU-hours, used 410.0 (50 % of those measured); 420.0 not measured."],
            "410.0 of 820.0",
        ),
        (sums(1240, 0), ["GPUs: paid 1,240.0 GPU-hours, used 0.0 (0 % of those measured)."], "0.0"),
        (sums(0), [], "unknown"),
        (sums(None), [], "unknown"),
    ],
)
def test_gpu_hours_without_samples_are_not_measured_and_never_unused(
    usd: CurrencySums, sentences: list[str], cell: str
) -> None:
    assert list(list_use_sentences(usd)) == sentences
    assert format_use_cell(usd.waste, 1240 * HOUR_US) == cell
    (note,) = list_use_notes(usd)
    assert note.startswith("Used means: " if sentences else "GPU use: not known.")
    data = build_use_data(usd)
    assert data["gpu_hours"] == 1240
    assert (data["used_gpu_hours"] is None) == (not sentences)
