"""Every seeded bug fits the product as it is, a few of them are tried each time, and the trial itself can fail.

All of them, one after the other: `make seeded`; by the quick suite alone: `make seeded ARGS=--quick`.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.seeded.corpus import ROOT, Bug, Edit, chosen, corpus, faults, seed_of
from tests.seeded.mutation import AREAS, drawn
from tests.seeded.trial import CAUGHT, HUNG, RED, SURVIVED, Tree

NOTICED_QUICKLY = 0.97
"""Of the bugs, at least this share has a named test in `make test`; `make seeded ARGS=--quick` tries them by those alone."""
ROTATED = 3
"""Bugs that are tried with the suite; which ones changes with the corpus and with the files that it breaks."""
ADD = "def add(one, other):\n    return one + other\n"


def test_every_bug_fits_the_product_as_it_is_and_changes_what_it_means() -> None:
    assert list(faults(corpus())) == []


def test_the_corpus_is_large_and_of_many_hazards() -> None:
    bugs = corpus()
    assert len(bugs) >= 225
    assert len({hazard for bug in bugs for hazard in bug.hazard.split()}) >= 35


@pytest.mark.proof
def test_nearly_every_bug_has_a_test_of_its_own_in_the_quick_suite() -> None:
    bugs = corpus()
    files = sorted({test.partition("::")[0] for bug in bugs for test in bug.tests})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", "not proof", *files]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    quick = [line for line in said.splitlines() if "::" in line]
    begins = {line[: place + 1] for line in quick for place, letter in enumerate(line) if letter in ":[/"} | {*quick}
    left = [bug.name for bug in bugs if not any({test, f"{test}:", f"{test}[", f"{test}/"} & begins for test in bug.tests)]
    assert len(left) <= len(bugs) * (1 - NOTICED_QUICKLY), left


@pytest.mark.proof
def test_a_few_of_them_are_noticed_by_their_own_tests(tmp_path: Path) -> None:
    bugs = [bug for bug in corpus() if not bug.slow]
    tree = Tree(tmp_path / "tree")
    trials = [tree.tried(bug, wider=()) for bug in chosen(bugs, ROTATED, seed_of(bugs))]
    assert [one.line() for one in tree.held_against(trials) if one.outcome != CAUGHT] == []


def test_which_ones_is_said_by_the_seed_and_by_nothing_else() -> None:
    bugs = corpus()
    assert chosen(bugs, 5, "a") == chosen(tuple(reversed(bugs)), 5, "a") != chosen(bugs, 5, "b")
    assert seed_of(bugs) == seed_of(corpus())


@pytest.mark.proof
def test_mutants_can_be_read_and_are_no_two_alike() -> None:
    for name, area in AREAS.items():
        found, of = drawn(area, 30, name)
        assert of > 100
        assert len({(one.file, one.text) for one in found}) == 30
        for one in found:
            assert ast.dump(ast.parse(one.text)) != ast.dump(ast.parse((ROOT / one.file).read_text())), one.told()
        assert drawn(area, 30, name) == (found, of)


def bug(name: str = "a-bug", *, old: str, new: str, tests: tuple[str, ...] = ("tests/test_sum.py",)) -> Bug:
    edit = Edit(file="costguard/__init__.py", old=old, new=new)
    return Bug(name=name, hazard="H15", says="sums are wrong", tests=tests, edits=(edit,), stands_in="these.toml")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A product of one function, with a test that looks at it, one that does not, and one that is red."""
    for folder in ("costguard", "providers/costguard_aws", "tests"):
        (tmp_path / "root" / folder).mkdir(parents=True)
    (tmp_path / "root/costguard/__init__.py").write_text(f'"""x"""\n{ADD}')
    (tmp_path / "root/providers/costguard_aws/__init__.py").write_text("")
    (tmp_path / "root/tests/test_sum.py").write_text("from costguard import add\ndef test_sum(): assert add(1, 2) == 3\n")
    (tmp_path / "root/tests/test_else.py").write_text("import costguard\ndef test_else(): assert costguard.__file__\n")
    (tmp_path / "root/tests/test_red.py").write_text("def test_red(): assert False\n")
    return tmp_path / "root"


def test_a_trial_tells_what_is_noticed_from_what_is_not(small: Path, tmp_path: Path) -> None:
    tree = Tree(tmp_path / "tree", small)
    old, new = "one + other", "one - other"
    noticed, unnoticed = bug(old=old, new=new), bug(old=old, new=new, tests=("tests/test_else.py",))
    assert tree.tried(noticed, wider=()).by == "tests/test_sum.py::test_sum"
    assert tree.tried(unnoticed, wider=()).outcome == SURVIVED
    late = tree.tried(unnoticed, wider=("tests/test_sum.py",))
    assert (late.outcome, late.wider) == (CAUGHT, True)
    red = tree.tried(bug(old=old, new=new, tests=("tests/test_red.py",)), wider=())
    assert [one.outcome for one in tree.held_against([late, red])] == [CAUGHT, RED]
    assert (tree.folder / "costguard/__init__.py").read_text() == (small / "costguard/__init__.py").read_text()


def test_a_quick_trial_plays_no_campaign(small: Path, tmp_path: Path) -> None:
    (small / "tests/test_sum.py").write_text(
        "import pytest\nfrom costguard import add\n"
        "@pytest.mark.proof\ndef test_sum(): assert add(1, 2) == 3\ndef test_none(): assert add(0, 0) == 0\n"
    )
    broken = bug(old="one + other", new="one - other")
    assert Tree(tmp_path / "whole", small).tried(broken, wider=()).outcome == CAUGHT
    assert Tree(tmp_path / "quick", small, quick=True).tried(broken, wider=()).outcome == SURVIVED


@pytest.mark.proof
def test_a_bug_that_hangs_or_cannot_be_imported_counts_for_nothing(small: Path, tmp_path: Path) -> None:
    tree = Tree(tmp_path / "tree", small)
    assert tree.tried(bug(old="return one", new="while True: pass\n    return one"), limit_s=3).outcome == HUNG
    assert tree.tried(bug(old="def add", new="add_ = nothing\ndef add"), wider=()).outcome == RED


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (bug(old="one * other", new="one"), "holds its snippet 0 times, not once: take the snippet anew"),
        (bug(old="one", new="two"), "holds its snippet 2 times"),
        (bug(old='"""x"""', new='"""y"""'), "means with it what it meant before"),
        (bug(old="return one", new="return (one"), "cannot be read with it"),
        (bug(old="+", new="-", tests=()), "name the files that must notice it"),
        (bug(old="+", new="-", tests=("tests/test_gone.py",)), "there is no test tests/test_gone.py"),
        (bug(old="+", new="-", tests=("tests/test_sum.py::test_gone[0]",)), "there is no test tests/test_sum.py::test_gone[0]"),
        (bug("A bug", old="+", new="-"), "write it as no-second-look"),
    ],
)
def test_a_bug_that_fits_no_more_is_named_with_what_to_do(small: Path, broken: Bug, said: str) -> None:
    (found,) = faults([broken], small)
    assert found.startswith(f"these.toml: {broken.name}: ")
    assert said in found
