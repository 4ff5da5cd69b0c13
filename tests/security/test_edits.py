"""The audit against whoever owns the ledger's file (RELIABILITY 5.5): what is found by itself, and what only with an anchor."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from costguard.ledger.guard import audit_check
from tests.security import edits

CHANGES = int(os.environ.get("COSTGUARD_EDITS", "100"))
SEED = int(os.environ.get("COSTGUARD_EDITS_SEED", "23"))


def test_every_edit_is_found_by_the_command_that_people_have(tmp_path: Path) -> None:
    came = edits.tally(tmp_path, CHANGES, SEED)
    assert came.missed == []
    assert came.tried == CHANGES
    assert len(came.kinds) == len(set(edits.CHANGES))


def test_a_verifier_that_does_not_look_misses_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: of what the chain shows alone, and of what the rows show that it tells of."""
    monkeypatch.setattr(audit_check, "find_break_after", lambda *_: None)
    monkeypatch.setattr(audit_check, "_check_moves", lambda *_: ())
    monkeypatch.setattr(audit_check, "_check_rows", lambda *_: ())
    assert len(edits.tally(tmp_path, 40, SEED).missed) > 20


@pytest.mark.parametrize("harm", [lambda file: edits.cut_off(file, 3), edits.write_anew], ids=["cut off", "written anew"])
def test_what_an_owner_does_to_all_later_rows_shows_only_against_a_head_that_was_noted(
    tmp_path: Path, harm: Callable[[Any], None]
) -> None:
    file = edits.made(tmp_path)
    noted = edits.head_of(file)
    with closing(sqlite3.connect(file)) as connection:
        harm(connection)
        connection.commit()
    assert edits.found(tmp_path) == []
    (said,) = edits.found(tmp_path, noted)
    assert noted in said
