"""`costguard reconcile` against each cloud's own bill, over HTTP: no drift where the facts are known, a wrong rate named."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import time_machine
from costguard_sim.bill import InvoiceLine, charge_resource
from costguard_sim.world import Rate, Resource, to_us

from tests.conftest import Command, Ran
from tests.contract.rig import Rig
from tests.fakes.aws import ACCOUNT
from tests.fakes.aws_ce import Cost
from tests.fakes.gcp import account_file, number_of
from tests.fakes.server import serving
from tests.providers.aws.rig import AwsRig
from tests.providers.gcp.rig import GcpRig
from tests.providers.lambda_.rig import LambdaRig
from tests.providers.runpod.rig import RunpodRig
from tests.providers.vast.rig import VastRig

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
EBS = "EBS:VolumeUsage.gp3"


@pytest.fixture(autouse=True)
def amid_a_month() -> Iterator[None]:
    """The clock goes on from a day amid a month of 30 days: on the first of one, two days back are in another."""
    with time_machine.travel(datetime(2026, 11, 21, 12, tzinfo=UTC)):
        yield


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Serve rigs with two machines each, and write settings that point at them beside a ledger in this folder."""
    with ExitStack() as stack:

        def served(*rigs: Rig, more: str = "") -> None:
            sections = ['[ledger]\nurl = "sqlite:///ledger.db"\n', more]
            for rig in rigs:
                rig.clock.at = datetime.now(UTC)
                rig.put(2)
                base = stack.enter_context(serving(rig.fake))
                table = {**rig.table(base)}
                if rig.provider == "gcp":
                    (tmp_path / "key.json").write_text(account_file(base, "/token"))
                    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
                    monkeypatch.setenv("NO_GCE_CHECK", "true")
                    table["focus_export"] = str(tmp_path / "gcp.json")
                if rig.provider == "aws":
                    table["cost_explorer"] = True
                sections.append(f"[providers.{rig.provider}]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in table.items()))
                for name, value in rig.environ().items():
                    monkeypatch.setenv(name, value)
            (tmp_path / "costguard.toml").write_text("".join(sections))

        yield served


def result(ran: Ran, provider: str) -> Any:  # noqa: ANN401 - JSON
    (found,) = [one for one in ran.data["accounts"] if one["provider"] == provider]
    return found


def causes(found: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {one["cause"]: one for one in found["causes"]}


def agrees(found: Any) -> bool:  # noqa: ANN401 - JSON
    """Whether the bill is the charges, but for what is late or rounded."""
    return found["outcome"] == "within" and Decimal(found["unexplained"]) == 0 and Decimal(found["billed"]) > 0


def days(now: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Yesterday and today in UTC, as far as they have passed."""
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    yield today - DAY, today
    yield today, now


def owed(resources: list[Resource], now: datetime) -> Iterator[tuple[Resource, datetime, datetime, InvoiceLine]]:
    """What each machine owes by day."""
    for resource in resources:
        for start, end in days(now):
            for line in charge_resource(resource, to_us(start), to_us(end)):
                yield resource, start, end, line


def dollars(amount: Fraction) -> Decimal:
    return Decimal(amount.numerator) / Decimal(amount.denominator)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rig", [RunpodRig, VastRig])
def test_a_bill_asked_for_over_http_is_the_charges(costguard: Command, serve: Callable[..., None], rig: type[Rig]) -> None:
    serve(rig())
    assert costguard("status").code == 0
    ran = costguard("reconcile", "--json", "--strict")
    assert ran.code == 0, ran.out + ran.err
    found = result(ran, rig.provider)
    assert agrees(found), json.dumps(found["causes"])
    if rig is VastRig:
        return  # it takes a question a day, and one a second
    again = costguard("reconcile", "--json")
    (one,) = again.data["imports"]
    assert one["withdrawn"] == 0
    assert one["added"] <= 8, "all but the lines of the running hour are known"


def test_cost_explorer_which_names_no_machine_is_held_against_the_region(
    costguard: Command, serve: Callable[..., None]
) -> None:
    rig = AwsRig()
    serve(rig)
    now = datetime.now(UTC)
    words = {"compute": "BoxUsage:g5.xlarge", "storage": EBS}
    service = {"compute": "Amazon Elastic Compute Cloud - Compute", "storage": "EC2 - Other"}
    for resource, start, _, line in owed(rig.fake.resources, now):
        if line.charge in words:
            kind = words[line.charge]
            rig.fake.costs.costs.append(Cost(start.date(), kind, dollars(line.amount), resource.account, service[line.charge]))
    assert costguard("status").code == 0
    ran = costguard("reconcile", "--json")
    assert ran.code == 0, ran.out + ran.err
    found = result(ran, "aws")
    assert found["account"] == ACCOUNT
    assert agrees(found), found


def focus(start: datetime, end: datetime, amount: Decimal, charge: str, where: str) -> dict[str, Any]:
    return {
        "BillingAccountId": "01-02",
        "SubAccountId": "acme-lab",
        "ProviderName": "Google Cloud",
        "BillingCurrency": "USD",
        "ChargePeriodStart": start.isoformat(),
        "ChargePeriodEnd": end.isoformat(),
        "ChargeCategory": "Usage",
        "ServiceCategory": "Compute",
        "BilledCost": str(amount),
        "ResourceId": where,
        "SkuMeter": charge,
    }


SKUS = {"compute": "N1 Predefined Instance Core running in Americas", "storage": "Balanced PD Capacity in Americas"}


def view(project: Any, *args: Any) -> dict[str, Any]:  # noqa: ANN401 - as the form has it
    """A row of Google's FOCUS view: SubAccountId is the billing account, and a discount is in both costs."""
    row = focus(*args)
    cost = Decimal(row["BilledCost"])
    credited = [{"Name": "sustained", "Amount": str(-cost / 5), "FullName": "", "Id": "s", "Type": "SUSTAINED_USAGE_DISCOUNT"}]
    more = {"SubAccountId": "01-02", "ChargeCategory": "usage", "x_Project": project, "x_Credits": credited}
    paid = str(cost - cost / 5)
    return (
        row | more | {"BilledCost": paid, "EffectiveCost": paid, "SkuMeter": None, "ChargeDescription": SKUS[row["SkuMeter"]]}
    )


def build_detailed_row(start: datetime, end: datetime, amount: Decimal, charge: str, where: str) -> dict[str, Any]:
    """A row of the detailed export of an account in EUR, with a discount."""
    return {
        "billing_account_id": "01-02",
        "service": {"id": "6F81-5844-456A", "description": "Compute Engine"},
        "sku": {"id": charge, "description": SKUS[charge]},
        "usage_start_time": f"{start:%Y-%m-%d %H:%M:%S} UTC",
        "usage_end_time": f"{end:%Y-%m-%d %H:%M:%S} UTC",
        "project": {"id": "acme-lab", "number": "1"},
        "location": {"region": "us-central1", "zone": "us-central1-a"},
        "cost": str(amount * Decimal("0.5")),
        "currency": "EUR",
        "currency_conversion_rate": 0.5,
        "credits": [{"type": "PROMOTION", "amount": -0.01}],
        "invoice": {"month": f"{start - 8 * HOUR:%Y%m}"},
        "cost_type": "regular",
        "resource": {"global_name": where},
        "export_time": f"{end:%Y-%m-%d %H:%M:%S} UTC",
    }


def as_text(row: dict[str, Any]) -> dict[str, Any]:
    return {name: json.dumps(value) if isinstance(value, dict | list) else value for name, value in row.items()}


FORMS: dict[str, tuple[Callable[..., dict[str, Any]], bool]] = {
    "a FOCUS export": (focus, False),
    "the FOCUS view with structs": (partial(view, {"id": "acme-lab", "number": "1", "name": "Lab"}), False),
    "the FOCUS view as CSV with JSON in its cells": (partial(view, {"id": "acme-lab"}), True),
    "the FOCUS view with the project as text": (partial(view, "acme-lab"), True),
    "Google's own FOCUS export": (partial(view, {"Id": "acme-lab", "Number": "1"}), False),
    "the detailed export": (build_detailed_row, False),
    "the detailed export as CSV": (build_detailed_row, True),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_bill_of_google_is_the_charges(costguard: Command, serve: Callable[..., None], tmp_path: Path, form: str) -> None:
    rig, (build, is_csv) = GcpRig(), FORMS[form]
    serve(rig)
    assert costguard("status").code == 0
    now = datetime.now(UTC)
    month = ("--month", f"{now - 8 * HOUR:%Y-%m}")
    rows, until = list[dict[str, Any]](), now - 2 * DAY
    while (start := until) < now:
        until = min(now, start.replace(minute=0, second=0, microsecond=0) + HOUR)
        for resource in rig.fake.resources:
            kind = "instances" if resource.runs else "disks"
            where = f"//compute.googleapis.com/projects/1/zones/us-central1-a/{kind}/{number_of(resource.id)}"
            for line in charge_resource(resource, to_us(start), to_us(until)):
                rows.append(build(start, until, dollars(line.amount), line.charge, where))
    if is_csv:
        rows = [as_text(row) for row in rows]
    written = io.StringIO(newline="")
    writer = csv.DictWriter(written, rows[0])
    writer.writeheader()
    writer.writerows(rows)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "gcp.json").write_text(written.getvalue() if is_csv else lines)
    ran = costguard("reconcile", *month, "--json")
    assert ran.code == 0, ran.out + ran.err
    assert agrees(result(ran, "gcp")), ran.out
    assert result(ran, "gcp")["account"] == "acme-lab"
    filed = costguard("--offline", "reconcile", *month, "--file", "gcp.json", "--json")
    assert agrees(result(filed, "gcp")), filed.out
    (one,) = filed.data["imports"]
    assert (one["added"], one["replaced"]) == (0, 0), "what was asked for and the file it stands in are one statement"
    (read,) = filed.data["files"]
    assert read["records"] == len(rows)


def test_a_cloud_without_a_bill_and_one_that_fails_are_said(costguard: Command, serve: Callable[..., None]) -> None:
    runpod = RunpodRig()
    serve(LambdaRig(), runpod)
    assert costguard("status").code == 0
    runpod.fake.fault("billing", "status", status=403)
    ran = costguard("reconcile", "--json")
    assert ran.code == 0
    assert {one["provider"] for one in ran.data["not_asked"]} == {"lambda", "runpod"}
    assert "it has no billing API" in ran.out
    assert "runpod was not queried" in ran.err
    strict = costguard("reconcile", "--strict")
    assert strict.code == 4
    assert "runpod" in strict.err


def wrong(resource: Resource, factor: Fraction) -> Resource:
    """`resource` as it is billed at another rate."""
    return replace(resource, rates=tuple(Rate(at_us=one.at_us, nano=int(one.nano * factor)) for one in resource.rates))


def test_a_wrong_rate_is_found_named_and_told_once(costguard: Command, serve: Callable[..., None]) -> None:
    rig = RunpodRig()
    serve(rig, more='[[notify.route]]\nto = "console"\n')
    assert costguard("status").code == 0
    rig.fake.resources[:] = [wrong(one, Fraction(11, 10)) for one in rig.fake.resources]
    ran = costguard("reconcile", "--json")
    assert ran.code == 3
    assert "1 of 1 bills differ from the charges" in ran.err
    found = result(ran, "runpod")
    rate = causes(found)["rate"]
    assert rate["sku"] == "NVIDIA L40S x2, secure"
    assert "1.1000 times the charges" in rate["why"]
    assert "1.8920 an hour would fit, 1.7200 was counted" in rate["why"]
    assert ran.data["told"] == 1
    assert "the bill of runpod/default differs" in ran.out + ran.err
    again = costguard("reconcile", "--json")
    assert (again.code, again.data["told"]) == (3, 0)
    assert "the bill of runpod/default differs" not in again.err.replace(again.err.splitlines()[-1], "")
    much = costguard("reconcile", "--tolerance", "20%", "--json")
    assert (much.code, result(much, "runpod")["outcome"]) == (0, "within")
    (held,) = costguard("report", "--json").data["reconciliation"]
    assert (held["provider"], held["state"], held["drift"]) == ("runpod", "within", result(much, "runpod")["drift"])
    assert "runpod/default compared with the bill on" in costguard("report").out
    rows = list(csv.DictReader(io.StringIO(costguard("--offline", "reconcile", "--csv").out)))
    assert {one["cause"] for one in rows} >= {"rate"}
    assert all(Decimal(one["drift"]) == Decimal(one["billed"]) - Decimal(one["expected"]) for one in rows)
    table = costguard("--offline", "reconcile")
    assert table.code == 3
    assert "would fit" in table.out


def test_a_machine_that_was_never_polled_is_named(costguard: Command, serve: Callable[..., None]) -> None:
    rig = RunpodRig()
    serve(rig)
    assert costguard("status").code == 0
    (new,) = rig.put(1)
    ran = costguard("reconcile", "--json")
    assert ran.code == 3
    assert causes(result(ran, "runpod"))["unseen"]["some"] == [new]
