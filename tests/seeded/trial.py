"""One bug on trial: put into a copy of the tree, the tests that must notice it run there, and the copy made whole again.

What was noticed counts only if the very test that noticed passes without the bug, in the same copy.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

from tests.seeded.corpus import ROOT, Bug

CAUGHT, SURVIVED, HUNG, RED = "caught", "SURVIVED", "HUNG", "RED ANYWAY"
"""`HUNG`: no end within the limit, which proves nothing. `RED`: what noticed it fails without it as well, or cannot be run."""

LIMIT_S, WIDER_S = 120.0, 900.0
"""Seconds for the named tests of one bug, and for the wider ones."""
WIDER = (
    *(
        f"tests/{room}"
        for room in (
            *("agents", "bills", "budgets", "guard", "metering", "quoting", "reporting", "runs", "sizing", "values", "views"),
            *("services", "ledger", "settings", "notifiers", "renderers", "system", "watchdog", "web", "testing", "agent"),
            *("scenarios", "golden", "inputs", "cli", "providers", "contract", "simulation"),
        )
    ),
    "tests/test_acting_wall.py",
)
"""What is run on a bug that its own tests let pass: all but campaigns, benchmarks, and what is about the repository itself."""

LEFT_OUT = (
    ".git",
    ".venv",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".import_linter_cache",
    ".hypothesis",
    "build",
    "dist",
)
HYPOTHESIS = "_hypothesis_pytestplugin"
"""The one plug-in of pytest that tests need; to load all that are installed takes longer than most tests."""
FOUND = re.compile(r"^(FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What came of it. `by`: the test that noticed. `seconds`: of that run. `wider`: it is no named test."""

    bug: Bug
    outcome: str
    seconds: float
    by: str = ""
    wider: bool = False

    def line(self) -> str:
        """For a table."""
        by = f"{self.by}{' (not one of its own tests)' if self.wider else ''}"
        return f"{self.bug.name:38} {self.bug.hazard:12} {self.outcome:10} {self.seconds:6.1f} s  {by}"


class Tree:
    """A copy of the repository in `folder`, in which one bug after the other is tried.

    `quick`: only by what `make test` plays of each test; else campaigns too, and all examples of hypothesis.
    """

    def __init__(self, folder: Path, root: Path = ROOT, *, quick: bool = False) -> None:
        self.folder, self.quick = folder, quick
        shutil.copytree(root, folder, ignore=_left_out(root), copy_function=_copied, symlinks=True, dirs_exist_ok=True)
        where = "import costguard, costguard_aws; print(costguard.__file__, costguard_aws.__file__)"
        said = subprocess.run(
            [sys.executable, "-c", where], cwd=folder, env=self._environment(), capture_output=True, text=True, check=True
        )
        for file in said.stdout.split():
            assert Path(file).is_relative_to(folder.resolve()) or Path(file).is_relative_to(folder), said.stdout

    def tried(self, bug: Bug, *, limit_s: float = LIMIT_S, wider: Sequence[str] = WIDER, wider_s: float = WIDER_S) -> Trial:
        """Put `bug` in, run its tests, and the `wider` ones where they let it pass."""
        with self._with(bug):
            found = self._noticed(bug, bug.tests, limit_s)
            if found.outcome == SURVIVED and wider:
                by_others = self._noticed(bug, wider, wider_s)
                found = replace(by_others, wider=True)
        return found

    def held_against(self, trials: Sequence[Trial], *, limit_s: float = WIDER_S) -> list[Trial]:
        """`trials`, but RED where the test that noticed fails in this copy as it is, without any bug."""
        noticed = list(dict.fromkeys(trial.by for trial in trials if trial.outcome == CAUGHT))
        code, said = self._run(noticed, limit_s, first=False) if noticed else (0, "")
        failed = {name for _, name in FOUND.findall(said)}
        if code not in (0, 1):  # one of them cannot even be found again: each by itself
            failed = {name for name in noticed if self._run([name], limit_s)[0] != 0}
        return [replace(one, outcome=RED) if one.outcome == CAUGHT and one.by in failed else one for one in trials]

    @contextmanager
    def _with(self, bug: Bug) -> Iterator[None]:
        before = {file: (self.folder / file).read_text() for file in bug.applied(self.folder)}
        self._write(bug.applied(self.folder))
        try:
            yield
        finally:
            self._write(before)

    def _write(self, texts: Mapping[str, str]) -> None:
        """Write `texts`; what Python compiled of those files is dropped, since two writes of one second look alike to it."""
        for file, text in texts.items():
            path = self.folder / file
            path.write_text(text)
            for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
                compiled.unlink()

    def _noticed(self, bug: Bug, tests: Sequence[str], limit_s: float) -> Trial:
        began = monotonic()
        code, said = self._run(tests, limit_s)
        seconds = monotonic() - began
        failed = [name for kind, name in FOUND.findall(said) if "::" in name]
        if code == 0:
            return Trial(bug=bug, outcome=SURVIVED, seconds=seconds)
        if code is None:
            return Trial(bug=bug, outcome=HUNG, seconds=seconds, by=f"no end within {limit_s:g} s")
        if code != 1 or not failed:
            return Trial(bug=bug, outcome=RED, seconds=seconds, by=" ".join(said.split()[-40:]))
        return Trial(bug=bug, outcome=CAUGHT, seconds=seconds, by=failed[0])

    def _run(self, tests: Sequence[str], limit_s: float, *, first: bool = True) -> tuple[int | None, str]:
        """The exit code of pytest on `tests`, and what it said; None where it did not end in time. `first`: to a failure."""
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--tb=line",
            "-p",
            "no:cacheprovider",
            "-p",
            HYPOTHESIS,
            "-p",
            "pytest_timeout",
        ]
        command += ["-x"] if first else []
        command += ["-m", "not proof"] if self.quick else []
        process = subprocess.Popen(
            [*command, "--hypothesis-seed=0", *tests],
            cwd=self.folder,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return None, ""
        finally:
            _end(process)
        return process.returncode, said

    def _environment(self) -> dict[str, str]:
        ours = {k: v for k, v in os.environ.items() if not k.startswith(("COSTGUARD_", "PYTEST_", "XDG_"))}
        path = os.pathsep.join(map(str, (self.folder, self.folder / "agent", self.folder / "providers")))
        examples = {} if self.quick else {"COSTGUARD_EXAMPLES": "full"}
        return ours | examples | {"PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def _end(process: subprocess.Popen[str]) -> None:
    """End it with all that it started, where it still runs."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _copied(source: str, place: str) -> None:
    """Copy a file, unless it is gone by now: tests that run beside this one compile and rename."""
    with suppress(FileNotFoundError):
        shutil.copy2(source, place)


def _left_out(root: Path) -> Callable[[str, list[str]], set[str]]:
    def ignore(folder: str, names: list[str]) -> set[str]:
        return {name for name in names if name in LEFT_OUT} if Path(folder) == root else set()

    return ignore
