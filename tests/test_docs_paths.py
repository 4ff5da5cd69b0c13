"""The documents name what exists: each path, module and link of a page, and each number of a decision in the repository."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DECISIONS = ROOT / "docs/decisions"
FOLDERS = ("docs/*.md", "docs/decisions/*.md", "providers/*/README.md")
PAGES = sorted([ROOT / "README.md", *(page for pattern in FOLDERS for page in ROOT.glob(pattern))])
USERS_PATHS = {"runs/JOB.json"}
"""Files that costguard writes into a user's own folders."""
UNDER = ("", "costguard/", "providers/", "agent/", "tests/")
"""Where a path without a root may begin: `guard/limits.py` is short for `costguard/guard/limits.py`."""
OURS = re.compile(
    r"(?:costguard|providers|agent|tests|docs|bench|scripts|config|core|flows|app|reports|ledger|guard|services|views|web|"
    r"settings|sizing|quoting|metering|budgets|reporting|bills|runs|agents|values|system|cli|renderers|notifiers|files|"
    r"watchdog|data|transport|exact|child)/[\w./*{},-]*"
)
"""A path of this repository, as far as its first folder tells; folders that are gone are in it, so that they are found."""
DOTTED = re.compile(r"costguard(?:_\w+)?(?:\.\w+)+")


def code_words(page: Path) -> list[tuple[int, str]]:
    """Each word in code font of `page` with its line; fenced blocks are a user's files and commands."""
    words = list[tuple[int, str]]()
    fenced = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        fenced ^= line.startswith("```")
        if not fenced:
            words += [(number, word) for word in re.findall(r"`([^`\s]+)`", line)]
    return words


@cache
def is_there(path: str) -> bool:
    """Whether a file or folder of the repository is called `path`, wherever its short form begins. NAME stands for any name."""
    pattern = re.sub(r"NAME|\{[^}]*\}|<\w+>", "*", path.split("::", 1)[0]).rstrip("/")
    return any(next(ROOT.glob(f"{start}{pattern}"), None) for start in UNDER)


@cache
def is_module(dotted: str) -> bool:
    """Whether `dotted` is a module of the repository, or a name in one."""
    whole = dotted.replace(".", "/")
    parent = whole.rpartition("/")[0]
    return any(is_there(path) for path in (whole, f"{whole}.py", f"{parent}.py", f"{parent}/__init__.py") if parent)


def faults(page: Path) -> list[str]:
    """Each path and module that `page` names and that does not exist."""
    name = page.relative_to(ROOT).as_posix()
    found = []
    for number, word in code_words(page):
        plain = word.split("::", 1)[0]
        if OURS.fullmatch(plain) and plain not in USERS_PATHS and not is_there(plain):
            found.append(f"{name}:{number} names {word}, which does not exist")
        if DOTTED.fullmatch(word) and not is_module(word):
            found.append(f"{name}:{number} names {word}, which is no module")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_paths_that_a_page_names_exist(page: Path) -> None:
    assert faults(page) == []


def test_a_path_that_is_gone_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "PAGE.md"
    page.write_text("`core/quote.py` is gone, and `costguard.flows.quote`; `costguard.services.quote.quote` is not.\n")
    monkeypatch.setattr("tests.test_docs_paths.ROOT", tmp_path)
    is_there.cache_clear()
    is_module.cache_clear()
    (tmp_path / "costguard/services/quote").mkdir(parents=True)
    (tmp_path / "costguard/services/quote/quote.py").touch()
    assert [one.split(" names ")[1].split(",")[0] for one in faults(page)] == ["core/quote.py", "costguard.flows.quote"]
    is_there.cache_clear()
    is_module.cache_clear()


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "ADDING.md"])
def test_each_function_and_class_that_a_page_of_the_house_names_is_defined(page: str) -> None:
    sources = (path.read_text() for room in ("costguard", "providers") for path in (ROOT / room).rglob("*.py"))
    defined = {name for source in sources for name in re.findall(r"\b(?:def|class) (\w+)", source)}
    words = re.findall(r"`((?:[A-Z]\w+\.)?[A-Za-z]\w*)`", (ROOT / "docs" / page).read_text())
    names = {part for word in words for part in word.split(".") if re.search(r"[a-z](_[a-z]|[A-Z])", part)}
    assert names <= defined, names - defined


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_of_a_page_lead_to_files(page: Path) -> None:
    targets = re.findall(r"\]\(([^)\s#]+)", page.read_text(encoding="utf-8"))
    assert [one for one in targets if ":" not in one and not (page.parent / one).exists()] == []


def list_decisions() -> dict[str, tuple[str, str]]:
    """Each number of the index of decisions with its page and statement; a withdrawn number has neither."""
    decisions = dict[str, tuple[str, str]]()
    page = ""
    for line in (DECISIONS / "README.md").read_text(encoding="utf-8").splitlines():
        if link := re.match(r"\| \[(\S+)\]", line):
            page = link[1]
        elif line.startswith("## "):
            page = ""
        elif row := re.match(r"\| (\d{4}) \| (.*) \|$", line):
            decisions[row[1]] = (page, row[2]) if page else ("", "")
    return decisions


def test_the_index_of_decisions_has_each_heading_of_their_pages() -> None:
    pages = [page for page in DECISIONS.glob("*.md") if page.name != "README.md"]
    headings = {
        number: (page.name, statement)
        for page in pages
        for number, statement in re.findall(r"^## (\d{4}) (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    }
    indexed = {number: decision for number, decision in list_decisions().items() if decision[0]}
    assert indexed == headings, "docs/decisions/README.md repeats the headings: write the change there too"


def test_each_decision_that_the_repository_refers_to_is_in_the_index() -> None:
    decisions = list_decisions()
    rooms = ("costguard", "providers", "agent", "integrations", "bench", "scripts", "config", "tests", "docs")
    files = [
        path for room in rooms for path in (ROOT / room).rglob("*") if path.suffix in (".py", ".md", ".toml", ".csv", ".yml")
    ]
    for path in (*files, ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "pyproject.toml"):
        text = path.read_text(encoding="utf-8")
        numbers = re.findall(r"[Dd]ecisions? \[?(0\d{3})\b|\[(0\d{3})\]\(", text)
        numbers += [(number, "") for number in re.findall(r"(?<!\d)00\d{2}\b", text) if path.parent == DECISIONS]
        assert {first or second for first, second in numbers} <= decisions.keys(), path


def test_each_number_of_a_link_leads_to_the_page_of_its_decision() -> None:
    decisions = list_decisions()
    for page in PAGES:
        for number, target in re.findall(r"\[(?:decision )?(0\d{3})\]\(\S*?([\w-]+\.md)", page.read_text(encoding="utf-8")):
            assert decisions[number][0] == target, f"{page.name} leads to {target} for {number}"
