from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from costguard_aws.cost_explorer import CostExplorer, parse_bill_lines, parse_usage_region
from costguard_aws.session import AwsSession
from hypothesis import given
from hypothesis import strategies as st

from costguard.errors import ForbiddenError, InvalidAnswerError
from costguard.values.calendar import Period
from costguard.values.money import Money
from tests.fakes.aws_ce import Cost
from tests.providers.aws.fuzz import FUZZ, mutated
from tests.providers.aws.services import ACCOUNT, Services

NOVEMBER = Period(start=datetime(2026, 11, 1, tzinfo=UTC), end=datetime(2026, 12, 1, tzinfo=UTC))
DAY = date(2026, 11, 20)


@pytest.fixture
def services() -> Services:
    made = Services()
    made.ce.costs = [
        Cost(DAY, "BoxUsage:g5.xlarge", Decimal("24.1440000000")),
        Cost(DAY, "USW2-SpotUsage:p5.48xlarge", Decimal("301.1234567895")),
        Cost(DAY, "EBS:VolumeUsage.gp3", Decimal("5.3333333333"), service="EC2 - Other"),
        Cost(DAY, "EUC1-PublicIPv4:InUseAddress", Decimal("0.12"), service="EC2 - Other"),
        Cost(DAY, "USE1-USW2-AWS-Out-Bytes", Decimal("0.01"), service="EC2 - Other", account="222233334444"),
        Cost(DAY, "BoxUsage:t3.micro", Decimal(-3), record="Credit"),
        Cost(DAY, "Requests", Decimal(7), service="Amazon Simple Storage Service"),
    ]
    return made


@pytest.fixture
def session(services: Services, tmp_path: Path) -> Iterator[AwsSession]:
    with services.session(tmp_path) as made:
        yield made


@pytest.fixture
def bill(session: AwsSession, services: Services) -> CostExplorer:
    return CostExplorer(session, services.cache, services.clock)


def test_a_day_of_one_kind_of_usage_is_a_line(bill: CostExplorer) -> None:
    billed = bill.fetch_bill_lines(NOVEMBER)
    assert billed.why == ""
    told = {
        line.description: (line.charge, line.region, line.account, line.amount.nano, line.estimated) for line in billed.lines
    }
    assert told == {
        "BoxUsage:g5.xlarge": ("compute", "us-east-1", ACCOUNT, 24_144_000_000, True),
        "USW2-SpotUsage:p5.48xlarge": ("compute", "us-west-2", ACCOUNT, 301_123_456_790, True),
        "EBS:VolumeUsage.gp3": ("storage", "us-east-1", ACCOUNT, 5_333_333_333, True),
        "EUC1-PublicIPv4:InUseAddress": ("address", "eu-central-1", ACCOUNT, 120_000_000, True),
        "USE1-USW2-AWS-Out-Bytes": ("traffic", "us-east-1", "222233334444", 10_000_000, True),
    }
    assert {(line.start, line.end) for line in billed.lines} == {
        (datetime(2026, 11, 20, tzinfo=UTC), datetime(2026, 11, 21, tzinfo=UTC))
    }


def test_a_question_costs_once_in_six_hours(bill: CostExplorer, services: Services) -> None:
    first = bill.fetch_bill_lines(NOVEMBER)
    services.later(hours=5)
    assert bill.fetch_bill_lines(NOVEMBER) == first
    assert services.asked_for("GetCostAndUsage") == 1
    services.later(hours=2)
    bill.fetch_bill_lines(NOVEMBER)
    assert services.asked_for("GetCostAndUsage") == 2


def test_months_are_asked_for_apart_and_none_of_the_future(bill: CostExplorer, services: Services) -> None:
    services.ce.costs.append(Cost(date(2026, 10, 31), "BoxUsage:g5.xlarge", Decimal(1)))
    billed = bill.fetch_bill_lines(Period(start=datetime(2026, 10, 31, 5, tzinfo=UTC), end=datetime(2027, 3, 1, tzinfo=UTC)))
    assert services.asked_for("GetCostAndUsage") == 2
    assert [line.estimated for line in billed.lines][:2] == [False, True]


def test_one_account_of_an_organisation_never_shares_a_line_with_another(bill: CostExplorer, services: Services) -> None:
    services.ce.costs = [Cost(DAY, "BoxUsage:g5.xlarge", Decimal(n), account=f"{n}" * 12) for n in (1, 2)]
    assert len({line.id for line in bill.fetch_bill_lines(NOVEMBER).lines}) == 2


def test_a_key_without_the_right_is_told_so(bill: CostExplorer, services: Services) -> None:
    services.ce.enabled = False
    with pytest.raises(ForbiddenError, match="not enabled for cost explorer"):
        bill.fetch_bill_lines(NOVEMBER)


@pytest.mark.parametrize("body", [b"{}", b'{"ResultsByTime": null}'])
def test_an_answer_without_results_is_no_empty_bill(bill: CostExplorer, services: Services, body: bytes) -> None:
    services.fault("POST", "body", body=body)
    with pytest.raises(InvalidAnswerError):
        bill.fetch_bill_lines(NOVEMBER)


def test_an_answer_without_end_is_said_to_be_cut(bill: CostExplorer, services: Services) -> None:
    services.ce.page = 0
    services.ce.costs = services.ce.costs[:1]
    assert "more than 20 pages" in bill.fetch_bill_lines(NOVEMBER).why


@pytest.mark.parametrize(
    ("usage", "region"),
    [
        ("BoxUsage:p5.48xlarge", "us-east-1"),
        ("APN1-BoxUsage:p5.48xlarge", "ap-northeast-1"),
        ("EU-EBS:VolumeUsage.gp3", "eu-west-1"),
        ("DataTransfer-Out-Bytes", "us-east-1"),
        ("XYZ9-BoxUsage:p9.large", ""),
    ],
)
def test_the_region_of_a_usage_type(usage: str, region: str) -> None:
    assert parse_usage_region(usage) == region


RESULT = {
    "TimePeriod": {"Start": "2026-11-20", "End": "2026-11-21"},
    "Total": {},
    "Groups": [
        {"Keys": ["BoxUsage:g5.xlarge", ACCOUNT], "Metrics": {"AmortizedCost": {"Amount": "24.1440000004", "Unit": "USD"}}}
    ],
    "Estimated": True,
}


@FUZZ
@given(st.data())
def test_whatever_cost_explorer_says_no_amount_is_invented(data: st.DataObject) -> None:
    results: Any = mutated(data, [RESULT])
    lines, _ = parse_bill_lines(results, ACCOUNT, NOVEMBER)
    stated = list(_texts(results))
    for line in lines:
        assert any(_is(text, line.amount) for text in stated)
        assert line.end - line.start >= timedelta(0)


def _is(text: str, amount: Money) -> bool:
    try:
        return Money(nano=int(Decimal(text).scaleb(9).to_integral_value()), currency=amount.currency) == amount
    except (ArithmeticError, ValueError):
        return False


def _texts(value: Any) -> Iterator[str]:  # noqa: ANN401 - any shape
    if isinstance(value, str):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(one)
