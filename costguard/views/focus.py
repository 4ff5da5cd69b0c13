"""What is wrong with a FOCUS file, as a document: `costguard.focus_check/1`, one record a finding."""

from __future__ import annotations

from costguard.reporting.focus.check import FocusCheckResult
from costguard.reporting.focus.finding import FocusFinding
from costguard.views.document import Document, TableView

FOCUS_CHECK_SCHEMA = "costguard.focus_check/1"


def build_focus_check_document(file: str, checked: FocusCheckResult) -> Document:
    """All findings that are told, in the order of the file."""
    records = [_build_finding_record(finding) for finding in checked.findings]
    data = {
        "schema": FOCUS_CHECK_SCHEMA,
        "file": file,
        "focus_version": checked.version,
        "rows": checked.rows,
        "count": checked.count,
        "findings": records,
    }
    rows = tuple(tuple(str(cell) for cell in record.values()) for record in records)
    more = checked.count - len(records)
    return Document(
        data=data,
        records=tuple(records),
        lead=(f"{file}: {checked.rows:,} rows held against FOCUS {checked.version}, {_format_count(checked.count)}.",),
        tables=(TableView(title="", columns=("line>", "column", "rule", "what", "instead"), rows=rows),),
        notes=(f"{more:,} more of the same kinds are not shown.",) if more else (),
    )


def format_finding_count(count: int) -> str:
    """What the refusal says."""
    return f"{_format_count(count)}, and a file that keeps to the standard has none"


def _format_count(count: int) -> str:
    return "no finding" if not count else f"{count:,} finding{'s' if count > 1 else ''}"


def _build_finding_record(finding: FocusFinding) -> dict[str, object]:
    fault = finding.fault
    return {
        "line": finding.line,
        "column": finding.column,
        "rule": fault.rule,
        "what": fault.what,
        "instead": fault.instead,
    }
