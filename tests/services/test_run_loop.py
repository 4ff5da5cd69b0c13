"""The whole loop on the simulated world: quote, hold, run, ledger, bill, reconciled, and the next quote is a closer one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

from costguard_sim.bill import charge_resource
from costguard_sim.clouds import SimClouds
from costguard_sim.world import SCOPES, Rate, Resource, Run, Shape, Tag, World, to_us

from costguard.bills.drift import DEFAULT_TOLERANCE, WITHIN
from costguard.budgets.budget import Budget
from costguard.guard.overrides import Override, find_lease
from costguard.guard.policy import Rails
from costguard.ledger.bills.reader import BillLedgerReader
from costguard.ledger.bills.staging import StagedStatement
from costguard.ledger.bills.store import BillStore, GatheredStatement
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.holds import HoldStore
from costguard.ledger.reports.reader import ReportReader
from costguard.ledger.spans.books import SpendingReader
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.observation import identify_incarnation
from costguard.reporting.statement.sections import group_runs_by_job, list_quoted_runs
from costguard.runs.progress import ProgressLog
from costguard.runs.record import ENDED, OPEN, JobRecord, build_job_hold, compute_lease_length, find_hold_amount
from costguard.services.poll.poll import poll_sources
from costguard.services.report.reconcile import ask_for_bills, reconcile_bills
from costguard.services.run_jobs.job_run import learn_speed
from costguard.services.run_jobs.record_store import (
    RunLedger,
    RunRecordStore,
    lease_machine,
    plan_attempt,
    set_money_aside,
    settle_attempt,
)
from costguard.services.run_jobs.terms import RunRequest, estimate_run
from costguard.settings import read_settings
from costguard.testing import FakeClock
from costguard.values.calendar import Period
from costguard.values.money import Money
from tests.services.test_reconcile import RULES

BEGIN = datetime(2026, 11, 20, 8, tzinfo=UTC)
RATE = 2_490_000_000
JOB = """
model = "llama-3.1-8b"
method = "lora"
precision = "bf16"
seq_len = 2048
micro_batch = 4
global_batch_tokens = 32_768
checkpointing = "full"
optimizer = "adamw"
attention = "flash"
tokens = 200_000_000
"""
SLOWER = 0.9
"""The truth: such jobs go slower here than the shipped model says, and within its interval."""


def world_of(seconds: int) -> World:
    """One machine that runs from the beginning of the job until its end."""
    us = to_us(BEGIN)
    pod = Resource(
        cloud="sim-gcp",
        account=SCOPES["sim-gcp"][0][0],
        scope=SCOPES["sim-gcp"][0][1],
        region=SCOPES["sim-gcp"][0][1],
        id="k3v9x2m",
        name="train-a",
        kind="instance",
        created_us=us,
        runs=(Run(start_us=us, stop_us=us + seconds * 1_000_000),),
        rates=(Rate(at_us=us, nano=RATE),),
        shapes=(Shape(at_us=us, type="H100 x1", gpu="H100-SXM", gpus=1),),
        tags=(Tag(at_us=us, owner="ada"),),
    )
    return World(seed=0, start_us=us, end_us=us + 48 * 3600 * 1_000_000, resources=(pod,))


def test_quote_to_calibrated_quote_to_the_cent(tmp_path: Path) -> None:  # noqa: PLR0915 - one story
    url = f"sqlite:///{tmp_path}/ledger.db"
    (tmp_path / "job.toml").write_text(JOB)
    config, calibration = tmp_path / "costguard.toml", tmp_path / "calibration.json"
    config.write_text(f'[ledger]\nurl = "{url}"\n[quote]\ncalibration = "{calibration}"\n')
    settings = read_settings(str(config))
    asked = RunRequest(job_file=str(tmp_path / "job.toml"), flags={}, id="train-a", config=str(config))
    book = RunRecordStore(path=tmp_path / "llama.json", record=JobRecord(job="llama"))
    clock = FakeClock(BEGIN)
    first_look = World(seed=0, start_us=to_us(BEGIN), end_us=to_us(BEGIN), resources=world_of(10**6).resources)
    with LedgerWriter(url, rules=RULES, ceilings={}) as ledger:
        poll_sources([SimClouds(clock=clock, world=first_look)], ledger, clock)

        # the quote, at the ledger's own price
        found = estimate_run(asked, settings, book.record, clock.now())
        terms = found.terms
        assert terms.machine.hourly is not None
        assert terms.machine.hourly.nano_per_hour == RATE
        assert (terms.machine.provider, terms.machine.owner, terms.steps) == ("sim-gcp", "ada", 6104)
        assert terms.hours is not None
        assert terms.usd is not None
        speed = 200_000_000 / (terms.hours.expected * 3600) * SLOWER
        seconds = round(200_000_000 / speed)
        world = world_of(seconds)
        sim = SimClouds(clock=clock, world=world)

        # the hold, in its owner's budget, and the lease
        cap = terms.usd.high + Money(nano=10**9)
        budgets = (Budget(name="ada", cap=cap, period="month"),)
        holds, wishes = HoldStore(url, rules=RULES), GuardStore(url, rails=Rails())
        desk = RunLedger(holds=holds, wishes=wishes, budgets=budgets, who="ada@train-a")
        money = find_hold_amount(terms, None)
        assert money == terms.usd.high
        attempt = replace(plan_attempt(book, clock.now()), hourly=terms.machine.hourly, held=money, lease="run-1")
        attempt = replace(attempt, hold=attempt.id, state=OPEN)
        wanted = build_job_hold(attempt, "llama", money, terms, who=desk.who, labels={}, now=clock.now())
        assert set_money_aside(wanted, desk, clock.now()).admitted
        other = replace(wanted, id="another")
        assert set_money_aside(other, desk, clock.now()).reason == "budget_cap", "two such runs are one too many"
        length = compute_lease_length(terms, timedelta(days=30))
        assert length is not None
        assert found.live is not None
        taken = lease_machine(found.live, length, (), desk, clock.now(), wish_id="run-1", why="costguard run")
        assert isinstance(taken, Override)

        # the run: polled every five minutes, its steps told every minute
        marks = ProgressLog()
        while clock.now() < BEGIN + timedelta(seconds=seconds):
            poll_sources([sim], ledger, clock)
            up = (clock.now() - BEGIN).total_seconds()
            marks.add(int(up * speed / 32_768), up)
            clock.advance(timedelta(minutes=1))
        ended = replace(attempt, state=ENDED, status=0, seen_at=BEGIN + timedelta(seconds=seconds), last_step=marks.last_step)
        poll_sources([sim], ledger, clock)
        assert settle_attempt(ended, desk, clock.now()) == ()
        assert settle_attempt(ended, desk, clock.now()) == (), "it may be settled twice"
        book.put_attempt(ended)
        life = identify_incarnation(found.live.observation)
        assert find_lease(life, wishes.load_overrides_since(BEGIN), clock.now()) is None
        assert holds.open_holds(clock.now()) == []
        clock.advance(timedelta(hours=1))
        poll_sources([sim], ledger, clock)
        taught = learn_speed(asked, found, "llama", marks=marks.kept, ended=ended)
        holds.close()
        wishes.close()

    # to the cent: what the run says it cost, what the ledger counted, what the cloud bills
    run_cost = ended.spent
    assert run_cost is not None
    owed = sum((line.amount for line in charge_resource(world.resources[0], 0, world.end_us)), Fraction(0))
    assert abs(run_cost.nano - round(owed * 10**9)) <= 1
    with ReportReader(url, rules=RULES) as books:
        (ledgers,) = books.spent(clock.now())
        november = Period(start=datetime(2026, 11, 1, tzinfo=UTC), end=datetime(2026, 12, 1, tzinfo=UTC))
        quotes = list_quoted_runs(books.load_committed_holds(november), november)
    assert ledgers.money.low == ledgers.money.high, "this cloud states starts and stops, so nothing is in doubt"
    assert abs(ledgers.money.expected.nano - round(owed * 10**9)) <= 1
    assert abs(run_cost.nano - ledgers.money.expected.nano) <= 1
    (job,) = group_runs_by_job(quotes)
    assert (job.job, job.attempts, job.quoted, job.actual) == ("llama", 1, money, run_cost)

    # reconciled
    assert reconciled_outcome(url, world, clock.now(), november) == {WITHIN}

    # the next quote: on the side of the truth, and narrower
    after = taught.after
    assert after is not None, taught.unfit
    assert after.hours is not None
    truth = seconds / 3600
    assert abs(after.hours.expected - truth) < abs(terms.hours.expected - truth)
    assert after.hours.high / after.hours.low < terms.hours.high / terms.hours.low
    assert after.hours.low < truth < after.hours.high


def reconciled_outcome(url: str, world: World, now: datetime, period: Period) -> set[str]:
    """What comes of the world's own bill held against the ledger."""
    (asked,) = ask_for_bills([("sim", SimClouds(clock=FakeClock(now), world=world))], period, now)
    staged = StagedStatement()
    assert asked.billed is not None
    staged.add((line, Decimal(0)) for line in asked.billed.lines)
    with BillStore(url) as bills:
        gathered = GatheredStatement(staged=staged, source="sim", stated_at=now, asked=(asked.providers, asked.period))
        bills.import_statements([gathered], who="a test", now=now)
    staged.__exit__(None, None, None)
    with BillLedgerReader(url) as held, SpendingReader(url, rules=RULES) as charges:
        found = reconcile_bills(
            bills=held,
            charges=charges,
            providers=("sim-gcp",),
            period=period,
            now=now,
            tolerance=DEFAULT_TOLERANCE,
            missing={},
            periods={"sim-gcp": asked.period},
            rules=RULES,
        )
    return {one.outcome for one in found.results}
