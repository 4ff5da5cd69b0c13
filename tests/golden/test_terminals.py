"""How answers look on terminals of 80, 100 and 160 columns, to the letter, and what must hold of every such picture.

`make golden` writes the pictures anew; then look at the diff as a user would.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.golden.test_golden import SAMPLES, SPENDING, ledger  # noqa: F401 - a fixture

HERE = Path(__file__).parent / "terminals"
WIDTHS = (80, 100, 160)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets the output be a terminal of so many columns without colours."""

    def become(columns: int) -> None:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setattr("costguard.renderers.table.is_terminal", lambda: True)

    return become


@pytest.fixture
def drawn(market: str, request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a picture with the kept one."""
    return lambda name, printed: compare(request, name, printed.replace(market, "MARKET"))


def compare(request: pytest.FixtureRequest, name: str, printed: str) -> None:
    sample = HERE / f"{name}.txt"
    if request.config.getoption("--write-golden"):
        HERE.mkdir(exist_ok=True)
        sample.write_text(printed)
    assert printed == sample.read_text()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["quote", "quote_rental", "offers"])
def test_a_market_answer_on_a_terminal(
    costguard: Command, drawn: Callable[[str, str], None], terminal: Callable[[int], None], name: str, width: int
) -> None:
    terminal(width)
    ran = costguard(*SAMPLES[name], "--market", "market.sqlite")
    assert ran.code == 0, ran.err
    assert max(map(len, ran.out.splitlines())) <= width
    drawn(f"{name}-{width}", ran.out)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["status", "report"])
def test_spending_on_a_terminal(
    ledger: Command,  # noqa: F811 - the fixture
    drawn: Callable[[str, str], None],
    terminal: Callable[[int], None],
    name: str,
    width: int,
) -> None:
    terminal(width)
    ran = ledger(*SPENDING[name])
    assert ran.code == 0, ran.err
    assert max(map(len, ran.out.splitlines())) <= width
    drawn(f"{name}-{width}", ran.out)


def test_wide_shows_every_column_of_a_narrow_terminal(
    ledger: Command,  # noqa: F811 - the fixture
    terminal: Callable[[int], None],
) -> None:
    terminal(60)
    narrow, wide = ledger("status").out, ledger("status", "--wide").out
    assert "--wide adds" in narrow
    assert "--wide" not in wide
    for heading in ("provider", "account", "region", "tier", "owner"):
        assert heading in wide
