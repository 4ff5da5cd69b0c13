"""google-cloud-compute, spoken over costguard's own transport.

The SDK knows the addresses, parameters and names of Compute Engine; it is imported at the first question (2 s and 150 MB).
Its HTTP is an adapter of `requests` that hands every request to a Channel: so deadlines, byte caps, buckets, circuits and TLS
are costguard's, and its own retries (600 s) never run. Answers are read here and not by the SDK, which loses a whole page of
500 machines over one odd field, and takes longer over the rest.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from costguard.errors import RefusedError
from costguard.providers.transport import Deadline, HttpRequest, HttpResponse
from costguard_gcp.api import COMPUTE, GoogleApi

if TYPE_CHECKING:
    import requests

INSTALL = "pip install 'gpu-costguard[gcp]'"
PAGE = 500
"""The largest page of an aggregated list (gcp.md, section 1)."""


class ComputeSdk:
    """Compute Engine's methods by their SDK names. Asked from several threads at once."""

    def __init__(self, google: GoogleApi) -> None:
        self._google = google
        self._lock = threading.Lock()
        self._clients: dict[str, Any] = {}
        self._asking = threading.local()

    def ask(
        self, client: str, method: str, request: str, fields: Mapping[str, object], *, deadline: Deadline, act: bool = False
    ) -> HttpResponse:
        """The good reply to `method` of `client` with a `request` of `fields`; ProviderError says why there is none."""
        caller = self._get_client(client)
        message = getattr(self._import_sdk(), request)(**fields)
        self._asking.now = _CurrentRequest(str(fields["project"]), deadline, act=act)
        getattr(caller, method)(request=message, retry=None, timeout=max(deadline.compute_left(), 0.001))
        reply: HttpResponse = self._asking.now.reply
        return reply

    def has_field(self, request: str, field: str) -> bool:
        """Whether this release of the SDK has `field` in `request`."""
        return field in getattr(self._import_sdk(), request).meta.fields

    def _import_sdk(self) -> Any:  # noqa: ANN401 - a module of 3,000 classes
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
        sdk = self._import_sdk()
        from google.api_core.client_options import ClientOptions
        from google.auth.credentials import AnonymousCredentials

        options = ClientOptions(api_endpoint=self._google.get_base_url(COMPUTE))
        nobody = AnonymousCredentials()  # type: ignore[no-untyped-call]
        made = getattr(sdk, name)(credentials=nobody, client_options=options)
        session = made.transport._session  # noqa: SLF001 - the SDK has no public way to its HTTP
        for scheme in ("https://", "http://"):
            session.mount(scheme, _make_adapter(self._google, self._asking))
        return made


class _CurrentRequest:
    """What the thread is asking, and what came back."""

    def __init__(self, project: str, deadline: Deadline, *, act: bool) -> None:
        self.project, self.deadline, self.act = project, deadline, act
        self.reply: HttpResponse | None = None


def _make_adapter(google: GoogleApi, asking: threading.local) -> Any:  # noqa: ANN401 - made here so that `requests` is imported late
    import requests
    from requests.adapters import BaseAdapter

    class ChannelAdapter(BaseAdapter):
        """`requests` over a Channel. It answers the SDK with an empty object, and keeps the reply for whoever asked."""

        def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:  # noqa: ANN401 - proxies and certificates are costguard's business
            now: _CurrentRequest = asking.now
            now.reply = google.ask(COMPUTE, now.project, _to_transport_request(request), deadline=now.deadline, act=now.act)
            answer = requests.Response()
            answer.status_code, answer.url, answer.request = 200, request.url or "", request
            answer._content = b"{}"  # noqa: SLF001 - as the library's own test doubles do
            return answer

        def close(self) -> None:
            """The channel is not this adapter's to close."""

    return ChannelAdapter()


def _to_transport_request(request: requests.PreparedRequest) -> HttpRequest:
    """The SDK's request as costguard sends it, without the headers that are the connection's own."""
    body = request.body.encode() if isinstance(request.body, str) else request.body or b""
    kept = {
        k: v for k, v in request.headers.items() if k.lower() in ("content-type", "x-goog-api-client", "x-goog-request-params")
    }
    made = HttpRequest(
        method=request.method or "GET",
        url=request.url or "",
        headers={k: v.decode() if isinstance(v, bytes) else v for k, v in kept.items()},
        body=bytes(body) if isinstance(body, bytes | bytearray) else b"",
    )
    return replace(made, url=_add_partial_success(made.url)) if "/aggregated/" in made.url else made


def _add_partial_success(url: str) -> str:
    """One dead zone must not fail the listing of all. This release of the SDK has no field for what REST has long had."""
    if "returnPartialSuccess" in url:
        return url
    return f"{url}{'&' if urlsplit(url).query else '?'}returnPartialSuccess=true"
