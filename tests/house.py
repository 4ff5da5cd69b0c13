"""The rules of the house as functions from a source tree to a list of faults, so that the rules themselves can be tested."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PLUGIN_ROOMS = {
    "costguard.reports": ("costguard/reports", "costguard.reports.{}:render"),
    "costguard.notifiers": ("costguard/notifiers", "costguard.notifiers.{}:notify"),
    "costguard.providers": ("providers", "{}:provider"),
}
"""Entry-point group -> folder of its plug-ins, and what the line of a plug-in says."""

PURE = frozenset(
    "__future__ abc bisect calendar collections dataclasses datetime decimal difflib enum fractions functools heapq "  # noqa: SIM905
    "itertools math operator re statistics string types typing".split()
)
"""Standard modules that know no clock, disk, network or chance. `datetime` is a value here: see CLOCKS."""

CLOCKS = frozenset(("now", "utcnow", "today", "fromtimestamp"))
DISK = frozenset(("open", "print", "input", "exec", "eval", "__import__"))
NOT_OUR_WORDS = re.compile(r"(?:^|_|(?<=[a-z]))(?:[Kk]ill|[Mm]anager|[Hh]andler|[Hh]elper|[Uu]tils?)(?:s|$|_|(?=[A-Z]))")
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b|raise NotImplementedError")
ADDRESSES = re.compile("python" + "hosted|py" + r"pi\.org|registry\." + r"npmjs|/wo" + "rk/(?:main|shared)|/fa" + "rm/")
LOCK_FILES = frozenset(("uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock", "pylock.toml", "package-lock.json"))
LONGEST_MODULE = 320


def faults(root: Path) -> list[str]:
    """Everything wrong with the house at `root`, each a sentence that says what to do."""
    checks = (plugin_faults, purity_faults, word_faults, size_faults, command_faults, leftovers)
    return [fault for check in checks for fault in check(root)]


def plugin_faults(root: Path) -> Iterator[str]:
    """A plug-in without its line in pyproject.toml, or a line without its file."""
    groups = tomllib.loads((root / "pyproject.toml").read_text())["project"].get("entry-points", {})
    for group, (folder, target) in PLUGIN_ROOMS.items():
        there = {name: target.format(name) for name in _plugins(root / folder)}
        lines = {str(v): k for k, v in groups.get(group, {}).items()}
        for name, wanted in there.items():
            if wanted not in lines:
                yield f'{folder}/{name} is no plug-in yet: add {name} = "{wanted}" under [project.entry-points."{group}"]'
        for wanted, name in lines.items():
            if wanted not in there.values():
                line = f'{name} = "{wanted}" under [project.entry-points."{group}"]'
                yield f"{line} has no file: add it in {folder}/, or drop the line"
        if not (root / folder).is_dir() and group in groups and groups[group]:
            yield f"{folder}/ does not exist, but {group} has lines"


def purity_faults(root: Path) -> Iterator[str]:
    """What core imports or calls that a deciding room must not."""
    for path in sorted((root / "costguard" / "core").rglob("*.py")):
        for node in _nodes(path.read_text()):
            for module in _imported(node):
                top = module.split(".")[0]
                inside = module == "costguard.errors" or module.startswith("costguard.values")
                if not inside and top not in PURE:
                    yield f"{_line(root, path, node)} imports {module}: core takes what it needs as an argument"
            if isinstance(node, ast.Call):
                called = node.func
                if isinstance(called, ast.Attribute) and called.attr in CLOCKS:
                    yield f"{_line(root, path, node)} reads the clock with .{called.attr}(): take the time as an argument"
                if isinstance(called, ast.Name) and called.id in DISK:
                    yield f"{_line(root, path, node)} calls {called.id}(): core touches nothing outside"


def word_faults(root: Path) -> Iterator[str]:
    """Names with words that this house does not use (DESIGN section 3)."""
    for path in _sources(root):
        if NOT_OUR_WORDS.search(path.stem):
            yield f"{path.relative_to(root)} is named with a word we do not use: name it after the thing it is"
        for node in _nodes(path.read_text()):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and NOT_OUR_WORDS.search(node.name):
                yield f"{_line(root, path, node)} {node.name} uses a word we do not use: name it after the thing it is"


def size_faults(root: Path) -> Iterator[str]:
    """Modules so long that they are two things."""
    for path in _sources(root):
        lines = len(path.read_text().splitlines())
        if lines > LONGEST_MODULE:
            yield f"{path.relative_to(root)} has {lines} lines: look whether it is one thing (at most {LONGEST_MODULE})"


def command_faults(root: Path) -> Iterator[str]:
    """A command in the table of contents without its file."""
    cli = root / "costguard" / "cli"
    if not cli.is_dir():
        return
    tree = ast.parse((cli / "__init__.py").read_text())
    tables = [n.value for n in ast.walk(tree) if isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == "COMMANDS"]
    for name in (ast.literal_eval(tables[0]) if tables else {}) or {}:
        if not (cli / f"{name}.py").is_file():
            yield f"COMMANDS names {name}, but costguard/cli/{name}.py is missing: add it or drop the line"


def leftovers(root: Path) -> Iterator[str]:
    """Unfinished words, registry addresses, machine paths and lock files."""
    for path in _texts(root):
        if path.name in LOCK_FILES:
            yield f"{path.relative_to(root)} is a lock file that records addresses: remove it"
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if path.suffix == ".py" and path.name != "house.py" and UNFINISHED.search(line):
                yield f"{path.relative_to(root)}:{number} is unfinished: {line.strip()[:80]}"
            if ADDRESSES.search(line):
                yield f"{path.relative_to(root)}:{number} names a registry or a path of one machine: {line.strip()[:80]}"


@cache
def _nodes(source: str) -> tuple[ast.AST, ...]:
    """Those nodes of a module that a rule looks at, found once however often the house is looked over."""
    kinds = ast.Import | ast.ImportFrom | ast.Call | ast.FunctionDef | ast.ClassDef
    return tuple(node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds))


def _plugins(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    files = [p.stem for p in folder.glob("*.py") if p.stem != "__init__"]
    packages = [p.parent.name for p in folder.glob("*/__init__.py")]
    return sorted(files + packages)


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [a.name for a in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def _sources(root: Path) -> list[Path]:
    return sorted(p for room in ("costguard", "agent", "providers") for p in (root / room).rglob("*.py"))


def _texts(root: Path) -> list[Path]:
    rooms = ("costguard", "agent", "providers", "tests", "bench", "scripts", "docs", "config", ".ci")
    inside = [p for room in rooms for p in (root / room).rglob("*")]
    kept = (".py", ".md", ".toml", ".txt", ".json", ".csv", ".lock", ".yml", ".yaml", "")
    return sorted(p for p in (*inside, *root.glob("*")) if p.is_file() and p.suffix in kept and "__pycache__" not in p.parts)


def _line(root: Path, path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(root)}:{getattr(node, 'lineno', 0)}"
