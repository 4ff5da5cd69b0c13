"""The same questions asked of moto, which others wrote, for what moto has: machines, spot prices and CloudWatch."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from costguard_aws import AwsPlugin
from costguard_aws.cloudwatch import CloudWatchMetrics
from costguard_aws.credentials import CredentialSource
from costguard_aws.errors import call_operation
from costguard_aws.session import AwsSession
from costguard_aws.spot import SpotHistory, SpotMarket

from costguard.metering.inventory import Complete, Poll
from costguard.metering.observation import Observation
from costguard.providers.transport import ProviderContext, Transport
from costguard.values.calendar import Period
from costguard.values.money import Rate
from costguard.values.provider import ACCEPTED, ALREADY, MISSING, REFUSED, ActionResponse
from costguard.values.resource import INSTANCE, VOLUME, ResourceKey
from costguard.values.sample import CPU_UTIL, GPU_UTIL
from tests.contract.rig import BILLS, NAMES, NoCache
from tests.fakes.server import Hands
from tests.providers.aws.services import KEYS

MOTO_ACCOUNT = "123456789012"


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    """The address of moto's own server."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def session(moto: str, tmp_path: Path) -> Iterator[AwsSession]:
    transport, clock = Transport(), Hands(datetime.now(UTC))
    around = ProviderContext(
        transport=transport, clock=clock, gpus=NAMES, bills=BILLS, cache=NoCache(), environ=KEYS, home=tmp_path
    )
    made = AwsSession(CredentialSource(), around, endpoint=moto, region="us-east-1")
    made.account = MOTO_ACCOUNT
    yield made
    transport.close()


def test_metrics_that_were_put_are_measured(session: AwsSession) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    at = now - timedelta(minutes=30)
    key = ResourceKey("aws", MOTO_ACCOUNT, "us-east-1", "i-00000000000000001")
    for index, value in ((0, 4.0), (1, 88.0)):
        told = {"InstanceId": key.id, "index": str(index), "name": "A10G", "arch": "Ampere", "host": "h"}
        dimensions = [{"Name": name, "Value": text} for name, text in told.items()]
        data = [{"MetricName": "nvidia_smi_utilization_gpu", "Dimensions": dimensions, "Timestamp": at, "Value": value}]
        call_operation(session, "cloudwatch", "us-east-1", "put_metric_data", Namespace="CWAgent", MetricData=data)
    seen = Observation(key=key, state="running", gpu="A10G", gpu_count=2)
    asked = CloudWatchMetrics(session, Hands(now), (GPU_UTIL, CPU_UTIL))
    measured = asked.fetch_utilization([seen], Period(start=now - timedelta(hours=1), end=now))
    assert [(sample.signal, sample.value) for sample in measured.samples] == [(GPU_UTIL, 88.0)]
    assert measured.blind == ()


def test_spot_prices_are_read(session: AwsSession) -> None:
    now = datetime.now(UTC)
    market = SpotMarket("g5.xlarge", "us-east-1a")
    spot = SpotHistory(session)
    assert spot.refresh("us-east-1", {market: now - timedelta(days=1)}, now) == ""
    (price,) = spot.list_prices(market, now)
    assert price.rate == Rate.parse("0.00001")  # what moto gives every type, with the product's longer name


def test_machines_are_listed_looked_at_stopped_and_terminated(moto: str, session: AwsSession, tmp_path: Path) -> None:
    first, second = _launched(session, 2)
    transport = Transport()
    around = ProviderContext(
        transport=transport,
        clock=Hands(datetime.now(UTC)),
        gpus=NAMES,
        bills=BILLS,
        cache=NoCache(),
        environ=KEYS,
        home=tmp_path,
    )
    (account,) = AwsPlugin().open({"endpoint_url": moto + "/", "regions": ["us-east-1"]}, around)
    (scope,) = account.list_scopes()
    assert scope.account == MOTO_ACCOUNT
    key, other = (ResourceKey("aws", MOTO_ACCOUNT, "us-east-1", one) for one in (first, second))
    assert _states(account.poll(scope)) == {first: "running", second: "running"}
    seen = account.look_up(key)
    assert seen is not None
    assert (seen.state, seen.instance_type, seen.handling.protected) == ("running", "m5.large", ())
    assert account.stop(key) == ActionResponse(said=ACCEPTED)
    assert account.stop(key).said == ALREADY
    assert _states(account.poll(scope)) == {first: "stopped", second: "running"}
    assert account.terminate(other) == ActionResponse(said=ACCEPTED)
    assert account.terminate(other).said == ALREADY
    call_operation(
        session, "ec2", "us-east-1", "modify_instance_attribute", InstanceId=first, DisableApiTermination={"Value": True}
    )
    assert account.terminate(key).said == REFUSED
    assert _states(account.poll(scope)) == {first: "stopped", second: "ended"}
    gone = ResourceKey("aws", MOTO_ACCOUNT, "us-east-1", "i-0123456789abcdef0")
    assert account.look_up(gone) is None
    assert account.stop(gone).said == MISSING
    transport.close()


def _launched(session: AwsSession, count: int) -> list[str]:
    asked = {"ImageId": "ami-12c6146b", "InstanceType": "m5.large", "MinCount": count, "MaxCount": count}
    return [
        str(one["InstanceId"]) for one in call_operation(session, "ec2", "us-east-1", "run_instances", **asked)["Instances"]
    ]


def _states(poll: Poll) -> dict[str, str]:
    """Of the instances of a whole listing; moto's machines have a disk each."""
    assert isinstance(poll.inventory, Complete), poll.inventory
    assert {one.kind for one in poll.inventory.items} == {INSTANCE, VOLUME}
    return {one.key.id: one.state for one in poll.inventory.items if one.kind == INSTANCE}
