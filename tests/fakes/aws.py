"""AWS over loopback: every service under one address, told apart by the scope of the signature, which is checked.

A fault matches `POST /ec2/us-east-1/DescribeInstances?MaxResults=1000...`, whatever the protocol of the service.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import parse_qs, parse_qsl, quote

from costguard_sim.world import Resource, to_us

from tests.fakes.aws_ce import FakeCostExplorer
from tests.fakes.aws_cloudwatch import FakeCloudWatch
from tests.fakes.aws_ec2 import FakeEc2
from tests.fakes.aws_ec2_xml import wire_id
from tests.fakes.aws_pricing import FakePricing
from tests.fakes.aws_s3 import FakeS3
from tests.fakes.aws_spot import FakeSpot
from tests.fakes.aws_wire import amz_json_error, cbor_operation, ec2_error, target_of
from tests.fakes.server import Answer, Asked, FakeCloud, Hands

KEY_ID = "AKIAIOSFODNN7CANARY1"
SECRET = "canary-aws-wJalrXUtnFEMI-K7MDENG-bPxRfiCY"  # noqa: S105 - a canary
ACCOUNT, OTHER_ACCOUNT = "111122223333", "444455556666"
ROLE_KEY_ID, ROLE_SECRET, ROLE_TOKEN = "ASIAIOSFODNN7CANARY2", "canary-aws-role-secret-51x", "canary-aws-session-token-83k"


@dataclass(frozen=True, slots=True)
class Key:
    """What a key opens. `token` "": a key that does not expire."""

    secret: str
    account: str
    token: str = ""
    arn: str = "user/ana"


class FakeAws(FakeCloud):
    """`ec2`, `pricing`, `spot`, `cloudwatch`, `costs`: each service's own state. `keys`: access key -> what it opens."""

    def __init__(self, clock: Hands | None = None, resources: list[Resource] | None = None) -> None:
        super().__init__(clock)
        self.ec2 = FakeEc2(resources=list(resources or []))
        self.pricing, self.spot = FakePricing.of(self.ec2.resources), FakeSpot.of(self.ec2.resources)
        self.cloudwatch, self.costs = FakeCloudWatch.of(self.ec2.resources, wire_id), FakeCostExplorer()
        self.s3 = FakeS3()
        self.keys = {KEY_ID: Key(SECRET, ACCOUNT)}
        self.trusted: dict[str, str] = {}
        """Role -> the external id it asks for."""
        self.groups: dict[str, tuple[int, int]] = {}
        """Auto-scaling group -> (least, desired)."""

    @property
    def resources(self) -> list[Resource]:
        """The simulated machines, volumes and addresses."""
        return self.ec2.resources

    def take(self, asked: Asked):  # type: ignore[no-untyped-def]  # noqa: ANN201 - as FakeCloud's
        """With the service, region and action in the line that faults match."""
        return super().take(replace(asked, line=self.named(asked)))

    def named(self, asked: Asked) -> str:
        """The line that faults match: `POST /ec2/us-east-1/StopInstances?...`, whatever the protocol of the service."""
        service, region = scope_of(asked)
        action = _form(asked).get("Action") or target_of(asked)[1] or cbor_operation(asked)
        return f"{asked.method} /{service}/{region}/{action}?{asked.body.decode('utf-8', 'replace')}"

    def answer(self, asked: Asked) -> Answer:
        """As AWS answers."""
        service, region = scope_of(asked)
        key = self.keys.get(_credential(asked)[0])
        refused = _refused(asked, key)
        if refused or key is None:
            return _error(service, *(refused or ("InvalidClientTokenId", "")))
        now = self.clock.now()
        if service == "ec2":
            self.ec2.deaf = self.deaf
            found = self.spot.answer(asked, region, now)
            return found or self.ec2.answer(_form(asked), key.account, region, to_us(now))
        if service == "sts":
            return self._sts(_form(asked), key)
        if service == "autoscaling":
            return self._group(_form(asked), to_us(now))
        if service == "s3":
            return self.s3.answer(asked) or Answer(status=404)
        found = self.pricing.answer(asked) or self.cloudwatch.answer(asked, now) or self.costs.answer(asked, now)
        return found or _error(service, "UnknownOperationException", "")

    def _sts(self, form: Mapping[str, str], key: Key) -> Answer:
        if form["Action"] == "GetCallerIdentity":
            arn = f"arn:aws:iam::{key.account}:{key.arn}"
            inner = f"<Arn>{arn}</Arn><UserId>AIDA</UserId><Account>{key.account}</Account>"
            return _query("GetCallerIdentity", inner, "https://sts.amazonaws.com/doc/2011-06-15/")
        role = form.get("RoleArn", "")
        if self.trusted.get(role) != form.get("ExternalId", ""):
            told = (
                f"User: arn:aws:iam::{key.account}:{key.arn} is not authorized to perform: sts:AssumeRole on resource: {role}"
            )
            return _error("sts", "AccessDenied", told)
        self.keys[ROLE_KEY_ID] = Key(ROLE_SECRET, role.split(":")[4], ROLE_TOKEN, "assumed-role/reader/costguard")
        expires = f"{self.clock.now().year + 1}-01-01T00:00:00Z"
        credentials = (
            f"<Credentials><AccessKeyId>{ROLE_KEY_ID}</AccessKeyId><SecretAccessKey>{ROLE_SECRET}</SecretAccessKey>"
            f"<SessionToken>{ROLE_TOKEN}</SessionToken><Expiration>{expires}</Expiration></Credentials>"
        )
        user = f"<AssumedRoleUser><Arn>{role}/x</Arn><AssumedRoleId>AROA:x</AssumedRoleId></AssumedRoleUser>"
        return _query("AssumeRole", credentials + user, "https://sts.amazonaws.com/doc/2011-06-15/")

    def _group(self, form: Mapping[str, str], now_us: int) -> Answer:
        """TerminateInstanceInAutoScalingGroup."""
        id_, decrement = form["InstanceId"], form["ShouldDecrementDesiredCapacity"] == "true"
        group = str(self.ec2.tags.get(id_, {}).get("aws:autoscaling:groupName", ""))
        least, desired = self.groups.get(group, (0, 1))
        if decrement and desired - 1 < least:
            return _error("autoscaling", "ValidationError", f"Currently, desiredSize equals minSize ({least}).")
        if not self.deaf:
            self.groups[group] = (least, desired - decrement)
            self.ec2.end_run(id_, now_us)
            self.ec2.change(id_, ended_us=now_us)
        inner = f"<Activity><ActivityId>a-1</ActivityId><StatusCode>InProgress</StatusCode><Cause>by {id_}</Cause></Activity>"
        return _query("TerminateInstanceInAutoScalingGroup", inner, "http://autoscaling.amazonaws.com/doc/2011-01-01/")


def scope_of(asked: Asked) -> tuple[str, str]:
    """(service, region) that the request was signed for."""
    parts = _credential(asked)
    return (parts[3], parts[2]) if len(parts) == 5 else ("", "")


def _credential(asked: Asked) -> list[str]:
    return asked.headers.get("authorization", "").partition("Credential=")[2].split(",")[0].split("/")


def _form(asked: Asked) -> dict[str, str]:
    if "x-www-form-urlencoded" not in asked.headers.get("content-type", ""):
        return {}
    return {k: v[0] for k, v in parse_qs(asked.body.decode("utf-8", "replace"), keep_blank_values=True).items()}


def _refused(asked: Asked, key: Key | None) -> tuple[str, str] | None:
    """The code and words for a request whose signature is not that of its key."""
    if not asked.headers.get("authorization"):
        return "MissingAuthenticationToken", "Request is missing Authentication Token"
    if key is None:
        return "InvalidClientTokenId", "The security token included in the request is invalid."
    if key.token and asked.headers.get("x-amz-security-token") != key.token:
        return "InvalidClientTokenId", "The security token included in the request is invalid."
    if signature(asked, key.secret) != asked.headers["authorization"].rpartition("Signature=")[2]:
        return "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided."
    return None


def signature(asked: Asked, secret: str) -> str:
    """Signature Version 4 of the request, by AWS's own description of it."""
    text = asked.headers["authorization"]
    names = text.partition("SignedHeaders=")[2].split(",")[0].split(";")
    target = asked.line.split(" ", 1)[1] if asked.line.startswith("GET ") else asked.path
    query = "&".join(f"{quote(k, '-_.~')}={quote(v, '-_.~')}" for k, v in sorted(parse_qsl(target.partition("?")[2], True)))  # noqa: FBT003 - urllib's
    headers = "".join(f"{name}:{' '.join(asked.headers.get(name, '').split())}\n" for name in names)
    body = asked.headers.get("x-amz-content-sha256") or hashlib.sha256(asked.body).hexdigest()
    whole = "\n".join((asked.method, asked.path, query, headers, ";".join(names), body))
    scope = _credential(asked)[1:]
    signed = "\n".join(
        (
            "AWS4-HMAC-SHA256",
            asked.headers["x-amz-date"],
            "/".join(scope),
            hashlib.sha256(whole.encode()).hexdigest(),
        )
    )
    made = f"AWS4{secret}".encode()
    for part in (*scope, signed):
        made = hmac.new(made, part.encode(), hashlib.sha256).digest()
    return made.hex()


def _error(service: str, code: str, message: str) -> Answer:
    """An error in the words of the service's protocol."""
    status = 401 if service == "ec2" and code != "UnknownOperationException" else 403
    if service == "ec2":
        return ec2_error(
            {"InvalidClientTokenId": "AuthFailure", "SignatureDoesNotMatch": "AuthFailure"}.get(code, code), message, status
        )
    if service in ("sts", "autoscaling"):
        status = 400 if code == "ValidationError" else 403
        inner = f"<Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error><RequestId>7</RequestId>"
        return Answer(
            status=status, headers={"Content-Type": "text/xml"}, body=f"<ErrorResponse>{inner}</ErrorResponse>".encode()
        )
    return amz_json_error({"InvalidClientTokenId": "UnrecognizedClientException"}.get(code, code), message, 400)


def _query(action: str, inner: str, namespace: str) -> Answer:
    body = f'<{action}Response xmlns="{namespace}"><{action}Result>{inner}</{action}Result>'
    body += f"<ResponseMetadata><RequestId>7</RequestId></ResponseMetadata></{action}Response>"
    return Answer(headers={"Content-Type": "text/xml"}, body=body.encode())
