"""The agent as one file: `python3 costguard-agent.pyz join URL CODE` on a machine without an index of packages.

The same packages give the same bytes: names in order, one date, nothing compressed. NVIDIA's binding (pynvml, one module) goes
along where it is installed. A file like this keeps nothing compiled, which costs memory and a second at each start, so
`run` unpacks it once beside the key and goes on from there.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath

PACKAGE, BINDING = "costguard_agent", "pynvml"
FIRST_LINE = b"#!/usr/bin/env python3\n"
DATE = (2020, 1, 1, 0, 0, 0)
MAIN = """\
import sys

if sys.version_info < (3, 9):
    sys.exit("costguard-agent needs Python 3.9 or newer, this is " + sys.version.split()[0])

from costguard_agent.cli import main

sys.exit(main(sys.argv[1:]))
"""
COMPILE_S = 60
PROGRAM_FOLDER = "program"


def build_archive() -> bytes:
    """The whole file. From within such a file: that file. Raises OSError."""
    packed = find_own_archive()
    if packed is not None:
        return packed.read_bytes()
    files = {"__main__.py": MAIN.encode(), **_read_package(), **_read_binding()}
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w", zipfile.ZIP_STORED) as made:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, DATE)
            info.external_attr = 0o644 << 16
            info.create_system = 3
            made.writestr(info, files[name])
    return FIRST_LINE + found.getvalue()


def find_own_archive() -> Path | None:
    """The file that this process runs from; None where it runs from a folder."""
    path = Path(__file__).resolve().parent.parent
    return path if path.is_file() else None


def unpack_archive(data: bytes, folder: Path, python: str, *, mode: int = 0o700) -> None:
    """Such a file as a folder that `python` can run, compiled by a process of its own. Raises OSError."""
    folder.mkdir(parents=True)
    with zipfile.ZipFile(io.BytesIO(data)) as whole:
        for name in whole.namelist():
            parts = PurePosixPath(name).parts
            if not parts or ".." in parts or name.startswith("/") or not name.endswith(".py"):
                raise OSError(f"{name!r} does not belong into the agent")
            path = folder.joinpath(*parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(whole.read(name))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    words = [python, "-I", "-m", "compileall", "-q", str(folder)]
    try:
        subprocess.run(words, check=False, env=environment, timeout=COMPILE_S, stdout=subprocess.DEVNULL)  # noqa: S603
    except subprocess.SubprocessError as error:
        raise OSError(f"cannot compile: {error}") from error
    for path in (folder, *folder.rglob("*")):
        path.chmod(mode if path.is_dir() else mode & 0o666)


def run_unpacked(state: Path) -> None:
    """From within such a file: unpack it below `state`, and go on from there as this process. Else, or if it fails: nothing."""
    packed = find_own_archive()
    if packed is None:
        return
    try:
        data = packed.read_bytes()
        folder = state / PROGRAM_FOLDER / hashlib.sha256(data).hexdigest()[:16]
        if not (folder / "__main__.py").exists():
            shutil.rmtree(state / PROGRAM_FOLDER, ignore_errors=True)
            beside = folder.with_name(".new")
            unpack_archive(data, beside, sys.executable)
            beside.rename(folder)
        os.execv(sys.executable, [sys.executable, str(folder), *sys.argv[1:]])  # noqa: S606 - the same program, unpacked
    except OSError:
        return


def _read_package() -> dict[str, bytes]:
    here = Path(__file__).resolve().parent
    return {f"{PACKAGE}/{path.relative_to(here).as_posix()}": path.read_bytes() for path in here.rglob("*.py")}


def _read_binding() -> dict[str, bytes]:
    import importlib.util

    found = importlib.util.find_spec(BINDING)
    if found is None or found.origin is None or not found.origin.endswith(f"{BINDING}.py"):
        return {}
    return {f"{BINDING}.py": Path(found.origin).read_bytes()}
