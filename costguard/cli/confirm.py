"""Ask a person yes or no on the terminal; without one there is nobody to ask."""

from __future__ import annotations

import sys
from collections.abc import Callable


def find_asker() -> Callable[[str], bool] | None:
    """Return what asks on this terminal; None where input or standard error is none."""
    if sys.stdin is None or not sys.stdin.isatty() or not sys.stderr.isatty():
        return None
    return _ask


def _ask(question: str) -> bool:
    """Print `question` and return whether the answer is yes; anything else, and the end of the input, is no."""
    from costguard.errors import replace_unprintable
    from costguard.system.progress import clear_progress

    clear_progress()
    sys.stderr.write("".join(f"{replace_unprintable(line)}\n" for line in question.splitlines()[:-1]))
    sys.stderr.write(f"{replace_unprintable(question.splitlines()[-1])} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
