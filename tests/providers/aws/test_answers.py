"""What the fakes answer is held against the models of AWS's services that botocore ships: the published form of each answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, fromstring

import pytest
from costguard_aws.errors import call_operation
from costguard_aws.session import AwsSession

from tests.fakes.aws_ce import Cost
from tests.fakes.aws_wire import cbor_operation, model, read_cbor, target_of
from tests.fakes.server import START, Answer, Asked
from tests.providers.aws.services import Services

KINDS: dict[str, Callable[[object], bool]] = {
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "integer": lambda v: type(v) is int,
    "double": lambda v: isinstance(v, int | float),
    "timestamp": lambda v: hasattr(v, "tzinfo") or isinstance(v, int | float),
}


class Recorded(Services):
    """Keeps every answer beside its request."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[tuple[Asked, Answer]] = []

    def answer(self, asked: Asked) -> Answer:
        answer = super().answer(asked)
        self.answers.append((asked, answer))
        return answer


def checked(shape: Any, value: Any, path: str = "$") -> int:  # noqa: ANN401 - botocore's shapes, and any value
    """How many values of `value` were held against `shape`; AssertionError names the first that does not fit."""
    if shape.type_name == "structure":
        assert isinstance(value, dict), path
        assert set(value) <= set(shape.members), f"{path} has {set(value) - set(shape.members)}"
        assert set(shape.required_members) <= set(value), path
        return sum(checked(shape.members[name], one, f"{path}.{name}") for name, one in value.items())
    if shape.type_name == "list":
        assert isinstance(value, list), path
        return sum(checked(shape.member, one, f"{path}[]") for one in value)
    if shape.type_name == "map":
        return sum(checked(shape.value, one, f"{path}.{name}") for name, one in value.items())
    assert KINDS[shape.type_name](value), f"{path} is {value!r}, not {shape.type_name}"
    return 1


def as_stated(shape: Any, item: Element) -> Any:  # noqa: ANN401 - botocore's shapes
    """An answer of EC2 as plain values, by the model's own names for its elements."""
    names = {member.serialization.get("name", name): name for name, member in getattr(shape, "members", {}).items()}
    if shape.type_name == "structure":
        found = {child.tag.partition("}")[2]: child for child in item}
        return {
            names.get(tag, tag): as_stated(shape.members[names[tag]], child)
            for tag, child in found.items()
            if tag != "requestId"
        }
    return [as_stated(shape.member, child) for child in item] if shape.type_name == "list" else item.text or ""


@pytest.mark.parametrize("protocol", ["json", "smithy-rpc-v2-cbor"])
def test_every_answer_has_the_published_form(tmp_path: Path, protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("botocore.model.PRIORITY_ORDERED_SUPPORTED_PROTOCOLS", (protocol, "json", "query", "ec2", "rest-xml"))
    services = Recorded()
    with services.session(tmp_path) as session:
        for page in (1, 100):
            services.pricing.page, services.spot.page, services.ce.page = page, page, page
            services.cloudwatch.listed, services.cloudwatch.most_points = page, page
            every_question(services, session)
    values = sum(held(asked, answer) for asked, answer in services.answers)
    assert len(services.answers) >= 10
    assert values > 100


def every_question(services: Services, session: AwsSession) -> None:
    """One question of each kind, whose answer has something in it."""
    services.pricing.rates = {("g5.xlarge", "us-east-1"): Decimal("1.006"), ("p5.48xlarge", "us-east-1"): Decimal("55.04")}
    services.spot.markets["g5.xlarge", "us-east-1a", "Linux/UNIX"] = [
        (START - timedelta(hours=n), Decimal("0.4")) for n in range(3)
    ]
    services.ce.costs = [Cost((START - timedelta(days=1)).date(), f"BoxUsage:g5.{n}xlarge", Decimal("1.5")) for n in (1, 2)]
    for index in range(2):
        services.cloudwatch.gpu("i-1", index, lambda _: 3.5)
    call_operation(session, "pricing", "us-east-1", "get_products", ServiceCode="AmazonEC2", Filters=[])
    call_operation(
        session, "ec2", "us-east-1", "describe_spot_price_history", StartTime=START - timedelta(hours=9), EndTime=START
    )
    grouped = [{"Type": "DIMENSION", "Key": "USAGE_TYPE"}]
    days = {"Start": "2026-11-19", "End": "2026-11-21"}
    call_operation(
        session,
        "ce",
        "us-east-1",
        "get_cost_and_usage",
        TimePeriod=days,
        Granularity="DAILY",
        Metrics=["AmortizedCost"],
        GroupBy=grouped,
    )
    found = call_operation(session, "cloudwatch", "us-east-1", "list_metrics", Namespace="CWAgent")
    metric = {"Metric": found["Metrics"][0], "Period": 300, "Stat": "Average"}
    queries = [{"Id": f"q{n}", "MetricStat": metric} for n in range(2)]
    window = {"StartTime": START - timedelta(hours=1), "EndTime": START}
    call_operation(session, "cloudwatch", "us-east-1", "get_metric_data", MetricDataQueries=queries, **window)


def held(asked: Asked, answer: Answer) -> int:
    """How many values of one answer fit the model of its operation."""
    prefix, operation = target_of(asked)
    services = {
        "AWSPriceListService": "pricing",
        "AWSInsightsIndexService": "ce",
        "GraniteServiceVersion20100801": "cloudwatch",
    }
    if prefix:
        return checked(model(services[prefix]).operation_model(operation).output_shape, json.loads(answer.body))
    if cbor_operation(asked):
        return checked(model("cloudwatch").operation_model(cbor_operation(asked)).output_shape, read_cbor(answer.body))
    shape = model("ec2").operation_model("DescribeSpotPriceHistory").output_shape
    root = as_stated(shape, fromstring(answer.body))  # noqa: S314 - our own fake's
    for entry in root["SpotPriceHistory"]:
        entry["Timestamp"] = START
    return checked(shape, root)
