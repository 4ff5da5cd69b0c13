"""docs/SECURITY.md and docs/HAZARDS.md name tests: each of them exists, and no hazard is left out."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
PAGES = tuple(ROOT / "docs" / name for name in ("SECURITY.md", "HAZARDS.md"))
NAMED = re.compile(r"`((?:[a-z0-9_]+/)*[a-z0-9_]+\.py)::(test_[a-z0-9_]+)`")
STORY = re.compile(r"`(scenarios/[a-z0-9-]+\.story)`")
PART = re.compile(r"`((?:security|config/iam)/[a-z0-9_./-]+)`")
EVERY = [*(f"H{number:02}" for number in range(1, 53)), "H34a"]
STATUS = re.compile(r"(?:met|partly|open|not applicable yet|not yet)\b")


def text() -> str:
    return "\n".join(page.read_text() for page in PAGES)


def rows(page: str) -> list[list[str]]:
    """The cells of each row of a table whose last column is its status."""
    found, counted = [], False
    for line in page.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not cells:
            counted = False
        elif cells[-1] == "status":
            counted = True
        elif counted and not set(cells[0]) <= set("-"):
            found.append(cells)
    return found


@cache
def functions(path: Path) -> frozenset[str]:
    return frozenset(node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef))


def missing(page: str) -> list[str]:
    """What is named and does not exist."""
    tests = [f"{file}::{name}" for file, name in NAMED.findall(page) if not _exists(TESTS / file, name)]
    stories = [story for story in STORY.findall(page) if not (TESTS / story).is_file()]
    parts = [part for part in PART.findall(page) if not (ROOT / part).exists() and not (TESTS / part).exists()]
    return [*tests, *stories, *parts]


def _exists(file: Path, name: str) -> bool:
    return file.is_file() and name in functions(file)


def test_every_test_that_is_named_exists() -> None:
    assert missing(text()) == []
    assert len(set(NAMED.findall(text()))) > 150


def test_no_hazard_is_left_out_and_each_has_one_row() -> None:
    first = [cells[0].split()[0] for cells in rows(text())]
    named = [one for one in first if re.fullmatch(r"H\d\da?", one)]
    assert sorted(named) == sorted(EVERY)


def test_each_row_says_how_it_stands_and_what_is_met_names_its_tests() -> None:
    for cells in rows(text()):
        assert len(cells) == 4, cells
        assert STATUS.match(cells[-1]), cells
        if cells[-1].startswith(("met", "partly")) and not cells[-1].endswith("by reading"):
            assert NAMED.search(cells[2]) or STORY.search(cells[2]), cells


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ("`flows/test_poll.py::test_that_nobody_wrote`", "flows/test_poll.py::test_that_nobody_wrote"),
        ("`flows/test_nowhere.py::test_x`", "flows/test_nowhere.py::test_x"),
        ("`scenarios/h99-nothing.story`", "scenarios/h99-nothing.story"),
        ("`config/iam/azure.json`", "config/iam/azure.json"),
    ],
)
def test_what_does_not_exist_is_seen(page: str, says: str) -> None:
    """Controls."""
    assert missing(page) == [says]


def test_a_row_without_a_test_is_seen() -> None:
    table = "| hazard | how | tests | status |\n|---|---|---|---|\n| H01 x | y |  | met |\n"
    assert rows(table) == [["H01 x", "y", "", "met"]]
    assert not NAMED.search(rows(table)[0][2])
