"""Tokens for the Azure Resource Manager: by a service principal's secret, else by azure-identity.

A secret in the environment is exchanged with one request over costguard's transport (OAuth 2.0 client credentials,
learn.microsoft.com, 2026-11). Everything else is azure-identity's: workload identity, managed identity, `az login`. It is
imported when the first such token is needed, and its requests are its own.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from costguard.errors import CredentialsError, ProviderError, UnreachableError
from costguard.providers.transport import Deadline, HttpRequest, Secret, Transport
from costguard.system.clock import read_monotonic

SCOPE = "https://management.azure.com/.default"
FIX = "run: az login, or set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET"
FAILED_FOR_S = 60.0
"""Seconds for which credentials that gave no token are not tried again: Entra ID locks out after repeated failures."""
EARLY_S = 300.0
"""Seconds before its end at which a token is renewed; azure-identity does the same (1.27.0)."""
LONGEST_TOKEN_S = 24 * 3600.0
SPARE_S = 20.0
MOST_BYTES = 2**20
UNAVAILABLE = 500
_TENANT = re.compile(r"[A-Za-z0-9.-]{1,128}")
_OAUTH = re.compile(r"[a-z_]{1,60}")
_AADSTS = re.compile(r"AADSTS\d{4,9}")
MEANINGS = {
    "AADSTS90002": "there is no such tenant: AZURE_TENANT_ID is wrong",
    "AADSTS900023": "AZURE_TENANT_ID is not a tenant",
    "AADSTS700016": "the tenant has no such application: AZURE_CLIENT_ID or AZURE_TENANT_ID is wrong",
    "AADSTS7000215": "AZURE_CLIENT_SECRET is wrong (it is the secret's value, not its id)",
    "AADSTS7000222": "AZURE_CLIENT_SECRET has expired",
}
"""Entra ID's error numbers (learn.microsoft.com, reference-error-codes; from memory, 2026-12)."""


class TokenAnswer(msgspec.Struct, frozen=True):
    """Entra ID's answer. `expires_in`: seconds."""

    access_token: str
    expires_in: int | str = 0


class TokenRefusal(msgspec.Struct, frozen=True):
    """Its refusal, of which only the codes are shown."""

    error: str = ""
    error_description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A service principal's tenant, id and secret; without them azure-identity is asked."""

    source: str
    tenant: str = ""
    client: str = ""
    secret: Secret | None = field(default=None, repr=False)


def find_login(environ: Mapping[str, str]) -> Login:
    """Return the login of the environment; raises CredentialsError if a secret stands there without its tenant or id."""
    names = ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET")
    tenant, client, secret = (environ.get(name, "").strip() for name in names)
    if not secret:
        return Login(source="azure-identity")
    if not client or not _TENANT.fullmatch(tenant):
        missing = "AZURE_CLIENT_ID" if not client else "AZURE_TENANT_ID"
        what = f"AZURE_CLIENT_SECRET is set, and {missing} is missing or not readable"
        raise CredentialsError(what, provider="azure", hint=f"export {missing}=..., of the same service principal")
    return Login(source="AZURE_CLIENT_SECRET", tenant=tenant, client=client, secret=Secret(secret))


class TokenSource:
    """Bearer tokens of one login, renewed before they expire. Thread-safe."""

    def __init__(self, login: Login, transport: Transport, base: str) -> None:
        self.login, self._transport, self._base = login, transport, base
        self._lock = threading.Lock()
        self._token = Secret("")
        self._until = 0.0
        self._broken: tuple[float, str] | None = None
        self._identity: Any = None

    def build_header(self, deadline: Deadline) -> dict[str, str]:
        """Return the authorization header; raises a ProviderError if there is no token."""
        with self._lock:
            now = read_monotonic()
            if now >= self._until:
                if self._broken and now < self._broken[0] + FAILED_FOR_S:
                    raise CredentialsError(self._broken[1], provider="azure", hint=FIX)
                self._renew(deadline)
            return {"Authorization": f"Bearer {self._token.reveal()}"}

    def forget(self) -> None:
        """Drop a refused token, so that the next request makes a new one."""
        with self._lock:
            self._until = 0.0

    def list_secrets(self) -> tuple[Secret, ...]:
        """Return the secrets that must not be shown."""
        return tuple(one for one in (self._token, self.login.secret) if one is not None and one.reveal())

    def read_hint(self) -> str:
        """Return the last characters of the secret, or of the token if there is none."""
        return (self.login.secret or self._token).get_hint()

    def _renew(self, deadline: Deadline) -> None:
        try:
            token, lasts_s = self._exchange(deadline) if self.login.secret else self._ask_identity()
        except CredentialsError as refused:
            self._broken = (read_monotonic(), refused.what)
            raise
        self._broken, self._token = None, Secret(token)
        self._until = read_monotonic() + max(1.0, min(lasts_s, LONGEST_TOKEN_S) - EARLY_S)

    def _exchange(self, deadline: Deadline) -> tuple[str, float]:
        """Return a token for the secret, and the seconds that it lasts."""
        login = self.login
        form = {"grant_type": "client_credentials", "client_id": login.client, "scope": SCOPE}
        secret = login.secret.reveal() if login.secret else ""
        request = HttpRequest(
            method="POST",
            url=f"{self._base}/{quote(login.tenant, safe='')}/oauth2/v2.0/token",
            headers={"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"},
            body=urlencode({**form, "client_secret": secret}).encode(),
        )
        limited = deadline.limit_to(SPARE_S)
        reply = self._transport.exchange(request, provider="azure", deadline=limited, most_bytes=MOST_BYTES)
        try:
            if reply.status == 200:  # noqa: PLR2004 - HTTP's own number
                answer = msgspec.json.decode(reply.body, type=TokenAnswer)
                if answer.access_token.isascii() and answer.access_token.isprintable() and answer.access_token:
                    return answer.access_token, _read_seconds(answer.expires_in)
            refusal = msgspec.json.decode(reply.body, type=TokenRefusal)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            refusal = TokenRefusal()
        if reply.status >= UNAVAILABLE or reply.status in (200, 408, 429) or not refusal.error:
            raise UnreachableError(f"Entra ID gave no usable answer ({reply.status})", provider="azure", status=reply.status)
        raise _explain_refusal(refusal)

    def _ask_identity(self) -> tuple[str, float]:
        """Return a token of azure-identity, and the seconds that it lasts; its messages may hold answers, so none is shown."""
        try:
            from azure.identity import CredentialUnavailableError, DefaultAzureCredential
        except ImportError:
            what = "azure-identity is not installed, and AZURE_CLIENT_SECRET is not set"
            raise CredentialsError(what, provider="azure", hint="pip install '.[azure]'") from None
        from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError, ServiceResponseError

        try:
            if self._identity is None:
                self._identity = DefaultAzureCredential(exclude_interactive_browser_credential=True)
            token = self._identity.get_token_info(SCOPE)
        except (ServiceRequestError, ServiceResponseError):
            raise UnreachableError("Entra ID cannot be reached", provider="azure") from None
        except (CredentialUnavailableError, ClientAuthenticationError) as refused:
            code = _AADSTS.search(str(refused))
            what = f"azure-identity has no usable credentials ({code[0] if code else type(refused).__name__})"
            raise CredentialsError(what, provider="azure", hint=FIX) from None
        except Exception as broken:  # noqa: BLE001 - each kind of credential has errors of its own
            what = f"azure-identity failed ({type(broken).__name__})"
            raise CredentialsError(what, provider="azure", hint=FIX) from None
        from time import time

        return str(token.token), max(0.0, token.expires_on - time())


def _read_seconds(value: int | str) -> float:
    text = str(value)
    return float(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0.0  # noqa: PLR2004 - 30 years


def _explain_refusal(refusal: TokenRefusal) -> ProviderError:
    code = _AADSTS.search(refusal.error_description)
    oauth = refusal.error if _OAUTH.fullmatch(refusal.error) else "refused"
    shown = ", ".join(filter(None, (oauth, code[0] if code else "")))
    meaning = MEANINGS.get(code[0], "") if code else ""
    what = f"Entra ID refused the service principal ({shown}){f': {meaning}' if meaning else ''}"
    return CredentialsError(what, provider="azure", hint=FIX)
