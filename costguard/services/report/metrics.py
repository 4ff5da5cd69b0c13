"""Metrics of the ledger as text for Prometheus: for `GET /metrics`, and for `costguard metrics`.

They are read from the ledger alone, by the builders of `costguard status --offline`: the process that answers a scrape needs
nothing of the watchdog's memory, and answers while the watchdog is down. Needs prometheus-client, of the extra `web`.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING

from costguard import __version__
from costguard.errors import InputError, NoAnswerError
from costguard.guard.evaluation import evaluate_snapshot
from costguard.ledger.agents.records import load_agents
from costguard.ledger.counts import load_counts, load_last_run_number
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.db.schema import HEAD_REVISION
from costguard.ledger.guard_records import SnapshotRecords
from costguard.ledger.reports.reader import ReportReader
from costguard.metering.accrual import POLL_GAP
from costguard.reporting.metrics import COUNTER, MetricFamily, MetricsInput, build_metrics
from costguard.reporting.statement.period import ReportPeriod
from costguard.reporting.statement.sections import sum_resource_costs
from costguard.services.report.ledger_answers import open_books
from costguard.services.report.report import ReportQuestion, measure_waste
from costguard.services.report.run_board import RunBoard
from costguard.services.report.status_answer import load_current_view
from costguard.settings import Settings, read_settings, resolve_ledger_url
from costguard.settings.fields import format_duration, parse_duration

if TYPE_CHECKING:
    from prometheus_client import Metric

AGE_MAX_S = 300.0
"""Seconds after which figures are computed anew although no guard run came: the spend goes on, and agents fall silent."""


def answer_metrics(config: str | None = None) -> str:
    """Answer `costguard metrics`: the metrics of the ledger of the settings, in Prometheus' text format."""
    return render_metrics(load_metrics(read_settings(config))).decode()


def check_guard_age(within: str, config: str | None = None) -> None:
    """Raise NoAnswerError unless the last recorded guard run began less than `within` (a duration) ago."""
    limit, settings = parse_duration(within, "--guard-within"), read_settings(config)
    with LedgerReader(resolve_ledger_url(settings)) as reader, reader.snapshot() as ask:
        last = SnapshotRecords(ask).load_last_run()
    if last is None:
        raise NoAnswerError("the guard has not run yet", hint="costguard watch runs it")
    age = datetime.now(UTC) - last.at
    if age >= limit:
        raise NoAnswerError(f"the guard last ran {format_duration(age)} ago", hint="see the log of costguard watch")


def load_metrics(settings: Settings) -> tuple[MetricFamily, ...]:
    """Read the ledger and return its metrics."""
    began = monotonic()
    view = load_current_view(settings, settings.defaults.timezone, datetime.now(UTC))
    status, evaluation = view.status, evaluate_snapshot(view.rules, view.sight)
    question = ReportQuestion(
        asked=ReportPeriod(period=status.month, label=status.label),
        by=(),
        zone=settings.defaults.timezone,
        as_of=status.at,
        pause=POLL_GAP,
        group_from=settings.defaults.group_from,
    )
    with open_books(settings, ReportReader) as books, books.read_one_snapshot():
        outlays = books.load_costs(status.month, status.at)
        wastes, _ = measure_waste(books, outlays, {}, question)
    with LedgerReader(resolve_ledger_url(settings)) as reader, reader.snapshot() as ask:
        counts, run, agents = load_counts(ask, reader.where), SnapshotRecords(ask).load_last_run(), load_agents(ask)
    return build_metrics(
        MetricsInput(
            status=status,
            spending=sum_resource_costs(outlays),
            wastes=wastes,
            verdicts=Counter((case.verdict.policy.name, case.verdict.finding) for case in evaluation.cases),
            counts=counts,
            run=run,
            agents=agents,
            build={"version": __version__, "python": platform.python_version(), "schema": HEAD_REVISION},
            build_s=monotonic() - began,
        )
    )


def render_metrics(families: Iterable[MetricFamily]) -> bytes:
    """Return `families` in Prometheus' text format. Raises InputError if prometheus-client is not installed."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.registry import Collector
    except ImportError:
        hint = "in a clone of costguard: pip install '.[web]'"
        raise InputError("needs prometheus-client, which is not installed", field="metrics", hint=hint) from None

    class Families(Collector):
        def collect(self) -> Iterator[Metric]:
            return map(_convert_family, families)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Families())
    return generate_latest(registry)


def _convert_family(family: MetricFamily) -> Metric:
    from prometheus_client import Metric

    metric = Metric(family.name.removesuffix("_total"), family.help, family.kind)
    for values, value in family.samples:
        metric.add_sample(family.name, dict(zip(family.labels, values, strict=True)), float(value))
    assert (family.kind == COUNTER) == family.name.endswith("_total")  # noqa: S101 - a family of ours is named wrongly
    return metric


def build_metrics_board(
    run: Callable[[], int], make: Callable[[], bytes], seconds: Callable[[], float] = monotonic
) -> RunBoard:
    """Return the board of the text that `make` returns. `run`: returns the number of the newest guard run.

    The text is made anew after a run, and each AGE_MAX_S. A ledger that cannot be read raises: an old text would hide that.
    """
    return RunBoard(lambda: (run(), int(seconds() // AGE_MAX_S)), make)


def open_metrics_board(settings: Settings, make: Callable[[], bytes]) -> RunBoard:
    """Return the board of the ledger of `settings`. `make`: returns the text."""
    url = resolve_ledger_url(settings)

    def find_run() -> int:
        with LedgerReader(url) as reader, reader.snapshot() as ask:
            return load_last_run_number(ask)

    return build_metrics_board(find_run, make)
