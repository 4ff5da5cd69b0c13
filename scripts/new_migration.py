"""Write a migration from what changed in the classes of `costguard/ledger/tables` since a ledger was made.

    python scripts/new_migration.py sqlite:////tmp/before.db "Add the note of a scope"

The ledger must be of the newest revision: make it before you change a class (`costguard db upgrade`). Read what was written,
and add its number to `REVISIONS` in `costguard/ledger/db/schema.py`. Alembic sees no CHECK and no WHERE of a partial index:
write those by hand; `tests/ledger/test_migrations.py` and `costguard db check` compare the whole schema. Where SQLite makes a
table anew (batch mode), its triggers are dropped: all are made anew after each migration.
"""

from __future__ import annotations

import sys

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine

from costguard.ledger.db.address import parse_ledger_address
from costguard.ledger.db.schema import MIGRATIONS_FOLDER, REVISIONS


def write_migration(url: str, message: str) -> None:
    """Write the next migration, named by its number and `message`, from how the ledger at `url` differs from the classes."""
    where, number = parse_ledger_address(url), f"{int(REVISIONS[-1]) + 1:04d}"
    engine = create_engine(f"sqlite:///{where.path}" if where.path else where.sqlalchemy_url)
    try:
        with engine.connect() as connection:
            config = Config()
            config.set_main_option("script_location", str(MIGRATIONS_FOLDER).replace("%", "%%"))
            config.attributes["connection"] = connection
            command.revision(config, message=message, rev_id=number, autogenerate=True)
    finally:
        engine.dispose()


if __name__ == "__main__":
    write_migration(*sys.argv[1:])
