"""AWS: EC2 instances, EBS volumes and Elastic IPs of every enabled region, of one or several accounts.

botocore is not imported before an account is opened. `MANIFEST` repeats what `README.md` beside this file states about
credentials and rights.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from costguard.errors import InputError
from costguard.values.provider import (
    FLAG_SETTING,
    TABLES_SETTING,
    TEXTS_SETTING,
    WHOLE_SETTING,
    MachineTraits,
    ProviderManifest,
    ProviderSetting,
    SavingAct,
    Seller,
    check_provider_table,
)

if TYPE_CHECKING:  # a listing of providers does not pay for botocore
    from costguard.bills.bill_files import BillFiles
    from costguard.providers.transport import ProviderContext
    from costguard.system.child.spot_notices import MetadataService
    from costguard_aws.account import AwsAccount

_ROLE = (
    ProviderSetting(name="role_arn", told="the role to assume", example="arn:aws:iam::111122223333:role/costguard-reader"),
    ProviderSetting(name="external_id", told="what the role's trust policy asks for"),
    ProviderSetting(name="session_name", told="how the role's use is called in CloudTrail; costguard"),
    ProviderSetting(name="source_profile", told="the profile that may assume it; the default chain"),
)

MANIFEST = ProviderManifest(
    measures=("cpu",),
    name="aws",
    title="Amazon Web Services",
    seller=Seller(name="AWS", account="AWS account", compute="Amazon EC2", storage="Amazon EBS"),
    # The notice comes two minutes ahead of the end (EC2 documentation, 2026-11).
    machine=MachineTraits(
        firmware=("Amazon EC2",),
        metadata_url="http://169.254.169.254",
        metadata_variable="AWS_EC2_METADATA_SERVICE_ENDPOINT",
        notice_ahead=timedelta(seconds=110),
    ),
    credentials=(
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        "AWS_PROFILE, and ~/.aws/config (roles, SSO, processes)",
        "~/.aws/credentials",
        "the role of this machine (ECS, EKS, EC2)",
    ),
    saving_act=SavingAct(
        kind="stop",
        bills_on=("EBS volumes", "Elastic IP addresses"),
        loses=("the disks inside the host", "memory", "a public address that is not an Elastic IP"),
    ),
    abilities={
        "list": "EC2 in every enabled region: on-demand, spot, reserved capacity",
        "volumes": "EBS volumes and Elastic IPs, attached or not",
        "offers": "list prices of the Price List, and spot prices",
        "utilization": "GPUs by the CloudWatch agent where it runs, else processors",
        "bill": "FOCUS export files, or Cost Explorer ($0.01 a request, off by default)",
        "stop": "instances with an EBS root that nothing replaces; the disks inside the host are wiped",
        "terminate": "instances, and members of a plain auto-scaling group",
        "start": "stopped instances that nothing replaces; EC2 may have no capacity",
        "permissions": "dry runs",
    },
    settings=(
        ProviderSetting(
            name="profiles", kind=TEXTS_SETTING, told='one account each; "default": the chain', example='["default", "lab"]'
        ),
        ProviderSetting(name="roles", kind=TABLES_SETTING, told="roles to assume, one account each", inner=_ROLE),
        ProviderSetting(
            name="accounts", kind=TEXTS_SETTING, told="the account ids that are expected; a key of another is refused"
        ),
        ProviderSetting(
            name="regions", kind=TEXTS_SETTING, told="only these, in place of every enabled region", example='["us-east-1"]'
        ),
        ProviderSetting(name="endpoint_url", told="in place of AWS's own addresses (AWS_ENDPOINT_URL)"),
        ProviderSetting(
            name="timeout_s", kind=WHOLE_SETTING, told="seconds that one poll of a region may take; 60", example="60"
        ),
        ProviderSetting(
            name="signals",
            kind=TEXTS_SETTING,
            told="measures asked of CloudWatch",
            example='["gpu_util", "cpu_util"]',
        ),
        ProviderSetting(name="agent_namespace", told="CloudWatch namespace of the agent; CWAgent"),
        ProviderSetting(
            name="cost_explorer", kind=FLAG_SETTING, told="ask Cost Explorer for the bill: $0.01 a request", example="true"
        ),
        ProviderSetting(
            name="focus_export", told="FOCUS or CUR export files: a path, a folder, a pattern or s3://bucket/prefix"
        ),
    ),
    extra="aws",
    key_at="https://console.aws.amazon.com/iam",
    # CloudWatch publishes late: "ask for a window ending ~5 min ago" (shared/providers/aws.md, section 4, 2026-11). A bucket of
    # five minutes bears the time of its beginning, so that the newest one is ten minutes old when it can first be asked for.
    measures_late=timedelta(minutes=10),
    measures_every=timedelta(minutes=5),
    not_seen=(
        "SageMaker (notebooks, endpoints, training, HyperPod, Studio) runs GPUs that EC2 does not list.",
        "Savings plans, reserved instances, private prices and credits lower the bill after the fact.",
        "Unused capacity reservations, dedicated hosts and the upfront fee of capacity blocks are billed and not listed.",
        "Data transfer, NAT gateways, snapshots, FSx, and EBS beyond the IOPS and throughput included.",
    ),
)

_REGION = re.compile(r"[a-z]{2,4}(-[a-z]+)+-\d+")
TIMEOUTS = range(1, 601)
TOKEN_HEADER, OK, UNAUTHORIZED = "X-aws-ec2-metadata-token", 200, 401


class AwsPlugin:
    """The plug-in that `costguard.providers` loads."""

    @property
    def manifest(self) -> ProviderManifest:
        """Return the plug-in's manifest."""
        return MANIFEST

    @property
    def bill_files(self) -> BillFiles:
        """Return the reader of Cost and Usage Reports, and AWS's names in FOCUS files."""
        from costguard.bills.bill_files import BillFiles
        from costguard_aws.cost_exports import CUR_FORMAT

        return BillFiles(formats=(CUR_FORMAT,), called=("AWS", "Amazon", "Amazon Web Services, Inc."))

    def fetch_spot_notice(self, metadata: MetadataService) -> str | None:
        """Return the action and time of a spot notice, None while there is none.

        It requests `GET /latest/meta-data/spot/instance-action` by IMDSv2, which returns 404 until there is a notice.
        """
        path = "/latest/meta-data/spot/instance-action"
        status, body = metadata.send(path, {TOKEN_HEADER: metadata.token} if metadata.token else {})
        if status == UNAUTHORIZED:
            token_status, token = metadata.send("/latest/api/token", {f"{TOKEN_HEADER}-ttl-seconds": "21600"}, method="PUT")
            metadata.token = token if token_status == OK and token.isprintable() else ""
            status, body = metadata.send(path, {TOKEN_HEADER: metadata.token})
        notice = json.loads(body) if status == OK else None
        if not isinstance(notice, dict) or not isinstance(notice.get("action"), str):
            return None
        return f"{notice['action']} at {notice.get('time', 'a time that it does not say')}"

    def open(self, table: Mapping[str, object], around: ProviderContext) -> Sequence[AwsAccount]:
        """Return an account for each profile and role, or for the default chain; raises CredentialsError if one has no key."""
        checked: dict[str, Any] = check_provider_table(table, MANIFEST.settings, "providers.aws")
        _check_settings(checked)
        account, sources_of = _load_account_class()
        return [account(source, checked, around, exports=i == 0) for i, source in enumerate(sources_of(checked))]


def _load_account_class() -> Any:  # noqa: ANN401 - two names of modules that are imported here alone
    """Return the account class and `parse_sources`; raises InputError if AWS's SDK is not installed."""
    try:
        from costguard_aws.account import AwsAccount
        from costguard_aws.credentials import parse_sources
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in ("botocore", "boto3"):
            raise
        hint = "in a clone of costguard: pip install '.[aws]'"
        raise InputError("needs AWS's SDK, which is not installed", field="providers.aws", hint=hint) from None
    return AwsAccount, parse_sources


def _check_settings(table: Mapping[str, Any]) -> None:
    """Raise InputError for an invalid region, account or time limit."""
    for region in table.get("regions", ()):
        if not _REGION.fullmatch(region):
            raise InputError(f"'{region}' is not a region", field="providers.aws.regions", hint='such as "us-east-1"')
    for account in table.get("accounts", ()):
        if not re.fullmatch(r"\d{12}", account):
            raise InputError(f"'{account}' is not an account", field="providers.aws.accounts", hint="twelve digits, as text")
    if table.get("timeout_s", 60) not in TIMEOUTS:
        raise InputError("must be from 1 to 600 seconds", field="providers.aws.timeout_s")


provider = AwsPlugin()
