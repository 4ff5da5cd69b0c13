"""Adapters by cases: `python -m tests.contract.table [-k vast ...]` runs the suite and prints what came of each case.

A cell counts the tries of one case with one adapter: `12` passed, `3/12` three failed, `-` skipped (no such thing there).
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict

import pytest

from tests.contract.adapters import RIGS


class Tally:
    """A pytest plug-in that counts outcomes by case and adapter."""

    def __init__(self) -> None:
        self.counts: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count what a try came to; an error before or after it is a failure."""
        if report.when != "call" and report.passed:
            return
        name, _, parameters = report.nodeid.rpartition("::")[2].partition("[")
        adapter = next((one for one in parameters.rstrip("]").split("-") if one in RIGS), "")
        self.counts[name.removeprefix("test_").replace("_", " ")][adapter][report.outcome] += 1

    def table(self) -> str:
        """One row for each case, one column for each adapter, and their sums."""
        width = max(map(len, self.counts), default=0)
        head = f"{'case':{width}}" + "".join(f"{name:>9}" for name in RIGS)
        rows = [f"{case:{width}}" + "".join(f"{_cell(by[name]):>9}" for name in RIGS) for case, by in self.counts.items()]
        sums = [sum((by[name] for by in self.counts.values()), Counter[str]()) for name in RIGS]
        return "\n".join((head, *rows, f"{f'{len(rows)} cases':{width}}" + "".join(f"{_cell(one):>9}" for one in sums)))


def _cell(count: Counter[str]) -> str:
    tried = count["passed"] + count["failed"]
    if not tried:
        return "-"
    return f"{count['failed']}/{tried}" if count["failed"] else str(tried)


def main(arguments: list[str]) -> int:
    """Run the suite and print its table; pytest's exit status."""
    tally = Tally()
    status = pytest.main(["-qq", "--no-header", "--no-summary", "--tb=no", "tests/contract", *arguments], plugins=[tally])
    sys.stdout.write(f"{tally.table()}\n")
    return int(status)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
