"""Cost Explorer as it answers: amounts as strings of many decimals, days, groups by pages, no more than was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from tests.fakes.aws_wire import amz_json, amz_json_error, target_of
from tests.fakes.server import Answer, Asked


class Cost(NamedTuple):
    """What one kind of usage cost on one day."""

    day: date
    usage: str
    amount: Decimal
    account: str = "111122223333"
    service: str = "Amazon Elastic Compute Cloud - Compute"
    record: str = "Usage"


@dataclass(slots=True)
class FakeCostExplorer:
    """`costs`: the bill. `page`: groups a page. `enabled` False: nobody has switched Cost Explorer on."""

    costs: list[Cost] = field(default_factory=list)
    page: int = 1000
    enabled: bool = True

    def answer(self, asked: Asked, now: datetime) -> Answer | None:
        """The answer to a request for Cost Explorer; None for any other."""
        prefix, operation = target_of(asked)
        if prefix != "AWSInsightsIndexService":
            return None
        if not self.enabled:
            return amz_json_error("AccessDeniedException", "User not enabled for cost explorer access")
        return self._costs(asked.json(), now) if operation == "GetCostAndUsage" else amz_json_error("Unknown", operation)

    def _costs(self, body: Mapping[str, Any], now: datetime) -> Answer:
        start, end = (date.fromisoformat(body["TimePeriod"][name]) for name in ("Start", "End"))
        if start >= end or start > now.date() or end > now.date() + timedelta(days=1):
            return amz_json_error("ValidationException", "Start time must be before end time, and neither in the future")
        metric, wanted = body["Metrics"][0], _wanted(body.get("Filter"))
        days = [start + timedelta(days=n) for n in range((end - start).days)]
        groups = [(day, cost) for day in days for cost in self.costs if cost.day == day and wanted(cost)]
        first = int(body.get("NextPageToken") or 0)
        some = groups[first : first + self.page]
        shown = days if first == 0 else sorted({day for day, _ in some})
        results = [_result(day, [cost for at, cost in some if at == day], metric, now) for day in shown]
        more = {"NextPageToken": str(first + self.page)} if first + self.page < len(groups) else {}
        return amz_json({"GroupDefinitions": body["GroupBy"], "ResultsByTime": results, "DimensionValueAttributes": [], **more})


def _result(day: date, costs: list[Cost], metric: str, now: datetime) -> dict[str, Any]:
    return {
        "TimePeriod": {"Start": day.isoformat(), "End": (day + timedelta(days=1)).isoformat()},
        "Total": {},
        "Groups": [
            {"Keys": [cost.usage, cost.account], "Metrics": {metric: {"Amount": str(cost.amount), "Unit": "USD"}}}
            for cost in costs
        ],
        "Estimated": (day.year, day.month) == (now.year, now.month),
    }


def _wanted(stated: Mapping[str, Any] | None) -> Any:  # noqa: ANN401 - a test of a cost
    """Whether a cost passes the filter: dimensions, alone or joined by And."""
    parts = (stated or {}).get("And") or ([stated] if stated else [])
    allowed = {part["Dimensions"]["Key"]: set(part["Dimensions"]["Values"]) for part in parts}
    services, records = allowed.get("SERVICE"), allowed.get("RECORD_TYPE")
    return lambda cost: (services is None or cost.service in services) and (records is None or cost.record in records)
