"""On 80 and on 60 columns the column that names the rows stands whole or cut in its middle, in every table.

The commands below draw one of each kind. Each machine has a name that is longer than the terminal.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from costguard.metering.inventory import Complete, Poll
from costguard.views.columns import ELLIPSIS, find_naming_column
from costguard.views.document import TableView
from costguard.views.table_layout import TableLayout
from tests.conftest import Command
from tests.golden import test_golden
from tests.golden.test_golden import SAMPLES, SPENDING, ledger  # noqa: F401 - a fixture
from tests.golden.test_terminals import terminal  # noqa: F401 - a fixture

LONG = "train-llama-3.1-70b-continued-pretraining-of-the-vision-team-"
LEDGER_COMMANDS = (*SPENDING.values(), ("plan",), ("policy", "explain"), ("metrics",), ("audit",), ("agent", "list"))
SERVED = ("quote", "--model", "llama-3.1-70b", "--method", "inference")
MARKET_COMMANDS = (
    *(SAMPLES[name] for name in ("quote", "quote_rental", "offers")),
    (*SERVED, "--requests-per-second", "5", "--prompt-len", "1000", "--output-len", "300"),
    ("quote", "--model", "llama-3.1-8b", "--method", "lora", "--tokens", "1B", "--explain"),
)
FREE_COMMANDS = (
    ("providers",),
    ("models",),
    ("models", "--fits", "RTX-4090", "--method", "qlora"),
    ("gpus",),
    ("quote", "--template", "list"),
    ("prices",),
    ("size", "--model", "llama-3.1-8b", "--method", "lora", "--explain"),
)
OTHER_POLLS = test_golden.polls
Laid = list[tuple[TableView, TableLayout]]


@pytest.fixture
def long_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machines of the ledger have names that no terminal has room for, and that differ only at the end."""

    def rename() -> list[Poll]:
        return [
            replace(poll, inventory=Complete(tuple(replace(one, name=LONG + one.key.id[-1]) for one in poll.inventory.items)))
            if isinstance(poll.inventory, Complete)
            else poll
            for poll in OTHER_POLLS()
        ]

    monkeypatch.setattr(test_golden, "polls", rename)


@pytest.fixture
def on_market(costguard: Command, market: str) -> Command:
    """`costguard` with the test's market."""
    return lambda *words: costguard(*words, "--market", market)


@pytest.fixture
def laid(monkeypatch: pytest.MonkeyPatch) -> Laid:
    """Every table that is laid out in the test, with its layout."""
    from costguard.views import table_layout

    tables, fit_table = list[tuple[TableView, TableLayout]](), table_layout.fit_table

    def fit(table: TableView, width: int | None, measure: Callable[[str], int] = len) -> TableLayout:
        layout = fit_table(table, width, measure)
        tables.append((table, layout))
        return layout

    monkeypatch.setattr(table_layout, "fit_table", fit)
    return tables


def check(laid: Laid, width: int) -> None:
    for table, layout in laid:
        number = find_naming_column(table.columns)
        heading = table.columns[number].removesuffix(">")
        column = next((one for one in layout.columns if one.name == heading), None)
        assert column is not None, f"{heading} was dropped from {table.title or table.columns}"
        wholes = zip((row[number] for row in table.rows), table.short.get(heading, [""] * len(table.rows)), strict=True)
        for cell, whole_cells in zip(column.cells, wholes, strict=True):
            if column.wraps or cell in whole_cells:
                continue
            head, mark, tail = cell.partition(ELLIPSIS)
            assert mark, (heading, cell)
            assert head, (heading, cell)
            assert tail, (heading, cell)
            assert any(one.startswith(head) for one in whole_cells), (heading, cell)
        assert sum(one.width for one in layout.columns) + 2 * (len(layout.columns) - 1) <= width, table.columns


@pytest.mark.usefixtures("long_names")
@pytest.mark.parametrize("width", [80, 60])
@pytest.mark.parametrize("words", LEDGER_COMMANDS, ids=" ".join)
def test_a_machine_is_named_in_every_table_of_the_ledger(
    ledger: Command,  # noqa: F811 - the fixture
    terminal: Callable[[int], None],  # noqa: F811 - the fixture
    laid: Laid,
    words: tuple[str, ...],
    width: int,
) -> None:
    terminal(width)
    ledger(*words)
    check(laid, width)
    if words == ("status",):
        (column,) = [one for one in laid[0][1].columns if one.naming]
        assert all(re.search(f"{ELLIPSIS}.* [0-9a-f]{{6,}}$", cell) for cell in column.cells if cell.startswith("train-"))


@pytest.mark.parametrize("width", [80, 60])
@pytest.mark.parametrize("words", MARKET_COMMANDS, ids=lambda words: " ".join(words)[:40])
def test_an_offer_is_named_in_every_table_of_the_market(
    on_market: Command,
    terminal: Callable[[int], None],  # noqa: F811 - the fixture
    laid: Laid,
    words: tuple[str, ...],
    width: int,
) -> None:
    terminal(width)
    assert on_market(*words).code == 0
    check(laid, width)


@pytest.mark.parametrize("width", [80, 60])
@pytest.mark.parametrize("words", FREE_COMMANDS, ids=" ".join)
def test_a_row_is_named_in_every_other_table(
    costguard: Command,
    terminal: Callable[[int], None],  # noqa: F811 - the fixture
    laid: Laid,
    words: tuple[str, ...],
    width: int,
) -> None:
    terminal(width)
    assert costguard(*words).code == 0
    assert laid
    check(laid, width)
