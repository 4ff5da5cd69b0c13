"""Circles of imports: modules of a package that reach one another. Imports for types alone (TYPE_CHECKING) do not count."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

Imports = Mapping[str, frozenset[str]]


def find_circles(root: Path, package: str = "costguard") -> list[list[str]]:
    """Return the modules of each circle below the folder `package` of `root`, those inside functions included."""
    imports = _read_imports(root, package)
    reached = {module: _reach(module, imports) for module in _drop_ends(imports)}
    circles = {frozenset(other for other in reached if other in reached[one] and one in reached[other]) for one in reached}
    return sorted(sorted(circle) for circle in circles if len(circle) > 1)


def _read_imports(root: Path, package: str) -> Imports:
    files = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for path in (root / package).rglob("*.py")
    }
    return {
        module: frozenset(
            name
            for imported, names in _list_imports(ast.parse(path.read_text()))
            for name in (f"{imported}.{each}" if f"{imported}.{each}" in files else imported for each in names)
            if name in files and name != module
        )
        for module, path in files.items()
    }


def _list_imports(node: ast.AST) -> Iterator[tuple[str, list[str]]]:
    """Yield each imported module, with the names that are taken from it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from ((each.name, [""]) for each in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module:
            yield child.module, [each.name for each in child.names]
        else:
            yield from _list_imports(child)


def _drop_ends(imports: Imports) -> list[str]:
    """Return the modules that may be in a circle: those that import, and are imported by, others that may be."""
    left = set(imports)
    while True:
        imported = set[str]().union(*(imports[module] for module in left))
        kept = {module for module in left & imported if imports[module] & left}
        if kept == left:
            return sorted(left)
        left = kept


def _reach(module: str, imports: Imports) -> frozenset[str]:
    found, open_ends = set[str](), [module]
    while open_ends:
        new = imports[open_ends.pop()] - found
        found |= new
        open_ends += new
    return frozenset(found)
