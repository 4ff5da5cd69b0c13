"""Cost Explorer's daily costs as bill lines.

Off unless enabled: AWS charges $0.01 for every request, each page included. A line is one day of one usage type of one account,
because Cost Explorer has no machines (its resource level costs extra and covers 14 days only). Costs are amortised: usage
covered by a savings plan is shown at its effective cost, on the day of use.

Example: 2026-11-20, USE1-BoxUsage:g5.xlarge, 24.144 -> a line of charge "compute", region us-east-1, $24.144, estimated.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from costguard.bills.bill_files import classify_charge, parse_export_instant
from costguard.bills.bill_line import BillLine, BillLines
from costguard.errors import InputError, InvalidAnswerError, shorten
from costguard.providers.ports import Cache
from costguard.system.clock import Clock
from costguard.values.calendar import Period
from costguard.values.instant import EPOCH
from costguard.values.money import LARGEST_AMOUNT, Money
from costguard.values.resource import make_storable
from costguard_aws.errors import AwsClients, call_operation

HOME = "us-east-1"
"""Cost Explorer answers there for all regions."""

FRESH = timedelta(hours=6)
"""Asked at most four times a day: its figures change no more often."""
SETTLED = timedelta(days=10)
"""A month this long over is closed, and is asked for once a day at most: an assumption, 2026-11."""

MOST_PAGES = 20
"""A page has some thousand groups: $0.20 for one question at most."""
METRIC = "AmortizedCost"
RECORDS = ("Usage", "SavingsPlanCoveredUsage", "DiscountedUsage")
"""What ran; fees, refunds, credits and tax are other kinds of records, and stand in the export files."""
SERVICES = ("Amazon Elastic Compute Cloud - Compute", "EC2 - Other")
"""Machines; and their disks, addresses and traffic."""


class _CachedMonth(msgspec.Struct):
    """A month's cached answer: the results of its pages and the time of the request."""

    at: datetime
    results: list[dict[str, Any]]
    whole: bool = True


class CostExplorer:
    """The daily costs of one account.

    `cache` stores each month's answer, so that it is not requested twice.
    """

    def __init__(self, aws: AwsClients, cache: Cache, clock: Clock) -> None:
        self._aws, self._cache, self._clock = aws, cache, clock

    def fetch_bill_lines(self, period: Period) -> BillLines:
        """Return every line of `period`, by whole UTC days; raises a ProviderError if Cost Explorer cannot be read."""
        lines, why = list[BillLine](), list[str]()
        for month in _list_months(period, self._clock.now()):
            entry = self._read_month(month)
            read, odd = parse_bill_lines(entry.results, self._aws.account, month)
            lines += [line for line in read if line.start < period.end and period.start < line.end]
            why += [odd] if odd else []
            why += [] if entry.whole else [f"Cost Explorer's answer for {month.start:%Y-%m} has more than {MOST_PAGES} pages"]
        return BillLines(lines=tuple(lines), why="; ".join(dict.fromkeys(why)))

    def _read_month(self, month: Period) -> _CachedMonth:
        name = f"aws-cost-{self._aws.account}-{month.start:%Y-%m-%d}-{month.end:%Y-%m-%d}"
        now = self._clock.now()
        fresh = timedelta(days=1) if now - month.end > SETTLED else FRESH
        data = self._cache.get(name, now - fresh)
        try:
            entry = None if data is None else msgspec.json.decode(data, type=_CachedMonth)
        except msgspec.DecodeError:
            entry = None
        if entry is None or now - entry.at >= fresh:
            results, is_complete = self._fetch_month(month)
            entry = _CachedMonth(at=now, results=results, whole=is_complete)
            self._cache.put(name, msgspec.json.encode(entry))
        return entry

    def _fetch_month(self, month: Period) -> tuple[list[dict[str, Any]], bool]:
        """Return the results of every page, and whether the last page was reached.

        botocore has no paginator for this operation. The End of its period is exclusive.
        """
        params: dict[str, Any] = {
            "TimePeriod": {"Start": f"{month.start:%Y-%m-%d}", "End": f"{month.end:%Y-%m-%d}"},
            "Granularity": "DAILY",
            "Metrics": [METRIC],
            "GroupBy": [{"Type": "DIMENSION", "Key": "USAGE_TYPE"}, {"Type": "DIMENSION", "Key": "LINKED_ACCOUNT"}],
            "Filter": {
                "And": [
                    {"Dimensions": {"Key": "SERVICE", "Values": list(SERVICES)}},
                    {"Dimensions": {"Key": "RECORD_TYPE", "Values": list(RECORDS)}},
                ]
            },
        }
        results, token, page_tokens = list[dict[str, Any]](), "", set[str]()
        for _ in range(MOST_PAGES):
            more = {"NextPageToken": token} if token else {}
            page = call_operation(self._aws, "ce", HOME, "get_cost_and_usage", **params, **more)
            some = page.get("ResultsByTime")
            if not isinstance(some, list):
                raise InvalidAnswerError("Cost Explorer's answer has no results", provider="aws", account=self._aws.account)
            results += some
            token = str(page.get("NextPageToken") or "")
            if not token or token in page_tokens:
                return results, not token
            page_tokens.add(token)
        return results, False


class _Days(msgspec.Struct, rename="pascal"):
    start: str
    end: str


class _Result(msgspec.Struct, rename="pascal"):
    time_period: _Days
    groups: list[Any] = []
    estimated: bool = True


class _Cost(msgspec.Struct, rename="pascal"):
    amount: str
    unit: str = "USD"


class _Group(msgspec.Struct, rename="pascal"):
    keys: list[str]
    metrics: dict[str, _Cost]


def parse_bill_lines(results: Iterable[object], account: str, period: Period) -> tuple[list[BillLine], str]:
    """Return the lines of an answer, and how many of its days and groups could not be read.

    `account`: used for lines that state none.
    """
    lines, unread, first = list[BillLine](), 0, ""
    for raw_result in results:
        try:
            result = msgspec.convert(raw_result, _Result)
        except msgspec.ValidationError as odd:
            unread, first = unread + 1, first or shorten(str(odd))
            continue
        for group in result.groups:
            try:
                lines.append(_make_line(msgspec.convert(group, _Group), result, account))
            except (InputError, msgspec.ValidationError) as odd:
                unread, first = unread + 1, first or shorten(str(odd).splitlines()[0])
    why = (
        f"{unread} parts of Cost Explorer's answer for {period.start:%Y-%m} could not be read (first: {first})"
        if unread
        else ""
    )
    return sorted(lines, key=lambda line: (line.start, line.id)), why


def _make_line(group: _Group, result: _Result, account: str) -> BillLine:
    start, end = parse_export_instant(result.time_period.start), parse_export_instant(result.time_period.end)
    usage, owner = (*(make_storable(key) for key in group.keys), "", "")[:2]
    if start is None or end is None or not usage or METRIC not in group.metrics:
        raise InputError("has no period, no usage type or no cost", field="group")
    return BillLine(
        id=f"ce|{owner or account}|{start:%Y-%m-%d}|{usage}",
        provider="aws",
        account=owner or account,
        start=start,
        end=end,
        amount=_parse_money(group.metrics[METRIC]),
        charge=classify_charge("Usage", usage),
        region=parse_usage_region(usage),
        estimated=result.estimated,
        source=f"Cost Explorer, {METRIC}",
        statement="cost explorer",
        description=usage,
    )


def _parse_money(cost: _Cost) -> Money:
    """Parse an amount, a string of ten or more decimals, rounded half to even to the nano-unit."""
    try:
        amount = Decimal(cost.amount)
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or not -LARGEST_AMOUNT < amount < LARGEST_AMOUNT:
        raise InputError(f"is not an amount: {shorten(cost.amount, 40)}", field=METRIC)
    return Money(nano=int(amount.scaleb(9).to_integral_value()), currency=cost.unit)


PREFIXES = {
    "USE1": "us-east-1",
    "USE2": "us-east-2",
    "USW1": "us-west-1",
    "USW2": "us-west-2",
    "CAN1": "ca-central-1",
    "CAN2": "ca-west-1",
    "SAE1": "sa-east-1",
    "MXC1": "mx-central-1",
    "EU": "eu-west-1",
    "EUW1": "eu-west-1",
    "EUW2": "eu-west-2",
    "EUW3": "eu-west-3",
    "EUC1": "eu-central-1",
    "EUC2": "eu-central-2",
    "EUN1": "eu-north-1",
    "EUS1": "eu-south-1",
    "EUS2": "eu-south-2",
    "ILC1": "il-central-1",
    "MEC1": "me-central-1",
    "MES1": "me-south-1",
    "AFS1": "af-south-1",
    "APE1": "ap-east-1",
    "APN1": "ap-northeast-1",
    "APN2": "ap-northeast-2",
    "APN3": "ap-northeast-3",
    "APS1": "ap-southeast-1",
    "APS2": "ap-southeast-2",
    "APS3": "ap-south-1",
    "APS4": "ap-southeast-3",
    "APS5": "ap-south-2",
    "APS6": "ap-southeast-4",
    "APS7": "ap-southeast-5",
    "UGW1": "us-gov-west-1",
    "UGE1": "us-gov-east-1",
}
"""What stands before a usage type outside us-east-1 (`USW2-BoxUsage:...`): AWS's long-standing codes, not re-checked here."""


def parse_usage_region(usage: str) -> str:
    """Return the region of a usage type; "" if its prefix is unknown."""
    prefix, dash, rest = usage.partition("-")
    if dash and prefix in PREFIXES:
        return PREFIXES[prefix]
    return "" if dash and rest and prefix.isupper() and any(map(str.isdigit, prefix)) else "us-east-1"


def _list_months(period: Period, now: datetime) -> list[Period]:
    """Return the calendar months that `period` touches, each from its first day to its end or the end of today."""
    months = list[Period]()
    start = period.start.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    tomorrow = EPOCH + ((now - EPOCH) // timedelta(days=1) + 1) * timedelta(days=1)
    while start < min(period.end, tomorrow):
        following = (start + timedelta(days=32)).replace(day=1)
        months.append(Period(start=start, end=min(following, tomorrow)))
        start = following
    return months
