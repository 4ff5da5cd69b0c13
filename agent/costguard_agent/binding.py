"""NVIDIA's binding, imported without what compiling it costs: 16 MB that a process keeps for ever."""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

NAME, WITHIN_S = "pynvml", 60


def import_pynvml() -> ModuleType:
    """The module. Raises ImportError; where it was never compiled (uv, read-only images), another process does that first."""
    with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
        source = _find_source()
        if source is not None and not Path(importlib.util.cache_from_source(str(source))).exists():
            words = [sys.executable, "-m", "compileall", "-q", str(source)]
            subprocess.run(words, check=False, cwd="/", timeout=WITHIN_S, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
    return importlib.import_module(NAME)


def _find_source() -> Path | None:
    """Its file; None where it is imported already, missing, or no file of its own (an archive)."""
    spec = None if NAME in sys.modules else importlib.util.find_spec(NAME)
    if spec is None or not (spec.origin or "").endswith(".py"):
        return None
    found = Path(spec.origin or "")
    return found if found.is_file() else None
