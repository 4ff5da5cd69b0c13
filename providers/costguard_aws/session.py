"""Requests to AWS with one set of credentials: boto3's clients sign, serialise and parse, costguard's transport sends.

The transport is plugged in by botocore's documented event `before-send`, whose handler may answer in place of botocore's own
HTTP; so its limits of time, bytes and rate hold, and it alone retries: reads, and never an act.

Every failure is a ProviderError with AWS's own code. Clients are thread-safe.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from typing import Any

import boto3
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from botocore.utils import parse_timestamp

from costguard.errors import CredentialsError
from costguard.providers.transport import (
    MOST_BYTES,
    Deadline,
    HttpRequest,
    HttpResponse,
    ProviderChannel,
    ProviderContext,
    Secret,
    TokenBucket,
    check_url,
)
from costguard.values.instant import parse_instant
from costguard_aws.credentials import CredentialSource, load_credentials, open_botocore_session
from costguard_aws.errors import AWS, make_fault_reader, translate_botocore_errors

logging.getLogger("botocore").setLevel(logging.WARNING)
"""Below that it writes whole requests and answers, session tokens among them."""

READ_S, ACT_S = 30.0, 20.0
"""Seconds for one read with all its tries where no poll sets a deadline, and for one act."""

LIMITS = {
    "ec2": (10.0, 60.0, 5.0),
    "sts": (5.0, 10.0, 0.0),
    "auto-scaling": (5.0, 10.0, 2.0),
    "pricing": (5.0, 10.0, 0.0),
    "cloudwatch": (20.0, 40.0, 0.0),
    "cost-explorer": (1.0, 5.0, 0.0),
}
"""Requests a second, at once, and kept for acts, of each service and region: half of what aws.md section 10 states, so that
the account's own tools keep the other half. Unnamed services get 5 and 10."""

ACTS = frozenset(("StopInstances", "StartInstances", "TerminateInstances", "TerminateInstanceInAutoScalingGroup"))

FIRST_REGION = "us-east-1"
"""Where the account is asked who it is when no region is configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bounds:
    deadline: Deadline
    most_bytes: int = MOST_BYTES


_bounds: ContextVar[_Bounds | None] = ContextVar("costguard_aws_bounds", default=None)


@contextmanager
def limit_requests(deadline: Deadline, most_bytes: int = MOST_BYTES) -> Iterator[None]:
    """Apply these limits to every request in this block, by this thread or one that received its context."""
    token = _bounds.set(_Bounds(deadline=deadline, most_bytes=most_bytes))
    try:
        yield
    finally:
        _bounds.reset(token)


class AwsSession:
    """Requests with one `CredentialSource`; sends nothing on creation, and raises CredentialsError without a key.

    `endpoint`: an address that replaces all of AWS's, "" for AWS's own.
    """

    def __init__(self, source: CredentialSource, around: ProviderContext, *, endpoint: str = "", region: str = "") -> None:
        self.source, self.endpoint, self._around = source, endpoint, around
        self.account = ""
        """As AWS says who it is, once it was asked; "" before."""
        self._core = open_botocore_session(source, around.environ, around.home)
        self._core.register("before-send", self._send, unique_id="costguard-transport")
        self._core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=read_timestamp)
        self._boto3 = boto3.Session(botocore_session=self._core)
        self.credentials = load_credentials(source, self._core, self._make_client)
        self.region: str = region or around.environ.get("AWS_REGION") or self._read_config("region") or FIRST_REGION
        self._secrets: tuple[Secret, ...] = ()
        """What signs, to be taken out of whatever AWS or a proxy echoes. Read before a request and not within one: botocore may
        be renewing them at that moment, under a lock."""
        self._find_stated_endpoint("ec2")
        self._lock = threading.RLock()
        self._clients: dict[tuple[str, str], Any] = {}
        self._channels: dict[tuple[str, str], ProviderChannel] = {}

    def client(self, service: str, region: str) -> Any:  # noqa: ANN401 - boto3 makes its classes as it goes
        """Return boto3's client.

        It raises ProviderErrors, except for botocore's own errors: call it within `translate_botocore_errors`.
        """
        with translate_botocore_errors(self.account):
            frozen = self.credentials.get_frozen_credentials()
            self._secrets = tuple(Secret(one) for one in (frozen.secret_key, frozen.token) if one)
            with self._lock:
                if (service, region) not in self._clients:
                    self._clients[service, region] = self._make_client(service, region_name=region)
                return self._clients[service, region]

    def read_server_date(self, service: str, region: str) -> datetime | None:
        """Return AWS's clock at its last answer; None if there was none."""
        return self._open_channel(service, region).date

    def read_key_hint(self) -> str:
        """Return the last four characters of the access key, for `doctor`."""
        with translate_botocore_errors(self.account):
            return Secret(self.credentials.get_frozen_credentials().access_key or "").get_hint()

    @property
    def method(self) -> str:
        """The place of the chain that supplied the key: env, shared-credentials-file, sso, assume-role, iam-role ..."""
        return str(self.credentials.method or "")

    def _find_stated_endpoint(self, service: str) -> str:
        """Return the configured address, looked up as AWS's own tools do: for the service, for all, in the profile."""
        name = _SERVICE_IDS.get(service, service).upper().replace("-", "_")
        environ = self._around.environ
        url = self.endpoint or environ.get(f"AWS_ENDPOINT_URL_{name}") or environ.get("AWS_ENDPOINT_URL")
        url = url or self._read_profile().get("endpoint_url")
        return check_url(url, "AWS_ENDPOINT_URL") if url else ""

    def _read_profile(self) -> Mapping[str, Any]:
        with translate_botocore_errors(self.account):
            profile: Mapping[str, Any] = self._core.get_scoped_config()
        return profile

    def _read_config(self, name: str) -> str:
        try:
            return str(self._core.get_config_variable(name) or "")
        except BotoCoreError:
            return ""

    def _make_client(self, service: str, **more: Any) -> Any:  # noqa: ANN401 - as boto3's client
        """Return a client that sends each request once and uses no proxy: the transport handles both."""
        config = Config(retries={"mode": "standard", "total_max_attempts": 1}, proxies={})
        more.setdefault("region_name", self._read_config("region") or FIRST_REGION)
        more.update(config=config, endpoint_url=self._find_stated_endpoint(service) or None)
        return self._boto3.client(service, **more)

    def _send(self, request: AWSPreparedRequest, event_name: str = "", **_more: Any) -> AWSResponse:  # noqa: ANN401 - botocore's
        """Send botocore's request through costguard's transport; botocore calls this hook before it sends."""
        _, service, operation = str(event_name).split(".", maxsplit=2)
        region = _parse_signed_region(request) or self.region
        reply = self._ask(_to_transport_request(request), service, region, operation)
        return AWSResponse(request.url, reply.status, _drop_encoding_headers(reply), _Raw(reply.body))

    def _ask(self, request: HttpRequest, service: str, region: str, operation: str) -> HttpResponse:
        channel, bounds, act = self._open_channel(service, region), _bounds.get(), operation in ACTS
        return channel.ask(
            request,
            scope=f"{service} {region}",
            deadline=bounds.deadline if bounds and not act else Deadline(ACT_S if act else READ_S),
            act=act,
            most_bytes=bounds.most_bytes if bounds else MOST_BYTES,
        )

    def _open_channel(self, service: str, region: str) -> ProviderChannel:
        with self._lock:
            channel = self._channels.get((service, region))
            if channel is None:
                per_s, burst, reserve = LIMITS.get(service, (5.0, 10.0, 0.0))
                channel = self._channels[service, region] = ProviderChannel(
                    self._around.transport,
                    provider=AWS,
                    base_url=self._find_stated_endpoint(service),
                    account=f"{self.account or self.source.label} {region}",
                    buckets={"": TokenBucket(per_s, burst, reserve=reserve)},
                    fault=make_fault_reader(lambda: self._secrets),
                    advice={CredentialsError: "costguard doctor aws tells which key was used"},
                )
            return channel


_SERVICE_IDS = {"autoscaling": "auto-scaling", "ce": "cost-explorer"}
"""boto3's name of a service -> how events and AWS_ENDPOINT_URL_... spell it, where they differ."""


def read_timestamp(value: Any) -> datetime | str | None:  # noqa: ANN401 - whatever the wire has
    """Return the instant that AWS states; a text that states none is returned as it is, and must not be read as a time.

    botocore's own reader is five times as slow, and takes "10" for the tenth of this month.
    """
    return parse_instant(value) or value if isinstance(value, str) else parse_timestamp(value)


class _Raw(BytesIO):
    """A body as botocore reads it."""

    def stream(self, **_: Any) -> Iterator[bytes]:  # noqa: ANN401 - urllib3's signature
        """Yield the whole body in one piece."""
        yield self.read()


def _to_transport_request(request: AWSPreparedRequest) -> HttpRequest:
    """Return a signed request in the transport's form."""
    headers = {k: v.decode("latin-1") if isinstance(v, bytes) else str(v) for k, v in request.headers.items()}
    headers.pop("Expect", None)
    body = request.body or b""
    if not isinstance(body, bytes | bytearray):
        body = body.encode() if isinstance(body, str) else body.read()
    return HttpRequest(method=request.method, url=request.url, headers=headers, body=bytes(body))


def _parse_signed_region(request: AWSPreparedRequest) -> str:
    """Return the region for which a request is signed: `Credential=KEY/20261121/us-east-1/ec2/aws4_request`."""
    header = request.headers.get("Authorization", "")
    text = header.decode("latin-1") if isinstance(header, bytes) else str(header)
    parts = text.partition("Credential=")[2].split(",")[0].split("/")
    return parts[2] if len(parts) == 5 else ""  # noqa: PLR2004 - the scope's form


def _drop_encoding_headers(reply: HttpResponse) -> dict[str, str]:
    """Return the headers without those of a compressed body."""
    headers = {k: v for k, v in reply.headers.items() if k not in ("content-encoding", "transfer-encoding")}
    return {**headers, "content-length": str(len(reply.body))}
