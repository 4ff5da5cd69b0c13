"""Logins at an identity provider: OpenID Connect 1.0 by the authorization code flow with PKCE, state and nonce.

    server: begin_login -> the provider's page -> its redirect, with a code
    watchdog:                                     finish_login: code to ID token, checked -> claims

What a login needs to remember is in one cookie of the browser that began it: a random secret, from which state, nonce and the
verifier of PKCE are derived. So the server keeps nothing that a stranger could fill up, and an answer counts only in that
browser. Whatever comes from the provider has a bound of bytes and time; only https is asked (plain http on this machine, for
tests), and no redirect is followed. authlib and joserfc check the ID token (decision 0082).
"""

from __future__ import annotations

import hmac
import secrets
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from threading import Lock
from time import monotonic
from typing import NamedTuple, TypeVar
from urllib.parse import quote, unquote, urlencode

import msgspec
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from authlib.oidc.core.claims import CodeIDToken
from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, JWKRegistry, OctKey, OKPKey, RSAKey

from costguard.errors import CostguardError, InputError, NoAnswerError, to_one_line
from costguard.providers.transport.client import Deadline, HttpRequest, HttpResponse, Transport, check_url
from costguard.services.poll.configured_providers import open_transport
from costguard.settings import Settings
from costguard.settings.sections import OidcSettings
from costguard.settings.web import CALLBACK_PATH, read_client_secret, resolve_web_address

ANSWERS_WITHIN_S, LOGIN_WITHIN_S = 10.0, 600.0
"""Seconds for all that one request of a browser has the provider asked, and for a person at the provider's page."""
DISCOVERY_LASTS_S, KEYS_LAST_S, KEYS_AGAIN_S, FAILURE_LASTS_S = 3600.0, 3600.0, 30.0, 5.0
"""How long both are kept; how soon keys are read again if none verifies a token; how long a failure counts as an answer."""
ANSWER_BYTES, TOKEN_BYTES = 64 * 1024, 16 * 1024
KEYS_MAX, KEYS_TRIED_MAX = 40, 4
RSA_BITS = range(2048, 8193)
"""Shorter ones are refused by RFC 7518, 3.3; longer ones only cost time."""
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures by a key that the provider alone has: neither `none` nor HS256, whose key could be the public one."""
LEEWAY_S = 60
"""Seconds by which the provider's clock may differ from ours."""
USED_MAX = 10_000
LOGINS_MAX, BETWEEN_LOGINS = 2, "|"
"""Logins of one browser that are under way: a browser keeps 4,096 bytes of a cookie, and a page's address takes up to 1,500."""
WELL_KNOWN = "/.well-known/openid-configuration"
WHO = "the identity provider"
AGAIN = "open the page and log in again"


T = TypeVar("T")


class LoginStart(NamedTuple):
    """`url`: the provider's page. `cookie`: what the browser brings back."""

    url: str
    cookie: str


class _Discovery(msgspec.Struct, frozen=True):
    """What is used of OpenID Connect Discovery 1.0, 3."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    end_session_endpoint: str = ""
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    authorization_response_iss_parameter_supported: bool = False


class _Keys(msgspec.Struct, frozen=True):
    keys: list[dict[str, object]]


class _TokenAnswer(msgspec.Struct, frozen=True):
    id_token: str = ""
    access_token: str = ""


class _LoginCookie(NamedTuple):
    """What the cookie of a login holds. `back`: the page that was asked for."""

    secret: str
    at_s: int
    back: str

    def derive(self, use: str) -> str:
        """Return the value for `use`: state, nonce, or verifier of PKCE (43 to 128 characters of RFC 7636, 4.1)."""
        return hmac.new(self.secret.encode(), f"{use} {self.at_s} {self.back}".encode(), sha256).hexdigest()


@dataclass(slots=True, kw_only=True)
class OidcClient:
    """The identity provider of the settings. Several threads may use it; what it is asked blocks the thread that asks.

    `address`: the URL that browsers reach the pages at. `callback`: the URL that the provider sends them back to.
    """

    settings: OidcSettings
    callback: str
    transport: Transport
    clock: Callable[[], datetime]
    _discovery: tuple[float, _Discovery] | None = None
    _keys: tuple[float, tuple[dict[str, object], ...]] | None = None
    _failed: tuple[float, str] | None = None
    _used: OrderedDict[str, None] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def begin_login(self, back: str, cookie: str = "") -> LoginStart:
        """Return where the browser goes. `back`: the page of ours that it comes back to; "/" if it is none.

        `cookie`: what the browser brought: logins that it began in other tabs, of which the newest stay valid.
        Raises NoAnswerError if the provider does not say where its page is.
        """
        discovery = self._discover(Deadline(ANSWERS_WITHIN_S))
        login = _LoginCookie(secrets.token_urlsafe(32), int(self.clock().timestamp()), choose_way_back(back))
        url = prepare_grant_uri(
            discovery.authorization_endpoint,
            self.settings.client_id,
            "code",
            redirect_uri=self.callback,
            scope=" ".join(self.settings.scopes),
            state=login.derive("state"),
            nonce=login.derive("nonce"),
            code_challenge=create_s256_code_challenge(login.derive("verifier")),
            code_challenge_method="S256",
        )
        logins = [f"{login.secret}.{login.at_s}.{quote(login.back, safe='')}", *cookie.split(BETWEEN_LOGINS)][:LOGINS_MAX]
        return LoginStart(url, BETWEEN_LOGINS.join(filter(None, logins)))

    def finish_login(self, cookie: str, query: Mapping[str, str]) -> tuple[dict[str, object], str]:
        """Return the claims of who logged in, and the page to go back to. `query`: of the provider's redirect.

        Raises NoAnswerError, with what to do, for whatever is not the answer to a login of this browser.
        """
        login = self._match_login(cookie, query)
        if query.get("error"):
            raise _refuse(f"answered: {to_one_line(query['error'])[:80]}")
        if not query.get("code"):
            raise _refuse("sent no code")
        deadline = Deadline(ANSWERS_WITHIN_S)
        discovery = self._discover(deadline)
        issuer = query.get("iss", "")
        if issuer != self.settings.issuer and (issuer or discovery.authorization_response_iss_parameter_supported):
            raise _refuse("answered for a different issuer")  # RFC 9207, 2.4: mix-up
        answer = self._exchange_code(discovery, login, query["code"], deadline)
        return self._check_token(discovery, login, answer, deadline), login.back

    def find_logout_url(self) -> str:
        """Return the provider's own page to log out, as far as it was read already; "" if there is none."""
        logout_endpoint = self._discovery[1].end_session_endpoint if self._discovery else ""
        return f"{logout_endpoint}?{urlencode({'client_id': self.settings.client_id})}" if logout_endpoint else ""

    def _match_login(self, cookie: str, query: Mapping[str, str]) -> _LoginCookie:
        """Return the login of this browser that the answer belongs to, which then counts as used."""
        login = next(iter(_split_cookie(cookie, query.get("state", ""))[0]), None)
        if login is None:
            raise NoAnswerError("does not belong to a login of this browser", field="this answer", hint=AGAIN)
        if not -LEEWAY_S <= self.clock().timestamp() - login.at_s <= LOGIN_WITHIN_S:
            raise NoAnswerError("arrived too late", field="this answer", hint=AGAIN)
        mark = sha256(login.secret.encode()).hexdigest()
        with self._lock:
            if mark in self._used:
                raise NoAnswerError("was used already", field="this answer", hint=AGAIN)
            self._used[mark] = None
            while len(self._used) > USED_MAX:
                self._used.popitem(last=False)
        return login

    def _exchange_code(self, discovery: _Discovery, login: _LoginCookie, code: str, deadline: Deadline) -> _TokenAnswer:
        """Return the tokens for `code`. Asked once: a code is valid once."""
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.callback,
            "code_verifier": login.derive("verifier"),
            "client_id": self.settings.client_id,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        secret = read_client_secret(self.settings)
        methods = discovery.token_endpoint_auth_methods_supported
        if secret and "client_secret_basic" not in methods and "client_secret_post" in methods:
            fields["client_secret"] = secret
        elif secret:
            pair = f"{quote(self.settings.client_id, safe='')}:{quote(secret, safe='')}"  # RFC 6749, 2.3.1
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        body = urlencode(fields).encode()
        return self._ask(
            HttpRequest(method="POST", url=discovery.token_endpoint, headers=headers, body=body), _TokenAnswer, deadline
        )

    def _check_token(
        self, discovery: _Discovery, login: _LoginCookie, answer: _TokenAnswer, deadline: Deadline
    ) -> dict[str, object]:
        """Return the claims of the ID token. Raises NoAnswerError unless it is this provider's, for us and for `login`."""
        if not answer.id_token or len(answer.id_token) > TOKEN_BYTES:
            raise _refuse("sent no ID token, or one of more than 16 KiB")
        try:
            header = jws.extract_compact(answer.id_token.encode()).headers()
            token = self._verify(answer.id_token, header, discovery, deadline)
            claims = CodeIDToken(
                token.claims,
                header,
                options={
                    "iss": {"essential": True, "value": self.settings.issuer},
                    "aud": {"essential": True, "value": self.settings.client_id},
                },
                params={
                    "nonce": login.derive("nonce"),
                    "client_id": self.settings.client_id,
                    "access_token": answer.access_token,
                },
            )
            claims.validate(int(self.clock().timestamp()), LEEWAY_S)
        except (JoseError, ValueError, TypeError, RecursionError) as error:
            raise _refuse(f"sent an invalid ID token ({to_one_line(str(error))[:120]})") from None
        return dict(claims)

    def _verify(self, token: str, header: Mapping[str, object], discovery: _Discovery, deadline: Deadline) -> jwt.Token:
        """Return the token, whose signature one of the provider's keys made."""
        if header.get("alg") not in ALGORITHMS:
            raise _refuse("signs its ID tokens with an unsupported algorithm")
        for renew in (False, True):  # it may have new keys, also under a `kid` that is known
            for key in _choose_keys(self._read_keys(discovery, deadline, renew=renew), header):
                with suppress(JoseError):
                    return jwt.decode(token, key, algorithms=[str(header["alg"])])
        raise _refuse("did not sign the ID token with a key that it publishes")

    def _discover(self, deadline: Deadline) -> _Discovery:
        with self._lock:
            cache_entry = self._discovery
            if cache_entry is not None and monotonic() - cache_entry[0] < DISCOVERY_LASTS_S:
                return cache_entry[1]
            if self._failed is not None and monotonic() - self._failed[0] < FAILURE_LASTS_S:
                raise NoAnswerError(self._failed[1], field=WHO, hint="try again in a minute, or use a one-time link")
        try:
            discovery = self._ask(
                HttpRequest(method="GET", url=self.settings.issuer.rstrip("/") + WELL_KNOWN), _Discovery, deadline
            )
            _check_discovery(discovery, self.settings.issuer)
        except NoAnswerError as error:
            self._failed = (monotonic(), error.what)
            raise
        self._discovery = (monotonic(), discovery)
        return discovery

    def _read_keys(self, discovery: _Discovery, deadline: Deadline, *, renew: bool = False) -> tuple[dict[str, object], ...]:
        cache_entry = self._keys
        if cache_entry is not None and monotonic() - cache_entry[0] < (KEYS_AGAIN_S if renew else KEYS_LAST_S):
            return cache_entry[1]
        read = self._ask(HttpRequest(method="GET", url=discovery.jwks_uri), _Keys, deadline).keys
        self._keys = (monotonic(), tuple(read[:KEYS_MAX]))
        return self._keys[1]

    def _ask(self, request: HttpRequest, kind: type[T], deadline: Deadline) -> T:
        """Return the answer of the provider as `kind`. Raises NoAnswerError if there is none."""
        try:
            reply: HttpResponse = self.transport.exchange(request, provider=WHO, deadline=deadline, most_bytes=ANSWER_BYTES)
        except CostguardError as error:
            raise _refuse(f"cannot be queried: {to_one_line(str(error).partition(chr(10))[0])}") from None
        if reply.status != 200:  # noqa: PLR2004 - HTTP's
            raise _refuse(f"answered {reply.status} at {request.place}")
        try:
            return msgspec.json.decode(reply.body, type=kind)
        except (msgspec.DecodeError, RecursionError):
            raise _refuse(f"sent an unexpected response at {request.place}") from None


def open_oidc_client(settings: Settings, clock: Callable[[], datetime]) -> OidcClient | None:
    """Return the identity provider of the settings; None without [web.oidc]. Nothing is asked yet."""
    if settings.web.oidc is None:
        return None
    callback = f"{resolve_web_address(settings.web)}{CALLBACK_PATH}"
    return OidcClient(settings=settings.web.oidc, callback=callback, transport=open_transport(settings), clock=clock)


def choose_way_back(path: str) -> str:
    """Return `path` if it is one of this server's pages, else "/": nobody is sent to another place by a link to log in.

    >>> [choose_way_back(one) for one in ("/log?since=7d", "//evil.example", "https://evil.example")]
    ['/log?since=7d', '/', '/']
    """
    plain = path.isascii() and path.isprintable() and not set(" \\\"'<>") & set(path) and len(path) <= 500  # noqa: PLR2004
    return path if plain and path.startswith("/") and not path.startswith(("//", "/oidc/", "/login/", "/logout")) else "/"


def _refuse(what: str) -> NoAnswerError:
    return NoAnswerError(what, field=WHO, hint=AGAIN)


def drop_login(cookie: str, state: str) -> str:
    """Return `cookie` without the login that an answer with this `state` belongs to."""
    return BETWEEN_LOGINS.join(_split_cookie(cookie, state)[1])


def _split_cookie(cookie: str, state: str) -> tuple[list[_LoginCookie], list[str]]:
    """Return the login that `state` belongs to, and the texts of the others."""
    matching, others = list[_LoginCookie](), list[str]()
    for text in cookie.split(BETWEEN_LOGINS)[:LOGINS_MAX]:
        login = _read_cookie(text)
        if login is not None and hmac.compare_digest(state.encode(), login.derive("state").encode()):
            matching.append(login)
        elif login is not None:
            others.append(text)
    return matching, others


def _read_cookie(text: str) -> _LoginCookie | None:
    secret, _, rest = text.partition(".")
    at, _, back = rest.partition(".")
    if not secret or not at.isascii() or not at.isdigit() or len(at) > 12:  # noqa: PLR2004 - seconds for 30,000 years
        return None
    return _LoginCookie(secret, int(at), choose_way_back(unquote(back)))


def _check_discovery(discovery: _Discovery, issuer: str) -> None:
    """Raise NoAnswerError if the document is another issuer's, or names an address that must not be asked."""
    if discovery.issuer != issuer:
        raise NoAnswerError(
            f"calls itself {to_one_line(discovery.issuer)[:120]}", field=WHO, hint="set web.oidc.issuer to that"
        )
    for name in ("authorization_endpoint", "token_endpoint", "jwks_uri", "end_session_endpoint"):
        address = getattr(discovery, name)
        bare, _, query = address.partition("?")
        try:
            if address or name != "end_session_endpoint":
                check_url(bare, name)
        except InputError as error:
            raise _refuse(f"names an address that is not allowed ({to_one_line(str(error))[:160]})") from None
        if not query.isascii() or not query.isprintable() or set(" #\"'<>\\") & set(query):
            raise _refuse(f"names an address that is not allowed ({name})")


Key = RSAKey | ECKey | OKPKey | OctKey
KEY_KINDS = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""How an algorithm begins -> the `kty` of its keys (RFC 7518, 3.1 and 6.1; RFC 8037)."""
PUBLIC_PARTS = ("kty", "n", "e", "crv", "x", "y")
SIGNING_CURVES = ("Ed25519", "Ed448")


def _choose_keys(keys: tuple[dict[str, object], ...], header: Mapping[str, object]) -> list[Key]:
    """Return the keys that may have signed a token with this header: by its `kid`, or of its kind where it has none."""
    alg, kid = str(header["alg"]), header.get("kid")
    kind = KEY_KINDS[alg[:2]]
    fitting = [
        one
        for one in keys
        if one.get("kty") == kind
        and one.get("use", "sig") == "sig"
        and one.get("alg", alg) == alg
        and (kid is None or one.get("kid") == kid)
    ]
    return [key for one in fitting[:KEYS_TRIED_MAX] if (key := _import_key(one)) is not None]


def _import_key(jwk: dict[str, object]) -> Key | None:
    """Return a public key; None if it is none that is accepted."""
    parts = {name: value for name, value in jwk.items() if name in PUBLIC_PARTS and isinstance(value, str)}
    if parts["kty"] == "OKP" and parts.get("crv") not in SIGNING_CURVES:
        return None
    if len(parts.get("n", "")) * 6 > RSA_BITS[-1] + 12:  # its base64url has 6 bits a character
        return None
    try:
        key = JWKRegistry.import_key({**parts})
        fits = not isinstance(key, RSAKey) or key.public_key.key_size in RSA_BITS
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    return key if fits else None
