"""A sample of the bad inputs through the console script itself, in a process of its own: the same words, the same exit code."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Ran
from tests.inputs.cases import Case
from tests.inputs.judging import Snapshot, changes, contents, flaws, shown
from tests.inputs.test_bad_inputs import EVERY

SAMPLE = 20
SCRIPT = Path(sys.executable).with_name("costguard")
LONGEST_S = 300


def _sample() -> list[tuple[str, Case]]:
    """Twenty, as far from each other in the corpora as they can be."""
    every = [(corpus, case) for corpus, found in EVERY.items() for case in found]
    return every[:: -(-len(every) // SAMPLE)]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("corpus", "case"), [pytest.param(*one, id=one[1].id) for one in _sample()])
def test_the_console_script_says_the_same(corpus: str, case: Case, ledger: Path, tmp_path: Path) -> None:
    kept = tmp_path / "data" / "costguard" / "ledger.db"
    kept.parent.mkdir(parents=True)
    shutil.copy(ledger, kept)
    for name, content in case.files.items():
        (tmp_path / name).write_bytes(content)
    dirs = {f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("CONFIG", "DATA", "CACHE")}
    plain = {name: value for name, value in os.environ.items() if not name.startswith("COSTGUARD_")}
    before = contents(tmp_path)
    done = subprocess.run(
        [SCRIPT, *case.arguments],
        cwd=tmp_path,
        env={**plain, **dirs, **case.environ},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    ran = Ran(code=done.returncode, out=done.stdout, err=done.stderr)
    assert not list(flaws(case, ran, changes(before, contents(tmp_path)))), ran
    assert Snapshot(corpus, EVERY[corpus]).frozen()[case.id] == shown(ran, tmp_path)


def test_the_sample_is_of_every_corpus() -> None:
    assert len(_sample()) >= SAMPLE - 1
    assert {corpus for corpus, _ in _sample()} == set(EVERY)
