"""Work that makes many objects and no rings of them, done without garbage collections, each of which would look at all so far.

Example: judging 10,000 machines makes a million objects; looking through them was a third of the time (2026-11).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Without garbage collections. Of two threads in here the first to leave ends it for both, which costs time alone."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
