"""The PostgreSQL server of the ledger's tests."""

from __future__ import annotations

from tests.ledger.conftest import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]
