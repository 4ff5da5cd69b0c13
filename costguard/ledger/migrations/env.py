"""The Alembic environment: runs the migrations on the connection and transaction opened by `ledger.db.schema`."""

from __future__ import annotations

from alembic import context

from costguard.ledger.tables import load_metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=load_metadata())
context.run_migrations()
