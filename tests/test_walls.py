"""import-linter's contracts hold, and each of them turns red when its wall is broken on purpose."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "costguard", tmp_path / "costguard", ignore=shutil.ignore_patterns("__pycache__", "*.sqlite"))
    for packages in ("agent", "providers"):
        shutil.copytree(ROOT / packages, tmp_path / packages, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def lint(root: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    path = {"PYTHONPATH": f"{root}:{root / 'agent'}:{root / 'providers'}"}
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, env=path)


def test_the_walls_stand(copy: Path) -> None:
    result = lint(copy)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("file", "line", "contract"),
    [
        ("costguard/values/money.py", "from costguard import settings", "Rooms stand in layers"),
        ("costguard/reporting/schedule.py", "from costguard.ledger import market", "Rooms stand in layers"),
        ("costguard/renderers/markdown.py", "import costguard.services", "Rooms stand in layers"),
        ("costguard/attic/__init__.py", '"""A room nobody planned."""', "Rooms stand in layers"),
        ("costguard/values/money.py", "import socket", "Deciding rooms are pure"),
        ("costguard/views/document.py", "import rich", "Deciding rooms are pure"),
        ("agent/costguard_agent/protocol.py", "import costguard.values.money", "The agent carries nothing"),
        ("costguard/services/quote/quote_commands.py", "import sqlite3", "Only the ledger knows SQL"),
    ],
)
def test_a_broken_wall_is_red(copy: Path, file: str, line: str, contract: str) -> None:
    path = copy / file
    path.parent.mkdir(exist_ok=True)
    path.write_text((path.read_text() if path.exists() else "") + f"\n{line}\n")
    result = lint(copy)
    assert result.returncode == 1, result.stdout
    assert f"{contract}" in next(row for row in result.stdout.splitlines() if "BROKEN" in row)
