"""The cache of files: what was kept is found until it is too old, for this user only, and a full disk is no failure."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

from costguard.services.poll.configured_providers import FileCache

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


def test_what_was_kept_is_found_and_nothing_else(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "cache")
    assert cache.get("aws/us-east-1", LONG_AGO) is None
    cache.put("aws/us-east-1", b"prices")
    cache.put("aws-us-east-1", b"others")
    assert cache.get("aws/us-east-1", LONG_AGO) == b"prices"
    assert cache.get("aws-us-east-1", LONG_AGO) == b"others"
    cache.put("aws/us-east-1", b"")
    assert cache.get("aws/us-east-1", LONG_AGO) == b""


def test_what_is_too_old_is_not_found(tmp_path: Path) -> None:
    cache = FileCache(tmp_path)
    cache.put("a", b"x")
    (path,) = tmp_path.iterdir()
    os.utime(path, (1_800_000_000, 1_800_000_000))
    kept = datetime.fromtimestamp(1_800_000_000, UTC)
    assert cache.get("a", kept) == b"x"
    assert cache.get("a", kept + timedelta(seconds=1)) is None


def test_it_is_for_this_user_only_and_leaves_nothing_unfinished(tmp_path: Path) -> None:
    FileCache(tmp_path / "deep" / "er").put("../../etc/passwd", b"x")
    (path,) = (tmp_path / "deep" / "er").iterdir()
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)
    assert not path.name.startswith(".")


def test_that_it_cannot_be_kept_is_nobodys_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no such folder:")
    cache = FileCache(tmp_path / "file")
    cache.put("a", b"x")
    assert cache.get("a", LONG_AGO) is None
