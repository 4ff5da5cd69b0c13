"""Read tables of Lambda's usage or invoices as bill lines.

Lambda has no billing API and publishes no format of a file: its invoices are weekly, by e-mail and in the console
(docs.lambda.ai/public-cloud/billing, 2026-11). So columns are found by their names: the start and the end of a row, its amount
in USD, the id of the instance or filesystem, and its type or description. Other columns are ignored. Times without an offset
are in UTC. The first row must be of an instance type of Lambda's.

Example: "Instance ID, Instance type, Start, End, Amount" with "7c1f, gpu_1x_a10, 2026-11-16 08:00, 2026-11-16 10:00, $2.58".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from costguard.bills.bill_files import BillFileFacts, BillFileRecord, BillFormat, BillLinePart, format_export_instant
from costguard.bills.bill_line import COMPUTE, CREDIT, OTHER, STORAGE, TAX, BillLine, parse_bill_amount
from costguard.errors import InputError, shorten, to_one_line
from costguard.values.instant import parse_instant
from costguard.values.money import Money
from costguard.values.resource import make_storable

COLUMNS = {
    "start": ("start", "starttime", "startdate", "usagestart", "from"),
    "end": ("end", "endtime", "enddate", "usageend", "to"),
    "amount": ("amount", "amountusd", "cost", "costusd", "total", "charge", "charges"),
    "resource": ("instanceid", "filesystemid", "resourceid", "id"),
    "type": ("instancetype", "type", "resourcetype", "product"),
    "description": ("description", "item", "name"),
}
"""What a row states -> the names that its column may have, without case, spaces and signs."""
INSTANCE_TYPE = re.compile(r"(?:gpu|cpu)_\d+x_\w+", re.ASCII)
WORDS = ((TAX, ("tax", "vat")), (CREDIT, ("credit", "refund")), (STORAGE, ("filesystem", "file system", "storage")))
LONGEST = 200


def is_usage_row(record: BillFileRecord) -> bool:
    """Return whether a record has the columns, and is of an instance type of Lambda's."""
    columns = _find_columns(record)
    complete = columns.keys() >= {"start", "end", "amount"} and bool(columns.keys() & {"resource", "type"})
    return complete and any(INSTANCE_TYPE.fullmatch(str(value).strip()) for value in record.values())


def read_usage_row(record: BillFileRecord, about: BillFileFacts) -> Iterator[BillLinePart]:
    """Yield the line of a row."""
    columns = _find_columns(record)
    texts = {name: make_storable(shorten(str(record[column] or "").strip(), LONGEST)) for name, column in columns.items()}
    start, end = (parse_instant(texts[name]) for name in ("start", "end"))
    if start is None or end is None:
        raise InputError("is not a time", field=columns["start" if start is None else "end"])
    kind, description = texts.get("type", ""), texts.get("description", "")
    words = f"{kind} {description}".lower()
    charge = next((charge for charge, names in WORDS if any(name in words for name in names)), OTHER)
    if INSTANCE_TYPE.search(words) and charge == OTHER:
        charge = COMPUTE
    resource = "" if charge in (TAX, CREDIT) else texts.get("resource", "")
    amount = parse_bill_amount(texts["amount"].replace("$", "", 1), columns["amount"])
    yield (
        BillLine(
            id="|".join((format_export_instant(start), resource, charge, kind, description)),
            provider="lambda",
            account=about.account,
            start=start,
            end=end,
            amount=Money(nano=0),
            charge=charge,
            resource_id=resource,
            source="table of Lambda's usage",
            statement="usage table",
            description=to_one_line(description or kind),
        ),
        amount,
    )


def _find_columns(record: BillFileRecord) -> dict[str, str]:
    folded = {re.sub(r"[^a-z]", "", str(name).lower()): str(name) for name in record}
    by_meaning = {what: next((folded[name] for name in names if name in folded), "") for what, names in COLUMNS.items()}
    return {what: column for what, column in by_meaning.items() if column}


USAGE_FORMAT = BillFormat(name="Lambda usage or invoice lines (a table)", known=is_usage_row, read=read_usage_row)
