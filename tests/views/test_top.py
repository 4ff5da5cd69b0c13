"""Rows of `costguard top`: how busy, in which order, which of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from costguard.values.resource import ResourceKey
from costguard.values.sample import CPU_UTIL, GPU_UTIL, Sample
from costguard.views.top import SPARK_PARTS, TopRow, TopView, compute_duty, filter_top_rows, format_sparkline

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
KEY = ResourceKey("aws", "123", "us-east-1", "i-0a1")
ROW = TopRow(
    key=KEY,
    called="train-1",
    what="8xH100-SXM",
    owner="ada",
    rate="$98.3200",
    burn=98_320_000_000,
    spent="$1200.00",
    work="active",
    since="3 h",
    kept="",
    duty=(None,) * (SPARK_PARTS - 1) + (97.0,),
    words="aws 123 us-east-1 i-0a1 train-1 8xh100-sxm ada on-demand active",
)
IDLE = replace(ROW, called="Old-box", owner="ben", burn=1, work="idle", duty=(0.0,) * SPARK_PARTS, words="gcp old-box ben idle")
DARK = replace(ROW, called="dark", owner="-", burn=2, work="unknown", duty=(None,) * SPARK_PARTS, words="vast dark unknown")
VIEW = TopView(at=NOW, head=("x",), warnings=(), rows=(IDLE, ROW, DARK))


def sample(minutes: float, value: float, signal: str = GPU_UTIL) -> Sample:
    return Sample(key=KEY, signal=signal, at=NOW - timedelta(minutes=minutes), value=value)


def test_duty_is_the_mean_of_each_part_of_the_last_hour_and_none_where_nothing_was_measured() -> None:
    samples = [sample(0, 90), sample(4.9, 100), sample(5, 20), sample(59, 10), sample(60, 99), sample(-1, 99)]
    assert compute_duty([*samples, sample(30, 50, CPU_UTIL)], NOW) == (10.0, *(None,) * (SPARK_PARTS - 3), 20.0, 95.0)


@pytest.mark.parametrize(("duty", "text"), [((None, 0.0, 12.4, 12.5, 50.0, 99.9, 100.0, 250.0, -1.0), "·▁▁▂▅███▁"), ((), "")])
def test_what_was_not_measured_is_a_dot_and_no_low_block(duty: tuple[float | None, ...], text: str) -> None:
    assert format_sparkline(duty) == text


@pytest.mark.parametrize(
    ("order", "names"),
    [
        ("burn", ["train-1", "dark", "Old-box"]),
        ("name", ["dark", "Old-box", "train-1"]),
        ("owner", ["dark", "train-1", "Old-box"]),
        ("work", ["train-1", "Old-box", "dark"]),
        ("duty", ["Old-box", "train-1", "dark"]),
    ],
)
def test_rows_are_sorted_by_what_was_asked_and_the_unmeasured_stand_last_by_duty(order: str, names: list[str]) -> None:
    assert [row.called for row in filter_top_rows(VIEW, order, "")] == names


@pytest.mark.parametrize(
    ("words", "names"),
    [("ADA", ["train-1"]), ("h100 us-east", ["train-1"]), ("idle ada", []), ("  ", ["train-1", "dark", "Old-box"])],
)
def test_a_filter_wants_every_word_whatever_its_case(words: str, names: list[str]) -> None:
    assert [row.called for row in filter_top_rows(VIEW, "burn", words)] == names
