"""Mutants: faults that nobody thought of. `python -m tests.seeded.mutation AREA... [--count N] [--seed TEXT] [--near]`.

A mutant is the product with one expression changed: `<` for `<=`, `+` for `-`, `and` for `or`, one more for a number, a call
that is left out. Of all that an area's files allow, N are drawn by the seed, each is tried as a seeded bug is, and the score is
the share that some test noticed (RELIABILITY 3.6). What survived is printed with its place, to be caught or explained.
"""

from __future__ import annotations

import argparse
import ast
import copy
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.seeded.corpus import ROOT, Bug, Edit
from tests.seeded.trial import CAUGHT, HUNG, LIMIT_S, Tree


@dataclass(frozen=True, slots=True)
class Area:
    """Part of the product: `modules` by their folder, `tests` that are quick and near, and `wider` ones that follow."""

    modules: Mapping[str, str]
    tests: tuple[str, ...]
    wider: tuple[str, ...]

    def files(self, root: Path) -> list[str]:
        """Those of its modules that there are under `root`."""
        patterns = [f"costguard/{folder}/{name}.py" for folder, names in self.modules.items() for name in names.split()]
        return sorted({str(path.relative_to(root)) for pattern in patterns for path in root.glob(pattern)})


def _tests(folder: str, names: str) -> tuple[str, ...]:
    return tuple(f"tests/{folder}/test_{name}.py" for name in names.split())


AREAS = {
    "metering": Area(
        {"metering": "*"},
        _tests("metering", "accrual accrual_overtaken unheard billing span observation"),
        ("tests/metering", "tests/providers/sim", "tests/renderers", "tests/ledger"),
    ),
    "ledger": Area(
        {
            "ledger/spans": "*",
            "ledger/guard": "audit_log guard_state store",
            "ledger/db": "codecs schema",
            "ledger": "guard_records",
        },
        _tests("ledger", "writing reading guardbook"),
        ("tests/ledger", "tests/services", "tests/cli/test_audit.py", "tests/renderers"),
    ),
    "evidence": Area(
        {"guard": "signals signal_summary activity action_intents policy_evaluation", "services": "guard_snapshot"},
        _tests("guard", "judging tracks proof"),
        ("tests/guard", "tests/services"),
    ),
    "intents": Area(
        {"guard": "action_intents", "services/act": "executor send_action", "ledger/guard": "intents send_gate"},
        (*_tests("services", "acting deeds"), *_tests("ledger", "intents sends")),
        ("tests/services", "tests/guard", "tests/ledger"),
    ),
    "statement": Area(
        {"reporting/statement": "*"},
        (
            *_tests("reporting", "waste saved report_period figures"),
            "tests/metering/test_unheard.py",
            "tests/services/test_full_report.py",
        ),
        ("tests/services/test_report_adds_up.py", "tests/cli/test_report.py", "tests/ledger/test_accounts.py", "tests/golden"),
    ),
    "drift": Area(
        {"bills": "drift reconciliation bill_files", "services": "reconcile"},
        ("tests/bills/test_drift.py", "tests/services/test_reconcile.py"),
        ("tests/cli/test_reconcile_files.py", "tests/providers/aws", "tests/cli/test_reconcile.py", "tests/golden"),
    ),
    "focus": Area(
        {"reporting/focus": "*", "metering": "charge_item"},
        ("tests/reporting/test_focus_check.py", "tests/renderers/test_focus.py"),
        ("tests/cli/test_focus.py", "tests/ledger/test_items.py", "tests/renderers"),
    ),
    "rails": Area(
        {"guard": "action_plan limits overrides", "ledger/guard": "send_gate"},
        _tests("guard", "railing planning owning"),
        ("tests/guard", "tests/services", "tests/ledger"),
    ),
}

OTHER: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
}  # fmt: skip
CHANGED = (
    ast.Compare, ast.BinOp, ast.BoolOp, ast.UnaryOp, ast.IfExp, ast.Call, ast.Constant, ast.Continue, ast.Break, ast.Expr,
)  # fmt: skip
SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change in `file`, at `line`: `was` became `now`, and the whole file reads `text`."""

    file: str
    line: int
    was: str
    now: str
    text: str

    def bug(self, number: int, area: Area, root: Path = ROOT) -> Bug:
        """As something to be tried."""
        edit = Edit(file=self.file, old=(root / self.file).read_text(), new=self.text)
        return Bug(name=f"mutant-{number}", hazard="G0", says=self.told(), tests=area.tests, edits=(edit,))

    def told(self) -> str:
        """Where and what."""
        return f"{self.file}:{self.line}: {self.was}  ->  {self.now}"


Place = tuple[ast.expr | ast.stmt, str]
"""What is changed, and what stands there instead."""


def places(text: str) -> Iterator[Place]:
    """Every change that a file with this text allows."""
    tree = ast.parse(text)
    told = {id(one) for node in ast.walk(tree) if isinstance(node, (ast.JoinedStr, ast.Raise)) for one in ast.walk(node)}
    typed = {id(one) for node in ast.walk(tree) for one in _typing(node)}
    for node in ast.walk(tree):
        if isinstance(node, CHANGED) and id(node) not in told | typed:
            for changed in _changes(node):
                yield node, changed if isinstance(changed, str) else f"({ast.unparse(changed)})"


def mutant(file: str, text: str, place: Place) -> Mutant:
    """`file`, which reads `text`, with one change."""
    node, now = place
    was = ast.get_source_segment(text, node) or ""
    return Mutant(file, node.lineno, _short(was), _short(now), _spliced(text, node, now))


def _changes(node: ast.AST) -> Iterator[ast.AST | str]:
    """What may stand in the place of `node`."""
    other = copy.deepcopy(node)
    if isinstance(other, ast.Compare) and type(other.ops[0]) in OTHER:
        other.ops[0] = OTHER[type(other.ops[0])]()  # type: ignore[call-overload] # a comparison for a comparison
        yield other
    elif isinstance(other, (ast.BinOp, ast.BoolOp)) and type(other.op) in OTHER:
        other.op = OTHER[type(other.op)]()  # type: ignore[assignment] # an operator for one of its kind
        yield other
    elif isinstance(other, ast.UnaryOp) and isinstance(other.op, ast.Not):
        yield other.operand
    elif isinstance(other, ast.IfExp):
        other.body, other.orelse = other.orelse, other.body
        yield other
    elif isinstance(other, ast.Call) and isinstance(other.func, ast.Name) and other.func.id in SWAPPED:
        other.func.id = SWAPPED[other.func.id]
        yield other
    elif isinstance(other, ast.Constant) and isinstance(other.value, bool):
        yield ast.Constant(not other.value)
    elif isinstance(other, ast.Constant) and isinstance(other.value, int):
        yield ast.Constant(other.value + 1)
    elif isinstance(other, (ast.Continue, ast.Break)) or (isinstance(other, ast.Expr) and isinstance(other.value, ast.Call)):
        yield "pass"


def _typing(node: ast.AST) -> Iterator[ast.AST]:
    """What of `node` is said to the type checker and to readers only."""
    stated = [getattr(node, name, None) for name in ("annotation", "returns", "decorator_list")]
    for one in stated:
        for part in one if isinstance(one, list) else [one]:
            if isinstance(part, ast.AST):
                yield from ast.walk(part)


def _spliced(text: str, node: ast.expr | ast.stmt, now: str) -> str:
    """`text` with `now` in the place of `node`; columns are counted in bytes."""
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    before, after = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
    return b"".join([*lines[:first], before, now.encode(), after, *lines[last + 1 :]]).decode()


def _short(text: str) -> str:
    return " ".join(text.split())[:100]


def drawn(area: Area, count: int, seed: str, root: Path = ROOT) -> tuple[list[Mutant], int]:
    """`count` mutants of the area by `seed`, and of how many."""
    texts = {file: (root / file).read_text() for file in area.files(root)}
    found = [(file, place) for file, text in texts.items() for place in places(text)]
    chosen = random.Random(seed).sample(found, min(count, len(found)))  # noqa: S311 - drawn, not secret
    return [mutant(file, texts[file], place) for file, place in chosen], len(found)


def main(arguments: list[str]) -> int:
    """0: this measures, and whoever reads it judges."""
    parser = argparse.ArgumentParser(prog="python -m tests.seeded.mutation", description=__doc__)
    parser.add_argument("areas", nargs="*", metavar="AREA", help=f"of {', '.join(AREAS)}; all where none is named")
    parser.add_argument("--count", type=int, default=20, metavar="N", help="mutants of each area")
    parser.add_argument("--seed", default="1", metavar="TEXT")
    parser.add_argument("--near", action="store_true", help="only an area's near tests: quick, and more survive")
    asked = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="mutants-") as folder:
        tree = Tree(Path(folder).resolve())
        for name in asked.areas or AREAS:
            _tried(name, tree, asked.count, asked.seed, near=asked.near)
    return 0


def _tried(name: str, tree: Tree, count: int, seed: str, *, near: bool) -> None:
    area = AREAS[name]
    mutants, of = drawn(area, count, f"{seed}/{name}", tree.folder)
    outcomes = Counter[str]()
    for number, one in enumerate(mutants):
        trial = tree.tried(one.bug(number, area, tree.folder), limit_s=3 * LIMIT_S, wider=() if near else area.wider)
        stuck = trial.outcome == HUNG and not trial.wider  # its own tests take seconds; wider ones may take longer than that
        noticed = trial.outcome == CAUGHT or stuck or "error" in trial.by.lower()
        outcomes["noticed" if noticed else trial.outcome] += 1
        _say(f"{'noticed' if noticed else trial.outcome:9} {trial.seconds:5.0f} s  {one.told()}  {trial.by[:80]}")
    _say(f"{name}: {outcomes['noticed']} of {len(mutants)} noticed ({of} mutants there are; seed {seed}) {dict(outcomes)}")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
