"""What the words in braces of a migration's statements stand for on each database."""

from __future__ import annotations

WORDS = {
    "sqlite": {"KEY": "INTEGER", "BIG": "INTEGER", "REAL": "REAL", "STRICT": "STRICT", "PACKED": "STRICT, WITHOUT ROWID"},
    "postgresql": {"KEY": "BIGSERIAL", "BIG": "BIGINT", "REAL": "DOUBLE PRECISION", "STRICT": "", "PACKED": ""},
}
"""Dialect -> word -> text."""
