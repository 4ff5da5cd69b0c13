"""Answer `costguard add`: costs that a person enters by hand, one of the options or all of a CSV file."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from costguard.errors import InputError, collect_errors, raise_errors
from costguard.ledger.cost_entries import CostEntryStore
from costguard.metering.cost_entry import BY_HAND, CostEntry
from costguard.reporting.statement.period import parse_month
from costguard.services import CommandAnswer
from costguard.services.guarding.overrides import describe_user
from costguard.services.report.ledger_answers import get_now
from costguard.settings import read_settings, resolve_ledger_url
from costguard.system.input_file import read_input_file
from costguard.values.checks import describe_value, find_nearest_names, require
from costguard.values.money import Money
from costguard.values.resource import GROUPED_LABELS, is_storable
from costguard.views.cost_entries import build_entries_document

COLUMNS = ("what", "amount", "month", "owner", "provider", *GROUPED_LABELS, "currency", "corrects")
OF_FORMER = COLUMNS[2:-2]
"""What a correction has of the entry that it corrects."""
LARGEST_AMOUNT = 10_000_000
"""A higher one is a slip: a lab's year costs less."""
LONGEST_TEXT, MOST_DIGITS, FILE_BYTES_MAX = 200, 18, 2**20
AMOUNT_HINT = "write the amount that is due, such as 41.20; a wrong entry is corrected by the right amount and --corrects E3"


class _Place(NamedTuple):
    """Where the values of an entry stand: `line` "" for options."""

    line: str

    def name_field(self, column: str) -> str:
        """Return the name of a value for errors."""
        return f"{self.line}, {column}" if self.line else column.upper() if column in COLUMNS[:2] else f"--{column}"


def add_costs(options: Mapping[str, str | None], *, file: str | None, config: str | None) -> CommandAnswer:
    """Answer `costguard add`. `options`: by the names of `COLUMNS`. `file`: a CSV file with these columns instead."""
    values, now = {name: text for name, text in options.items() if text is not None}, get_now()
    settings = read_settings(config)
    if file is None:
        rows = [(_Place(""), values)]
    else:
        require(not values, "--from", "has all that is entered", f"leave {', '.join(values)} out")
        rows = list(_read_rows(file))
    errors, entries = list[InputError](), list[CostEntry]()
    for place, row in rows:
        with collect_errors(errors):
            entries.append(_parse_entry(row, place, now))
    raise_errors(errors)
    with CostEntryStore(resolve_ledger_url(settings)) as book:
        added = book.add_entries(entries, [place.name_field("what") for place, _ in rows])
    return CommandAnswer(document=build_entries_document(added))


def _read_rows(file: str) -> Iterator[tuple[_Place, dict[str, str]]]:
    try:
        text = read_input_file(Path(file), FILE_BYTES_MAX).decode("utf-8-sig")
        rows = list(csv.reader(StringIO(text), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"is not CSV in UTF-8: {error}", field=file, hint=f"write the columns {', '.join(COLUMNS)}") from None
    header = [name.strip().lower() for name in rows[0]] if rows else []
    for name in header:
        near = ", ".join(find_nearest_names(name, COLUMNS))
        require(
            name in COLUMNS, f"{file}, line 1", f"unknown column {describe_value(name)}", near or f"write {', '.join(COLUMNS)}"
        )
    is_whole = len({*header}) == len(header) and {*COLUMNS[:2]} <= {*header}
    require(is_whole, f"{file}, line 1", "lacks the column what or amount, or has one twice", f"write {', '.join(COLUMNS)}")
    require(len(rows) > 1, file, "has no entry", "write one a line")
    for number, row in enumerate(rows[1:], 2):
        place = _Place(f"{file}, line {number}")
        require(len(row) == len(header), place.line, f"has {len(row)} of {len(header)} values", "is the file whole?")
        yield place, {name: text.strip() for name, text in zip(header, row, strict=True) if text.strip()}


def _parse_entry(values: Mapping[str, str], place: _Place, now: datetime) -> CostEntry:
    corrects = _parse_number(values["corrects"], place) if "corrects" in values else 0
    for name in ("amount", *(("what", "month") if not corrects else ())):
        require(
            bool(values.get(name, "").strip()),
            place.name_field(name),
            "is missing",
            AMOUNT_HINT if name == "amount" else "write it",
        )
    for name in OF_FORMER if corrects else ():
        require(
            name not in values,
            place.name_field(name),
            "is that of the entry that is corrected",
            "leave it out, or enter 0 and anew",
        )
    for name, text in values.items():
        fits = len(text) <= LONGEST_TEXT and text.isprintable() and is_storable(text)
        require(fits, place.name_field(name), f"is not a text of at most {LONGEST_TEXT} characters", "shorten it")
    money = Money.parse(values["amount"], values.get("currency", "USD"), field=place.name_field("amount"))
    least = 0 if corrects else 1
    shown = describe_value(values["amount"])
    require(money.nano >= least, place.name_field("amount"), f"is not more than zero: {shown}", AMOUNT_HINT)
    require(
        money.nano <= LARGEST_AMOUNT * 10**9,
        place.name_field("amount"),
        f"is more than {LARGEST_AMOUNT:,}: {shown}",
        "check it",
    )
    return CostEntry(
        corrects=corrects,
        what=values.get("what", ""),
        month=0 if corrects else _parse_entry_month(values["month"], place, now),
        money=money,
        who=describe_user(),
        entered_at=now,
        provider=values.get("provider", BY_HAND),
        owner=values.get("owner", ""),
        labels=tuple((key, values[key]) for key in GROUPED_LABELS if key in values),
    )


def _parse_entry_month(text: str, place: _Place, now: datetime) -> int:
    field = place.name_field("month")
    try:
        year, month = parse_month(text)
    except InputError as wrong:
        raise InputError(wrong.what, field=field, hint="write 2026-10") from None
    require((year, month) <= (now.year, now.month), field, f"has not begun: {describe_value(text)}", "enter it when it has")
    return 12 * (year - 1970) + month - 1


def _parse_number(text: str, place: _Place) -> int:
    digits = text.strip().upper().removeprefix("E")
    is_number = digits.isascii() and digits.isdigit() and int(digits[:MOST_DIGITS]) > 0 and len(digits) < MOST_DIGITS
    require(
        is_number,
        place.name_field("corrects"),
        f"is not an entry: {describe_value(text)}",
        "write E3: report --by resource,name",
    )
    return int(digits)
