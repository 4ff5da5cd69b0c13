"""Each of 500 bad inputs gets a clear answer (RELIABILITY M5): judged by rule, and its text frozen.

`--write-golden` writes the snapshots anew; the wording is read in their diff.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inputs.cases import Case, cases
from tests.inputs.conftest import Tried
from tests.inputs.judging import Snapshot, flaws, shown

SIZES = {"settings": 250, "commands": 100, "files": 100}
EVERY = {corpus: cases(corpus) for corpus in SIZES}
CASES = [pytest.param(corpus, case, id=f"{corpus}/{case.id}") for corpus, every in EVERY.items() for case in every]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("corpus", "case"), CASES)
def test_a_bad_input_is_refused_clearly_and_in_the_same_words(
    corpus: str, case: Case, tried: Tried, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    ran, changed = tried(case)
    assert not list(flaws(case, ran, changed)), f"{case.told}\n{ran.out}{ran.err}"
    text, snapshot = shown(ran, tmp_path), Snapshot(corpus, EVERY[corpus])
    if request.config.getoption("--write-golden"):
        snapshot.freeze(case, text)
    assert snapshot.frozen().get(case.id) == text


@pytest.mark.parametrize("corpus", SIZES)
def test_a_corpus_is_large_enough_has_no_twins_and_is_frozen_whole(corpus: str) -> None:
    every = EVERY[corpus]
    assert len({case.id for case in every}) == len(every) >= SIZES[corpus]
    inputs = {(case.arguments, *case.files.items(), *case.environ.items()) for case in every}
    assert len(inputs) == len(every)
    assert set(Snapshot(corpus, every).frozen()) == {case.id for case in every}
