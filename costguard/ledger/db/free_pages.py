"""Give the free pages of a SQLite ledger back to the disk, in steps.

Rows that are removed leave free pages, which later rows use, and a file as large as ever. A new ledger is made so that it can
be shortened in steps (`auto_vacuum = INCREMENTAL`). One of before 2026-11-30 only reuses its free pages, until `costguard db
upgrade` rewrites it once. A server does all this itself (autovacuum).
"""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

from sqlalchemy import Connection, Engine

from costguard.ledger.db.address import translate_ledger_errors
from costguard.ledger.db.connection import begin_write
from costguard.ledger.db.session import open_query
from costguard.system.atomic_file import hold_file_lock

INCREMENTAL = 2
"""The value of `PRAGMA auto_vacuum` by which a file can shrink in steps."""
STEP_PAGES = 1000
"""In one transaction: 4 MB."""
FREE_SHARE_MAX, FREE_PAGES_MIN = 0.1, 1000
"""Of all pages, those that may be free, for the samples of the next hours; and how many may be in any ledger."""
YIELD_S = 0.06
"""Pause after a transaction of many in a row: longer than other writers wait between two looks at the lock."""


def give_back_pages(engine: Engine) -> int:
    """Shorten the file by the free pages above `FREE_SHARE_MAX`, `STEP_PAGES` a transaction; return the bytes.

    0 on a server, and for a file that cannot shrink in steps.
    """
    if engine.dialect.name != "sqlite" or not can_shrink(engine):
        return 0
    count = size = 0
    while True:
        with begin_write(engine) as connection:
            pages, free, size = _read_pragmas(connection, "page_count", "freelist_count", "page_size")
            excess = free - max(FREE_PAGES_MIN, int(pages * FREE_SHARE_MAX))
            if excess <= 0:
                return count * size
            step = min(excess, STEP_PAGES)
            with closing(connection.connection.cursor()) as cursor:
                for _ in range(step):  # the module sqlite3 runs this statement for one page, however many it names
                    cursor.execute("PRAGMA incremental_vacuum(1)")
            count += step
        time.sleep(YIELD_S)


def rewrite_file(engine: Engine) -> tuple[int, int] | None:
    """Rewrite a SQLite file that cannot shrink in steps; return its bytes before and after, None: there is no need to.

    Nobody else can write meanwhile, which takes a minute for some gigabytes, and the disk must have room for a second copy. It
    is one transaction: killed in the middle, the ledger is as it was.
    """
    opened = engine.get_execution_options()["ledger"]
    path: Path | None = opened.where.path
    if path is None or can_shrink(engine):
        return None
    with (
        translate_ledger_errors(opened.where),
        hold_file_lock(opened.where.make_sibling_path(".lock"), patience_s=opened.patience_s),
        closing(engine.raw_connection()) as connection,
    ):
        cursor, into_file = connection.cursor(), "PRAGMA wal_checkpoint(TRUNCATE)"
        cursor.execute(into_file).fetchall()
        size = path.stat().st_size
        for statement in ("PRAGMA auto_vacuum = INCREMENTAL", "VACUUM", into_file):
            cursor.execute(statement).fetchall()
        return size, path.stat().st_size


def can_shrink(engine: Engine) -> bool:
    """Return whether the SQLite file of `engine` can shrink in steps."""
    with engine.connect() as connection:
        _, mode = _read_pragmas(connection, "schema_version", "auto_vacuum")  # the second alone would not look at the file
        return mode == INCREMENTAL


def _read_pragmas(connection: Connection, *names: str) -> list[int]:
    ask = open_query(connection)
    return [int(ask(f"PRAGMA {name}")[0][0]) for name in names]
