"""`--format github`: a comment for a pull request. What decides is in ten lines, everything else is folded.

Values may come from the pull request itself: text that would notify people, link or close issues is put between backticks,
where GitHub draws it as it is written.
"""

from __future__ import annotations

import re
from dataclasses import replace

from costguard.errors import to_one_line
from costguard.renderers import markdown
from costguard.views.document import Document, TableView

ROWS_MAX = 5
"""Rows of the first table that are not folded: with its heading, the lead and the folded line ten lines."""
LEADS_MAX = 3
CHARS_MAX = 60_000
"""GitHub refuses a comment of more than 65,536 characters, GitLab one of more than 1,000,000."""
ACTS_ON_GITHUB = re.compile(r"[@#!]\w|://|www\.|\b[0-9a-f]{7,40}\b|\b[Gg][Hh]-\d", re.ASCII)
"""What GitHub or GitLab make a mention, a link or a reference of: @name, #12, !12, addresses, commits, GH-12."""


def render(document: Document) -> str:
    """Return the document as a comment: heading, a table of at most five rows, and a folded rest."""
    tables = [one for one in document.tables if one.rows]
    first, rest = (tables[0], tables[1:]) if tables else (None, [])
    title, *leads = document.lead or ("costguard",)
    shown = [f"### {_escape_text(title)}", *(f"**{_escape_text(line)}**" for line in leads[:LEADS_MAX])]
    if first is not None:
        shown.append("\n".join(_list_table_lines(replace(first, rows=first.rows[:ROWS_MAX]))))
    folded = [] if first is None or len(first.rows) <= ROWS_MAX else [replace(first, title="", rows=first.rows[ROWS_MAX:])]
    parts = ["\n".join(_list_table_lines(table)) for table in (*folded, *rest)]
    parts += ["\n".join(f"- {_escape_text(line)}" for line in (*leads[LEADS_MAX:], *document.notes))]
    details = "\n\n".join(filter(None, parts))
    more = f"{len(first.rows) - ROWS_MAX} more, hardware and assumptions" if first is not None and folded else "Details"
    if details:
        shown.append(f"<details><summary>{more}</summary>\n\n{_cut(details)}\n\n</details>")
    return "\n\n".join(shown) + "\n"


def _list_table_lines(table: TableView) -> list[str]:
    heads = [column.removesuffix(">") for column in table.columns]
    rule = ["---:" if column.endswith(">") else "---" for column in table.columns]
    title = [f"**{_escape_text(table.title)}**", ""] if table.title else []
    cells = [[_escape_text(cell) for cell in row] for row in (heads, *table.rows)]
    return [*title, *("| " + " | ".join(row) + " |" for row in (cells[0], rule, *cells[1:]))]


def _escape_text(text: str) -> str:
    line = to_one_line(text)
    if ACTS_ON_GITHUB.search(line):
        return "`" + line.replace("`", "'").replace("|", "\\|") + "`"
    return markdown.escape_text(line)


def _cut(details: str) -> str:
    """Return whole lines of `details` that fit into a comment."""
    if len(details) <= CHARS_MAX:
        return details
    return details[: details.rindex("\n", 0, CHARS_MAX)] + "\n\n(cut: the log of the job has the rest)"
