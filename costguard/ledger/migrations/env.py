"""The Alembic environment: runs the migrations on the connection and transaction opened by `ledger.db.schema`.

Autogenerate (`scripts/new_migration.py`) compares the classes with that database. procrastinate's tables and the version are
not declared by a class: they are left out by name, or it would drop them.
"""

from __future__ import annotations

from alembic import context

from costguard.ledger.tables import load_metadata

_OTHERS = ("procrastinate_", "alembic_version")


def _is_own(name: str | None, kind: str, _parents: object) -> bool:
    return kind != "table" or not (name or "").startswith(_OTHERS)


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=load_metadata(),
    include_name=_is_own,
    compare_server_default=True,
)
context.run_migrations()
