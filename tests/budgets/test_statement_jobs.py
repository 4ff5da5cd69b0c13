"""Runs by job: the first quote beside what all attempts came to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from costguard.budgets.hold import COMMITTED, Hold
from costguard.reporting.statement.sections import QuotedRun, group_runs_by_job
from costguard.values.money import Money
from costguard.views.report_sections import _build_quoted_table

TEN = datetime(2026, 11, 22, 10, tzinfo=UTC)


def quote(number: int, held: str, spent: str, job: str = "llama", currency: str = "USD") -> QuotedRun:
    at = TEN + timedelta(hours=number)
    hold = Hold(
        id=f"{job}.{number}",
        money=Money.parse(held, currency),
        who="ada",
        why=f"job {job}, attempt {number}",
        taken_at=at,
        expires_at=at + timedelta(days=1),
        labels=(("job", job),) if job else (),
        ended_at=at + timedelta(minutes=30),
        ended_by=COMMITTED,
        spent=Money.parse(spent, currency),
    )
    return QuotedRun(hold=hold, actual=Money.parse(spent, currency))


def test_the_attempts_of_a_job_are_one_row_more_and_runs_without_a_job_none() -> None:
    quotes = (quote(1, "14.94", "6.20"), quote(2, "3", "2", job=""), quote(3, "5.98", "4.10"), quote(4, "1", "1", job="other"))
    llama, other = group_runs_by_job(quotes)
    assert (llama.job, llama.attempts, llama.quoted, llama.actual) == ("llama", 2, Money.parse("14.94"), Money.parse("10.30"))
    assert other.attempts == 1
    rows = _build_quoted_table(quotes).rows
    assert [row[0] for row in rows] == ["llama.1", ".2", "llama.3", "llama: 2 attempts", "other.4"]
    assert rows[3][3:] == ("$14.94", "$10.30", "$-4.64")
