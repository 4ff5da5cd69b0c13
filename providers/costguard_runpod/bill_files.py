"""RunPod's billing answers, kept as JSON files (`GET /v2/billing/pods`, `/network-volumes`, `/v2/billing`), as bill lines.

The records are those that the account is asked for, so they have the same names: a file and an answer of one hour are one line.
Buckets longer than an hour are a statement of their own, which is never added to the hours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import msgspec

from costguard.bills.bill_files import BillFileFacts, BillFileRecord, BillFormat, BillLinePart
from costguard.errors import InputError, shorten
from costguard.values.instant import EARLIEST, LATEST, MICROSECOND
from costguard.values.period import Period
from costguard_runpod.billing import PODS, TOTALS, VOLUMES, BillStatement, parse_bill_lines
from costguard_runpod.wire import BillRecord

HOUR = timedelta(hours=1)
OF_A_RESOURCE = frozenset(("gpuAmount", "cpuAmount", "diskAmount", "standardAmount", "highPerformanceAmount"))
"""Amounts that no total of an account has: without an id their money would be of nobody, and be left out."""
EVER = Period(start=EARLIEST, end=LATEST - MICROSECOND)


def is_bill_record(record: BillFileRecord) -> bool:
    """Whether a record is one bucket of a bill of RunPod's."""
    amounts = any(key.endswith("Amount") for key in record)
    return "startTime" in record and "endTime" in record and amounts


def read_bill_record(record: BillFileRecord, about: BillFileFacts) -> Iterator[BillLinePart]:
    """A line for each part of a bucket that is not zero."""
    try:
        bucket = msgspec.convert(record, BillRecord, strict=False)
    except (msgspec.ValidationError, ArithmeticError) as odd:
        raise InputError(f"is no bucket of a bill: {shorten(str(odd), 80)}", field="record") from None
    stated = {name for name, value in record.items() if value is not None}
    if bucket.pod_id is None and bucket.network_volume_id is None and OF_A_RESOURCE & stated:
        hint = "podId or networkVolumeId is wanted: export it again, without grouping it"
        raise InputError("states amounts of a resource and not of which", field="record", hint=hint)
    kind = PODS if bucket.pod_id is not None else VOLUMES if bucket.network_volume_id is not None else TOTALS
    lines, unread = parse_bill_lines([bucket], BillStatement(kind=kind, account=about.account, now=about.as_of, period=EVER))
    if unread:
        raise InputError("states no time, no resource or no amount", field="record")
    for line in lines:
        hours = line.end - line.start
        whole = line if hours == HOUR else replace(line, statement=f"buckets of {hours // HOUR} h")
        yield whole, Decimal(0)


BILL_FORMAT = BillFormat(name="RunPod billing (JSON)", known=is_bill_record, read=read_bill_record, sums=False)
