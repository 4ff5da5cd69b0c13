"""A bad input, tried through the real command line in a folder that holds a ledger, settings and a calibration."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Command, Ran
from tests.inputs.cases import Case
from tests.inputs.judging import changes, contents

Tried = Callable[[Case], tuple[Ran, list[str]]]


@pytest.fixture(scope="session")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger that has been made and holds nothing."""
    from costguard.ledger.db import maintenance

    path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    maintenance.upgrade_ledger(f"sqlite:///{path}")
    return path


@pytest.fixture
def tried(costguard: Command, ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tried:
    """What came of a case, and the paths that it changed."""

    def one(case: Case) -> tuple[Ran, list[str]]:
        kept = tmp_path / "data" / "costguard" / "ledger.db"
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ledger, kept)
        for name, content in case.files.items():
            (tmp_path / name).write_bytes(content)
        for name, value in case.environ.items():
            monkeypatch.setenv(name, value)
        before = contents(tmp_path)
        ran = costguard(*case.arguments)
        return ran, changes(before, contents(tmp_path))

    return one
