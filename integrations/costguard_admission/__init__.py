"""Ask costguard for a hold before a launch, over HTTP (docs/ADMIT.md). Python 3.9 and later, no dependency.

    client = AdmissionClient.from_environment()
    answer = client.admit({"gpu": "H100", "count": 8, "hours": 12, "owner": "ada", "id": "build-7"})
    if not answer.may_launch:
        raise SystemExit(answer.says)

What happens where costguard cannot be asked, or cannot say, is the caller's policy: `open` (the default: launch without a hold,
and say so) or `closed` (refuse). A budget that refuses is never overruled, nor is a request that costguard cannot take: who
launches chooses what it says, so a slip in it must not be a way around the budget.

    200 held    400, 409, 413 refused    no answer, 401, 403, 429, 5xx, no price: the policy
"""

from __future__ import annotations

import json
import os
import secrets
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
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
FITS_SHOWN = 3


@dataclass(frozen=True)
class Answer:
    """What costguard said.

    `outcome`: held, refused (by a budget, or as a wrong request), or unknown: no answer, or one that says neither.
    `may_launch`: by the caller's policy. `says`: a sentence for people. `hold`: its id, "" if there is none. `money`: held.
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
    """Asks the server at `url`, such as https://guard.example. `token`: of an operator. `fails`: OPEN or CLOSED."""

    url: str
    token: str = field(repr=False)
    fails: str = OPEN
    timeout_s: float = TIMEOUT_S

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> AdmissionClient:
        """Return the client that COSTGUARD_URL, COSTGUARD_TOKEN (or COSTGUARD_TOKEN_FILE) and COSTGUARD_FAIL state.

        Raises ValueError if one of them is missing or wrong.
        """
        url, fails = environ.get("COSTGUARD_URL", "").rstrip("/"), environ.get("COSTGUARD_FAIL", OPEN)
        if not url.startswith(("http://", "https://")):
            raise ValueError("COSTGUARD_URL must be the address of costguard's server: https://guard.example")
        if fails not in (OPEN, CLOSED):
            raise ValueError(f"COSTGUARD_FAIL must be {OPEN} or {CLOSED}")
        return cls(url=url, token=read_token(environ), fails=fails)

    def admit(self, run: Mapping[str, object]) -> Answer:
        """Ask for a hold of `run`, the body of POST /v1/admit. Never raises: what goes wrong is an unknown answer.

        Where its id belongs to a hold that has ended, it asks once more under another one.
        """
        if len(json.dumps(run)) > REQUEST_MOST:
            return Answer(REFUSED, may_launch=False, says=f"the request has more than {REQUEST_MOST} bytes: shorten its texts")
        try:
            status, answer = self._post("/v1/admit", run)
            if status == HTTP_BAD_REQUEST and "was taken before" in str(answer.get("says")):
                status, answer = self._post("/v1/admit", {**run, "id": f"{str(run.get('id'))[:100]}-{secrets.token_hex(3)}"})
            return self._read_answer(status, answer)
        except (OSError, ValueError) as error:
            return give_up(f"costguard cannot be asked ({_describe(error)})", self.fails)

    def _read_answer(self, status: int, answer: Mapping[str, Any]) -> Answer:
        """Return what an answer means. Raises ValueError for one that is not costguard's."""
        reason = str(answer.get("reason") or answer.get("error") or "")
        if status == HTTP_OK and answer.get("held") is True:
            hold, money = str(answer.get("hold") or ""), float(answer.get("usd") or 0)
            return Answer(
                HELD, may_launch=True, says=str(answer.get("says", "")), hold=hold, status=status, money=money, reason=reason
            )
        says = str(answer.get("says") or "nothing that is known")
        if status in (HTTP_BAD_REQUEST, HTTP_TOO_LARGE) and answer.get("says"):
            return Answer(REFUSED, may_launch=False, says=f"the request is wrong: {says}", status=status, reason=reason)
        if status == HTTP_REFUSED and answer.get("reason") != NO_PRICE:
            return Answer(REFUSED, may_launch=False, says=describe_refusal(answer), status=status, reason=reason)
        hint = "; set COSTGUARD_TOKEN to a valid one of an operator" if status in HTTP_TOKEN_REFUSED else ""
        return give_up(f"costguard answered {status}: {says}{hint}", self.fails, status=status, reason=reason)

    def end(self, hold: str, *, started: bool) -> bool:
        """End a hold: its run has ended (`started`), or was never launched. Return whether costguard took it."""
        try:
            return self._post("/v1/admit/end", {"hold": hold, "started": started})[0] == HTTP_OK
        except (OSError, ValueError):
            return False

    def _post(self, path: str, body: Mapping[str, object]) -> tuple[int, dict[str, Any]]:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers, method="POST")  # noqa: S310 - http or https
        try:
            with _OPENER.open(request, timeout=self.timeout_s) as reply:
                return reply.status, _parse(reply.read(ANSWER_MOST))
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, _parse(refused.read(ANSWER_MOST))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is followed nowhere: the token would go with it."""

    def redirect_request(self, *_: object) -> None:
        """Follow no redirect."""


_OPENER = urllib.request.build_opener(_NoRedirect)


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
    fits = [f"{one.get('what')} ({one.get('usd')} USD)" for one in answer.get("would_fit") or () if isinstance(one, dict)]
    more = f". Would fit: {'; '.join(fits[:FITS_SHOWN])}" if fits else ""
    unstated = [str(one) for one in answer.get("unstated") or ()]
    hint = f". It counts there because these are not given: {', '.join(unstated)}" if unstated else ""
    return f"{answer.get('says', 'a budget refuses it')}{hint}{more}"


def read_token(environ: Mapping[str, str]) -> str:
    """Return the token of COSTGUARD_TOKEN, or of the file that COSTGUARD_TOKEN_FILE names. Raises ValueError without one."""
    token, file = environ.get("COSTGUARD_TOKEN", ""), environ.get("COSTGUARD_TOKEN_FILE", "")
    if not token and file:
        try:
            with open(file, encoding="utf-8") as opened:  # noqa: PTH123 - Python 3.9 in other programs' processes
                token = opened.read().strip()
        except OSError as error:
            raise ValueError(f"COSTGUARD_TOKEN_FILE cannot be read: {error.strerror}") from None
    if not token:
        raise ValueError("COSTGUARD_TOKEN is not set: costguard web token NAME --role operator makes one")
    return token


def _parse(body: bytes) -> dict[str, Any]:
    answer = json.loads(body)
    if not isinstance(answer, dict):
        raise ValueError("an answer of another form")  # noqa: TRY004 - as JSON that cannot be parsed
    return answer


def _describe(error: Exception) -> str:
    """Return an error without the request, which carries the token."""
    reason = getattr(error, "reason", None)
    return f"{type(error).__name__}: {reason}" if reason else type(error).__name__
