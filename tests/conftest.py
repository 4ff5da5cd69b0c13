"""The real command line, in process: what it printed, where, and its exit code."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from costguard.cli import run_cli
from costguard.services.quote import quote_commands
from tests import shop
from tests.campaign import PART, examples, is_in_part, mark_campaigns

hypothesis.settings.register_profile("house", deadline=None, max_examples=examples(100))
hypothesis.settings.load_profile("house")
"""Nothing here is measured by the clock: an example that takes long on a machine that is busy is no worse an example."""

_KEYS = ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL), (signal.SIGHUP, lambda *_: None))
for _key, _handler in _KEYS:
    # A shell without job control has jobs in the background ignore the first two, nohup the third, and so would every program
    # that a test starts and then signals. What is handled here is the default there.
    if signal.getsignal(_key) is signal.SIG_IGN:
        signal.signal(_key, _handler)


@pytest.hookimpl(optionalhook=True)  # without pytest-xdist nobody asks
def pytest_xdist_auto_num_workers() -> int:
    """Three workers for two cores: each imports and collects all tests, and tests wait for processes.

    1,730 s of tests took 730 s of CPU time on two cores (2026-11-29).
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + cores // 2


@dataclass(frozen=True, slots=True)
class Ran:
    """What one command did."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> dict[str, Any]:
        """Its stdout, which must be one JSON object and nothing else."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found

    def says(self, *words: str) -> None:
        """A refusal of bad input that names these words: exit 2, nothing on stdout, a few clean lines on stderr."""
        assert self.code == 2, self
        assert self.out == ""
        self.is_clean()
        for word in words:
            assert word in self.err, self.err

    def is_clean(self) -> None:
        """At most five lines for people, no traceback, and nothing that acts on a terminal."""
        assert len(self.err.splitlines()) <= 5, self.err
        assert "Traceback" not in self.err
        assert "a bug in costguard" not in self.err, self.err
        for character in self.out + self.err:
            assert character == "\n" or character.isprintable(), repr(character)


Command = Callable[..., Ran]

SLOW = (
    *("tests/simulation", "tests/seeded", "tests/disks", "tests/crashes", "tests/networks", "tests/test_wheel.py"),
    *("tests/cli/test_watch_five_clouds.py", "tests/cli/test_demo.py"),
    *("tests/inputs/test_canaries.py", "tests/scenarios"),
)
"""Where single tests take long."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow ones begin: workers share what is left, and the last one must not be left with a minute of work."""
    mark_campaigns(items)  # before pytest looks at `-m`
    if PART:
        items[:] = [item for item in items if is_in_part(item.nodeid, PART)]
    items.sort(key=lambda item: not item.nodeid.startswith(SLOW))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-golden", action="store_true", help="Write tests/golden anew (then read the diff).")


@pytest.fixture
def costguard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """`costguard(...)` in an empty folder, without settings, on a fixed day."""
    for name in [name for name in os.environ if name.startswith("COSTGUARD_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(quote_commands, "get_today", lambda: shop.TODAY)

    def ran(*arguments: str) -> Ran:
        capsys.readouterr()
        code = run_cli(list(arguments))
        printed = capsys.readouterr()
        return Ran(code=code, out=printed.out, err=printed.err)

    return ran


@pytest.fixture
def market(tmp_path: Path) -> str:
    """The path of the small market."""
    return shop.market(tmp_path)
