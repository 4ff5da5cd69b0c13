"""The tokens of an optimizer step, from what a job and its placement say: batch, sequence, accumulation, ranks, pairs."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from costguard.services.run_jobs.terms import _compute_tokens_per_step
from tests.sizing.test_passes import job, placed

if TYPE_CHECKING:
    from costguard.quoting.quote import QuoteOption


@pytest.mark.parametrize(("pairs", "sequences"), [(None, 1), ({"algorithm": "dpo"}, 2)])
@pytest.mark.parametrize("passes", [1, 4])
def test_a_step_has_the_tokens_of_all_its_passes_ranks_and_pairs(
    pairs: dict[str, object] | None, sequences: int, passes: int
) -> None:
    asked = job(pairs, micro_batch=2)
    asked = replace(asked, recipe=replace(asked.recipe, gradient_accumulation=passes))
    there = placed(asked)
    option = cast("QuoteOption", SimpleNamespace(placement=there))
    ranks = there.parallel.count_data_ranks(8)
    assert _compute_tokens_per_step(asked, option) == sequences * 2 * asked.recipe.seq_len * passes * ranks
