"""Which accounts and regions are polled, with which keys, and what examining them says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from costguard_aws.account import AwsAccount

from costguard.errors import CredentialsError, InputError, UnknownNameError
from costguard.providers.transport import Transport
from costguard.values.provider import CHECK_BAD, CHECK_UNSURE
from tests.fakes.aws import ACCOUNT, KEY_ID, OTHER_ACCOUNT, ROLE_KEY_ID, SECRET
from tests.fakes.server import serving
from tests.providers.aws.rig import AwsRig

ROLE = f"arn:aws:iam::{OTHER_ACCOUNT}:role/costguard-reader"


@pytest.fixture
def base(rig: AwsRig) -> Iterator[str]:
    with serving(rig.fake) as address:
        yield address


@pytest.fixture
def transport() -> Iterator[Transport]:
    made = Transport()
    yield made
    made.close()


def opened(rig: AwsRig, base: str, transport: Transport, home: Path, **table: Any) -> list[AwsAccount]:  # noqa: ANN401 - settings
    environ: Mapping[str, str] = table.pop("environ", rig.environ())
    return cast("list[AwsAccount]", rig.accounts(base, transport, home, environ, accounts=[], regions=[], **table))


def test_every_enabled_region_is_a_scope_and_the_list_is_asked_for_once_an_hour(
    rig: AwsRig, base: str, transport: Transport, tmp_path: Path
) -> None:
    (account,) = opened(rig, base, transport, tmp_path)
    assert [tuple(scope) for scope in account.list_scopes()] == [("aws", ACCOUNT, "eu-west-1"), ("aws", ACCOUNT, "us-east-1")]
    account.list_scopes()
    assert rig.fake.calls("DescribeRegions") == 1
    assert rig.fake.calls("GetCallerIdentity") == 1


def test_the_last_list_of_regions_holds_where_a_new_one_cannot_be_had(
    rig: AwsRig, base: str, transport: Transport, tmp_path: Path
) -> None:
    (account,) = opened(rig, base, transport, tmp_path)
    before = account.list_scopes()
    rig.clock.at = rig.clock.at.replace(hour=20)
    rig.fake.ec2.denied.add("DescribeRegions")
    assert account.list_scopes() == before
    assert rig.fake.calls("DescribeRegions") == 2


def test_a_role_is_assumed_in_its_own_account(rig: AwsRig, base: str, transport: Transport, tmp_path: Path) -> None:
    rig.fake.trusted[ROLE] = "extern-7"
    table = {"profiles": ["default"], "roles": [{"role_arn": ROLE, "external_id": "extern-7"}]}
    own, other = opened(rig, base, transport, tmp_path, **table)
    assert own.fetch_identity() == ACCOUNT
    assert other.fetch_identity() == OTHER_ACCOUNT
    assert other.poll(other.list_scopes()[0]).scope.account == OTHER_ACCOUNT
    assert any(ROLE_KEY_ID in one.headers["authorization"] for one in rig.fake.asked)


def test_a_profile_of_the_home_is_used(rig: AwsRig, base: str, transport: Transport, tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(f"[lab]\naws_access_key_id={KEY_ID}\naws_secret_access_key={SECRET}\n")
    environ = {"AWS_EC2_METADATA_DISABLED": "true"}
    (account,) = opened(rig, base, transport, tmp_path, profiles=["lab"], environ=environ)
    assert account.fetch_identity() == ACCOUNT
    assert account.examine()[0].told == "profile lab: key ...ARY1 from shared-credentials-file"


@pytest.mark.parametrize(
    ("table", "kind", "words"),
    [
        ({"profiles": ["nobody"]}, InputError, "nobody"),
        ({"roles": [{"role_arn": "costguard"}]}, InputError, "ARN"),
        ({"profiles": ["default", "default"]}, InputError, "twice"),
        ({"regoins": ["us-east-1"]}, UnknownNameError, "regions"),
        ({"timeout_s": 0}, InputError, "seconds"),
        ({"environ": {"AWS_EC2_METADATA_DISABLED": "true"}}, CredentialsError, "no key"),
    ],
)
def test_settings_that_cannot_be_used_are_named(  # noqa: PLR0917 - fixtures and cases
    rig: AwsRig, transport: Transport, tmp_path: Path, table: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        opened(rig, "http://127.0.0.1:9", transport, tmp_path, **table)


def test_a_key_of_another_account_than_expected_is_refused(
    rig: AwsRig, base: str, transport: Transport, tmp_path: Path
) -> None:
    (account,) = cast("list[AwsAccount]", rig.accounts(base, transport, tmp_path, accounts=[OTHER_ACCOUNT]))
    with pytest.raises(CredentialsError, match=f"(?s){ACCOUNT}.*{OTHER_ACCOUNT}"):
        account.fetch_identity()
    poll = account.poll(account.list_scopes()[0])
    assert ACCOUNT in str(poll.inventory)


def test_rights_are_proven_by_dry_runs(rig: AwsRig, base: str, transport: Transport, tmp_path: Path) -> None:
    rig.put(1)
    rig.fake.ec2.denied = {"StopInstances", "DescribeVolumes"}
    (account,) = cast("list[AwsAccount]", rig.accounts(base, transport, tmp_path))
    found = {check.subject: check for check in account.examine()}
    assert found["permission: list volumes"].outcome == CHECK_BAD
    assert "aws-reader.json" in found["permission: list volumes"].fix
    assert found["permission: stop"].outcome == CHECK_UNSURE
    assert "may not stop: costguard can watch, not act" in found["permission: stop"].told
    assert "aws-actor-stop.json" in found["permission: stop"].fix
    assert found["permission: terminate"].outcome == "good"
    assert found["utilization"].outcome == CHECK_UNSURE
