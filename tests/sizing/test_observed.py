"""Observed runs: read from rows, and those that cannot be true are named and left out."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from costguard.data import ShippedFacts
from costguard.errors import InputError
from costguard.sizing.calibration import RunFamily
from costguard.sizing.job import Job, Table, parse_job
from costguard.sizing.observed_runs import (
    FigureComparison,
    ObservedRun,
    RunComparison,
    find_contradiction,
    read_observed_run,
    weigh_runs,
)

FACTS = ShippedFacts()
GIB = 2**30
ROW: Mapping[str, object] = {"model": "llama-3.1-8b", "method": "lora", "gpu": "H100", "tokens_per_s": 9000}
SPEED = RunFamily("speed", "lora", "4B to 16B", "Hopper", "one GPU")


def job_of(table: Table) -> Job:
    return parse_job(table, FACTS.get_architecture(str(table["model"])))


def observed(**cells: object) -> ObservedRun:
    return read_observed_run({**ROW, **cells}, where="runs.csv line 2", gpus=FACTS.get_gpus(), job_of=job_of)


def weigh(*ratios: float, same: bool = False) -> tuple[int, list[str]]:
    """How many of these runs count, and the names of those that do not."""
    runs = (
        RunComparison(
            run=observed(name=f"run {n}", micro_batch=1 if same else n),
            speed=FigureComparison(family=SPEED, ratio=ratio),
        )
        for n, ratio in enumerate(ratios, 1)
    )
    found = weigh_runs(runs, spread_seen=0.19)
    belief = found.calibration.beliefs.get(SPEED)
    return belief.runs if belief else 0, [o.run for o in found.left_out]


def test_a_row_is_a_job_on_hardware_with_what_was_seen() -> None:
    run = observed(gpu_count=8, nodes=2, lora_rank=32, zero=2, peak_gib=30, reserved_gb=40, name="mon")
    assert (run.name, run.gpu.name, run.gpus) == ("mon", "H100-SXM", 16)
    assert run.job.recipe.lora.rank == 32
    assert run.job.parallel is not None
    assert run.job.parallel.zero == 2
    assert (run.tokens_per_s, run.hours, run.peak, run.reserved) == (9000, None, 30 * GIB, 40e9)


def test_a_dotted_name_stands_for_a_table_and_an_empty_cell_for_nothing() -> None:
    run = observed(**{"lora.rank": 8, "hours": "", "peak_gib": None})
    assert run.job.recipe.lora.rank == 8
    assert run.hours is None
    assert run.peak is None


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ({"tokens_per_s": ""}, ("tokens_per_s", "it has no observation")),
        ({"gpu": ""}, ("gpu", "is missing", "H100")),
        ({"gpu": "H1000"}, ("gpu", "unknown GPU")),
        ({"gpu_count": 0}, ("gpu_count", "at least 1")),
        ({"tokens_per_s": "fast"}, ("tokens_per_s", "must be a number, not 'fast'")),
        ({"tokens_per_s": -1}, ("tokens_per_s", "between")),
        ({"tokens_per_s_per_gpu": 5}, ("tokens_per_s", "together with tokens_per_s_per_gpu")),
        ({"hours": 3}, ("tokens", "is required with hours", "tokens = 50e6")),
        ({"peak_gib": 3, "peak_gb": 3}, ("peak_gib", "together with peak_gb")),
        ({"peak_gib": 0}, ("peak_gib", "between")),
        ({"tokens_per_second": 5}, ("tokens_per_second", "did you mean tokens_per_s")),
        ({"method": "lorra"}, ("method", "lora")),
        ({"tp": 3, "gpu_count": 8}, ("parallel", "do not divide 8")),
        ({"lora": 8, "lora_rank": 8}, ("lora", "not a table")),
    ],
)
def test_a_wrong_cell_names_its_line_its_column_and_what_to_write(cells: dict[str, object], words: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as refused:
        observed(**cells)
    said = str(refused.value)
    assert said.startswith("runs.csv line 2, ")
    for word in words:
        assert word in said


def test_a_run_a_hundred_times_off_is_left_out() -> None:
    assert weigh(0.1, 0.2, -math.log(100)) == (2, ["run 3"])


def test_two_runs_of_one_job_that_contradict_each_other_are_both_left_out() -> None:
    assert weigh(0.0, -1.1, same=True) == (0, ["run 1", "run 2"])


def test_the_one_that_contradicts_the_others_is_left_out() -> None:
    assert weigh(0.0, 0.05, -1.1, same=True) == (2, ["run 3"])


def test_a_figure_that_cannot_be_true_is_left_out_with_its_reason() -> None:
    found = weigh_runs([RunComparison(run=observed(name="mon"), memory=FigureComparison(wrong="too much"))], spread_seen=0.19)
    assert [o.text for o in found.left_out] == ["mon: its memory was left out: too much"]


def test_the_two_figures_of_a_run_may_differ_by_what_a_run_loses_besides() -> None:
    assert find_contradiction({"tokens_per_s": 0.0, "hours": -0.6}) is None
    assert find_contradiction({"hours": 0.3}) is None
    assert find_contradiction({}) is None
    assert "3.0 times apart" in str(find_contradiction({"tokens_per_s": 0.0, "hours": math.log(3)}))
