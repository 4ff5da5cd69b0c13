"""Requests to Google's services over costguard's transport: Compute Engine by its SDK, others by REST.

Every project has its own quotas, and so its own channel.

The SDK (google-cloud-compute) contains the addresses, parameters and answers of Compute Engine; it is imported at the first
request (2 s and 150 MB). Its HTTP is an adapter of `requests` that passes every request to a channel: so deadlines, byte
limits, buckets, circuits and TLS are costguard's, and its own retries (600 s) never run.
"""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from costguard.errors import (
    CredentialsError,
    ForbiddenError,
    InvalidAnswerError,
    MissingError,
    ProviderError,
    RefusedError,
    ThrottledError,
    shorten,
)
from costguard.providers.transport import (
    Deadline,
    HttpRequest,
    HttpResponse,
    ProviderChannel,
    TokenBucket,
    Transport,
    make_status_fault_reader,
)
from costguard.providers.transport.channel import FaultReader, parse_retry_after
from costguard.system.secret import scrub_text
from costguard_gcp.credentials import FIX, TokenSource
from costguard_gcp.wire import ErrorBody, Refusal

if TYPE_CHECKING:
    import requests


T = TypeVar("T")

COMPUTE, MONITORING, BILLING, RESOURCES = "compute", "monitoring", "billing", "resource_manager"
PLACES = {
    COMPUTE: "https://compute.googleapis.com",
    MONITORING: "https://monitoring.googleapis.com",
    BILLING: "https://cloudbilling.googleapis.com",
    RESOURCES: "https://cloudresourcemanager.googleapis.com",
}

PER_S, BURST, KEPT = 5.0, 30.0, 3.0
"""Requests a second to one project: a fifth of about 1,500 reads a minute (gcp.md, section 6, numbers unverified), 2026-11."""

THROTTLED = frozenset(
    ("rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED", "quotaExceeded", "RESOURCE_EXHAUSTED")
)
"""Reasons that come with 403 as well as with 429: branch on the reason, not on the number."""

DISABLED = frozenset(("accessNotConfigured", "SERVICE_DISABLED"))
UNBILLED = frozenset(("billingNotEnabled", "billingDisabled", "accountDisabled", "BILLING_DISABLED"))
"""A project without the API or without billing has no machines: gcp.md, section 6 and 8. By these exact reasons only."""


class GoogleApi:
    """One login's requests to every service.

    A channel's `account` is its project, "" for requests without one.
    """

    def __init__(self, transport: Transport, bases: Mapping[str, str], tokens: TokenSource) -> None:
        self._transport, self._bases, self.tokens = transport, dict(bases), tokens
        self._channels: dict[tuple[str, str], ProviderChannel] = {}
        self._lock = threading.Lock()

    def open_channel(self, service: str, project: str) -> ProviderChannel:
        """Return the channel to `service` for `project`."""
        with self._lock:
            channel = self._channels.get((service, project))
            if channel is None:
                channel = self._channels[service, project] = ProviderChannel(
                    self._transport,
                    provider="gcp",
                    account=project,
                    base_url=self._bases[service],
                    buckets={"": TokenBucket(PER_S, BURST, reserve=KEPT)},
                    fault=_make_fault_reader(self.tokens),
                    advice={
                        CredentialsError: FIX,
                        ForbiddenError: "grant it the role of config/iam/gcp-reader.yaml",
                        MissingError: "check the project's id, and whether these credentials may see it",
                    },
                )
            return channel

    def get_base_url(self, service: str) -> str:
        """Return the base address of `service`."""
        return self._bases[service]

    def read(
        self,
        service: str,
        project: str,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        deadline: Deadline,
        method: str = "GET",
        body: object = None,
    ) -> HttpResponse:
        """Return the successful reply to a plain REST request."""
        request = self.open_channel(service, project).build_request(method, path, params, body)
        return self.ask(service, project, request, deadline=deadline)

    def ask(self, service: str, project: str, request: HttpRequest, *, deadline: Deadline, act: bool = False) -> HttpResponse:
        """Return the successful reply to `request`, sent with a token."""
        headers = {**request.headers, **self.tokens.build_header(deadline)}
        channel = self.open_channel(service, project)
        try:
            return channel.ask(replace(request, headers=headers), scope=service, deadline=deadline, act=act)
        except CredentialsError:
            self.tokens.forget()
            raise

    def decode(self, service: str, project: str, reply: HttpResponse, kind: type[T], what: str) -> T:
        """Decode `reply` as JSON of type `kind`."""
        return self.open_channel(service, project).decode(reply, kind, what)


def _make_fault_reader(tokens: TokenSource) -> FaultReader:
    """Return a function that gives the error of a reply: by its reason, and by its status if it has none."""

    def parse_error(reply: HttpResponse) -> tuple[str, str]:
        body = parse_refusal(reply)
        return ("", "") if body is None else (find_reason(body), scrub_text(body.message or "", tokens.list_secrets()))

    usual = make_status_fault_reader("gcp", parse_error)

    def fault(reply: HttpResponse) -> ProviderError | None:
        error = usual(reply)
        code = error.code if error else ""
        if isinstance(error, ForbiddenError) and code in DISABLED | UNBILLED:
            return ForbiddenError(
                f"{error.what}{_find_disabled_project(reply)}", provider="gcp", status=reply.status, code=code
            )
        if error is not None and code in THROTTLED and reply.status in (403, 429):
            what = f"rate limit exceeded ({reply.status} {code})"
            return ThrottledError(what, provider="gcp", status=reply.status, code=code, retry_after_s=parse_retry_after(reply))
        return error

    return fault


SPEAKS_OF = "; it speaks of project "
_IN_MESSAGE = re.compile(r"\bproject (\d{6,20})\b|\bproject #([a-z0-9-]{6,30})\b|[?&]project=([a-z0-9-]{6,30})")


def _find_disabled_project(reply: HttpResponse) -> str:
    """Return the project whose API or billing is off, as the error names it; "" if it names none."""
    body = parse_refusal(reply)
    if body is None:
        return ""
    consumers = [(one.metadata or {}).get("consumer", "") for one in body.details or ()]
    projects = [one.removeprefix("projects/") for one in consumers if one.startswith("projects/")]
    projects += [next(filter(None, groups)) for groups in _IN_MESSAGE.findall(body.message or "")]
    sound = dict.fromkeys(one for one in projects if re.fullmatch(r"[a-z0-9:.-]{1,100}", one))
    return f"{SPEAKS_OF}{', '.join(sound)}" if sound else ""


def parse_refusal(reply: HttpResponse) -> ErrorBody | None:
    """Return Google's error; None if the body is something else."""
    try:
        return msgspec.json.decode(reply.body, type=Refusal).error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def find_reason(body: ErrorBody) -> str:
    """Return an error's reason: a known one of `errors` or `details`, else any of them, else the status."""
    reasons = [one.reason for one in body.errors or () if one.reason]
    detailed = [one.reason for one in body.details or () if one.reason]
    exact = next((one for one in (*reasons, *detailed) if one in THROTTLED | DISABLED | UNBILLED), "")
    return exact or next(iter((*reasons, *detailed)), "") or body.status or ""


INSTALL = "in a clone of costguard: pip install '.[gcp]'"
PAGE = 500
"""The largest page of an aggregated list (gcp.md, section 1)."""


class ComputeSdk:
    """Compute Engine's methods by their SDK names.

    Thread-safe.
    """

    def __init__(self, google: GoogleApi) -> None:
        self._google = google
        self._lock = threading.Lock()
        self._clients: dict[str, Any] = {}
        self._asking = threading.local()

    def ask(
        self,
        client: str,
        method: str,
        request: str,
        fields: Mapping[str, object],
        *,
        deadline: Deadline,
        act: bool = False,
        repair: Callable[[bytes], Any] | None = None,
    ) -> Any:  # noqa: ANN401 - a message of the SDK
        """Return the SDK's answer to `method` of `client` with a `request` of `fields`, of a list one page.

        `repair`: makes an answer of a body that the SDK refuses; None: it is an error. Raises a ProviderError.
        """
        caller = self._get_client(client)
        message = getattr(self.import_sdk(), request)(**fields)
        now = self._asking.now = _CurrentRequest(str(fields["project"]), deadline, act=act)
        try:
            answer = getattr(caller, method)(request=message, retry=None, timeout=max(deadline.compute_left(), 0.001))
            return next(iter(answer.pages)) if hasattr(answer, "pages") else answer
        except ProviderError:
            raise
        except Exception as odd:  # protobuf has an error of its own, and raises others
            if now.body is None:
                raise
            if repair is not None:
                return repair(now.body)
            raise explain_odd_body(now.body, odd) from None

    def import_sdk(self) -> Any:  # noqa: ANN401 - a module of 3,000 classes
        """Return `google.cloud.compute_v1`; raises RefusedError if it is not installed."""
        try:
            from google.cloud import compute_v1
        except ImportError:
            raise RefusedError("needs google-cloud-compute, which is not installed", provider="gcp", hint=INSTALL) from None
        return compute_v1

    def _get_client(self, name: str) -> Any:  # noqa: ANN401 - a client of the SDK
        with self._lock:
            if name not in self._clients:
                self._clients[name] = self._make_client(name)
            return self._clients[name]

    def _make_client(self, name: str) -> Any:  # noqa: ANN401 - a client of the SDK
        client = getattr(self.import_sdk(), name)
        from google.auth.credentials import AnonymousCredentials

        rest, place = client.get_transport_class("rest"), urlsplit(self._google.get_base_url(COMPUTE))
        adapter = _make_adapter(self._google, self._asking)

        class ChannelTransport(rest):  # type: ignore[misc,valid-type]
            """The SDK's own REST transport, whose `requests` session sends over a channel."""

            def __init__(self) -> None:
                nobody = AnonymousCredentials()  # type: ignore[no-untyped-call]
                super().__init__(credentials=nobody, host=place.netloc, url_scheme=place.scheme)
                for scheme in ("https://", "http://"):
                    self._session.mount(scheme, adapter)

        return client(transport=ChannelTransport())


class _CurrentRequest:
    """The current thread's request, and the body of its reply."""

    def __init__(self, project: str, deadline: Deadline, *, act: bool) -> None:
        self.project, self.deadline, self.act = project, deadline, act
        self.body: bytes | None = None


def explain_odd_body(body: bytes, odd: Exception) -> InvalidAnswerError:
    """Return the error of an answer that the SDK refuses, without what stands in it."""
    what = "is a web page, not JSON" if body[:64].lstrip()[:1] == b"<" else f"cannot be read ({shorten(type(odd).__name__)})"
    return InvalidAnswerError(f"the answer {what}", provider="gcp", status=200)


def _make_adapter(google: GoogleApi, asking: threading.local) -> Any:  # noqa: ANN401 - made here so that `requests` is imported late
    import requests
    from requests.adapters import BaseAdapter

    class ChannelAdapter(BaseAdapter):
        """Sends the SDK's `requests` over a channel."""

        def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:  # noqa: ANN401 - proxies and certificates are costguard's business
            now: _CurrentRequest = asking.now
            reply = google.ask(COMPUTE, now.project, _to_transport_request(request), deadline=now.deadline, act=now.act)
            answer = requests.Response()
            answer.status_code, answer.url, answer.request = reply.status, request.url or "", request
            answer.raw = io.BytesIO(reply.body)
            now.body = reply.body
            return answer

        def close(self) -> None:
            """Do nothing: the adapter does not own the channel."""

    return ChannelAdapter()


def _to_transport_request(request: requests.PreparedRequest) -> HttpRequest:
    """Return the SDK's request in the transport's form, without the headers of the connection."""
    body = request.body.encode() if isinstance(request.body, str) else request.body or b""
    headers = {
        k: v for k, v in request.headers.items() if k.lower() in ("content-type", "x-goog-api-client", "x-goog-request-params")
    }
    http_request = HttpRequest(
        method=request.method or "GET",
        url=request.url or "",
        headers={k: v.decode() if isinstance(v, bytes) else v for k, v in headers.items()},
        body=bytes(body) if isinstance(body, bytes | bytearray) else b"",
    )
    return (
        replace(http_request, url=_add_partial_success(http_request.url))
        if "/aggregated/" in http_request.url
        else http_request
    )


def _add_partial_success(url: str) -> str:
    """Add `returnPartialSuccess`, so that one failed zone does not fail the whole listing.

    This SDK release has no field for it.
    """
    if "returnPartialSuccess" in url:
        return url
    return f"{url}{'&' if urlsplit(url).query else '?'}returnPartialSuccess=true"
