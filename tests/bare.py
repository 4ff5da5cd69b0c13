"""The bare install: what `pip install gpu-costguard` brings without any extra, and a Python that sees nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
OWN = "gpu-costguard"
PATIENCE_S = 120.0


def list_bare_distributions() -> dict[str, Distribution]:
    """The distributions that the bare install brings, by their normalised names, as they are installed here."""
    found, due = dict[str, Distribution](), [OWN]
    while due:
        name = normalise(due.pop())
        if name not in found:
            found[name] = distribution(name)
            for line in found[name].requires or ():
                needed = Requirement(line)
                if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                    due.append(needed.name)
    return found


def normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


class BareInstall:
    """A folder with links to the distributions of the bare install, and a Python that imports from there and from here."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for one in list_bare_distributions().values():
            tops = {file.parts[0] for file in one.files or () if file.parts[0] not in ("..", "__pycache__")}
            for top in tops:
                if not top.endswith(".pth") and not (folder / top).exists():
                    (folder / top).symlink_to(Path(str(one.locate_file(top))))

    def run(self, *words: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
        """`python WORDS` there; -S leaves out the line by which .venv knows itself."""
        paths = os.pathsep.join(map(str, (self.folder, ROOT, ROOT / "agent", ROOT / "providers")))
        return subprocess.run(
            (sys.executable, "-S", "-B", *words),
            cwd=cwd,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": paths, "HOME": str(cwd), **environ},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def costguard(self, *words: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
        return self.run("-m", "costguard", *words, cwd=cwd, **environ)
