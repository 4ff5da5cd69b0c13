"""Replacements for the words in braces in migration statements, for each database."""

from __future__ import annotations

WORDS = {
    "sqlite": {"KEY": "INTEGER", "BIG": "INTEGER", "REAL": "REAL", "STRICT": "STRICT", "PACKED": "STRICT, WITHOUT ROWID"},
    "postgresql": {"KEY": "BIGSERIAL", "BIG": "BIGINT", "REAL": "DOUBLE PRECISION", "STRICT": "", "PACKED": ""},
}
"""Dialect -> word -> text."""
