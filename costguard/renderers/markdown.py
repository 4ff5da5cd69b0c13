"""`--markdown`: tables for a pull request or an issue."""

from __future__ import annotations

import re

from costguard.errors import to_one_line
from costguard.views.document import Document, TableView


def render(document: Document) -> str:
    """Return the document as GitHub-flavoured Markdown."""
    parts = ["\n".join(f"{escape_text(line)}  " for line in document.lead)]
    parts += [render_table(t) for t in document.tables if t.rows]
    parts += ["\n".join(f"- {escape_text(n)}" for n in document.notes)]
    return "\n\n".join(filter(None, parts)) + "\n"


def render_table(table: TableView) -> str:
    """Return a table, below its title if it has one."""
    heads = [c.removesuffix(">") for c in table.columns]
    rule = ["---:" if c.endswith(">") else "---" for c in table.columns]
    rows = [heads, rule, *table.rows]
    lines = ["| " + " | ".join(escape_text(cell) for cell in row) + " |" for row in rows]
    return "\n".join([f"**{escape_text(table.title)}**", "", *lines] if table.title else lines)


ACTS = re.compile(r"[@#!]\w|://|www\.|\b(?=\d*[a-f])[0-9a-f]{7,40}\b|\b[Gg][Hh]-\d", re.ASCII)
"""What GitHub or GitLab make a mention, a link or a reference of: @name, #12, !12, addresses, commits, GH-12."""
WORD, LINE_START = re.compile(r"\S+"), re.compile(r"^(?=[#>]|[+-]\s)")
PIPE = re.compile(r"\\*\|")
"""Backslashes before a pipe would end the escape that keeps it in its cell."""
MARKS = re.compile(r"[\\|`*~\[\]]|&(?=[#A-Za-z])|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
"""What would be drawn otherwise than it is written: a name is no link, no picture and no emphasis. Not the _ within a word."""


def escape_text(text: str) -> str:
    """Return `text` as one line in which nothing is drawn otherwise than it is written, notifies people or is a link."""
    return LINE_START.sub(r"\\", WORD.sub(_escape_word, to_one_line(text)))


def _escape_word(match: re.Match[str]) -> str:
    """Return a word between backticks if GitHub would act on it: a backslash does not prevent a mention."""
    if ACTS.search(match[0]):
        return "`" + PIPE.sub(r"\\|", match[0].replace("`", "'")) + "`"
    return MARKS.sub(r"\\\g<0>", match[0]).replace("<", "&lt;")
