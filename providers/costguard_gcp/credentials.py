"""Google's application default credentials, and the tokens made from them.

They are searched in Google's own order: the file of the settings, GOOGLE_APPLICATION_CREDENTIALS, gcloud's file, the machine's
metadata server. google-auth is imported when the first token is needed; its requests go through costguard's transport, except
those to the metadata server, which uses plain http on an address that never leaves the machine.
"""

from __future__ import annotations

import json
import re
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costguard.errors import CredentialsError, ExposedError, ProviderError, UnreachableError
from costguard.providers.transport import Deadline, HttpRequest, ProviderContext, Secret, Transport
from costguard.system.clock import read_monotonic
from costguard.system.file_security import describe_exposure
from costguard.system.input_file import read_input_file

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
FIX = "run: gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS to a credentials file"
FAILED_FOR_S = 60.0
"""Seconds for which credentials that could not be renewed are not tried again: the metadata server is slow to be absent."""
SPARE_S = 20.0
LOGIN_BYTES_MAX = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """The place of the credentials.

    `file`: None for the machine's metadata server. `impersonate`: a service account, "" for none.
    """

    source: str
    file: Path | None = None
    impersonate: str = ""
    anonymous: bool = False


def find_login(table: Mapping[str, object], around: ProviderContext) -> Login:
    """Return the login of the settings and the environment; raises CredentialsError if there is none."""
    impersonate = str(table.get("impersonate") or "")
    if table.get("anonymous"):
        return Login(source="anonymous", anonymous=True)
    credentials_file = table.get("credentials_file")
    if credentials_file:
        return _read_login_file(Path(str(credentials_file)).expanduser(), "[providers.gcp] credentials_file", impersonate)
    environ = around.environ
    if environ_file := environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
        return _read_login_file(Path(environ_file).expanduser(), "GOOGLE_APPLICATION_CREDENTIALS", impersonate)
    folder = Path(environ["CLOUDSDK_CONFIG"]) if environ.get("CLOUDSDK_CONFIG") else around.home / ".config" / "gcloud"
    own = folder / "application_default_credentials.json"
    if own.is_file():
        return _read_login_file(own, "gcloud's own file", impersonate)
    if environ.get("NO_GCE_CHECK", "").lower() == "true":
        what = f"has no credentials: looked at GOOGLE_APPLICATION_CREDENTIALS and {own}"
        raise CredentialsError(what, provider="gcp", hint=FIX)
    return Login(source="the machine's metadata server", impersonate=impersonate)


def _read_login_file(path: Path, source: str, impersonate: str) -> Login:
    if not path.is_file():
        raise CredentialsError(f"has no credentials: {source} names {path}, which is not a file", provider="gcp", hint=FIX)
    if others := describe_exposure(path):
        raise ExposedError(f"the credentials file {path} {others}", provider="gcp", hint=f"chmod 600 '{path}'")
    return Login(source=f"{source} ({path})", file=path, impersonate=impersonate)


class TokenSource:
    """Bearer tokens of one login, renewed before they expire.

    Thread-safe.
    """

    def __init__(self, login: Login, transport: Transport) -> None:
        self.login = login
        self._transport = transport
        self._lock = threading.Lock()
        self._credentials: Any = None
        self._token = ""
        self._broken: tuple[float, str] | None = None

    def build_header(self, deadline: Deadline) -> dict[str, str]:
        """Return the authorization header, none for an anonymous login; raises a ProviderError if there is no token."""
        if self.login.anonymous:
            return {}
        with self._lock:
            if self._broken and read_monotonic() < self._broken[0] + FAILED_FOR_S:
                raise CredentialsError(self._broken[1], provider="gcp", hint=FIX)
            return {"Authorization": f"Bearer {self._get_token(deadline)}"}

    def forget(self) -> None:
        """Drop a refused token, so that the next request makes a new one."""
        with self._lock:
            if self._credentials is not None:
                self._credentials.token = None

    def list_secrets(self) -> tuple[Secret, ...]:
        """Return the secrets that must not be shown."""
        return (Secret(self._token),) if self._token else ()

    def read_hint(self) -> str:
        """Return the last characters of the current token."""
        return Secret(self._token).get_hint() if self._token else ""

    @property
    def who(self) -> str:
        """The service account of the credentials; "" if they do not name one."""
        return str(getattr(self._credentials, "service_account_email", "") or "")

    def _get_token(self, deadline: Deadline) -> str:
        """Return a valid token; call it with the lock held."""
        try:
            if self._credentials is None:
                self._credentials = self._load_credentials()
            if not self._credentials.valid:
                self._credentials.refresh(self._make_requester(deadline))
        except ProviderError:
            raise
        except Exception as broken:  # noqa: BLE001 - google-auth has many kinds of credentials, each with errors of its own
            raise self._explain_failure(broken) from None
        self._broken, self._token = None, str(self._credentials.token)
        return self._token

    def _explain_failure(self, broken: Exception) -> ProviderError:
        """Return an error that shows only OAuth's code: google-auth's messages may contain tokens and whole answers."""
        from google.auth import exceptions

        if isinstance(broken, exceptions.TransportError):
            if self.login.file is None:
                what = "has no credentials: no file, and no metadata server"
                self._broken = (read_monotonic(), what)
                return CredentialsError(what, provider="gcp", hint=FIX)
            return UnreachableError("Google's token service cannot be reached", provider="gcp")
        code = _OAUTH.search(str(broken))
        what = f"credentials of {self.login.source} cannot be used ({code[0] if code else type(broken).__name__})"
        self._broken = (read_monotonic(), what)
        return CredentialsError(what, provider="gcp", hint=FIX)

    def _make_requester(self, deadline: Deadline) -> Any:  # noqa: ANN401 - a google.auth.transport.Request of either kind
        if self.login.file is not None:
            return TransportRequest(self._transport, deadline)
        from google.auth.transport.requests import Request as Plain

        return Plain(session=_open_plain_session())

    def _load_credentials(self) -> Any:  # noqa: ANN401 - one of google-auth's many kinds
        credentials = _load_machine_credentials() if self.login.file is None else _load_file_credentials(self.login.file)
        if not self.login.impersonate:
            return credentials
        from google.auth import impersonated_credentials

        return impersonated_credentials.Credentials(  # type: ignore[no-untyped-call]
            source_credentials=credentials, target_principal=self.login.impersonate, target_scopes=[SCOPE]
        )


def _open_plain_session() -> Any:  # noqa: ANN401 - requests has no types here
    """Return a session that ignores the environment: a proxy of HTTP_PROXY would receive the machine's token unencrypted."""
    import requests

    session = requests.Session()
    session.trust_env = False
    return session


def _load_machine_credentials() -> Any:  # noqa: ANN401 - google-auth has no types
    from google.auth import compute_engine

    return compute_engine.Credentials(scopes=[SCOPE])  # type: ignore[no-untyped-call]


def _load_file_credentials(path: Path) -> Any:  # noqa: ANN401 - google-auth has no types
    import google.auth

    try:
        data = json.loads(read_input_file(path, LOGIN_BYTES_MAX))
        kind = data.get("type") if isinstance(data, dict) else None
    except (OSError, ValueError):
        kind = None
    if kind not in _KINDS:
        raise CredentialsError(f"credentials file {path} is not a Google credentials file", provider="gcp", hint=FIX)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it warns of files of unknown origin; this one is the user's own
        credentials, _ = google.auth.load_credentials_from_dict(data, scopes=[SCOPE])  # type: ignore[no-untyped-call]
    return credentials


_KINDS = ("service_account", "authorized_user", "external_account", "impersonated_service_account")
"""Not gdch, and not external_account_authorized_user, which google-auth's documentation marks as of workforce pools."""
_OAUTH = re.compile(r"\b(invalid_(?:grant|client|scope|request|target)|unauthorized_client|access_denied)\b")


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer in the form that google-auth reads."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class TransportRequest:
    """A `google.auth.transport.Request` over costguard's transport: with a deadline, a size limit and verified TLS."""

    def __init__(self, transport: Transport, deadline: Deadline) -> None:
        self._transport, self._deadline = transport, deadline

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **_more: object,
    ) -> _Answer:
        """Send one request."""
        data = body.encode() if isinstance(body, str) else body or b""
        request = HttpRequest(method=method, url=url, headers=dict(headers or {}), body=data)
        deadline = self._deadline.limit_to(min(timeout or SPARE_S, SPARE_S))
        reply = self._transport.exchange(request, provider="gcp", deadline=deadline, most_bytes=2**20)
        return _Answer(reply.status, reply.headers, reply.body)
