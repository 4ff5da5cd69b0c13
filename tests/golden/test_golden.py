"""One sample of each JSON schema, to the letter. A change here is a change of contract: raise the schema's number, or be sure.

`make golden` writes the samples anew; then read the diff.
"""

from __future__ import annotations

import csv
import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costguard.data import ShippedFacts
from costguard.guard.overrides import Override
from costguard.guard.policy import Rails
from costguard.ledger.guard.store import GuardStore
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Complete, Failed, Poll
from costguard.metering.observation import Disk, Observation, Price
from costguard.providers import plugins
from costguard.services.report import ledger_answers, report_delivery
from costguard.system.file_system import LOCAL, FileSystem
from costguard.values.money import Rate
from costguard.values.resource import ResourceKey, ScopeKey
from tests.cli.acme import BAD_CHECKS, Account, Acme, installed, no_key
from tests.conftest import Command
from tests.golden.test_agents import WEB
from tests.shop import STATED, TODAY

HERE = Path(__file__).parent
SAMPLES = {
    "quote": ("quote", *STATED, "--max-usd", "30"),
    "quote_rental": ("quote", "--gpu", "H100", "--count", "8", "--hours", "12"),
    "quote_on": ("quote", *STATED, "--on", "H200:8x2"),
    "size": ("size", "--model", "llama-3.1-8b", "--method", "lora", "--on", "A100-80GB:2"),
    "offers": ("offers",),
    "breakeven": ("breakeven", "--gpu", "A100-80GB", "--price", "15000", "--resale", "3000", "--hours-week", "40"),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_json_is_the_sample_to_the_letter(
    costguard: Command, market: str, request: pytest.FixtureRequest, name: str
) -> None:
    flags = () if name == "size" else ("--market", market)
    ran = costguard(*SAMPLES[name], *flags, "--json")
    assert ran.code == 0, ran.err
    printed = ran.out.replace(market, "MARKET")
    sample = HERE / f"{name}.json"
    if request.config.getoption("--write-golden"):
        sample.write_text(printed)
    assert printed == sample.read_text()


SPENDING = {"status": ("status",), "report": ("report", "--month", "2026-10", "--zone", "Europe/Berlin")}
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
AWS, VAST = ScopeKey("aws", "123456789012", "us-east-1"), ScopeKey("vast", "me", "contracts")
SETTINGS = """
[[budget]]
name = "lab"
cap = "3000 USD"
match = { owners = ["ada"] }
"""


def polls() -> list[Poll]:
    """Two days of two scopes: a machine that runs, one that stopped, one without a price, and a provider that fails."""
    trains = Observation(
        key=ResourceKey("aws", "123456789012", "us-east-1", "i-0a1b"),
        state="running",
        name="train-1",
        instance_type="p5.48xlarge",
        gpu="H100-SXM",
        gpu_count=8,
        owner="ada",
        labels=(("team", "vision"),),
        started_at=NOON - timedelta(hours=30),
        prices=(Price(Rate.parse("98.32")),),
        disks=(Disk(500, "gp3"),),
    )
    rests = Observation(
        key=ResourceKey("aws", "123456789012", "us-east-1", "i-0c2d"),
        state="stopped",
        name="old <b>box</b>",
        instance_type="g5.xlarge",
        gpu="A10G",
        gpu_count=1,
        owner="ben",
        started_at=NOON - timedelta(hours=40),
        stopped_at=NOON - timedelta(hours=36),
        prices=(Price(Rate.parse("1.006")),),
        disks=(Disk(100, "gp3"),),
    )
    hidden = Observation(
        key=ResourceKey("vast", "me", "Sweden, SE", "24815377"),
        state="running",
        gpu="RTX-4090",
        gpu_count=1,
        created_at=NOON - timedelta(hours=20),
    )
    hours = [NOON - timedelta(hours=48) + timedelta(minutes=4 * n) for n in range(12 * 15 * 4 + 1)]
    first = [
        Poll(scope=AWS, at=at, inventory=Complete(tuple(o for o in (trains, rests) if o.started_at and o.started_at <= at)))
        for at in hours
    ]
    second = [
        Poll(scope=VAST, at=at, inventory=Complete((hidden,)) if at >= NOON - timedelta(hours=20) else Complete(()))
        for at in hours[:-90]
    ]
    return [*first, *second, *(Poll(scope=VAST, at=at, inventory=Failed("timeout after 30 s")) for at in hours[-90:])]


@pytest.fixture
def ledger(costguard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """`costguard` with that ledger, at noon on the first of November 2026."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    with LedgerWriter(url, rules=ShippedFacts().get_billing_rules(), ceilings={"RTX-4090": 2 * 10**9}) as books:
        books.record_polls(polls())
    (tmp_path / "costguard.toml").write_text(SETTINGS)
    monkeypatch.setenv("COSTGUARD_LEDGER__URL", url)
    monkeypatch.setattr(ledger_answers, "get_now", lambda: NOON)
    monkeypatch.setattr(report_delivery, "get_utc_now", lambda: NOON)
    return costguard


def test_what_was_sent_is_told_to_the_letter(ledger: Command, request: pytest.FixtureRequest) -> None:
    ran = ledger(*SPENDING["report"], "--notify", "console", "--json")
    assert ran.code == 0, ran.err
    sample = HERE / "report_sent.json"
    if request.config.getoption("--write-golden"):
        sample.write_text(ran.out)
    assert ran.out == sample.read_text()


@pytest.mark.parametrize("name", SPENDING)
def test_the_json_of_spending_is_the_sample_to_the_letter(ledger: Command, request: pytest.FixtureRequest, name: str) -> None:
    ran = ledger(*SPENDING[name], "--json")
    assert ran.code == 0, ran.err
    printed = masked(ran.out)
    sample = HERE / f"{name}.json"
    if request.config.getoption("--write-golden"):
        sample.write_text(printed)
    assert printed == sample.read_text()


def focus_row(start: datetime, hours: int, cost: str, category: str = "Usage", resource: str = "i-0a1b") -> dict[str, str]:
    """A row of an AWS bill."""
    return {
        "BillingAccountId": "123456789012",
        "ProviderName": "AWS",
        "BillingCurrency": "USD",
        "BillingPeriodEnd": "2026-11-01T00:00:00Z",
        "InvoiceId": "2026-10",
        "ChargePeriodStart": start.isoformat(),
        "ChargePeriodEnd": (start + timedelta(hours=hours)).isoformat(),
        "ChargeCategory": category,
        "ServiceCategory": "Compute" if category == "Usage" else "",
        "EffectiveCost": cost,
        "ResourceId": resource,
    }


def test_the_json_of_a_reconciliation_is_the_sample_to_the_letter(
    ledger: Command, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    month = datetime(2026, 10, 1, tzinfo=UTC)
    rows = [focus_row(NOON - timedelta(hours=hour), 1, "100.00") for hour in range(13, 31)]
    rows += [focus_row(NOON - timedelta(hours=20), 1, "1.25", resource="i-0unseen")]
    rows += [focus_row(month, 31 * 24, "342.00", "Tax", ""), focus_row(month, 31 * 24, "-50", "Credit", "")]
    with (tmp_path / "bill.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    monkeypatch.setattr("costguard.services.report.reconcile_command.get_now", lambda: NOON)
    ran = ledger("reconcile", "--month", "2026-10", "--file", "bill.csv", "--json")
    assert ran.code == 3, ran.err
    sample = HERE / "reconcile.json"
    if request.config.getoption("--write-golden"):
        sample.write_text(ran.out)
    assert ran.out == sample.read_text()


AUDIT = {"audit": ("audit", "show"), "audit_verify": ("audit", "verify")}


@pytest.mark.parametrize("name", AUDIT)
def test_the_json_of_the_audit_is_the_sample_to_the_letter(ledger: Command, request: pytest.FixtureRequest, name: str) -> None:
    with GuardStore(os.environ["COSTGUARD_LEDGER__URL"], rails=Rails()) as book:
        key = ResourceKey("aws", "123456789012", "us-east-1", "i-0a1b")
        book.add_override(Override(id="w1", what="protect", who="ada@lab", why="ours", at=NOON, key=key))
        book.lift_override("w1", who="ben@lab", now=NOON + timedelta(hours=1))
    ran = ledger(*AUDIT[name], "--json")
    assert ran.code == 0, ran.err
    printed = masked(ran.out)
    sample = HERE / f"{name}.json"
    if request.config.getoption("--write-golden"):
        sample.write_text(printed)
    assert printed == sample.read_text()


def masked(text: str) -> str:
    """Without what differs in each ledger: its file, its id, when its audit began, and the hashes that follow from those."""
    text = text.replace(os.environ["COSTGUARD_LEDGER__URL"].removeprefix("sqlite:///"), "LEDGER")
    text = re.sub(r'("settings"): "[^"]*"', r'\1: "FILE"', text)
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID", text)
    text = re.sub(r"\b([0-9a-f]{64}|(?<=:)[0-9a-f]{16})\b", "HASH", text)
    return re.sub(r'"at": "[^"]*",(\s+"kind": "began")', r'"at": "AT",\1', text)


LOOKING = {
    "doctor": (("doctor",), 3),
    "providers": (("providers",), 0),
    "init": (("init", "--yes", "--budget", "3000"), 0),
    "prices": (("prices", "--market", "MARKET"), 0),
}


@pytest.mark.parametrize("name", LOOKING)
def test_the_json_of_looking_around_is_the_sample_to_the_letter(
    costguard: Command, market: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = Path(market).parent
    acmes = (Acme("one", [Account("one", checks=BAD_CHECKS)], extra="aws"), Acme("two"), Acme("three", no_key("three")))
    monkeypatch.setattr(plugins, "load_providers", installed(*acmes, bad="ImportError: no such module"))
    monkeypatch.setattr("costguard.ledger.db.maintenance.read_sqlite_version", lambda: "3.40.1")
    monkeypatch.setattr("costguard.ledger.db.disk.identify_file_system", lambda _: FileSystem("ext4", LOCAL))
    monkeypatch.setattr("costguard.services.quote.offers._get_today", lambda: TODAY)
    if name != "init":
        (folder / "costguard.toml").write_text("".join(f"[providers.{one.name}]\n" for one in acmes))
    command, code = LOOKING[name]
    ran = costguard(*(market if word == "MARKET" else word for word in command), "--json")
    assert ran.code == code, ran.err
    printed = ran.out.replace(market, "MARKET").replace(str(folder), "FOLDER")
    sample = HERE / f"{name}.json"
    if request.config.getoption("--write-golden"):
        sample.write_text(printed)
    assert printed == sample.read_text()


def test_there_is_a_sample_of_every_schema() -> None:
    schemas = {json.loads(p.read_text())["schema"] for p in HERE.glob("*.json")}
    names = (
        "quote", "size", "offers", "breakeven", "status", "report", "simulate", "reconcile", "audit", "report_sent", "run",
        *LOOKING, *WEB,
    )  # fmt: skip
    assert schemas == {f"costguard.{name}/1" for name in names}
    assert {p.stem for p in HERE.glob("*.json")} == {
        *SAMPLES, *SPENDING, *AUDIT, *LOOKING, *WEB, "simulate", "reconcile", "report_sent", "run",
    }  # fmt: skip
