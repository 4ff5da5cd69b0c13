"""Requests to AWS with one set of credentials: botocore signs and serialises, costguard's transport sends.

    client(service, region)   botocore's client, whose HTTP goes through `costguard.providers.transport` and which retries
                              nothing
    query(service, region, action, params)   the XML of a Query API (EC2, STS, auto-scaling), without botocore's models,
                                             which cost 24 MB and twice the time that everything else here takes

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
from urllib.parse import urlencode

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSPreparedRequest, AWSRequest, AWSResponse
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from costguard.errors import CredentialsError, InputError
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
from costguard_aws.credentials import CredentialSource, load_credentials, open_botocore_session
from costguard_aws.errors import AWS, make_fault_reader, translate_botocore_errors

logging.getLogger("botocore").setLevel(logging.WARNING)
"""Below that it writes whole requests and answers, session tokens among them."""

READ_S, ACT_S = 30.0, 20.0
"""Seconds for one read with all its tries where no poll sets a deadline, and for one act."""

VERSIONS = {"ec2": "2016-11-15", "sts": "2011-06-15", "autoscaling": "2011-01-01"}
"""Of the Query APIs: botocore 1.44's models, 2026-11."""

LIMITS = {
    "ec2": (10.0, 60.0, 5.0),
    "sts": (5.0, 10.0, 0.0),
    "autoscaling": (5.0, 10.0, 2.0),
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
        self.botocore = open_botocore_session(source, around.environ, around.home)
        self.botocore.register("before-send", self._send, unique_id="costguard-transport")
        self.credentials = load_credentials(source, self.botocore, self._make_client_creator)
        self.botocore._credentials = self.credentials  # noqa: SLF001 - set_credentials takes bare keys, and those of a role expire
        self.region: str = region or around.environ.get("AWS_REGION") or self._read_config("region") or FIRST_REGION
        self._signed_with: tuple[str | None, ...] = ()
        self._tokens: tuple[str | None, ...] = ()
        self._find_stated_endpoint("ec2")
        self._lock = threading.RLock()
        self._clients: dict[tuple[str, str], Any] = {}
        self._endpoints: dict[tuple[str, str], str] = {}
        self._has_models = False
        self._channels: dict[tuple[str, str], ProviderChannel] = {}

    def client(self, service: str, region: str) -> Any:  # noqa: ANN401 - botocore makes its classes as it goes
        """Return botocore's client.

        It raises ProviderErrors, except for botocore's own errors: call it within `translate_botocore_errors`.
        """
        with self._lock:
            if (service, region) not in self._clients:
                self._has_models = True
                with translate_botocore_errors(self.account):
                    made = self._make_client_creator(service, region_name=region)
                self._clients[service, region] = made
            return self._clients[service, region]

    def query(
        self,
        service: str,
        region: str,
        action: str,
        params: Mapping[str, str] | None = None,
        *,
        deadline: Deadline | None = None,
    ) -> bytes:
        """Return the successful answer to one request of a Query API.

        An act is sent once.
        """
        fields = {"Action": action, "Version": VERSIONS[service], **(params or {})}
        request = self._sign(service, region, urlencode(fields).encode())
        return self._ask(request, service, region, action, deadline).body

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

    def _sign(self, service: str, region: str, body: bytes) -> HttpRequest:
        form = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
        request = AWSRequest(method="POST", url=f"{self._find_endpoint(service, region)}/", data=body, headers=form)
        with translate_botocore_errors(self.account):
            frozen = self.credentials.get_frozen_credentials()
            self._signed_with = (frozen.secret_key, frozen.token)
            SigV4Auth(frozen, service, region).add_auth(request)
        return _to_transport_request(request.prepare())

    def _find_endpoint(self, service: str, region: str) -> str:
        """Return the address of `service` in `region`: from the settings or the environment, else AWS's."""
        stated = self._find_stated_endpoint(service)
        if stated:
            return stated
        with self._lock:
            if (service, region) not in self._endpoints:
                self._has_models = True
                resolver = self.botocore._get_internal_component("endpoint_resolver")  # noqa: SLF001 - get_component deprecates it
                found = resolver.construct_endpoint(service, region)
                if not found or "hostname" not in found:
                    hint = "check regions"
                    raise InputError(f"has no {service}, as far as botocore knows", field=f"region {region}", hint=hint)
                self._endpoints[service, region] = f"https://{found['hostname']}"
            return self._endpoints[service, region]

    def release_models(self) -> None:
        """Let go of botocore's list of all endpoints and its models, 10 MB, after the first poll.

        Clients and addresses that were looked up are kept; what needs another one reads the models again.
        """
        with self._lock:
            if not self._has_models:
                return
            self._has_models = False
            self.botocore._register_endpoint_resolver()  # noqa: SLF001 - as at its start: made when it is asked for
            self.botocore.get_component("data_loader")._cache.clear()  # noqa: SLF001 - there is no public way

    def _find_stated_endpoint(self, service: str) -> str:
        """Return the configured address, looked up as AWS's own tools do: for the service, for all, in the profile."""
        named = self._around.environ.get(f"AWS_ENDPOINT_URL_{_SERVICE_IDS.get(service, service.upper())}")
        found = (
            self.endpoint or named or self._around.environ.get("AWS_ENDPOINT_URL") or self._read_profile().get("endpoint_url")
        )
        return check_url(found, "AWS_ENDPOINT_URL") if found else ""

    def _read_profile(self) -> Mapping[str, Any]:
        with translate_botocore_errors(self.account):
            found: Mapping[str, Any] = self.botocore.get_scoped_config()
        return found

    def _read_config(self, name: str) -> str:
        try:
            return str(self.botocore.get_config_variable(name) or "")
        except BotoCoreError:
            return ""

    def _make_client_creator(self, service: str, **more: Any) -> Any:  # noqa: ANN401 - as botocore's create_client
        """Return a client that sends each request once and uses no proxy: the transport handles both."""
        config = Config(retries={"mode": "standard", "total_max_attempts": 1}, connect_timeout=5, read_timeout=20, proxies={})
        more.setdefault("region_name", self._read_config("region") or FIRST_REGION)
        more.update(config=config, endpoint_url=self._find_stated_endpoint(service) or None)
        return self.botocore.create_client(service, **more)

    def _send(self, request: AWSPreparedRequest, event_name: str = "", **_more: Any) -> AWSResponse:  # noqa: ANN401 - botocore's
        """Send botocore's request through costguard's transport; botocore calls this hook before it sends."""
        _, service, operation = str(event_name).split(".", maxsplit=2)
        carried = _to_transport_request(request)
        self._tokens = (carried.headers.get("X-Amz-Security-Token"),)
        reply = self._ask(carried, service, _parse_signed_region(request) or self.region, operation, None)
        return AWSResponse(request.url, reply.status, _drop_encoding_headers(reply), _Raw(reply.body))

    def _ask(self, request: HttpRequest, service: str, region: str, action: str, deadline: Deadline | None) -> HttpResponse:
        channel, bounds, act = self._open_channel(service, region), _bounds.get(), action in ACTS
        limit = Deadline(ACT_S if act else READ_S)
        if bounds is not None and not act:
            limit = bounds.deadline
        return channel.ask(
            request,
            scope=f"{service} {region}",
            deadline=deadline or limit,
            act=act,
            most_bytes=bounds.most_bytes if bounds else MOST_BYTES,
        )

    def _open_channel(self, service: str, region: str) -> ProviderChannel:
        with self._lock:
            found = self._channels.get((service, region))
            if found is None:
                per_s, burst, kept = LIMITS.get(service, (5.0, 10.0, 0.0))
                found = self._channels[service, region] = ProviderChannel(
                    self._around.transport,
                    provider=AWS,
                    base_url=self._find_stated_endpoint(service),
                    account=f"{self.account or self.source.label} {region}",
                    buckets={"": TokenBucket(per_s, burst, kept=kept)},
                    fault=make_fault_reader(self._list_secrets),
                    advice={CredentialsError: "costguard doctor aws tells which key was used"},
                )
            return found

    def _list_secrets(self) -> tuple[Secret, ...]:
        """Return the secrets that must not be shown if AWS or a proxy echoes them: the credentials that signed requests.

        They are not read from botocore: it may be fetching them at that moment, and reading them would wait on its lock for
        ever.
        """
        return tuple(Secret(one) for one in (*self._signed_with, *self._tokens) if one)


_SERVICE_IDS = {"autoscaling": "AUTO_SCALING", "ce": "COST_EXPLORER", "cost-explorer": "COST_EXPLORER"}
"""How AWS spells a service in AWS_ENDPOINT_URL_..., where that is not its name in capitals."""


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
    stated = request.headers.get("Authorization", "")
    text = stated.decode("latin-1") if isinstance(stated, bytes) else str(stated)
    parts = text.partition("Credential=")[2].split(",")[0].split("/")
    return parts[2] if len(parts) == 5 else ""  # noqa: PLR2004 - the scope's form


def _drop_encoding_headers(reply: HttpResponse) -> dict[str, str]:
    """Return the headers without those of a compressed body."""
    kept = {k: v for k, v in reply.headers.items() if k not in ("content-encoding", "transfer-encoding")}
    return {**kept, "content-length": str(len(reply.body))}
