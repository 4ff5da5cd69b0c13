"""What an install takes: the wheel is built and installed into a fresh environment without pip, and its files are summed.

    python -m bench.install [EXTRA ...]        needs: a package index, for what pip resolves

Bytecode counts, since pip compiles what it installs. A file counts with its length, and the whole environment once more as the
disk sees it, in blocks. The goal is that of the bare install (issue 25).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from collections import Counter
from importlib.metadata import Distribution, distributions
from pathlib import Path

from bench.measured import Measured, table

ROOT = Path(__file__).parents[1]
MIB = 2**20
GOAL_MIB = 70
SHOWN = 15
"""Distributions that are listed one by one."""
BLOCK = 512
"""Bytes of a block of `st_blocks`, whatever the file system's own are."""


def install(folder: Path, extras: list[str]) -> Path:
    """Build the wheel, install it with `extras` into an environment at `folder`, and return the folder of its packages."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    wanted = f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT)
    subprocess.run([sys.executable, "-m", "pip", "--quiet", "--python", str(python), "install", wanted], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    return packages


def measure_distribution(one: Distribution) -> int:
    """Return the bytes of its files, bytecode included."""
    files = {Path(str(one.locate_file(file))).resolve() for file in one.files or ()}
    return sum(path.stat().st_size for path in files if path.is_file())


def list_sizes(packages: Path) -> Counter[str]:
    """Return the bytes of each distribution in `packages`, by name."""
    return Counter({one.name: measure_distribution(one) for one in distributions(path=[str(packages)])})


def measure_disk(folder: Path) -> int:
    """Return the bytes that `folder` takes on the disk, as `du` counts them."""
    return sum(path.lstat().st_blocks * BLOCK for path in (folder, *folder.rglob("*")))


def main(extras: list[str]) -> int:
    """Print the sizes, the largest first, and return how many goals are missed."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "venv"
        sizes = list_sizes(install(folder, extras))
        disk = measure_disk(folder) / MIB
    lines = [Measured(what=name, reached=f"{size / MIB:.1f} MiB") for name, size in sizes.most_common(SHOWN)]
    rest = sum(size for _, size in sizes.most_common()[SHOWN:])
    lines.append(Measured(what=f"{max(0, len(sizes) - SHOWN)} others", reached=f"{rest / MIB:.1f} MiB"))
    whole = sizes.total() / MIB
    lines.append(Measured(what=f"gpu-costguard{extras or ''}, the lengths of all files", reached=f"{whole:.1f} MiB"))
    goal = {} if extras else {"target": f"<= {GOAL_MIB} MiB"}
    lines.append(
        Measured(
            what="the environment on the disk", reached=f"{disk:.1f} MiB", met=None if extras else disk <= GOAL_MIB, **goal
        )
    )
    return table(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
