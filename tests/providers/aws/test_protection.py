"""Protection is asked for before an act: a protected machine is not even asked to stop, whatever EC2 would say to that."""

from __future__ import annotations

import pytest
from costguard_aws.account import AwsAccount

from costguard.values.provider import REFUSED
from costguard.values.resource import ResourceKey
from tests.fakes.aws import ACCOUNT
from tests.providers.aws.rig import AwsRig

ALL = frozenset(("250 GB of local disk",))


@pytest.mark.parametrize(
    ("act", "attribute"), [("stop", "disableApiStop"), ("terminate", "disableApiTermination"), ("terminate", "disableApiStop")]
)
def test_nothing_is_sent_to_a_protected_machine(rig: AwsRig, source: AwsAccount, act: str, attribute: str) -> None:
    one = ResourceKey("aws", ACCOUNT, "us-east-1", rig.put(1)[0])
    rig.fake.ec2.protected.add((one.id, attribute))
    reception = source.stop(one, lose=ALL) if act == "stop" else source.terminate(one)
    assert (reception.said, reception.why) == (REFUSED, f"it is protected against {act}; costguard does not lift protections")
    assert rig.fake.calls(rig.stops or "") + rig.fake.calls(rig.terminates) == 0
