"""What a command imports, seen from a fresh process: start-up time is spent on imports and on nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Complete, Poll
from tests import shop
from tests.metering.stories import SCOPE, TEN, machine

HEAVY = (
    *("boto3", "google", "sqlalchemy", "sqlmodel", "pydantic_settings", "numpy", "requests", "httpx"),
    *(
        "httpx2",
        "httpcore2",
        "msgspec",
        "stamina",
        "costguard.providers.transport",
        "costguard.services.poll.configured_providers",
    ),
)
SEEN = (
    "import sys; from costguard.cli import run_cli; code = run_cli({arguments}); "
    "sys.stderr.write(' '.join(sorted(sys.modules))); sys.exit(code)"
)


def modules(*arguments: str) -> set[str]:
    """Every module that is imported once `costguard` with these arguments has run."""
    script = SEEN.format(arguments=list(arguments))
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(ran.stderr.split("\n")[-1].split())


@pytest.fixture
def market(tmp_path: Path) -> str:
    return shop.market(tmp_path)


def test_help_imports_nothing_heavy_and_no_room_of_the_house() -> None:
    seen = modules("--help")
    unwanted = (
        *HEAVY, "pydantic", "rich", "sqlite3", "costguard.services", "costguard.services", "costguard.ledger",
        "costguard.data",
    )  # fmt: skip
    assert seen & {*unwanted} == set()
    assert "costguard.cli" in seen


def test_a_quote_imports_nothing_heavy(market: str) -> None:
    seen = modules("quote", *shop.STATED, "--market", market)
    assert seen & {*HEAVY, "rich", "asyncio", "logging.handlers", "http", "ssl"} == set()
    assert "costguard.services.quote.quote" in seen


@pytest.mark.sampled(3)
@pytest.mark.parametrize("command", [("size", "--model", "llama-2-7b"), ("quote", "--help"), ("breakeven", "--help")])
def test_no_other_command_imports_anything_heavy(command: tuple[str, ...]) -> None:
    assert modules(*command) & {*HEAVY, "rich"} == set()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("command", [("providers",), ("prices",), ("offers", "--top", "1")])
def test_a_command_that_asks_nobody_imports_no_sdk_and_no_network(command: tuple[str, ...]) -> None:
    assert modules(*command) & {*HEAVY, "rich"} <= {"costguard.services.poll.configured_providers"}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("command", [("status",), ("report",)])
def test_reading_the_ledger_imports_no_sdk_and_no_migrations(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LedgerWriter(f"sqlite:///{tmp_path}/ledger.db", rules={}, ceilings={}) as ledger:
        ledger.record_polls([Poll(scope=SCOPE, at=TEN, inventory=Complete((machine(),)))])
    monkeypatch.setenv("COSTGUARD_LEDGER__URL", f"sqlite:///{tmp_path}/ledger.db")
    assert modules(*command) & {*HEAVY, "alembic", "psycopg"} <= {"sqlalchemy", "sqlmodel", "pydantic"}
