"""What `costguard doctor` found, as a document: `costguard.doctor/1`, one record a check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from costguard.values.health import CHECK_BAD, CHECK_GOOD, HealthCheck
from costguard.views.document import Document, TableView

DOCTOR_SCHEMA = "costguard.doctor/1"
SIGNS = {CHECK_GOOD: "ok", CHECK_BAD: "BAD"}
"""How an outcome is shown in the table; the others by their own words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountChecks:
    """The checks of one account, or of costguard's own ledger (`provider` "ledger")."""

    provider: str
    account: str
    checks: tuple[HealthCheck, ...]


def build_doctor_document(findings: Sequence[AccountChecks], own: AccountChecks, *, notes: Sequence[str] = ()) -> Document:
    """`own`: of the ledger. `notes`: what somebody should know who finds less here than they expected."""
    every = (*findings, own)
    counted = Counter(check.outcome for one in every for check in one.checks)
    data = {
        "schema": DOCTOR_SCHEMA,
        "good": not counted[CHECK_BAD],
        "counts": dict(sorted(counted.items())),
        "providers": [_build_account_data(one) for one in findings],
        "ledger": {"path": own.account, "checks": [_build_check_data(check) for check in own.checks]},
        "notes": list(notes),
    }
    records = tuple({"provider": o.provider, "account": o.account, **_build_check_data(c)} for o in every for c in o.checks)
    table = TableView(title="", columns=("provider", "account", "check", "", "found"), rows=tuple(_list_check_rows(every)))
    return Document(
        data=data, records=records, tables=(table,), notes=(*_list_fixes(every), *notes, _format_check_counts(counted))
    )


def _build_account_data(one: AccountChecks) -> Mapping[str, object]:
    return {"provider": one.provider, "account": one.account, "checks": [_build_check_data(check) for check in one.checks]}


def _build_check_data(check: HealthCheck) -> Mapping[str, object]:
    return {"check": check.subject, "outcome": check.outcome, "told": check.told, "fix": check.fix}


def _list_check_rows(every: Sequence[AccountChecks]) -> Iterator[tuple[str, ...]]:
    for one in every:
        for number, check in enumerate(one.checks):
            name, account = (one.provider, one.account or "?") if number == 0 else ("", "")
            yield name, account, check.subject, SIGNS.get(check.outcome, check.outcome), check.told


def _list_fixes(every: Sequence[AccountChecks]) -> Iterator[str]:
    """What to do, below the table, where a line may be as long as a command is."""
    for one in every:
        for check in one.checks:
            if check.fix and check.outcome != CHECK_GOOD:
                yield f"{one.provider}, {check.subject}: {check.fix}"


def _format_check_counts(counted: Counter[str]) -> str:
    rest = ", ".join(f"{count} {word}" for word, count in sorted(counted.items()) if word not in (CHECK_GOOD, CHECK_BAD))
    return f"{counted[CHECK_GOOD]} good, {counted[CHECK_BAD]} bad{f', {rest}' if rest else ''}."
