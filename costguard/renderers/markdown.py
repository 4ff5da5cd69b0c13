"""`--markdown`: tables for a pull request or an issue."""

from __future__ import annotations

import re

from costguard.errors import to_one_line
from costguard.views.document import Document, TableView


def render(document: Document) -> str:
    """Return the document as GitHub-flavoured Markdown."""
    parts = ["\n".join(f"{escape_text(line)}  " for line in document.lead)]
    parts += [_render_table(t) for t in document.tables if t.rows]
    parts += ["\n".join(f"- {escape_text(n)}" for n in document.notes)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _render_table(table: TableView) -> str:
    heads = [c.removesuffix(">") for c in table.columns]
    rule = ["---:" if c.endswith(">") else "---" for c in table.columns]
    rows = [heads, rule, *table.rows]
    lines = ["| " + " | ".join(escape_text(cell) for cell in row) + " |" for row in rows]
    return "\n".join([f"**{escape_text(table.title)}**", "", *lines] if table.title else lines)


MARKS = re.compile(r"[\\|`*~\[\]]|&(?=[#A-Za-z])|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
"""What would be drawn otherwise than it is written: a name is no link, no picture and no emphasis. Not the _ within a word."""


def escape_text(text: str) -> str:
    """Return `text` as one line in which nothing is drawn otherwise than it is written."""
    return MARKS.sub(r"\\\g<0>", to_one_line(text)).replace("<", "&lt;")
