"""The report: a year of 100,000 instances in a ledger, and what its statements cost as whole processes.

    python -m bench.report [--quick] [--keep FILE]      the ledger takes two minutes to write; FILE keeps it for the next time

One machine in ten has an hour's row of samples for each hour that it ran in July, so that waste is judged too. The floor is a
bare program: Python, `sqlite3`, two GROUP BYs over the spans that ended in the period (by provider, owner and GPU; by
resource), and JSON. It cuts nothing at the edges, knows no doubt, no samples and no open spans. Both run in turn, each as a
process of its own; CPU is user and system, memory the most that a process held. Nothing asserts a time.

Two more ratios. July's table, beyond a report on an empty ledger, over the same question to DuckDB on the FOCUS Parquet that
costguard wrote of that month, beyond the start of Python and DuckDB. And the default `report` of 18,000 machines that nobody
polled for 17 hours, over the same ledger polled just now.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.interleaved import compiled, costguard
from bench.ledger_history import DAYS, written
from bench.measured import Measured, median, table
from costguard.ledger.db.connection import open_engine
from costguard.values.instant import HOUR_US, to_micros
from costguard.values.sample import CPU_UTIL, GPU_UTIL, NETWORK

INSTANCES, QUICK, ROUNDS = 100_000, 5_000, 5
MOST_S, MOST_MB, MOST_HTML_MB = 2.0, 400.0, 1.0
MEASURED = 10
"""One machine in so many has samples. They work but for four hours each night."""
JULY = ("--month", "2026-07")
YEAR = ("--from", "2026-01-01", "--to", "2027-01-01")
ASKED: tuple[tuple[str, tuple[str, ...], tuple[str, str]], ...] = (
    ("July, JSON", (*JULY, "--json"), ("2026-07-01", "2026-08-01")),
    ("July, HTML with all its charts", (*JULY, "--format", "html"), ("2026-07-01", "2026-08-01")),
    ("July in Europe/Berlin, by resource, JSON", (*JULY, "--zone", "Europe/Berlin", "--by", "resource", "--json"),
     ("2026-07-01", "2026-08-01")),
    ("all of the year, JSON", (*YEAR, "--json"), ("2026-01-01", "2027-01-01")),
    ("all of the year, HTML", (*YEAR, "--format", "html"), ("2026-01-01", "2027-01-01")),
)  # fmt: skip

OF_DUCKDB, OF_FRESH, STOPPED, SILENT_H = 3.0, 1.3, 18_000, 17

DUCKDB = """
import duckdb, json, sys
rows = duckdb.connect().execute
if len(sys.argv) > 1:
    of = f"FROM read_parquet('{sys.argv[1]}')"
    groups = rows(f'''SELECT ServiceProviderName, SubAccountId, ChargeCategory, SkuId, SUM(EffectiveCost), SUM(ListCost),
SUM(ConsumedQuantity) {of} GROUP BY ALL ORDER BY 5 DESC''').fetchall()
    top = rows(f"SELECT ResourceId, SUM(EffectiveCost) {of} GROUP BY 1 ORDER BY 2 DESC LIMIT 10").fetchall()
    print(json.dumps({"groups": groups, "top": top}, default=str))
else:
    print(json.dumps(rows("SELECT 1").fetchall()))
"""

FLOOR = """
import json, sqlite3, sys
path, start, end = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
ask = sqlite3.connect(f"file:{path}?mode=ro", uri=True).execute
groups = ask('''SELECT a.provider, a.owner, a.gpu, sum(s.low), sum(s.expected), sum(s.high) FROM span AS s
JOIN attribution AS a ON a.id = s.attribution_id WHERE s.end_us > ? AND s.end_us <= ? GROUP BY 1, 2, 3''', (start, end))
top = ask('''SELECT resource_id, sum(expected) FROM span WHERE end_us > ? AND end_us <= ? GROUP BY 1
ORDER BY 2 DESC LIMIT 10''', (start, end))
print(json.dumps({"groups": groups.fetchall(), "top": top.fetchall()}))
"""


@dataclass(frozen=True, slots=True)
class Ran:
    """One process: CPU seconds, megabytes at most, bytes that it wrote."""

    seconds: float
    mb: float
    size: int


def measured(path: Path) -> int:
    """Write hours of samples for one machine in MEASURED, for all that it ran in July; how many rows there are."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        ((there,),) = connection.execute("SELECT count(*) FROM sample_hour").fetchall()
        if there:
            return int(there)
        start, end = (to_micros(datetime(2026, month, 1, tzinfo=UTC)) for month in (7, 8))
        hours: set[tuple[int, int]] = set()
        for number, first, last in connection.execute(
            "SELECT resource_id, start_us, end_us FROM span WHERE resource_id / 10 % ? = 0 AND end_us > ? AND start_us < ?",
            (MEASURED, start, end),
        ):
            hours.update((number, hour) for hour in range(first // HOUR_US, -(-last // HOUR_US)))
        rows = [
            (number, signal, hour, 60, 30.0 * top, 0.0, top)
            for number, hour in sorted(hours)
            for signal, top in ((CPU_UTIL, 0.3), (GPU_UTIL, 97.0 if hour % 24 >= 4 else 0.0), (NETWORK, 1000.0))
        ]
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO sample_hour VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        connection.execute("COMMIT")
    return len(rows)


def reports(path: Path, folder: Path, *, rounds: int = ROUNDS) -> Iterator[Measured]:
    """Each report of ASKED beside the floor of its period."""
    environment = _environment(path, folder)
    for name, flags, (start, end) in ASKED:
        bounds = [str(to_micros(datetime.fromisoformat(day).replace(tzinfo=UTC))) for day in (start, end)]
        ours, floor = list[Ran](), list[Ran]()
        for number in range(rounds + 1):
            one = _run([*costguard(), "--offline", "report", *flags], environment, folder)
            bare = _run([sys.executable, "-c", FLOOR, str(path), *bounds], environment, folder)
            if number:  # the first of each warms the file's pages
                ours.append(one)
                floor.append(bare)
        seconds, bare_s = median(run.seconds for run in ours), median(run.seconds for run in floor)
        ratio = median(a.seconds / b.seconds for a, b in zip(ours, floor, strict=True))
        yield Measured(
            what=f"report of {name}: CPU, s",
            target=f"< {MOST_S:g}",
            reached=f"{seconds:.2f}; {ratio:.2f} of a bare GROUP BY ({bare_s:.2f})",
            met=seconds < MOST_S,
        )
        most = max(run.mb for run in ours)
        yield Measured(what="    its memory at most, MB", target=f"< {MOST_MB:g}", reached=f"{most:.0f}", met=most < MOST_MB)
        if "html" in flags:
            size = max(run.size for run in ours) / 1e6
            yield Measured(
                what="    its page, MB", target=f"< {MOST_HTML_MB:g}", reached=f"{size:.3f}", met=size < MOST_HTML_MB
            )


def against_duckdb(path: Path, folder: Path, *, rounds: int = ROUNDS) -> Iterator[Measured]:
    """July as a table, over DuckDB on its FOCUS export; each beyond what it costs with nothing to read."""
    exported, empty = folder / "july.parquet", folder / "empty.db"
    open_engine(f"sqlite:///{empty}").dispose()
    env = {name: _environment(ledger, folder) for name, ledger in (("full", path), ("empty", empty))}
    report = [*costguard(), "--offline", "report", *JULY]
    _run([*report, "--format", "focus", "--output", str(exported), "--force"], env["full"], folder)
    duckdb = [sys.executable, "-c", DUCKDB]
    found = [
        (
            _run(report, env["full"], folder).seconds - _run(report, env["empty"], folder).seconds,
            _run([*duckdb, str(exported)], env["full"], folder).seconds - _run(duckdb, env["full"], folder).seconds,
        )
        for _ in range(rounds + 1)
    ][1:]
    ratio = median(ours / floor for ours, floor in found)
    yield Measured(
        what="report of July beyond an empty ledger's, of DuckDB on its FOCUS Parquet",
        target=f"<= {OF_DUCKDB:g}",
        reached=f"{ratio:.1f} ({median(a for a, _ in found):.2f} s against {median(b for _, b in found):.2f})",
        met=ratio <= OF_DUCKDB,
    )


def against_fresh(folder: Path, *, instances: int = STOPPED, rounds: int = ROUNDS) -> Iterator[Measured]:
    """The default report of machines that nobody looked at for SILENT_H hours, over the same polled just now."""
    path, now = folder / "unpolled.db", datetime.now(UTC)
    last = now - timedelta(hours=SILENT_H)
    written(path, instances=instances, begun=last - timedelta(days=DAYS))
    command, environment = [*costguard(), "--offline", "report"], _environment(path, folder)
    found = list[tuple[float, float]]()
    for _ in range(rounds + 1):
        pair = list[float]()
        for seen_at in (last, datetime.now(UTC)):
            with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                connection.execute("UPDATE coverage SET end_us = ?", (to_micros(seen_at),))
            pair.append(_run(command, environment, folder).seconds)
        found.append((pair[0], pair[1]))
    found = found[1:]
    ratio = median(stale / fresh for stale, fresh in found)
    yield Measured(
        what=f"report of {instances:,} machines last polled {SILENT_H} h ago, of the same polled just now",
        target=f"<= {OF_FRESH}",
        reached=f"{ratio:.2f} ({median(a for a, _ in found):.2f} s against {median(b for _, b in found):.2f})",
        met=ratio <= OF_FRESH,
    )


def _environment(path: Path, folder: Path) -> dict[str, str]:
    environment = {**os.environ, "COSTGUARD_LEDGER__URL": f"sqlite:///{path}", "HOME": str(folder)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def _run(command: Sequence[str], environment: dict[str, str], folder: Path) -> Ran:
    out = folder / "out"
    with out.open("wb") as stream:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.DEVNULL, env=environment)
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{' '.join(command)} ended with {child.returncode}")
    if command[0] == sys.executable:
        json.loads(out.read_text())
    return Ran(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6, out.stat().st_size)


def main() -> int:
    """0 where every target is met."""
    words = sys.argv[1:]
    quick = "--quick" in words
    keep = Path(words[words.index("--keep") + 1]) if "--keep" in words else None
    compiled()
    with tempfile.TemporaryDirectory(prefix="costguard-bench-") as name:
        folder = Path(name)
        path = keep or folder / "year.db"
        if not path.exists():
            written(path, instances=QUICK if quick else INSTANCES)
        rows = measured(path)
        size = path.stat().st_size / 1e6
        lines = [
            Measured(
                what=f"a ledger of {QUICK if quick else INSTANCES:,} instances, {rows:,} hours of samples",
                reached=f"{size:.0f} MB",
            )
        ]
        missed, rounds = table(lines), 1 if quick else ROUNDS
        missed += table(against_fresh(folder, instances=QUICK if quick else STOPPED, rounds=rounds))
        missed += table(against_duckdb(path, folder, rounds=rounds))
        return int(missed + table(reports(path, folder, rounds=rounds)) > 0)


if __name__ == "__main__":
    sys.exit(main())
