"""The model of a server is no further from published servers than its interval says."""

from __future__ import annotations

import math
import statistics

from bench.serving import ROWS, measure_errors, read_served_rows
from costguard.data import ShippedFacts

FACTS = ShippedFacts()
ERRORS = measure_errors(read_served_rows(), FACTS)


def test_rows_are_of_several_publishers_and_name_their_source() -> None:
    rows = read_served_rows()
    assert len({row.publisher for row in rows}) >= 4
    assert all(line.rsplit(",", 1)[-1].strip() for line in ROWS.read_text(encoding="utf-8").splitlines())


def test_no_publisher_is_outside_the_interval_in_more_than_a_fifth_of_its_rows() -> None:
    serving = FACTS.get_efficiency().serving
    for (publisher, mixture), errors in ERRORS.items():
        width = math.log(serving.get_factor(mixture=mixture))
        assert statistics.fmean(error <= width for error in errors) >= 0.8, (publisher, mixture)


def test_dense_models_under_tensorrt_are_met_to_a_tenth_in_the_median() -> None:
    assert statistics.median(ERRORS["NVIDIA", False]) < math.log(1.1)
