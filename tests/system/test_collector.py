"""The collector waits in a block, and works again after it, whoever's blocks overlap."""

from __future__ import annotations

import gc
import sys
import threading
from contextlib import suppress

import pytest

from costguard.system.process import hide_module, pause_gc


def test_it_waits_in_the_block_and_works_after_it_even_where_the_block_fails() -> None:
    with suppress(ZeroDivisionError), pause_gc():
        assert not gc.isenabled()
        raise ZeroDivisionError
    assert gc.isenabled()


def test_a_hidden_module_is_not_found_and_found_again_after_it() -> None:
    sys.modules.pop("colorsys", None)
    with hide_module("colorsys"), pytest.raises(ImportError):
        import colorsys
    import colorsys

    with hide_module("colorsys"):
        import colorsys as again
    assert again is colorsys


def test_blocks_that_overlap_in_several_threads_never_leave_it_off() -> None:
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        for _ in range(500):
            with pause_gc():
                sum(range(50))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gc.isenabled()
