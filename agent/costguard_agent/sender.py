"""Beats: waiting records are signed, sent, and removed once the watchdog's signed answer confirms their receipt.

- answered: verified; the records and requests of that beat are done.
- unreachable: no answer; retried with growing waits (up to five minutes), which differ between machines.
- unverified: the answer is not signed with the watchdog's key; nothing counts as sent.
- refused: by name and number; this module decides what follows, and no refusal ends the agent.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from costguard_agent import __version__, ed25519
from costguard_agent.diagnostics import make_printable
from costguard_agent.enrollment import Enrollment, clamp_interval, format_refusal
from costguard_agent.http_client import WATCHDOG_WITHIN_S, UnreachedError, WatchdogConnection, WatchdogReply
from costguard_agent.local_requests import LocalRequest, LocalRequestQueue
from costguard_agent.protocol import (
    AT_HEADER,
    BEATS_PATH,
    BODY_MOST,
    RECORDS_MOST,
    SEQ_HEADER,
    SIGNATURE_HEADER,
    TEXT_MOST,
    TROUBLES_MOST,
    WINDOW_MS,
    build_signed_answer,
    build_signed_request,
    decode_base64,
    encode_base64,
)
from costguard_agent.spool import RecordSpool, SequenceNumbers
from costguard_agent.state_dir import parse_object

LATEST_S, REFUSED_S, ASKED_MOST_S = 300.0, 300.0, 3600.0
"""The longest wait after failures, after a refusal that only people can mend, and of what a watchdog may ask for."""
ANSWERED, UNREACHABLE, UNVERIFIED, REFUSED = "answered", "unreachable", "unverified", "refused"
OK, BAD, CONFLICT, TOO_LARGE, TOO_OFTEN, FAILING, UNPROCESSABLE = 200, 400, 409, 413, 429, 500, 422
STALE, REPLAYED = "stale", "replayed"
LEAP_MOST = 1024
"""Hours of numbers that one refusal may cost: refusals are not signed, and numbers end."""
FIRST_MS, LAST_MS = 1_577_836_800_000, 4_102_444_800_000
"""2020 to 2100: what says that it is another time than that is no clock to go by."""


class BeatResult(NamedTuple):
    """The result of a beat.

    `why`: a reason for people, "" if all is well; `wait_s`: seconds until the next beat, None for the usual time. `ahead_ms`:
    how far our clock is ahead of the watchdog's; None if that does not matter. `alive`: whether the watchdog itself seems to be
    up, as far as an unsigned answer can show it.
    """

    state: str
    why: str = ""
    wait_s: float | None = None
    answer: Mapping[str, Any] = {}
    done: Sequence[tuple[LocalRequest, str]] = ()
    ahead_ms: int | None = None
    more: bool = False
    alive: bool = False


class BeatSender:
    """Sends beats in order over one connection."""

    def __init__(
        self,
        joined: Enrollment,
        secret: bytes,
        spool: RecordSpool,
        numbers: SequenceNumbers,
        asks: LocalRequestQueue,
        *,
        boot_id: str = "",
    ) -> None:
        self._joined, self._secret = joined, secret
        self._spool, self._numbers, self._asks = spool, numbers, asks
        self._wire = WatchdogConnection(joined.url, ca=joined.ca, proxy=joined.proxy)
        self._agent = {"version": __version__, "python": sys.version.split()[0], "boot_id": boot_id[:64]}
        self._path = BEATS_PATH.format(joined.agent)
        self._failed = 0
        self._records_most = RECORDS_MOST
        self._suspect: list[bytes] = []
        """A record that was refused by itself: it goes if the same beat without it is taken."""
        self._leap = 1
        self.every_s = joined.every_s

    def send_beat(self, now_ms: int, troubles: Sequence[str], *, within_s: float = WATCHDOG_WITHIN_S) -> BeatResult:
        """Send one beat at `now_ms`, by the clock that dates records."""
        records, asks, dropped = [], self._asks.list_waiting(now_ms), self._spool.dropped
        first = {"agent": self._agent, "troubles": _format_troubles(troubles), "dropped": dropped, "ask": asks}
        head = json.dumps(first, separators=(",", ":")).encode()[:-1] + b',"records":['
        records = self._spool.read_head(self._records_most, BODY_MOST - len(head) - len(b"]}"))
        body = head + b",".join(records) + b"]}"
        seq = self._numbers.take_next(now_ms)
        try:
            reply = self._wire.post(self._path, body, self._build_headers(seq, now_ms, body), within_s=within_s)
        except UnreachedError as error:
            return self._back_off(UNREACHABLE, f"the watchdog at {self._joined.url} cannot be reached: {error}")
        if reply.status != OK:
            alive = isinstance(parse_object(reply.body).get("error"), str)
            return self._handle_refusal(reply, now_ms, records, asks)._replace(alive=alive)
        if not self._is_verified(reply, seq):
            alive = SIGNATURE_HEADER.lower() in reply.headers
            return self._back_off(UNVERIFIED, _explain_foreign_answer(self._joined.url, reply))._replace(alive=alive)
        return self._handle_answer(reply, records, asks, dropped)

    def close(self) -> None:
        """Close the connection."""
        self._wire.close()

    def _build_headers(self, seq: int, at_ms: int, body: bytes) -> dict[str, str]:
        text = build_signed_request("POST", self._path, agent=self._joined.agent, seq=seq, at_ms=at_ms, body=body)
        signature = encode_base64(ed25519.sign(self._secret, text))
        return {SEQ_HEADER: str(seq), AT_HEADER: str(at_ms), SIGNATURE_HEADER: signature}

    def _is_verified(self, reply: WatchdogReply, seq: int) -> bool:
        at, signature = reply.headers.get(AT_HEADER.lower(), ""), decode_base64(reply.headers.get(SIGNATURE_HEADER.lower(), ""))
        if not (at.isascii() and at.isdigit() and len(at) < 20) or signature is None:  # noqa: PLR2004 - digits of a number
            return False
        text = build_signed_answer(agent=self._joined.agent, seq=seq, at_ms=int(at), body=reply.body)
        return ed25519.verify(self._joined.guard_key, text, signature)

    def _handle_answer(
        self, reply: WatchdogReply, records: list[bytes], asks: list[dict[str, Any]], dropped: int
    ) -> BeatResult:
        answer = parse_object(reply.body)
        self._spool.acknowledge(records, dropped)
        self._failed, self._leap = 0, 1
        self._spool.drop(self._suspect)
        self._suspect = []
        self._records_most = min(RECORDS_MOST, max(1, self._records_most * 2))
        self.every_s = clamp_interval(answer.get("every_s"))
        outcomes = self._asks.mark_answered(answer.get("asked"), asks)
        return BeatResult(ANSWERED, answer=answer, done=outcomes, more=bool(len(self._spool)))

    def _handle_refusal(
        self, reply: WatchdogReply, now_ms: int, records: list[bytes], asks: list[dict[str, Any]]
    ) -> BeatResult:
        answer = parse_object(reply.body)
        name, text = str(answer.get("error") or ""), format_refusal(answer)
        why = f"the watchdog at {self._joined.url} refused ({reply.status}): {text or _describe_answer(reply)}"
        wait = _parse_retry_after(reply)
        if reply.status == TOO_LARGE or reply.status in {BAD, UNPROCESSABLE}:
            return self._shrink_batch(reply.status, why, records, asks)
        if reply.status == CONFLICT and name == STALE:
            ahead = _measure_ahead_ms(reply, now_ms)
            if ahead is not None:
                return BeatResult(REFUSED, why, 1.0, ahead_ms=ahead)
        if reply.status == CONFLICT and name == REPLAYED:
            self._numbers.leap(self._leap)
            self._leap = min(2 * self._leap, LEAP_MOST)
            return self._back_off(REFUSED, why)
        if reply.status == TOO_OFTEN or reply.status >= FAILING:
            beat = self._back_off(REFUSED, why)
            return beat._replace(wait_s=max(wait, beat.wait_s or 0.0))
        return self._back_off(REFUSED, why)._replace(wait_s=max(wait, REFUSED_S * random.uniform(0.8, 1.2)))  # noqa: S311

    def _shrink_batch(self, status: int, why: str, records: list[bytes], asks: list[dict[str, Any]]) -> BeatResult:
        """Send fewer records at a time; a record refused alone is dropped if the same beat without it is accepted.

        Requests that are refused even without records are dropped as well, so that a malformed request of a local user cannot
        block the beats.
        """
        if len(records) > 1:
            self._records_most = len(records) // 2
            return BeatResult(REFUSED, why, 1.0)
        if records and status != TOO_LARGE:
            self._suspect, self._records_most = records, 0
            return BeatResult(REFUSED, why, 1.0)
        self._suspect, self._records_most = [], 1
        outcomes = self._asks.mark_answered({ask["id"]: why for ask in asks}, asks)
        return self._back_off(REFUSED, why)._replace(done=outcomes)

    def _back_off(self, state: str, why: str) -> BeatResult:
        self._failed += 1
        wait = min(LATEST_S, self.every_s * 2 ** min(self._failed - 1, 10))
        return BeatResult(state, why, wait * random.uniform(0.5, 1.0))  # noqa: S311 - spread, no secret


def _format_troubles(troubles: Sequence[str]) -> list[str]:
    return [make_printable(text, TEXT_MOST) for text in dict.fromkeys(troubles)][:TROUBLES_MOST]


def _parse_retry_after(reply: WatchdogReply) -> float:
    """Return the seconds of a Retry-After, limited to an hour; 0 if there is none."""
    text = reply.headers.get("retry-after", "")
    return min(float(text), ASKED_MOST_S) if text.isascii() and text.isdigit() else 0.0


def _measure_ahead_ms(reply: WatchdogReply, now_ms: int) -> int | None:
    """Return how far our clock is ahead in milliseconds, None if that is small or unknown.

    The connection was verified, so its time can be trusted.
    """
    text = reply.headers.get(AT_HEADER.lower(), "")
    if text.isascii() and text.isdigit():
        there_ms = int(text[:19])
    else:
        try:
            there_ms = int(parsedate_to_datetime(reply.headers.get("date", "")).timestamp() * 1000)
        except (TypeError, ValueError, IndexError):
            return None
    ahead_ms = now_ms - there_ms
    return ahead_ms if FIRST_MS <= there_ms <= LAST_MS and abs(ahead_ms) > WINDOW_MS // 2 else None


def _explain_foreign_answer(url: str, reply: WatchdogReply) -> str:
    return (
        f"the server at {url} does not have the watchdog's key ({_describe_answer(reply)}): "
        "check for a proxy in between, or join again if the watchdog was set up again"
    )


def _describe_answer(reply: WatchdogReply) -> str:
    to = reply.headers.get("location")
    if to:
        return f"it points to {make_printable(to, 100)}, which is not followed: join with the final address"
    return f"its answer is {make_printable(reply.headers.get('content-type', 'of no type'), 60)}"
