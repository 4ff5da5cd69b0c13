"""Ask costguard for a hold before a launch, over HTTP (docs/ADMIT.md). Python 3.9 and later, no dependency.

    client = AdmissionClient.from_environment()
    answer = client.admit({"gpu": "H100", "count": 8, "hours": 12, "owner": "ada", "id": "build-7"})
    if not answer.may_launch:
        raise SystemExit(answer.says)

What happens where costguard cannot be asked, or cannot say, is the caller's policy: `open` (the default: launch without a hold,
and say so) or `closed` (refuse). A budget that refuses is never overruled, nor is a request that costguard cannot take: who
launches chooses what it says, so a slip in it must not be a way around the budget.

    200 held    400, 409, 413 refused    no answer, or not costguard's, 401, 403, 429, 5xx, no price: the policy

`timeout_s` is one deadline for a call: name resolution, TLS, answer, repeated requests. So each request has its own thread: a
resolver cannot be interrupted, and a server that sends a byte a second outlasts a socket's timeout.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import re
import secrets
import socket
import stat
import threading
import time
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

OPEN, CLOSED = "open", "closed"
HELD, REFUSED, UNKNOWN = "held", "refused", "unknown"
TIMEOUT_S = 5.0
"""How long a launch waits for an answer: a webhook of Kubernetes has 10 s."""
ANSWER_MOST = 1 << 20
REQUEST_MOST = 64 << 10
"""Bytes of a request: costguard and the proxies before it take more, so that none of them has to refuse one."""
HTTP_OK, HTTP_BAD_REQUEST, HTTP_REFUSED, HTTP_TOO_LARGE = 200, 400, 409, 413
HTTP_TOKEN_REFUSED = (401, 403)
NO_PRICE = "no_price"
HELD_BEFORE = ("already_held", "renewed")
"""Reasons of a hold that was open before it was asked for: its run may be active."""
HOURS_MAX = 8784.0
FITS_SHOWN = 3
SAYS_MOST = 1000
TOKEN_MOST = 4096
HOLD_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


class SettingsError(ValueError):
    """A setting of the environment is missing or wrong."""


@dataclass(frozen=True)
class Answer:
    """What costguard said.

    `outcome`: held, refused (by a budget, or as a wrong request), or unknown: no answer, or one that says neither.
    `may_launch`: by the caller's policy. `says`: one printable line. `hold`: its id, "" if there is none. `money`: held.
    `status`: of HTTP, 0 without an answer. `reason`: costguard's name for it, such as budget_cap or no_price.
    """

    outcome: str
    may_launch: bool
    says: str
    hold: str = ""
    status: int = 0
    money: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class AdmissionClient:
    """Asks the server at `url`, such as https://guard.example. `token`: of an operator. `fails`: OPEN or CLOSED.

    `timeout_s`: how long one call of a method takes at most.
    """

    url: str
    token: str = field(repr=False)
    fails: str = OPEN
    timeout_s: float = TIMEOUT_S

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> AdmissionClient:
        """Return the client that COSTGUARD_URL, COSTGUARD_TOKEN (or COSTGUARD_TOKEN_FILE) and COSTGUARD_FAIL state.

        Raises SettingsError if one of them is missing or wrong.
        """
        url, fails = environ.get("COSTGUARD_URL", "").rstrip("/"), environ.get("COSTGUARD_FAIL", OPEN)
        if not url.startswith(("http://", "https://")):
            raise SettingsError("COSTGUARD_URL must be the address of costguard's server: https://guard.example")
        if fails not in (OPEN, CLOSED):
            raise SettingsError(f"COSTGUARD_FAIL must be {OPEN} or {CLOSED}")
        return cls(url=url, token=read_token(environ), fails=fails)

    def admit(self, run: Mapping[str, object]) -> Answer:
        """Ask for a hold of `run`, the body of POST /v1/admit. Never raises: what goes wrong is an unknown answer.

        Where its id belongs to a hold that has ended, it asks once more under another one.
        """
        return self._ask(run, time.monotonic() + self.timeout_s)

    def admit_rental(self, body: Mapping[str, Any]) -> Answer:
        """Ask for a hold of `count` GPUs on each of `machines`: as a whole, else one by one, else at any provider's price.

        One without any price is refused: who launches chooses the GPU, and an odd one must not be a way around the budget.
        """
        deadline = time.monotonic() + self.timeout_s
        single = {**body, "count": 1, "machines": body["count"] * body.get("machines", 1)}
        for form in (body, single, *({**one, "provider": ""} for one in (body, single) if one.get("provider"))):
            answer = self._ask({key: value for key, value in form.items() if value != ""}, deadline)
            if answer.reason != NO_PRICE and not (answer.status == HTTP_BAD_REQUEST and "provider" in answer.says):
                break
        if answer.reason != NO_PRICE:
            return answer
        says = f"costguard knows no price of {body['gpu']} x{single['machines']}, so nothing can be held"
        return Answer(REFUSED, may_launch=False, says=clean_text(says), status=answer.status, reason=NO_PRICE)

    def _ask(self, run: Mapping[str, object], deadline: float) -> Answer:
        try:
            length = len(json.dumps(run, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            says = f"the request cannot be written as JSON ({type(error).__name__})"
            return Answer(REFUSED, may_launch=False, says=says)
        if length > REQUEST_MOST:
            return Answer(REFUSED, may_launch=False, says=f"the request has more than {REQUEST_MOST} bytes: shorten its texts")
        try:
            status, answer = self._post("/v1/admit", run, deadline)
            if status == HTTP_BAD_REQUEST and "was taken before" in str(answer.get("says")):
                renamed = {**run, "id": f"{str(run.get('id'))[:100]}-{secrets.token_hex(3)}"}
                status, answer = self._post("/v1/admit", renamed, deadline)
            return self._read_answer(status, answer)
        except Exception as error:  # noqa: BLE001 - whatever it is, the policy decides, and not the launcher's crash
            return give_up(f"costguard cannot be asked ({_describe(error)})", self.fails)

    def _read_answer(self, status: int, answer: Mapping[str, Any]) -> Answer:
        """Return what an answer means. Raises ValueError for one that is not costguard's."""
        reason = _read_text(answer, "reason") or _read_text(answer, "error")
        says, held = clean_text(_read_text(answer, "says") or "nothing that is known"), answer.get("held")
        if status == HTTP_OK and held is True:
            hold = _read_text(answer, "hold")
            if not HOLD_ID.fullmatch(hold):
                raise ValueError("a hold without an id")
            money = _read_money(answer.get("usd"))
            return Answer(HELD, may_launch=True, says=says, hold=hold, status=status, money=money, reason=reason)
        if status in (HTTP_BAD_REQUEST, HTTP_TOO_LARGE) and answer.get("says"):
            return Answer(REFUSED, may_launch=False, says=f"the request is wrong: {says}", status=status, reason=reason)
        if status == HTTP_REFUSED and held is False and reason != NO_PRICE:
            return Answer(REFUSED, may_launch=False, says=describe_refusal(answer), status=status, reason=reason)
        hint = "; set COSTGUARD_TOKEN to a valid one of an operator" if status in HTTP_TOKEN_REFUSED else ""
        return give_up(f"costguard answered {status}: {says}{hint}", self.fails, status=status, reason=reason)

    def end(self, hold: str, *, started: bool) -> bool:
        """End a hold: its run has ended (`started`), or was never launched. Return whether costguard took it."""
        try:
            deadline = time.monotonic() + self.timeout_s
            return self._post("/v1/admit/end", {"hold": hold, "started": started}, deadline)[0] == HTTP_OK
        except Exception:  # noqa: BLE001 - whatever it is, costguard did not take it
            return False

    def _post(self, path: str, body: Mapping[str, object], deadline: float) -> tuple[int, dict[str, Any]]:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers, method="POST")  # noqa: S310 - see _HttpHandler
        return _exchange(request, deadline)


def _exchange(request: urllib.request.Request, deadline: float) -> tuple[int, dict[str, Any]]:
    """Return the answer to a request. Raises TimeoutError at the deadline, which ends its connection; else what went wrong."""
    outcomes, sockets = list[Any](), list[socket.socket]()

    def connect(*words: Any) -> socket.socket:  # noqa: ANN401 - of create_connection
        connected = socket.create_connection(*words)
        if time.monotonic() >= deadline:  # nothing is sent any more
            connected.close()
            raise TimeoutError("connected too late")
        sockets.append(connected.dup())
        return connected

    def run() -> None:
        opener = urllib.request.OpenerDirector()  # without a handler of redirects: the token would go with them
        for handler in (urllib.request.ProxyHandler(), urllib.request.UnknownHandler(), _HttpHandler(connect)):
            opener.add_handler(handler)
        try:
            with opener.open(request, timeout=max(0.001, deadline - time.monotonic())) as reply:
                outcomes.append((reply.status, _parse(reply)))
        except Exception as error:  # noqa: BLE001 - raised below
            outcomes.append(error)

    thread = threading.Thread(target=run, name="costguard-admission", daemon=True)
    thread.start()
    thread.join(max(0.0, deadline - time.monotonic()))
    is_late = thread.is_alive()  # what the end of the connection makes of an answer is none
    for one in sockets:
        with suppress(OSError), one:
            one.shutdown(socket.SHUT_RDWR)
    if is_late:
        raise TimeoutError("no whole answer in time")
    if isinstance(outcomes[0], Exception):
        raise outcomes[0]
    return outcomes[0]  # type: ignore[no-any-return]  # the only other kind


class _HttpHandler(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """Opens http and https alone, on connections that `connect` makes."""

    def __init__(self, connect: Any) -> None:  # noqa: ANN401 - as socket.create_connection
        super().__init__()
        self._create = connect

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        kind = http.client.HTTPSConnection if req.type == "https" else http.client.HTTPConnection
        return self.do_open(partial(self._build, kind), req)

    https_open = http_open

    def _build(self, kind: Any, host: str, **words: Any) -> http.client.HTTPConnection:  # noqa: ANN401 - the base's
        connection: http.client.HTTPConnection = kind(host, **words)
        connection._create_connection = self._create  # type: ignore[attr-defined]  # noqa: SLF001 - for TLS too
        return connection


def give_up(why: str, fails: str, *, status: int = 0, reason: str = "") -> Answer:
    """Return the answer where nothing is known, by the policy `fails`, which it says."""
    opens = fails == OPEN
    says = f"{why}: {'launched without a hold (fails open)' if opens else 'refused (fails closed)'}"
    return Answer(UNKNOWN, may_launch=opens, says=says, status=status, reason=reason)


def read_fail_policy(environ: Mapping[str, str]) -> str:
    """Return the policy that COSTGUARD_FAIL states, for where the other settings are wrong. Whatever is not `open` closes."""
    return OPEN if environ.get("COSTGUARD_FAIL", OPEN) == OPEN else CLOSED


def describe_refusal(answer: Mapping[str, Any]) -> str:
    """Return why a budget refuses, and what would fit, as one sentence for people."""
    listed, missing = (value if isinstance(value, list) else [] for value in map(answer.get, ("would_fit", "unstated")))
    fits = [f"{one.get('what')} ({one.get('usd')} USD)" for one in listed[:FITS_SHOWN] if isinstance(one, dict)]
    more = f". Would fit: {'; '.join(fits)}" if fits else ""
    unstated = [one for one in missing if isinstance(one, str)]
    hint = f". It counts there because these are not given: {', '.join(unstated)}" if unstated else ""
    return clean_text(f"{_read_text(answer, 'says') or 'a budget refuses it'}{hint}{more}")


def clean_text(text: str) -> str:
    """Return a text for logs and terminals: one line of printable characters, SAYS_MOST at most."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:SAYS_MOST])


def parse_hours(value: object) -> float:
    """Return hours, such as of "12". Raises ValueError for a value that is none, or more than a year."""
    try:
        hours = float(value)  # type: ignore[arg-type]  # whatever somebody typed
    except (TypeError, ValueError):
        hours = 0.0
    if not 0 < hours < HOURS_MAX:
        raise ValueError(f"must be hours such as 12, not {str(value)[:40]!r}")
    return hours


def read_token(environ: Mapping[str, str]) -> str:
    """Return the token of COSTGUARD_TOKEN, or of the file that COSTGUARD_TOKEN_FILE names. Raises SettingsError without one."""
    token, file = environ.get("COSTGUARD_TOKEN", ""), environ.get("COSTGUARD_TOKEN_FILE", "")
    if not token and file:
        try:
            number = os.open(file, os.O_RDONLY | os.O_NONBLOCK)  # a FIFO without a writer is not waited for
            with open(number, "rb") as opened:  # noqa: PTH123 - a file number
                is_regular = stat.S_ISREG(os.fstat(number).st_mode)
                token = opened.read(TOKEN_MOST + 1).decode("ascii", "replace").strip() if is_regular else "\0"
        except (OSError, ValueError) as error:
            raise SettingsError(f"COSTGUARD_TOKEN_FILE cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not token:
        raise SettingsError("COSTGUARD_TOKEN is not set: costguard web token NAME --role operator makes one")
    if len(token) > TOKEN_MOST or re.search(r"[^!-~]", token):
        raise SettingsError("COSTGUARD_TOKEN, or the file of COSTGUARD_TOKEN_FILE, is no token of costguard")
    return token


def _parse(reply: http.client.HTTPResponse) -> dict[str, Any]:
    """Return the answer's object. Raises ValueError for one that is too long, is cut off, or is another form."""
    body = reply.read(ANSWER_MOST + 1)
    if len(body) > ANSWER_MOST or reply.length:
        raise ValueError("an answer that is too long, or cut off")
    answer = json.loads(body.decode(), parse_int=float)  # int() of many digits is slow
    if not isinstance(answer, dict):
        raise ValueError("an answer of another form")  # noqa: TRY004 - as JSON that cannot be parsed
    return answer


def _read_text(answer: Mapping[str, Any], key: str) -> str:
    """Return a text of an answer, "" if it is absent or null. Raises ValueError for another value."""
    value = answer.get(key)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{key} of another form")
    return value or ""


def _read_money(value: object) -> float:
    """Return an amount of an answer. Raises ValueError if it is none."""
    amount = float(value) if isinstance(value, (str, float)) else math.nan
    if not 0 <= amount < math.inf:
        raise ValueError("usd of another form")
    return amount


def _describe(error: Exception) -> str:
    """Return an error without the request, which carries the token."""
    reason = getattr(error, "reason", None)
    return clean_text(f"{type(error).__name__}: {reason}" if reason else type(error).__name__)
