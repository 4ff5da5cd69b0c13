"""Seeded bugs: small faults put into a copy of the product, one at a time, to see that a test notices (RELIABILITY M6).

A bug stands in `bugs/*.toml` with what it breaks, where, and the tests that must notice it:

    [[bug]]
    name = "empty-is-gone"                          # no two alike
    hazard = "H01"                                  # of RELIABILITY, or a section of GUARD
    says = "what a user would suffer"
    tests = ["tests/metering/test_accrual.py"]          # files or test ids, the likeliest first
    slow = false                                    # true: they take long, so it is tried by `make seeded` alone
    [[bug.edit]]
    file = "costguard/metering/accrual.py"
    old = '''a snippet that stands there exactly once'''
    new = '''what stands there instead'''

The product in place is never changed.
"""

from __future__ import annotations

import ast
import hashlib
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
BUGS = Path(__file__).parent / "bugs"
PRODUCT = ("agent/", "costguard/", "providers/")
NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
HAZARD = re.compile(r"(?:H\d\d[a-z]?|G\d{1,2})(?: (?:H\d\d[a-z]?|G\d{1,2}))*")
CURE = "take the snippet anew from the file as it is now, or drop the bug where what it broke is gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """In `file`, `new` takes the place of `old`, which stands there once."""

    file: str
    old: str
    new: str

    def applied(self, text: str) -> str:
        """`text` of the file with the edit made. ValueError where `old` does not stand there exactly once."""
        count = text.count(self.old)
        if count != 1:
            raise ValueError(f"{self.file} holds its snippet {count} times, not once: {CURE}")
        return text.replace(self.old, self.new)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """A fault. `tests`: those that must notice it; `slow`: they take long; `stands_in`: the file of the corpus."""

    name: str
    hazard: str
    says: str
    tests: tuple[str, ...]
    edits: tuple[Edit, ...]
    slow: bool = False
    stands_in: str = ""

    def applied(self, root: Path) -> dict[str, str]:
        """By file under `root`, its text with the bug in it. ValueError where an edit does not fit."""
        texts = dict[str, str]()
        for edit in self.edits:
            if edit.file not in texts and not (root / edit.file).is_file():
                raise ValueError(f"{edit.file} is not there any more: {CURE}")
            texts[edit.file] = edit.applied(texts.get(edit.file) or (root / edit.file).read_text())
        return texts


def corpus(folder: Path = BUGS) -> tuple[Bug, ...]:
    """Every bug of `folder`, by file and in the order in which they stand there."""
    return tuple(_bug(table, path.name) for path in sorted(folder.glob("*.toml")) for table in _tables(path))


def faults(bugs: Sequence[Bug], root: Path = ROOT) -> Iterator[str]:
    """What is wrong with the corpus beside the product at `root`, each a sentence that says what to do."""
    names = [bug.name for bug in bugs]
    for bug in bugs:
        where = f"{bug.stands_in}: {bug.name}"
        if names.count(bug.name) > 1 or not NAME.fullmatch(bug.name):
            yield f"{where}: its name appears twice or is none: write it as no-second-look, each once"
        if not HAZARD.fullmatch(bug.hazard) or not bug.says:
            yield f"{where}: name its hazard (H01 of RELIABILITY, G6 of GUARD) and say what a user would suffer"
        for test in bug.tests or ("",):
            if not _is_there(test, root):
                yield f"{where}: there is no test {test or 'at all'}: name the files that must notice it"
        for edit in bug.edits:
            if not edit.file.startswith(PRODUCT):
                yield f"{where}: {edit.file} is no part of the product: a bug stands in {' or '.join(PRODUCT)}"
        yield from (f"{where}: {odd}" for odd in _misfits(bug, root))


def chosen(bugs: Iterable[Bug], count: int, seed: str) -> tuple[Bug, ...]:
    """`count` of them, by `seed`: the same ones whenever and wherever."""
    return tuple(sorted(bugs, key=lambda bug: hashlib.sha256(f"{seed}/{bug.name}".encode()).digest())[:count])


def seed_of(bugs: Iterable[Bug], root: Path = ROOT) -> str:
    """A seed that no clock makes: of the corpus, and of the files that it breaks as they are now."""
    digest = hashlib.sha256()
    for bug in bugs:
        digest.update(repr(bug).encode())
        for edit in bug.edits:
            digest.update((root / edit.file).read_bytes())
    return digest.hexdigest()[:16]


def _is_there(test: str, root: Path) -> bool:
    """Whether there is a file, a folder, or a test in a file of that name; of its parameters nothing is asked."""
    path, _, name = test.partition("::")
    if not path or not (root / path).exists():
        return False
    return not name or f"def {name.partition('[')[0]}(" in (root / path).read_text()


def _misfits(bug: Bug, root: Path) -> Iterator[str]:
    """Edits that do not fit, and those that leave the file as it was or unreadable."""
    try:
        texts = bug.applied(root)
    except ValueError as error:
        yield str(error)
        return
    if not texts:
        yield "it has no [[bug.edit]]"
    for file, text in texts.items():
        try:
            same = _same(file, (root / file).read_text(), text)
        except (SyntaxError, tomllib.TOMLDecodeError) as error:
            yield f"{file} cannot be read with it: {error}"
            continue
        if same:
            yield f"{file} means with it what it meant before: a bug changes more than words"


def _same(file: str, before: str, after: str) -> bool:
    """Whether both texts of `file` mean the same: comments, docstrings and blanks aside."""
    if file.endswith(".toml"):
        return tomllib.loads(before) == tomllib.loads(after)
    old, new = _statements(before), _statements(after)
    return len(old) == len(new) and all(
        a == b or _dumped(one) == _dumped(two) for (a, one), (b, two) in zip(old, new, strict=True)
    )


@lru_cache(maxsize=500)
def _statements(text: str) -> list[tuple[str, ast.stmt]]:
    """The statements of a module, each with its text."""
    lines = text.splitlines()
    return [("\n".join(lines[one.lineno - 1 : one.end_lineno]), one) for one in ast.parse(text).body]


def _dumped(tree: ast.stmt) -> str:
    for node in ast.walk(ast.Module([tree], [])):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            body[0].value = ast.Constant(value="")
    return ast.dump(tree)


def _tables(path: Path) -> list[dict[str, object]]:
    found = tomllib.loads(path.read_text())
    if set(found) != {"bug"}:
        raise ValueError(f"{path} may hold [[bug]] tables and nothing else")
    return list(found["bug"])


def _bug(table: dict[str, object], stands_in: str) -> Bug:
    known = {"name", "hazard", "says", "tests", "slow", "edit"}
    if not {"name"} <= set(table) <= known:
        raise ValueError(f"{stands_in}: {table.get('name')}: a bug has {', '.join(sorted(known))}")
    tests, edits = table.get("tests", []), table.get("edit", [])
    assert isinstance(tests, list)
    assert isinstance(edits, list)
    return Bug(
        name=str(table["name"]),
        hazard=str(table.get("hazard", "")),
        says=str(table.get("says", "")),
        tests=tuple(map(str, tests)),
        edits=tuple(Edit(**edit) for edit in edits),
        slow=bool(table.get("slow", False)),
        stands_in=stands_in,
    )
