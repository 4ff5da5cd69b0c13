"""`costguard doctor` for one AWS account: checked by requests, and by dry runs where a request would act."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from costguard.errors import CostguardError, CredentialsError, ForbiddenError, MissingError, ProviderError
from costguard.system.clock import Clock
from costguard.values.provider import (
    CHECK_BAD,
    CHECK_GOOD,
    CHECK_SKIPPED,
    CHECK_UNSURE,
    CLOCK_CHECK,
    CREDENTIALS_CHECK,
    IDENTITY_CHECK,
    PERMISSION_CHECK,
    REACHABLE_CHECK,
    UTILIZATION_CHECK,
    HealthCheck,
)
from costguard_aws.api import Ec2Api
from costguard_aws.errors import call_operation
from costguard_aws.session import AwsSession
from costguard_aws.translation import list_tags

MOST_SKEW_S = 30.0
"""Of this machine's clock against AWS's. AWS refuses requests from five minutes on; charges suffer before."""

READER = "attach config/iam/aws-reader.json to the role or user"

READS = {
    "list instances": "describe_instances",
    "list volumes": "describe_volumes",
    "list addresses": "describe_addresses",
    "list instance types": "describe_instance_types",
    "spot prices": "describe_spot_price_history",
    "spot requests": "describe_spot_instance_requests",
}
NOWHERE = "i-00000000000000000"
"""An id that no instance has: EC2 checks rights before it looks for the instance."""

ALLOWED_TAG = ("costguard", "allow-stop")
"""What the actor's policy asks of an instance (config/iam)."""


class AccountExamination:
    """One examination.

    `identity` and `regions`: the account's own requests.
    """

    def __init__(
        self, session: AwsSession, ec2: Ec2Api, clock: Clock, identity: Callable[[], str], regions: Callable[[], Sequence[str]]
    ) -> None:
        self._session, self._ec2, self._clock = session, ec2, clock
        self._identity, self._regions = identity, regions
        self._region = session.region

    def run_checks(self) -> Sequence[HealthCheck]:
        """Return the results, in the order of the checks."""
        checks = self._check_reach(self._check_key())
        if any(check.outcome == CHECK_BAD for check in checks):
            return [
                *checks,
                *(
                    HealthCheck(subject=s, outcome=CHECK_SKIPPED, told="not asked")
                    for s in (PERMISSION_CHECK, CLOCK_CHECK, UTILIZATION_CHECK)
                ),
            ]
        return [*checks, *self._check_rights(), self._check_clock(), self._check_metrics()]

    def _check_key(self) -> HealthCheck:
        where = self._session.source.label
        try:
            text = f"{where}: key {self._session.read_key_hint()} from {self._session.method}"
        except CostguardError as broken:
            return HealthCheck(
                subject=CREDENTIALS_CHECK, outcome=CHECK_BAD, told=f"{where}: {broken.what}", fix=broken.hint or "aws configure"
            )
        return HealthCheck(subject=CREDENTIALS_CHECK, outcome=CHECK_GOOD, told=text)

    def _check_reach(self, key: HealthCheck) -> list[HealthCheck]:
        """Return the result for the key, whether STS answers, and the account of the key."""
        if key.outcome == CHECK_BAD:
            return [key, HealthCheck(subject=REACHABLE_CHECK, outcome=CHECK_SKIPPED, told="not asked")]
        try:
            account = self._identity()
        except CredentialsError as refused:
            fix = refused.hint or "aws sts get-caller-identity shows whether the key works"
            bad = HealthCheck(subject=CREDENTIALS_CHECK, outcome=CHECK_BAD, told=f"{key.told}: {refused.what}", fix=fix)
            return [bad, HealthCheck(subject=REACHABLE_CHECK, outcome=CHECK_GOOD, told="AWS answers")]
        except CostguardError as broken:
            fix = broken.hint or "check the network, [network] proxy and AWS_ENDPOINT_URL"
            return [key, HealthCheck(subject=REACHABLE_CHECK, outcome=CHECK_BAD, told=broken.what, fix=fix)]
        reached = HealthCheck(subject=REACHABLE_CHECK, outcome=CHECK_GOOD, told="AWS answers")
        return [key, reached, HealthCheck(subject=IDENTITY_CHECK, outcome=CHECK_GOOD, told=f"account {account}")]

    def _check_rights(self) -> list[HealthCheck]:
        checks = [self._check_regions()]
        checks += [self._check_read(name, action) for name, action in READS.items()]
        checks.append(
            self._check_service("offers", "pricing", "us-east-1", "get_products", ServiceCode="AmazonEC2", MaxResults=1)
        )
        instance = self._find_test_instance()
        checks += [
            self._check_act(name, action, instance)
            for name, action in (("stop", "stop_instances"), ("terminate", "terminate_instances"), ("start", "start_instances"))
        ]
        return checks

    def _check_regions(self) -> HealthCheck:
        try:
            regions = self._regions()
        except CostguardError as broken:
            return HealthCheck(
                subject=f"{PERMISSION_CHECK}: list regions",
                outcome=CHECK_BAD,
                told=broken.what,
                fix=f"{READER}, or set regions",
            )
        if self._region not in regions:
            self._region = regions[0]
        return HealthCheck(
            subject=f"{PERMISSION_CHECK}: list regions",
            outcome=CHECK_GOOD,
            told=f"{len(regions)} regions, {self._region} examined",
        )

    def _check_read(self, name: str, action: str) -> HealthCheck:
        return self._prove(f"{PERMISSION_CHECK}: {name}", lambda: self._ec2.check_permission(self._region, action), READER)

    def _check_act(self, name: str, action: str, instance: str) -> HealthCheck:
        subject, text = f"{PERMISSION_CHECK}: {name}", f"may {name} {instance}" if instance else f"may {name}"
        try:
            self._ec2.check_permission(self._region, action, InstanceIds=[instance or NOWHERE])
        except MissingError:
            return HealthCheck(subject=subject, outcome=CHECK_GOOD, told=text)
        except ForbiddenError as denied:
            tag = "=".join(ALLOWED_TAG)
            fix = f"where costguard is to act, attach config/iam/aws-actor-{name}.json and tag what it may {name} {tag}"
            text = f"this key may not {name}: costguard can watch, not act ({denied.what})"
            return HealthCheck(subject=subject, outcome=CHECK_UNSURE, told=text, fix=fix)
        except CostguardError as broken:
            return HealthCheck(subject=subject, outcome=CHECK_UNSURE, told=broken.what, fix=broken.hint or "")
        return HealthCheck(subject=subject, outcome=CHECK_GOOD, told=text)

    def _find_test_instance(self) -> str:
        """Return an instance for a dry run, preferably one that the policy allows; "" if there is none."""
        try:
            page = next(self._ec2.list_instances(self._region, size=50), [])
        except CostguardError:
            return ""
        alive = [item for item in page if item.get("State", {}).get("Name") != "terminated"]
        allowed = [item for item in alive if ALLOWED_TAG in list_tags(item)]
        return str((allowed or alive)[0].get("InstanceId", "")) if alive else ""

    def _check_service(self, name: str, service: str, region: str, operation: str, **arguments: object) -> HealthCheck:
        def asked() -> Mapping[str, object]:
            return call_operation(self._session, service, region, operation, **arguments)

        return self._prove(f"{PERMISSION_CHECK}: {name}", asked, READER)

    def _prove(self, subject: str, question: Callable[[], object], fix: str) -> HealthCheck:
        try:
            question()
        except ForbiddenError as denied:
            return HealthCheck(subject=subject, outcome=CHECK_BAD, told=denied.what, fix=fix)
        except ProviderError as broken:
            return HealthCheck(subject=subject, outcome=CHECK_UNSURE, told=broken.what, fix=broken.hint or "")
        return HealthCheck(subject=subject, outcome=CHECK_GOOD, told="allowed")

    def _check_clock(self) -> HealthCheck:
        theirs = self._session.read_server_date("sts", self._session.region)
        if theirs is None:
            return HealthCheck(subject=CLOCK_CHECK, outcome=CHECK_UNSURE, told="AWS's response has no time")
        skew = (self._clock.now() - theirs).total_seconds()
        if abs(skew) <= MOST_SKEW_S:
            return HealthCheck(subject=CLOCK_CHECK, outcome=CHECK_GOOD, told=f"within {max(1, round(abs(skew)))} s of AWS's")
        side = "ahead of" if skew > 0 else "behind"
        return HealthCheck(
            subject=CLOCK_CHECK, outcome=CHECK_BAD, told=f"{abs(skew):.0f} s {side} AWS's", fix="timedatectl set-ntp true"
        )

    def _check_metrics(self) -> HealthCheck:
        """Check whether any CloudWatch agent reports GPUs in the examined region."""
        try:
            answer = call_operation(
                self._session, "cloudwatch", self._region, "list_metrics", Namespace="CWAgent", RecentlyActive="PT3H"
            )
        except ForbiddenError as denied:
            return HealthCheck(subject=UTILIZATION_CHECK, outcome=CHECK_BAD, told=denied.what, fix=READER)
        except ProviderError as broken:
            return HealthCheck(subject=UTILIZATION_CHECK, outcome=CHECK_UNSURE, told=broken.what, fix=broken.hint or "")
        gpus = {str(one.get("MetricName", "")) for one in answer.get("Metrics", ())}
        if any("nvidia_smi" in name or "neuroncore" in name for name in gpus):
            return HealthCheck(
                subject=UTILIZATION_CHECK, outcome=CHECK_GOOD, told=f"GPU use from the CloudWatch agent in {self._region}"
            )
        text = f"no CloudWatch agent reports GPUs in {self._region}: only processor use is measured, which cannot show idleness"
        fix = "costguard agent enrol ID for each machine, or CloudWatch's with nvidia_gpu and append_dimensions InstanceId"
        return HealthCheck(subject=UTILIZATION_CHECK, outcome=CHECK_UNSURE, told=text, fix=fix)
