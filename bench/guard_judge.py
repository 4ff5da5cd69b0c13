"""Judging a large fleet in one process, reading what is judged from the ledger included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import fleet
from bench.measured import Measured, cpu, median
from costguard.guard.context import GuardConfig, GuardSnapshot
from costguard.guard.evaluation import GuardEvaluation, evaluate_snapshot
from costguard.guard.policy import Rails
from costguard.guard.signals import ACTIVE, IDLE
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.services.guarding.guard_inputs import PollResults, build_guard_config
from costguard.services.guarding.guard_snapshot import SampleWindow, build_guard_snapshot, read_previous_runs
from costguard.settings import read_settings
from costguard.system.process import pause_gc
from costguard.values.sample import CPU_UTIL, GPU_UTIL, NETWORK, Sample

MINUTES = 60
"""Of samples, one a minute of each signal: more than the longest wait of the policies."""
BUSY = {GPU_UTIL: 93.0, CPU_UTIL: 40.0, NETWORK: 5e6}
QUIET = {GPU_UTIL: 0.0, CPU_UTIL: 0.1, NETWORK: 900.0}
IDLE_OF_TEN = 3
"""So many of ten machines have done nothing for the whole time."""
SECONDS = 1.0

TEAMS = tuple(
    f"""
[[policy]]
name = "idle-p{team}"
match = {{ gpu = true, labels = {{ project = "p{team}" }} }}
when = 'state == "idle" && confidence >= 0.6 && rate >= usd_per_hour(0.30)'
for = "45m"
then = [{{ do = "notify" }}, {{ after = "15m", do = "stop" }}]
"""
    for team in range(7)
)
PROVIDERS = tuple(
    f"""
[[policy]]
name = "hung-{provider}"
match = {{ providers = ["{provider}"] }}
when = 'state == "hung" || (state == "idle" && waste >= usd(200.00))'
for = "20m"
then = [{{ do = "notify", severity = "page" }}]
"""
    for provider in fleet.PROVIDERS
)
OTHERS = (
    """
[[policy]]
name = "old"
when = 'age >= duration("720h") && tier != "reserved"'
then = [{ do = "notify" }]
""",
    """
[[policy]]
name = "nobody"
when = 'owner == ""'
then = [{ do = "notify" }]
""",
    """
[[policy]]
name = "stopped-for-long"
when = 'power == "stopped" && stopped_for >= duration("168h")'
then = [{ do = "notify" }]
""",
    """
[[policy]]
name = "dear"
match = { gpu = true }
when = 'rate >= usd_per_hour(50.00)'
for = "1h"
then = [{ do = "notify" }]
""",
    """
[[policy]]
name = "half-empty"
match = { gpu = true }
when = 'state == "active" && wasted_share >= 0.5'
for = "30m"
then = [{ do = "notify" }]
""",
    """
[[policy]]
name = "nights"
match = { names = ["run-1*"] }
schedule = { timezone = "Europe/Berlin", off = ["20:00-08:00", "sat-sun"] }
then = [{ do = "notify" }, { after = "10m", do = "stop" }]
""",
    """
[[policy]]
name = "person-7"
match = { owners = ["person-7"] }
when = 'time_in_state >= duration("30m") && state == "idle"'
for = "30m"
then = [{ do = "notify" }]
""",
    """
[[policy]]
name = "unlabelled"
when = '!("project" in labels)'
then = [{ do = "notify" }]
""",
)
POLICIES = (*TEAMS, *PROVIDERS, *OTHERS)


def judge(*, instances: int = 2_000, rounds: int = 5) -> Iterator[Measured]:
    """The reads of a guard run and its evaluation of the fleet under all policies; the evaluation alone."""
    with TemporaryDirectory() as folder:
        url, rules, now = f"sqlite:///{folder}/ledger.db", ruled(Path(folder)), fleet.START + MINUTES * fleet.MINUTE
        filled(url, instances)
        alone, reading, writes = list[float](), list[float](), 0
        for _ in range(rounds):
            read_s, sight = cpu(lambda: seen(url, now))
            judged_s, found = cpu(lambda sight=sight: judged(rules, sight))  # type: ignore[misc]  # a lambda with a default
            reading.append(read_s)
            alone.append(judged_s)
            writes = sum(len(ats) for columns in sight.samples.values() for ats, _ in columns.values())
        checked(found, instances)
    whole = [a + r for a, r in zip(alone, reading, strict=True)]
    each, middle = f"{instances:,} instances x {len(rules.policies)} policies", median(whole)
    kept = f"{len(found.cases):,} verdicts on {writes:,} samples, spread {min(whole):.2f}-{max(whole):.2f}"
    met = middle < SECONDS
    yield Measured(what=f"{each}: read and judged, CPU s ({kept})", target=f"< {SECONDS:g}", reached=f"{middle:.2f}", met=met)
    yield Measured(what="judged alone, of what was read, CPU s", reached=f"{median(alone):.2f}")


def judged(rules: GuardConfig, sight: GuardSnapshot) -> GuardEvaluation:
    """As a guard run does it."""
    with pause_gc():
        return evaluate_snapshot(rules, sight)


def ruled(folder: Path) -> GuardConfig:
    """The rules, through the settings as a user writes them."""
    written = folder / "costguard.toml"
    written.write_text("".join(POLICIES), encoding="utf-8")
    return build_guard_config(read_settings(str(written)), fleet.MINUTE)


def filled(url: str, instances: int, minutes: int = MINUTES) -> None:
    """A ledger of a fleet with `minutes` of samples."""
    scopes = fleet.scopes(10)
    with LedgerWriter(url, rules=fleet.rules(), ceilings=fleet.CEILINGS) as ledger:
        for scope in scopes:
            machines = fleet.machines(scope, instances // len(scopes))
            for minute in (0, minutes):
                ledger.record_polls([fleet.polled(scope, minute, (one.seen() for one in machines))])
            ledger.record_samples(
                [
                    Sample(key=one.key, signal=signal, at=fleet.START + n * fleet.MINUTE, value=value)
                    for one in machines
                    for signal, value in told(one.number).items()
                    for n in range(1, minutes + 1)
                ]
            )


def told(number: int) -> Mapping[str, float]:
    """What the machine of this number reports all the time."""
    return QUIET if number % 10 < IDLE_OF_TEN else BUSY


def seen(url: str, now: datetime) -> GuardSnapshot:
    """What a guard run reads about a fleet of which nobody wished anything."""
    with SpendingReader(url, rules=fleet.rules()) as books, GuardStore(url, rails=Rails()) as book:
        rules, last = GuardConfig(admin_route=True), book.load_last_run()
        return build_guard_snapshot(
            now=now,
            rules=rules,
            books=books,
            records=book,
            latest=PollResults(handling={}, sources={}, balances=(), members=(), lags={}, measures=(), agents=()),
            holds=(),
            overrides=(),
            previous=read_previous_runs(last, rules, now, guarded_until=last.at if last else None),
            standing_holds=(),
            lookback=SampleWindow(),
        )


def checked(found: GuardEvaluation, instances: int) -> None:
    """Nothing is believed of a run that judged otherwise than the fleet was made."""
    states = Counter(work.state for key, work in found.works.items() if key.id.startswith("i-"))
    idle = instances // 10 * IDLE_OF_TEN
    if (states[IDLE], states[ACTIVE]) != (idle, instances - idle):
        raise SystemExit(f"of {instances} machines {idle} idle, and the survey says {dict(states)}")
