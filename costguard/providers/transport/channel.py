"""One account's way to its provider: permission first, then the request, then what its status means in words.

A read is tried again, at most `ATTEMPTS` times and within its deadline, when nothing was learned: no connection, the
provider's own failure, asked too often. An act is sent once: whether it worked is found by looking, never by sending it again.
"""

from __future__ import annotations

import email.utils
import json
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec
import stamina
import stamina.instrumentation

from costguard.errors import (
    ConflictError,
    CredentialsError,
    ForbiddenError,
    MissingError,
    OddAnswerError,
    ProviderError,
    RefusedError,
    ThrottledError,
    UnreachableError,
    shortened,
)
from costguard.providers.transport.circuit import Circuits
from costguard.providers.transport.client import MOST_BYTES, Reply, Request, Transport
from costguard.providers.transport.deadline import Deadline
from costguard.providers.transport.rate_limit import Bucket
from costguard.system.clock import pause
from costguard.system.secret import Secret, parts_of, scrubbed, scrubbed_bytes

T = TypeVar("T")

ATTEMPTS = 3
READ_S, ACT_S = 30.0, 20.0
"""Seconds for one read with all its tries, and for one act: less than the 30 s after which an intent expires."""
RETRY_AFTER_MOST_S = 300.0
"""A longer Retry-After is not believed: five minutes (RELIABILITY H28)."""
LONGEST_TOLD = 200

BACKOFF_S = (0.25, 1.0, 4.0)
"""Seconds between the tries of a read, give or take a half, so that many readers do not come back at once."""
UNAVAILABLE = 503

Fault = Callable[[Reply], ProviderError | None]
Pause = Callable[[Reply], float | None]

stamina.instrumentation.set_on_retry_hooks(())
"""stamina would log every try: with structlog installed on stdout, where nothing but the answer may stand."""


class Channel:
    """`headers` go with every request, and their secrets are taken out of whatever is shown.

    `buckets`: by name; "" is the account's own, from which every request takes; others are of single endpoints. `fault`: what
    a reply's status and body mean where that differs from HTTP's usual (`by_status`); None: the reply is good.
    `advice`: what to do about each kind of error. `pause`: seconds for which a good reply says that the quota is used up
    (RateLimit headers), None: it says nothing. `secrets`: further ones that must be shown nowhere, sent or not.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        provider: str,
        base_url: str,
        account: str = "",
        headers: Mapping[str, str | Secret] | None = None,
        buckets: Mapping[str, Bucket] | None = None,
        fault: Fault | None = None,
        advice: Mapping[type[ProviderError], str] | None = None,
        pause: Pause | None = None,
        secrets: Sequence[Secret] = (),
    ) -> None:
        self.provider, self.account, self.base_url = provider, account, base_url
        self._transport, self._headers, self._advice = transport, dict(headers or {}), dict(advice or {})
        self._buckets = dict(buckets or {})
        held = (*(value for value in self._headers.values() if isinstance(value, Secret)), *secrets)
        self._secrets = tuple(sorted({part for one in held for part in parts_of(one)}, key=lambda one: -len(one.reveal())))
        self._fault, self._pause = fault or by_status(provider), pause
        self._are_sendable()
        self._circuits = Circuits()
        self.date: datetime | None = None
        """The provider's clock at its last answer, by its Date header; None where it never said."""

    def read(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        method: str = "GET",
        body: object = None,
        bucket: str = "",
        scope: str = "",
        deadline: Deadline | None = None,
        most_bytes: int = MOST_BYTES,
    ) -> Reply:
        """The good reply to a question that changes nothing; a ProviderError says why there is none."""
        request = self.request(method, path, params, body)
        return self.ask(request, bucket=bucket, scope=scope, deadline=deadline or Deadline(READ_S), most_bytes=most_bytes)

    def act(
        self, method: str, path: str, *, params: Mapping[str, str] | None = None, body: object = None, bucket: str = ""
    ) -> Reply:
        """The good reply to a request that changes something, sent once; it goes before every waiting read."""
        return self.ask(self.request(method, path, params, body), bucket=bucket, deadline=Deadline(ACT_S), act=True)

    def _are_sendable(self) -> None:
        for name, value in self._headers.items():
            if isinstance(value, Secret) and not (value.reveal().isascii() and value.reveal().isprintable()):
                hint = "take the key from its page again: it holds a line break or a foreign letter"
                what = f"the key holds a character that no header can ({name})"
                raise CredentialsError(what, provider=self.provider, account=self.account, hint=hint)

    def request(self, method: str, path: str, params: Mapping[str, str] | None = None, body: object = None) -> Request:
        """A request to `path` under the base address. `body`: None, bytes, or what JSON can say."""
        query = f"?{urlencode(params)}" if params else ""
        headers = {k: v.reveal() if isinstance(v, Secret) else v for k, v in self._headers.items()}
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        if body is not None and not isinstance(body, bytes):
            headers["Content-Type"] = "application/json"
        return Request(method=method, url=f"{self.base_url}{path}{query}", headers=headers, body=data)

    def ask(
        self,
        request: Request,
        *,
        bucket: str = "",
        scope: str = "",
        deadline: Deadline,
        act: bool = False,
        most_bytes: int = MOST_BYTES,
    ) -> Reply:
        """The good reply to `request`, as an SDK or `read` and `act` made it. `scope`: whose circuit it belongs to."""
        if act:
            return self._once(request, bucket, deadline, most_bytes, act=True)
        wait = self._circuits.closed_for(scope)
        if wait:
            what = f"{request.place} failed again and again, and is not asked for another {wait:.0f} s"
            raise UnreachableError(what, provider=self.provider, account=self.account)
        try:
            reply = self._tried(request, bucket, deadline, most_bytes)
        except (UnreachableError, OddAnswerError):
            self._circuits.told(scope, good=False)
            raise
        except ThrottledError as throttled:
            if throttled.status:
                self._circuits.told(scope, good=True)
            else:
                self._circuits.unasked(scope)
            raise
        except ProviderError:
            self._circuits.told(scope, good=True)
            raise
        self._circuits.told(scope, good=True)
        return reply

    def _tried(self, request: Request, bucket: str, deadline: Deadline, most_bytes: int) -> Reply:
        waits, tries = iter(BACKOFF_S), 0

        def again(broken: Exception) -> bool | float:
            """After how many seconds to ask again, if that lies within the deadline."""
            nonlocal tries
            tries += 1
            if tries == ATTEMPTS or not isinstance(broken, ThrottledError | UnreachableError):
                return False
            stated = broken.retry_after_s if isinstance(broken, ThrottledError) else None
            wait = next(waits, BACKOFF_S[-1]) * random.uniform(0.5, 1.5) if stated is None else stated  # noqa: S311 - no secret
            return pause(wait) if wait < deadline.left() else False

        for attempt in stamina.retry_context(on=again, attempts=ATTEMPTS, timeout=None):
            with attempt:
                return self._once(request, bucket, deadline, most_bytes, act=False)
        raise AssertionError("stamina lets the last error through")

    def _once(self, request: Request, bucket: str, deadline: Deadline, most_bytes: int, *, act: bool) -> Reply:
        for name in dict.fromkeys((bucket, "")):
            if name in self._buckets and not self._buckets[name].take(deadline, act=act):
                what = f"{request.place} is over the provider's rate limit, and was not asked"
                raise self._advised(ThrottledError(what, provider=self.provider, status=0, retry_after_s=deadline.left() + 1))
        try:
            raw = self._transport.exchange(request, provider=self.provider, deadline=deadline, most_bytes=most_bytes)
        except ProviderError as broken:
            raise self._advised(broken) from None
        reply = self._cleaned(raw)
        self.date = _date(reply) or self.date
        fault = self._fault(reply)
        self._slow_down(reply, fault, bucket, act=act)
        if fault is None:
            return reply
        raise self._advised(fault)

    def _cleaned(self, reply: Reply) -> Reply:
        """`reply` without the keys that it may echo, before anything is cut to length or read."""
        body = scrubbed_bytes(reply.body, self._secrets)
        headers = {name: scrubbed(value, self._secrets) for name, value in reply.headers.items()}
        return reply if body is reply.body and headers == reply.headers else replace(reply, headers=headers, body=body)

    def _slow_down(self, reply: Reply, fault: ProviderError | None, bucket: str, *, act: bool) -> None:
        """Close the buckets for as long as the reply asks for. A 503 may say so too, and a good reply's RateLimit headers."""
        seconds = self._pause(reply) if self._pause else None
        if isinstance(fault, ThrottledError):
            if fault.retry_after_s is not None:
                fault.retry_after_s = min(max(fault.retry_after_s, 0.0), RETRY_AFTER_MOST_S)
            seconds = max(seconds or 0.0, fault.retry_after_s or 0.0)
        elif fault is not None and fault.status == UNAVAILABLE:
            seconds = max(seconds or 0.0, retry_after(reply) or 0.0)
        if seconds is not None and 0 < seconds < math.inf:
            for name in dict.fromkeys(("", bucket)):
                if name in self._buckets:
                    self._buckets[name].close_for(min(seconds, RETRY_AFTER_MOST_S), act=act and fault is not None)

    def _advised(self, fault: ProviderError) -> ProviderError:
        """`fault` with the account's name and what to do, and without any secret."""
        hint = fault.hint or next((told for kind, told in self._advice.items() if isinstance(fault, kind)), None)
        what = scrubbed(fault.what, self._secrets)
        hint = None if hint is None else scrubbed(hint, self._secrets)
        more: dict[str, Any] = {"retry_after_s": fault.retry_after_s} if isinstance(fault, ThrottledError) else {}
        code = scrubbed(fault.code, self._secrets)
        return type(fault)(
            what, provider=self.provider, account=self.account, status=fault.status, code=code, hint=hint, **more
        )

    def decode(self, reply: Reply, kind: type[T], what: str) -> T:
        """`reply` as JSON of the shape `kind`; OddAnswerError says what is odd about `what`, and never shows the body."""
        try:
            return msgspec.json.decode(reply.body, type=kind)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as odd:
            page = reply.body[:64].lstrip()[:1] == b"<"
            why = "is a web page, not JSON" if page else f"cannot be read ({shortened(str(odd), LONGEST_TOLD)})"
            told = scrubbed(f"{what} {why}", self._secrets)
            raise OddAnswerError(told, provider=self.provider, account=self.account, status=reply.status) from None


def by_status(provider: str, told: Callable[[Reply], tuple[str, str]] | None = None) -> Fault:
    """What a status means by HTTP's own rules. `told`: the provider's code and words in the body of an error."""
    words = told or (lambda _: ("", ""))

    def fault(reply: Reply) -> ProviderError | None:
        status = reply.status
        if 200 <= status < 300:  # noqa: PLR2004 - HTTP's own line
            return None
        code, said = words(reply)
        about = f"{status}{f' {code}' if code else ''}{f': {shortened(said, LONGEST_TOLD)}' if said else ''}"
        make: type[ProviderError] = _KINDS.get(status, RefusedError)
        if 300 <= status < 400:  # noqa: PLR2004
            return OddAnswerError(
                f"sends elsewhere ({status}), and is not followed", provider=provider, status=status, code=code
            )
        if status >= 500:  # noqa: PLR2004
            make = UnreachableError
        if make is ThrottledError:
            after = retry_after(reply)
            return ThrottledError(
                f"asked too often ({about})", provider=provider, status=status, code=code, retry_after_s=after
            )
        return make(f"{_SAID.get(make, 'answered')} ({about})", provider=provider, status=status, code=code)

    return fault


_KINDS: Mapping[int, type[ProviderError]] = {
    401: CredentialsError,
    403: ForbiddenError,
    404: MissingError,
    409: ConflictError,
    410: MissingError,
    429: ThrottledError,
}
_SAID: Mapping[type[ProviderError], str] = {
    CredentialsError: "refused the key",
    ForbiddenError: "does not allow this key to do that",
    MissingError: "has no such thing",
    ConflictError: "cannot do that now",
    RefusedError: "refused the request",
    UnreachableError: "failed",
}


def retry_after(reply: Reply) -> float | None:
    """Seconds of a Retry-After header, given in seconds or as a date; None where there is none that can be read."""
    stated = reply.headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,9}(?:\.\d{0,9})?", stated, re.ASCII):  # ten digits are an epoch, not a pause
        return float(stated)
    at, sent = _http_date(stated), _date(reply)
    return max(0.0, (at - (sent or datetime.now(UTC))).total_seconds()) if at else None


def _date(reply: Reply) -> datetime | None:
    return _http_date(reply.headers.get("date", ""))


def _http_date(text: str) -> datetime | None:
    try:
        at = email.utils.parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError):
        return None
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
