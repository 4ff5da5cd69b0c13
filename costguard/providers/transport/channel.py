"""One account's way to its provider: permission first, then the request, then what its status means in words.

A read is tried again, at most `ATTEMPTS` times and within its deadline, when nothing was learned: no connection, the
provider's own failure, asked too often. An act is sent once: whether it worked is found by looking, never by sending it again.

A scope that keeps failing is left alone for a while, so that it is neither hammered nor waited for.

After `FAILURES` failures in a row nothing is asked for `OPEN_S`; then one question is let through, and its answer decides.
"""

from __future__ import annotations

import email.utils
import json
import math
import random
import re
import threading
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
    InvalidAnswerError,
    MissingError,
    ProviderError,
    RefusedError,
    ThrottledError,
    UnreachableError,
    shorten,
)
from costguard.providers.transport.client import MOST_BYTES, Deadline, HttpRequest, HttpResponse, Transport
from costguard.providers.transport.rate_limit import TokenBucket
from costguard.system.clock import pass_simulated_time
from costguard.system.clock import read_monotonic as usual
from costguard.system.secret import Secret, scrub_bytes, scrub_text, split_secret

T = TypeVar("T")

ATTEMPTS = 3
READ_S, ACT_S = 30.0, 20.0
"""Seconds for one read with all its tries, and for one act: less than the 30 s after which an intent expires."""
RETRY_AFTER_MOST_S = 300.0
"""A longer Retry-After is not believed: five minutes (RELIABILITY H28)."""
LONGEST_SHOWN = 200

BACKOFF_S = (0.25, 1.0, 4.0)
"""Seconds between the tries of a read, give or take a half, so that many readers do not come back at once."""
STATUS_UNAVAILABLE = 503

FaultReader = Callable[[HttpResponse], ProviderError | None]
PauseReader = Callable[[HttpResponse], float | None]

stamina.instrumentation.set_on_retry_hooks(())
"""stamina would log every try: with structlog installed on stdout, where nothing but the answer may stand."""


class ProviderChannel:
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
        buckets: Mapping[str, TokenBucket] | None = None,
        fault: FaultReader | None = None,
        advice: Mapping[type[ProviderError], str] | None = None,
        pause: PauseReader | None = None,
        secrets: Sequence[Secret] = (),
    ) -> None:
        self.provider, self.account, self.base_url = provider, account, base_url
        self._transport, self._headers, self._advice = transport, dict(headers or {}), dict(advice or {})
        self._buckets = dict(buckets or {})
        secrets = (*(value for value in self._headers.values() if isinstance(value, Secret)), *secrets)
        self._secrets = tuple(
            sorted({part for one in secrets for part in split_secret(one)}, key=lambda one: -len(one.reveal()))
        )
        self._fault, self._pause = fault or make_status_fault_reader(provider), pause
        self._check_headers()
        self._circuits = CircuitBreakers()
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
    ) -> HttpResponse:
        """The good reply to a question that changes nothing; a ProviderError says why there is none."""
        request = self.build_request(method, path, params, body)
        return self.ask(request, bucket=bucket, scope=scope, deadline=deadline or Deadline(READ_S), most_bytes=most_bytes)

    def act(
        self, method: str, path: str, *, params: Mapping[str, str] | None = None, body: object = None, bucket: str = ""
    ) -> HttpResponse:
        """The good reply to a request that changes something, sent once; it goes before every waiting read."""
        return self.ask(self.build_request(method, path, params, body), bucket=bucket, deadline=Deadline(ACT_S), act=True)

    def _check_headers(self) -> None:
        for name, value in self._headers.items():
            if isinstance(value, Secret) and not (value.reveal().isascii() and value.reveal().isprintable()):
                hint = "copy the key again: it contains a line break or a non-ASCII letter"
                what = f"the key contains a character that a header cannot contain ({name})"
                raise CredentialsError(what, provider=self.provider, account=self.account, hint=hint)

    def build_request(
        self, method: str, path: str, params: Mapping[str, str] | None = None, body: object = None
    ) -> HttpRequest:
        """A request to `path` under the base address. `body`: None, bytes, or what JSON can say."""
        query = f"?{urlencode(params)}" if params else ""
        headers = {k: v.reveal() if isinstance(v, Secret) else v for k, v in self._headers.items()}
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        if body is not None and not isinstance(body, bytes):
            headers["Content-Type"] = "application/json"
        return HttpRequest(method=method, url=f"{self.base_url}{path}{query}", headers=headers, body=data)

    def ask(
        self,
        request: HttpRequest,
        *,
        bucket: str = "",
        scope: str = "",
        deadline: Deadline,
        act: bool = False,
        most_bytes: int = MOST_BYTES,
    ) -> HttpResponse:
        """The good reply to `request`, as an SDK or `read` and `act` made it. `scope`: whose circuit it belongs to."""
        if act:
            return self._ask_once(request, bucket, deadline, most_bytes, act=True)
        wait = self._circuits.reserve_probe(scope)
        if wait:
            what = f"{request.place} failed repeatedly: no requests for another {wait:.0f} s"
            raise UnreachableError(what, provider=self.provider, account=self.account)
        try:
            reply = self._ask_with_retries(request, bucket, deadline, most_bytes)
        except (UnreachableError, InvalidAnswerError):
            self._circuits.record_answer(scope, good=False)
            raise
        except ThrottledError as throttled:
            if throttled.status:
                self._circuits.record_answer(scope, good=True)
            else:
                self._circuits.cancel_probe(scope)
            raise
        except ProviderError:
            self._circuits.record_answer(scope, good=True)
            raise
        self._circuits.record_answer(scope, good=True)
        return reply

    def _ask_with_retries(self, request: HttpRequest, bucket: str, deadline: Deadline, most_bytes: int) -> HttpResponse:
        waits, tries = iter(BACKOFF_S), 0

        def again(broken: Exception) -> bool | float:
            """After how many seconds to ask again, if that lies within the deadline."""
            nonlocal tries
            tries += 1
            if tries == ATTEMPTS or not isinstance(broken, ThrottledError | UnreachableError):
                return False
            retry_after_s = broken.retry_after_s if isinstance(broken, ThrottledError) else None
            wait = next(waits, BACKOFF_S[-1]) * random.uniform(0.5, 1.5) if retry_after_s is None else retry_after_s  # noqa: S311 - no secret
            return pass_simulated_time(wait) if wait < deadline.compute_left() else False

        for attempt in stamina.retry_context(on=again, attempts=ATTEMPTS, timeout=None):
            with attempt:
                return self._ask_once(request, bucket, deadline, most_bytes, act=False)
        raise AssertionError("stamina lets the last error through")

    def _ask_once(self, request: HttpRequest, bucket: str, deadline: Deadline, most_bytes: int, *, act: bool) -> HttpResponse:
        for name in dict.fromkeys((bucket, "")):
            if name in self._buckets and not self._buckets[name].acquire(deadline, act=act):
                what = f"{request.place} is over the provider's rate limit: no request was sent"
                raise self._add_advice(
                    ThrottledError(what, provider=self.provider, status=0, retry_after_s=deadline.compute_left() + 1)
                )
        try:
            raw = self._transport.exchange(request, provider=self.provider, deadline=deadline, most_bytes=most_bytes)
        except ProviderError as broken:
            raise self._add_advice(broken) from None
        reply = self._scrub_reply(raw)
        self.date = _read_date(reply) or self.date
        fault = self._fault(reply)
        self._slow_down(reply, fault, bucket, act=act)
        if fault is None:
            return reply
        raise self._add_advice(fault)

    def _scrub_reply(self, reply: HttpResponse) -> HttpResponse:
        """`reply` without the keys that it may echo, before anything is cut to length or read."""
        body = scrub_bytes(reply.body, self._secrets)
        headers = {name: scrub_text(value, self._secrets) for name, value in reply.headers.items()}
        return reply if body is reply.body and headers == reply.headers else replace(reply, headers=headers, body=body)

    def _slow_down(self, reply: HttpResponse, fault: ProviderError | None, bucket: str, *, act: bool) -> None:
        """Close the buckets for as long as the reply asks for. A 503 may say so too, and a good reply's RateLimit headers."""
        seconds = self._pause(reply) if self._pause else None
        if isinstance(fault, ThrottledError):
            if fault.retry_after_s is not None:
                fault.retry_after_s = min(max(fault.retry_after_s, 0.0), RETRY_AFTER_MOST_S)
            seconds = max(seconds or 0.0, fault.retry_after_s or 0.0)
        elif fault is not None and fault.status == STATUS_UNAVAILABLE:
            seconds = max(seconds or 0.0, parse_retry_after(reply) or 0.0)
        if seconds is not None and 0 < seconds < math.inf:
            for name in dict.fromkeys(("", bucket)):
                if name in self._buckets:
                    self._buckets[name].close_for(min(seconds, RETRY_AFTER_MOST_S), act=act and fault is not None)

    def _add_advice(self, fault: ProviderError) -> ProviderError:
        """`fault` with the account's name and what to do, and without any secret."""
        hint = fault.hint or next((advice for kind, advice in self._advice.items() if isinstance(fault, kind)), None)
        what = scrub_text(fault.what, self._secrets)
        hint = None if hint is None else scrub_text(hint, self._secrets)
        more: dict[str, Any] = {"retry_after_s": fault.retry_after_s} if isinstance(fault, ThrottledError) else {}
        code = scrub_text(fault.code, self._secrets)
        return type(fault)(
            what, provider=self.provider, account=self.account, status=fault.status, code=code, hint=hint, **more
        )

    def decode(self, reply: HttpResponse, kind: type[T], what: str) -> T:
        """`reply` as JSON of the shape `kind`; OddAnswerError says what is odd about `what`, and never shows the body."""
        try:
            return msgspec.json.decode(reply.body, type=kind)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as odd:
            page = reply.body[:64].lstrip()[:1] == b"<"
            why = "is a web page, not JSON" if page else f"cannot be read ({shorten(str(odd), LONGEST_SHOWN)})"
            message = scrub_text(f"{what} {why}", self._secrets)
            raise InvalidAnswerError(message, provider=self.provider, account=self.account, status=reply.status) from None


def make_status_fault_reader(provider: str, parse: Callable[[HttpResponse], tuple[str, str]] | None = None) -> FaultReader:
    """What a status means by HTTP's own rules. `parse`: returns the provider's code and message in an error's body."""
    words = parse or (lambda _: ("", ""))

    def fault(reply: HttpResponse) -> ProviderError | None:
        status = reply.status
        if 200 <= status < 300:  # noqa: PLR2004 - HTTP's own line
            return None
        code, message = words(reply)
        about = f"{status}{f' {code}' if code else ''}{f': {shorten(message, LONGEST_SHOWN)}' if message else ''}"
        make: type[ProviderError] = _ERRORS_BY_STATUS.get(status, RefusedError)
        if 300 <= status < 400:  # noqa: PLR2004
            return InvalidAnswerError(
                f"answered with a redirect ({status}), which is not followed", provider=provider, status=status, code=code
            )
        if status >= 500:  # noqa: PLR2004
            make = UnreachableError
        if make is ThrottledError:
            retry_after_s = parse_retry_after(reply)
            return ThrottledError(
                f"rate limit exceeded ({about})", provider=provider, status=status, code=code, retry_after_s=retry_after_s
            )
        return make(f"{_ERROR_WORDS.get(make, 'answered')} ({about})", provider=provider, status=status, code=code)

    return fault


_ERRORS_BY_STATUS: Mapping[int, type[ProviderError]] = {
    401: CredentialsError,
    403: ForbiddenError,
    404: MissingError,
    409: ConflictError,
    410: MissingError,
    429: ThrottledError,
}
_ERROR_WORDS: Mapping[type[ProviderError], str] = {
    CredentialsError: "refused the key",
    ForbiddenError: "does not allow this key to do that",
    MissingError: "has no such resource",
    ConflictError: "cannot do that now",
    RefusedError: "refused the request",
    UnreachableError: "failed",
}


def parse_retry_after(reply: HttpResponse) -> float | None:
    """Seconds of a Retry-After header, given in seconds or as a date; None where there is none that can be read."""
    text = reply.headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,9}(?:\.\d{0,9})?", text, re.ASCII):  # ten digits are an epoch, not a pause
        return float(text)
    at, sent = _parse_http_date(text), _read_date(reply)
    return max(0.0, (at - (sent or datetime.now(UTC))).total_seconds()) if at else None


def _read_date(reply: HttpResponse) -> datetime | None:
    return _parse_http_date(reply.headers.get("date", ""))


def _parse_http_date(text: str) -> datetime | None:
    try:
        at = email.utils.parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError):
        return None
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)


CIRCUIT_FAILURES, CIRCUIT_OPEN_S = 5, 60.0


class CircuitBreakers:
    """The circuits of one channel, one a scope."""

    def __init__(self, monotonic: Callable[[], float] = usual) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._failures: dict[str, int] = {}
        self._open_until: dict[str, float] = {}

    def reserve_probe(self, scope: str) -> float:
        """Seconds for which `scope` is not to be asked; 0: ask. Whoever asks after the pause keeps the others waiting."""
        with self._lock:
            until, now = self._open_until.get(scope), self._monotonic()
            if until is None:
                return 0.0
            if now < until:
                return until - now
            self._open_until[scope] = now + CIRCUIT_OPEN_S
            return 0.0

    def record_answer(self, scope: str, *, good: bool) -> None:
        """What came of a question."""
        with self._lock:
            if good:
                self._failures.pop(scope, None)
                self._open_until.pop(scope, None)
                return
            failed = self._failures[scope] = self._failures.get(scope, 0) + 1
            if failed >= CIRCUIT_FAILURES:
                self._open_until[scope] = self._monotonic() + CIRCUIT_OPEN_S

    def cancel_probe(self, scope: str) -> None:
        """The question that `closed_for` let through was not put after all: whoever comes next may put it."""
        with self._lock:
            if scope in self._open_until:
                self._open_until[scope] = self._monotonic()
