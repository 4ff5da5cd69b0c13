"""botocore's models are let go of after a poll, and addresses that were looked up stay."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from costguard_aws.credentials import CredentialSource
from costguard_aws.session import AwsSession

from costguard.providers.transport import ProviderContext, Transport
from tests.contract.rig import BILLS, NAMES, NoCache
from tests.fakes.server import Hands
from tests.providers.aws.services import KEYS


def test_models_are_released_and_what_needs_them_later_reads_them_again(tmp_path: Path) -> None:
    around = ProviderContext(
        transport=Transport(),
        clock=Hands(datetime.now(UTC)),
        gpus=NAMES,
        bills=BILLS,
        cache=NoCache(),
        environ=KEYS,
        home=tmp_path,
    )
    session = AwsSession(CredentialSource(), around, region="us-east-1")
    first, client = session._find_endpoint("ec2", "us-east-1"), session.client("cloudwatch", "us-east-1")
    loader = session.botocore.get_component("data_loader")
    assert loader._cache
    session.release_models()
    assert not loader._cache
    assert session._find_endpoint("ec2", "us-east-1") == first == "https://ec2.us-east-1.amazonaws.com"
    assert session.client("cloudwatch", "us-east-1") is client
    assert not loader._cache, "what was looked up before needs no models"
    assert session._find_endpoint("ec2", "eu-west-1") == "https://ec2.eu-west-1.amazonaws.com"
