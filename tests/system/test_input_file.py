"""Files that a person names: regular ones within their size, pipes of the shell within their time, and nothing else."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import pytest

from costguard.system import input_file
from costguard.system.input_file import InputFileError, open_input_file, read_input_file, require_input_file


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
