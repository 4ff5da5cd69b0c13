"""The collector waits in a block, and works again after it, whoever's blocks overlap."""

from __future__ import annotations

import errno
import gc
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from costguard.system import input_file
from costguard.system.input_file import InputFileError, open_input_file, read_input_file, require_input_file
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


def test_a_regular_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_bytes(b"x" * 10)
    assert read_input_file(path, 10) == b"x" * 10
    with pytest.raises(InputFileError) as refused:
        read_input_file(path, 9)
    assert refused.value.errno == errno.EFBIG
    with open_input_file(path) as raw:
        assert raw.read() == b"x" * 10


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/ptmx", "/dev/null", "fifo", "link"])
def test_what_may_never_end_is_refused_at_once(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/dev/zero")
    path, began = tmp_path / name, time.monotonic()
    for read in (open_input_file, require_input_file, lambda one: read_input_file(one, 10)):
        with pytest.raises(InputFileError, match="is not a plain file"):
            read(path)
    assert time.monotonic() - began < 60


def test_a_pipe_of_the_shell_is_waited_for_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, writes = os.pipe()
    path = Path(f"/dev/fd/{reads}")

    def write() -> None:
        os.write(writes, b"model")
        os.close(writes)

    later = threading.Timer(0.1, write)
    later.start()
    assert read_input_file(path, 10) == b"model"
    later.join()
    os.close(reads)
    reads, writes = os.pipe()
    monkeypatch.setattr(input_file, "READ_S", 0.05)
    with pytest.raises(InputFileError, match="did not arrive"):
        read_input_file(Path(f"/dev/fd/{reads}"), 10)
    os.close(reads)
    os.close(writes)
