"""A user's home with settings and one cloud in it, and costguard run there: in this process, or with a umask in its own."""

from __future__ import annotations

import io
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

import pytest

from costguard.cli import run_cli
from tests.contract.rig import Rig
from tests.fakes.server import serving
from tests.providers.runpod.rig import RunpodRig

ROOT = Path(__file__).parents[2]
LONGEST_S = 90
NOBODY = 65534
ANOTHER = "another user's files can only be made by root"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason=ANOTHER)


@dataclass
class House:
    """`folder`: where commands run, and what all their files are below. `printed`: all that they said."""

    folder: Path
    environ: dict[str, str]
    rig: Rig | None = None
    base: str = ""
    printed: list[str] = field(default_factory=list)

    def run(self, *words: str, umask: int | None = None, **environ: str) -> int:
        """The exit code of `costguard` with these words; with a `umask` as a process of its own, else within this one."""
        if umask is None:
            said = io.StringIO()
            with (
                patch.dict(os.environ, {**self.environ, **environ}, clear=True),
                chdir(self.folder),
                redirect_stdout(said),
                redirect_stderr(said),
            ):
                code = run_cli(list(words))
            self.printed.append(said.getvalue())
            return code
        done = subprocess.run(
            [sys.executable, "-m", "costguard", *words],
            cwd=self.folder,
            env={**self.environ, **environ},
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
            umask=umask,
        )
        self.printed.append(done.stdout + done.stderr)
        return done.returncode

    @property
    def said(self) -> str:
        """What the last one printed."""
        return self.printed[-1]

    def write(self, settings: str = "") -> None:
        """Its settings, with the cloud if there is one."""
        text = '[ledger]\nurl = "sqlite:///ledger.db"\n' + settings
        (self.folder / "costguard.toml").write_text(text)


@contextmanager
def a_house(folder: Path, *, cloud: bool = False) -> Iterator[House]:
    """One in `folder`, whose own folders for data and caches are not there yet. `cloud`: with RunPod, a machine running."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "VIRTUAL_ENV") if name in os.environ}
    dirs = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CONFIG", "DATA", "CACHE")}
    path = os.pathsep.join(str(ROOT / room) for room in (".", "providers"))
    house = House(folder, {**kept, **dirs, "HOME": str(folder), "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"})
    if not cloud:
        house.write()
        yield house
        return
    house.rig = rig = RunpodRig()
    rig.clock.at = datetime.now(UTC)
    rig.put(1)
    with serving(rig.fake) as base:
        house.base = base
        house.environ |= rig.environ()
        house.write(table_of("runpod", rig.table(base)))
        yield house


def table_of(name: str, values: Mapping[str, object]) -> str:
    """`[providers.NAME]` with these values."""
    return f"[providers.{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


def open_to_others(folder: Path) -> dict[str, str]:
    """Each file and folder below `folder` that others may read, write or enter: its name and its mode."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if mode & 0o077 and not path.is_symlink():
            found[str(path.relative_to(folder))] = f"{mode:04o}"
    return found


@contextmanager
def a_public_place() -> Iterator[Path]:
    """A folder that everybody gets to, as pytest's own is not: 0755, below the folder for temporary files."""
    made = Path(tempfile.mkdtemp(prefix="costguard-public-"))
    made.chmod(0o755)
    try:
        if not all(one.stat().st_mode & stat.S_IXOTH for one in made.parents):
            pytest.skip("no folder here that everybody gets to")
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
