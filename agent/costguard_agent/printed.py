"""Texts from elsewhere, as they may stand in a log, a message or a terminal."""

from __future__ import annotations


def make_printable(text: str, most: int = 300) -> str:
    """One line of printable characters, at most so many."""
    return "".join(sign if sign.isprintable() else " " for sign in text[:most]).strip()
