"""Hostile names, owners, tags, accounts and types through FOCUS and Beancount: kept as data, and without any effect (H39)."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from costguard.files.table import read_parquet_table
from costguard.metering.charge_item import ChargeItem
from costguard.renderers import beancount, focus, focus_parquet
from costguard.reporting.focus.columns import VERSIONS
from costguard.values.resource import ResourceKey, make_storable
from costguard.views.document import Document
from tests.cells import format_cell, parse_json
from tests.charges import ADA, charges, item
from tests.inputs.test_hostile_strings import FORMULA, NUMBER, acts
from tests.notifiers.hostile import CORPUS
from tests.reporting.focus_rules.validator import check_focus_file

LONGEST_CELL = 2**20
HOSTILE = [make_storable(text) for text in CORPUS]


def hostile(number: int, text: str) -> ChargeItem:
    """A charge of a resource all of whose words are `text`."""
    account = text if text.strip() else "a"  # the settings give it its name
    of = replace(ADA, account=account, region=text, owner=text, instance_type=text, labels=(("project", text), ("team", text)))
    key = ResourceKey("aws", account, text, f"{text}{number}")
    return item(key=key, attribution=of, name=text, tags=((text or "k", text),), source=text)


ITEMS = [hostile(number, text) for number, text in enumerate(HOSTILE)]


def test_the_corpus_is_as_large_as_it_is_said_to_be() -> None:
    assert len(ITEMS) >= 200


@pytest.mark.parametrize("version", VERSIONS)
def test_a_focus_export_is_safe_in_a_terminal_and_in_a_spreadsheet_and_keeps_to_the_standard(version: str) -> None:
    text = "".join(focus.render(Document(data={}, items=charges(ITEMS)), focus_version=version))
    assert acts(text) == set()
    csv.field_size_limit(LONGEST_CELL)
    header, *lines = csv.reader(io.StringIO(text), strict=True)
    assert {len(line) for line in lines} == {len(header)}
    assert len(lines) == len(ITEMS)
    assert [cell for line in lines for cell in line if cell.startswith(FORMULA) and not NUMBER.fullmatch(cell)] == []
    tags = [json.loads(line[header.index("Tags")]) for line in lines]
    assert tags == [{text or "k": text or True} for text in HOSTILE]
    assert check_focus_file(header, enumerate(lines, 2), parse_json, version).findings == ()


def test_parquet_keeps_every_name_as_it_is(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pip install '.[parquet]' brings pyarrow")
    path = tmp_path / "export.parquet"
    path.write_bytes(b"".join(focus_parquet.render(Document(data={}, items=charges(ITEMS)))))
    with path.open("rb") as raw:
        found = read_parquet_table(str(path), raw)
        names = [format_cell(cells[found.header.index("ResourceName")]) for _, cells in found.rows]
    assert names == [text if text.strip() else "" for text in HOSTILE]


def test_books_are_what_they_would_be_without_the_names(tmp_path: Path) -> None:
    loader = pytest.importorskip("beancount.loader", reason="pip install '.[dev]' brings beancount")
    text = "".join(beancount.render(Document(data={}, items=charges(ITEMS))))
    assert acts(text) == set()
    words = {line.split(" ", 1)[0] for line in text.splitlines() if line and not line[0].isspace()}
    assert words == {";;", "option", "2026-11-02"}
    entries, errors, options = loader.load_string(text)
    assert errors == []
    assert (options["title"], options["include"], options["plugin"]) == ("Cloud costs", [], [])
    expenses = [posting.units.number for entry in entries for posting in getattr(entry, "postings", ())[:1]]
    assert sum(expenses) == sum((one.money.expected.to_decimal() for one in ITEMS), Decimal(0))
    assert {type(entry).__name__ for entry in entries} == {"Open", "Commodity", "Transaction"}
    assert list(tmp_path.iterdir()) == []
