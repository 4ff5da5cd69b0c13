"""Python's collector of cyclic garbage, told to wait where many values are made at once and none of them is in a cycle."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def pause_gc() -> Iterator[None]:
    """Cycles of garbage are not looked for in here, nor meanwhile by other threads.

    A poll in which all changed makes a hundred thousand values; looking for cycles among them was a fifth of the ledger's time,
    and half of that of reading 5,000 EC2 instances (2026-11). Whoever found the collector at work sets it to work again, so
    that blocks which overlap in several threads never leave it off.
    """
    looking = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if looking:
            gc.enable()
