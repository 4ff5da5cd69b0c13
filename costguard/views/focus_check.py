"""The findings about a FOCUS file as a document: `costguard.focus_check/1`, one record per finding."""

from __future__ import annotations

from costguard.reporting.focus.cells import ERROR, ROUNDING, WARNING, FocusFinding
from costguard.reporting.focus.validator import FocusCheckResult
from costguard.views.document import Document, TableView

FOCUS_CHECK_SCHEMA = "costguard.focus_check/1"
GRADE_WORDS = {
    ERROR: ("error", "errors"),
    WARNING: ("warning", "warnings"),
    ROUNDING: ("rounded value", "rounded values"),
}


def build_focus_check_document(file: str, checked: FocusCheckResult, *, errors_only: bool = False) -> Document:
    """Return the findings that are shown, in the order of the file. `errors_only`: the others are counted and not shown."""
    shown = [finding for finding in checked.findings if not errors_only or finding.fault.grade == ERROR]
    records = [_build_finding_record(finding) for finding in shown]
    data = {
        "schema": FOCUS_CHECK_SCHEMA,
        "file": file,
        "focus_version": checked.version,
        "rows": checked.rows,
        "count": checked.count,
        "counts": dict(checked.counts),
        "conforms": not checked.errors,
        "findings": records,
    }
    columns = ("line", "column", "grade", "rule", "what", "instead")
    rows = tuple(tuple(str(record[name]) for name in columns) for record in records)
    wanted = checked.errors if errors_only else checked.count
    more = wanted - sum(finding.count for finding in shown)
    rows_checked = "1 row" if checked.rows == 1 else f"{checked.rows:,} rows"
    return Document(
        data=data,
        records=tuple(records),
        lead=(f"{file}: {rows_checked} checked against FOCUS {checked.version}: {_format_counts(checked)}.",),
        tables=(TableView(title="", columns=("line>", *columns[1:]), rows=rows),),
        notes=(f"{more:,} more of the same kinds are not shown.",) if more else (),
    )


def format_error_count(checked: FocusCheckResult) -> str:
    """Return the text of the error about a non-conforming file."""
    found = "1 finding" if checked.count == 1 else f"{checked.count:,} findings"
    return f"{_format_grade(ERROR, checked.errors)} among {found}; a conforming file has no error"


def _format_counts(checked: FocusCheckResult) -> str:
    parts = [_format_grade(grade, count) for grade, count in checked.counts.items() if count]
    return ", ".join(parts) or "no finding"


def _format_grade(grade: str, count: int) -> str:
    one, many = GRADE_WORDS[grade]
    return f"{count:,} {one if count == 1 else many}"


def _build_finding_record(finding: FocusFinding) -> dict[str, object]:
    fault = finding.fault
    return {
        "line": finding.line,
        "column": finding.column,
        "grade": fault.grade,
        "rule": fault.rule,
        "what": fault.what,
        "instead": fault.instead,
        "count": finding.count,
        "largest_difference": None if finding.largest is None else f"{finding.largest:f}",
    }
