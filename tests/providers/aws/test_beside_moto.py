"""The same questions asked of moto, which others wrote, for what moto has: machines, spot prices and CloudWatch."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from costguard_aws.cloudwatch import CloudWatchMetrics
from costguard_aws.credentials import CredentialSource
from costguard_aws.errors import call_operation
from costguard_aws.session import AwsSession

from costguard.metering.observation import Observation
from costguard.providers.transport import ProviderContext, Transport
from costguard.values.calendar import Period
from costguard.values.resource import ResourceKey
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
