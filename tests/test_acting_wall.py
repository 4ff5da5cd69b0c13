"""One room asks providers to stop, end and start things: nobody else gets hold of those ports, or calls what they promise."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PORTS, ACTS = frozenset(("Stopper", "Terminator", "Starter")), frozenset(("stop", "terminate", "start_instance"))
ACTING, OWN = "services/guarding/act/send_action.py", "providers/ports/__init__.py"


def faults(house: Path) -> list[str]:
    """Each use of those ports in `house` (the folder costguard/) outside the room that may."""
    found: list[str] = []
    for path in sorted(house.rglob("*.py")):
        place = path.relative_to(house).as_posix()
        if place not in {ACTING, OWN}:
            found += [f"{place}:{line} {what}" for line, what in _uses(ast.parse(path.read_text()))]
    return found


def _uses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            named = [one.name for one in node.names]
            if PORTS.intersection(named) or ("*" in named and (node.module or "").endswith("ports")):
                yield node.lineno, "imports them"
        elif isinstance(node, ast.Attribute) and node.attr in PORTS:
            yield node.lineno, "reads them off a module"
        elif isinstance(node, ast.Call):
            yield from _calls(node)


def _calls(node: ast.Call) -> Iterator[tuple[int, str]]:
    """Calls with a key; `process.terminate()` and `spinner.stop()` have none. And what would fetch one by its name."""
    called = node.func
    if isinstance(called, ast.Attribute) and called.attr in ACTS and (node.args or node.keywords):
        yield node.lineno, f"calls .{called.attr}("
    if any(
        isinstance(given, ast.Attribute) and given.attr in ACTS for given in (*node.args, *(k.value for k in node.keywords))
    ):
        yield node.lineno, "hands it on to be called"
    named = any(isinstance(given, ast.Constant) and given.value in ACTS | PORTS for given in node.args)
    if named and isinstance(called, ast.Name) and called.id in {"getattr", "attrgetter", "methodcaller"}:
        yield node.lineno, "fetches it by its name"


def test_nobody_but_acting_stops_ends_or_starts_anything() -> None:
    assert faults(ROOT / "costguard") == []


def test_acting_uses_them() -> None:
    tree = ast.parse((ROOT / "costguard" / ACTING).read_text())
    assert {what for _, what in _uses(tree)} == {"imports them", "calls .stop(", "calls .terminate(", "calls .start_instance("}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("from costguard.providers.ports import Clock, Stopper", "imports them"),
        ("from costguard.providers.ports import *", "imports them"),
        ("import costguard.providers.ports as p\nx: p.Terminator", "reads them off a module"),
        ("source.stop(key)", "calls .stop("),
        ("source.terminate(key=key)", "calls .terminate("),
        ("from costguard.providers.ports import Starter", "imports them"),
        ("hands.starter.start_instance(key)", "calls .start_instance("),
        ("crew.ask(1, source.stop)", "hands it on to be called"),
        ("Crew(question=source.stop)", "hands it on to be called"),
        ('getattr(source, "terminate")', "fetches it by its name"),
    ],
)
def test_each_way_around_the_wall_is_seen(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "guarding.py").write_text(text)
    assert [fault.split(" ", maxsplit=1)[1] for fault in faults(tmp_path)] == [what]


def test_what_ends_a_process_of_our_own_is_no_act(tmp_path: Path) -> None:
    (tmp_path / "hooks.py").write_text("process.terminate()\nspinner.stop()\nlast = range(3).stop\n")
    assert faults(tmp_path) == []
