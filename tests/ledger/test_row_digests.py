"""Whatever somebody edits in a row that decides who pays or whether a machine is stopped, `db check` names the row."""
# ruff: noqa: S608 - the statements are made of our own names

from __future__ import annotations

import os
import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from costguard.ledger.db import maintenance
from costguard.ledger.db.connection import upgrade_schema
from costguard.ledger.db.deciding_tables import DECIDING_TABLES, OTHER_TABLES
from costguard.ledger.db.row_digests import encode_fixed
from costguard.ledger.tables import load_metadata
from costguard.values.calendar import find_month_of_day
from tests.ledger.tampering import Edit, Editor, build_ledger
from tests.ledger.test_upgrades import restore

METADATA = load_metadata()

EDITS = 150
EDITS_IN_PROOF = int(os.environ.get("COSTGUARD_EDITS", "2000"))
"""By hand with COSTGUARD_EDITS=10000: 75 ms each, of which the check of the whole ledger is nearly all."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger file with rows in every deciding table, closed, and with its log written into it."""
    folder = tmp_path_factory.mktemp("sound", numbered=True)
    path = folder / "ledger.db"
    build_ledger(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        file.execute("PRAGMA journal_mode = DELETE")
    return path


def find_missed(editor: Editor, edit: Callable[[], Edit], count: int) -> list[tuple[Edit, list[str]]]:
    """Return the edits among `count` whose row no finding names."""
    missed = []
    for _ in range(count):
        one = edit()
        findings = maintenance.check_ledger(editor.url)
        if not one.is_named(findings):
            missed.append((one, findings))
    return missed


def make_editor(sound: Path, folder: Path, seed: int = 5) -> Editor:
    return Editor(sound, folder, random.Random(seed))  # noqa: S311 - edits are drawn, not secret


def test_every_table_is_declared_as_deciding_or_not_with_all_its_columns() -> None:
    assert {*DECIDING_TABLES, *OTHER_TABLES} == {*METADATA.tables, "alembic_version"}
    assert not DECIDING_TABLES.keys() & OTHER_TABLES.keys()
    for name, table in DECIDING_TABLES.items():
        assert Counter(table.columns) == Counter(METADATA.tables[name].columns.keys()), name


def test_a_ledger_with_rows_in_every_deciding_table_is_sound(sound: Path) -> None:
    with closing(sqlite3.connect(sound)) as file:
        counts = {name: file.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in DECIDING_TABLES}
    assert min(counts.values()) >= 1, counts
    assert maintenance.check_ledger(f"sqlite:///{sound}") == []


def test_each_edit_of_a_value_is_found_and_its_row_named(sound: Path, tmp_path: Path) -> None:
    editor = make_editor(sound, tmp_path)
    assert find_missed(editor, editor.edit_value, EDITS) == []


@pytest.mark.proof
def test_thousands_of_edits_of_values_are_all_found(sound: Path, tmp_path: Path) -> None:
    editor = make_editor(sound, tmp_path, seed=6)
    assert find_missed(editor, editor.edit_value, EDITS_IN_PROOF) == []


def edit_by_hand(source: Path, folder: Path, *statements: str) -> list[str]:
    """Return the findings of the check after `statements` on a copy, with the triggers down meanwhile."""
    editor = make_editor(source, folder)
    with editor.open_copy() as file:
        for statement in statements:
            assert file.execute(statement).rowcount == 1, statement
    return maintenance.check_ledger(editor.url)


def test_a_span_edited_together_with_its_sums_is_found(sound: Path, tmp_path: Path) -> None:
    """The span, its day and its month go to another owner: everything adds up, and the digest does not."""
    with closing(sqlite3.connect(sound)) as file:
        days = file.execute("""
SELECT min(s.id), s.attribution_id, d.day FROM daily AS d
JOIN span AS s ON s.attribution_id = d.attribution_id AND s.charge = d.charge AND s.currency = d.currency AND s.expected > 0
    AND s.price_known = d.known AND s.start_us / 86400000000 <= d.day AND s.end_us > d.day * 86400000000
LEFT JOIN correction AS c ON c.span_id = s.id WHERE c.id IS NULL
GROUP BY d.day, s.attribution_id, d.charge, d.known
HAVING count(*) = 1 AND min(s.start_us / 86400000000) = max(s.end_us / 86400000000)
""").fetchall()
        owners = [number for (number,) in file.execute("SELECT id FROM attribution")]
        taken = set(file.execute("SELECT attribution_id, day FROM daily"))
        span, owner, day, other = next(
            (span, owner, day, other) for span, owner, day in days for other in owners if (other, day) not in taken
        )
        ((resource, charge, currency, known, source, *amounts),) = file.execute(f"""
SELECT resource_id, charge, currency, price_known, price_source, low, expected, high,
    (end_us - start_us) / CASE presence WHEN 'edge' THEN 2 ELSE 1 END * CASE presence WHEN 'maybe' THEN 0 ELSE 1 END
FROM span WHERE id = {span}
""")
    month, names = find_month_of_day(day), ("low", "expected", "high", "us")
    findings = edit_by_hand(
        sound,
        tmp_path,
        f"UPDATE span SET attribution_id = {other} WHERE id = {span}",
        f"UPDATE daily SET attribution_id = {other} WHERE day = {day} AND attribution_id = {owner} AND charge = "
        f"(SELECT charge FROM span WHERE id = {span}) AND known = (SELECT price_known FROM span WHERE id = {span})",
        f"UPDATE monthly SET {', '.join(f'{name} = {name} - {n}' for name, n in zip(names, amounts, strict=True))} WHERE "
        f"month = {month} AND resource_id = {resource} AND attribution_id = {owner} AND charge = '{charge}' AND "
        f"currency = '{currency}' AND known = {known} AND source = '{source}'",
        f"INSERT INTO monthly VALUES ({month}, {resource}, {other}, '{charge}', '{currency}', {known}, '{source}', "
        f"{', '.join(map(str, amounts))}) ON CONFLICT DO UPDATE SET "
        f"{', '.join(f'{name} = {name} + {n}' for name, n in zip(names, amounts, strict=True))}",
    )
    assert [found.partition(" from ")[0] for found in findings] == [
        f"span {span} was changed outside costguard: attribution_id differs"
    ]


def test_edited_digests_and_seals_are_found(sound: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(sound)) as file:
        ((seq,),) = file.execute("SELECT max(seq) FROM row_digest WHERE table_name = 'span'")
    for statement, says in (
        (
            f"UPDATE row_digest SET digests = '+' || digests WHERE seq = {seq} AND table_name = 'span'",
            f"audit row {seq} differ",
        ),
        (f"UPDATE row_digest SET lines = lines + 1 WHERE seq = {seq} AND table_name = 'span'", f"audit row {seq} differ"),
        (f"DELETE FROM row_digest WHERE seq = {seq} AND table_name = 'span'", f"audit row {seq} differ"),
        ("INSERT INTO row_digest VALUES (1, 'span', 1, '- 1')", "row_digest has digests of row 1"),
        ("INSERT INTO row_seal VALUES ('span', '1', '')", "row_seal has seals of span"),
        ("INSERT INTO row_seal VALUES ('turn', '{', '')", "turn { has a seal, and is missing"),
        ("UPDATE row_seal SET row_key = '9' WHERE table_name = 'turn'", "turn 9 has a seal, and is missing"),
    ):
        findings = edit_by_hand(sound, tmp_path, statement)
        assert any(says in found for found in findings), (statement, findings)


def test_an_edit_that_the_schema_refuses_is_found_where_its_checks_were_off(sound: Path, tmp_path: Path) -> None:
    editor = make_editor(sound, tmp_path)
    with editor.open_copy() as file:
        file.execute("PRAGMA ignore_check_constraints = ON")
        file.execute("UPDATE span SET price_low = -1 WHERE id = 1")
    assert maintenance.check_ledger(editor.url)


def test_rows_of_an_older_ledger_are_taken_over_as_they_are_and_watched_from_then_on(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    restore(f"sqlite:///{path}", "0004")
    upgrade_schema(f"sqlite:///{path}")
    assert maintenance.check_ledger(f"sqlite:///{path}") == []
    findings = edit_by_hand(path, tmp_path, "UPDATE attribution SET owner = 'eve' WHERE id = 1")
    assert [found.partition(" from ")[0] for found in findings] == [
        "attribution 1 was changed outside costguard: owner differs"
    ]


def test_a_column_added_later_leaves_older_digests_valid() -> None:
    before = encode_fixed(DECIDING_TABLES["scope"], "id, provider, account, name", [(1, "aws", "1", "west")])
    table = replace(DECIDING_TABLES["scope"], added={"note": ""})
    columns = "id, provider, account, name, note"
    assert encode_fixed(table, columns, [(1, "aws", "1", "west", "")]) == before
    assert encode_fixed(table, columns, [(1, "aws", "1", "west", "x")]) != before


def test_rows_removed_added_and_swapped_are_found(sound: Path, tmp_path: Path) -> None:
    editor = make_editor(sound, tmp_path)
    for way in (editor.delete_row, editor.insert_row, editor.swap_rows):
        assert find_missed(editor, way, 20) == []
