"""`--format github`: a comment for a pull request. What decides is in ten lines, everything else is folded.

Values may come from the pull request itself: words that would notify people, link or close issues are put between backticks
(`markdown.escape_text`), where GitHub draws them as they are written.
"""

from __future__ import annotations

from dataclasses import replace

from costguard.renderers.markdown import escape_text, render_table
from costguard.views.document import Document

ROWS_MAX = 5
"""Rows of the first table that are not folded: with its heading, the lead and the folded line ten lines."""
LEADS_MAX = 3
CHARS_MAX = 60_000
"""GitHub refuses a comment of more than 65,536 characters, GitLab one of more than 1,000,000."""


def render(document: Document) -> str:
    """Return the document as a comment: heading, a table of at most five rows, and a folded rest."""
    tables = [one for one in document.tables if one.rows]
    first, rest = (tables[0], tables[1:]) if tables else (None, [])
    title, *leads = document.lead or ("costguard",)
    shown = [f"### {escape_text(title)}", *(f"**{escape_text(line)}**" for line in leads[:LEADS_MAX])]
    if first is not None:
        shown.append(render_table(replace(first, rows=first.rows[:ROWS_MAX])))
    folded = [] if first is None or len(first.rows) <= ROWS_MAX else [replace(first, title="", rows=first.rows[ROWS_MAX:])]
    parts = [render_table(table) for table in (*folded, *rest)]
    parts += ["\n".join(f"- {escape_text(line)}" for line in (*leads[LEADS_MAX:], *document.notes))]
    details = "\n\n".join(filter(None, parts))
    more = f"{len(first.rows) - ROWS_MAX} more, hardware and assumptions" if first is not None and folded else "Details"
    if details:
        shown.append(f"<details><summary>{more}</summary>\n\n{_cut(details)}\n\n</details>")
    return "\n\n".join(shown) + "\n"


def _cut(details: str) -> str:
    """Return whole lines of `details` that fit into a comment."""
    if len(details) <= CHARS_MAX:
        return details
    return details[: details.rindex("\n", 0, CHARS_MAX)] + "\n\n(cut: the log of the job has the rest)"
