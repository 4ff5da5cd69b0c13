from __future__ import annotations

import logging
import random
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import msgspec
import pytest
import stamina

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
)
from costguard.providers.transport import (
    Deadline,
    HttpResponse,
    ProviderChannel,
    Secret,
    TokenBucket,
    Transport,
    make_status_fault_reader,
)
from costguard.providers.transport import channel as channels
from costguard.providers.transport.channel import CIRCUIT_FAILURES, RETRY_AFTER_MOST_S, parse_retry_after
from tests.fakes.server import Answer, Asked, serving
from tests.providers.transport.wires import CANARY, Told

SOON_S = 45


@pytest.fixture
def quick() -> Iterator[None]:
    """Tries without pauses."""
    with stamina.set_testing(True, attempts=3, cap=True):
        yield


@contextmanager
def channel_to(cloud: Told, **more: Any) -> Iterator[ProviderChannel]:  # noqa: ANN401 - what a Channel takes
    transport = Transport()
    headers = {"Authorization": Secret(f"Bearer {CANARY}")}
    with serving(cloud) as base:
        yield ProviderChannel(transport, provider="cloud", base_url=base, account="lab", headers=headers, **more)
    transport.close()


def status(code: int, **headers: str) -> Answer:
    return Answer(status=code, headers={name.replace("_", "-"): value for name, value in headers.items()})


def failing(*codes: int) -> Callable[[Asked], Answer]:
    """Each of `codes` once, then 200."""
    left = list(codes)
    return lambda _: status(left.pop(0)) if left else Answer.of({"ok": True})


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (301, InvalidAnswerError),
        (304, InvalidAnswerError),
        (400, RefusedError),
        (401, CredentialsError),
        (402, RefusedError),
        (403, ForbiddenError),
        (404, MissingError),
        (409, ConflictError),
        (410, MissingError),
        (418, RefusedError),
        (422, RefusedError),
        (429, ThrottledError),
        (500, UnreachableError),
        (503, UnreachableError),
        (599, UnreachableError),
        (700, UnreachableError),
    ],
)
@pytest.mark.usefixtures("quick")
def test_a_status_means_what_http_says_and_names_provider_and_account(code: int, kind: type[ProviderError]) -> None:
    with channel_to(Told(status(code))) as channel, pytest.raises(kind) as caught:
        channel.read("/v2")
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.provider, caught.value.account) == (code, "cloud", "lab")


def test_params_and_bodies_are_written_as_the_web_writes_them() -> None:
    cloud = Told()
    with channel_to(cloud) as channel:
        channel.read("/v2/pods", {"q": "a b&c=d/\u00e9", "n": "1"})
        channel.act("POST", "/v2/stop", params={"x": "1"}, body={"id": "a"})
        channel.act("POST", "/raw", body=b"\0")
    assert [asked.line for asked in cloud.asked] == [
        "GET /v2/pods?q=a+b%26c%3Dd%2F%C3%A9&n=1",
        "POST /v2/stop?x=1",
        "POST /raw",
    ]
    assert (cloud.asked[1].json(), cloud.asked[1].headers["content-type"]) == ({"id": "a"}, "application/json")
    assert cloud.asked[2].body == b"\0"


@pytest.mark.parametrize("code", [429, 500, 502, 503, 504])
@pytest.mark.usefixtures("quick")
def test_a_read_is_tried_again(code: int) -> None:
    cloud = Told(failing(code, code))
    with channel_to(cloud) as channel:
        assert channel.read("/v2").status == 200
    assert len(cloud.asked) == 3


@pytest.mark.parametrize("code", [301, 400, 401, 403, 404, 409, 418])
@pytest.mark.usefixtures("quick")
def test_a_read_that_was_answered_is_not_tried_again(code: int) -> None:
    cloud = Told(status(code))
    with channel_to(cloud) as channel, pytest.raises(ProviderError):
        channel.read("/v2")
    assert len(cloud.asked) == 1


@pytest.mark.parametrize("kind", ["status", "reset", "did", "html", "short", "redirect", "bomb"])
@pytest.mark.parametrize("code", [429, 500, 503])
@pytest.mark.usefixtures("quick")
def test_an_act_is_sent_once_whatever_comes(kind: str, code: int) -> None:
    cloud = Told()
    cloud.fault(".", kind, status=code)
    with channel_to(cloud) as channel, pytest.raises(ProviderError):
        channel.act("POST", "/v2/stop")
    assert len(cloud.asked) == 1


def test_an_act_that_is_not_answered_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "ACT_S", 0.5)
    cloud = Told()
    cloud.fault(".", "delay", seconds=60)
    began = time.monotonic()
    with channel_to(cloud) as channel, pytest.raises(UnreachableError):
        channel.act("POST", "/v2/stop")
    assert time.monotonic() - began < SOON_S
    assert len(cloud.asked) == 1


def test_tries_with_their_pauses_never_outlive_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda _low, high: high)
    paused = list[float]()

    def pause(wait: float) -> float:
        paused.append(wait)
        return 0.0

    monkeypatch.setattr(channels, "pass_simulated_time", pause)
    cloud = Told(status(500))
    with channel_to(cloud) as channel, pytest.raises(UnreachableError):
        channel.read("/v2", deadline=Deadline(1, lambda: sum(paused)))
    assert paused == [0.25 * 1.5], "the second pause, of 1.5 s, is not begun"
    assert len(cloud.asked) == 2


def test_a_retry_after_within_the_deadline_is_waited_for() -> None:
    answers = [status(429, Retry_After="1"), Answer.of({})]
    cloud = Told(lambda _: answers.pop(0))
    began = time.monotonic()
    with channel_to(cloud, buckets={"": TokenBucket(1000, 1000)}) as channel:
        channel.read("/v2", deadline=Deadline(20))
    assert time.monotonic() - began >= 0.95


@pytest.mark.parametrize("stated", ["60", "86400", format_datetime(datetime(2026, 11, 21, 13, tzinfo=UTC), usegmt=True)])
def test_a_retry_after_beyond_the_deadline_is_not_waited_for(stated: str) -> None:
    cloud = Told(status(429, Retry_After=stated))
    began = time.monotonic()
    with channel_to(cloud) as channel, pytest.raises(ThrottledError) as caught:
        channel.read("/v2", deadline=Deadline(20))
    assert time.monotonic() - began < SOON_S
    assert len(cloud.asked) == 1
    assert caught.value.retry_after_s is not None
    assert 60 <= caught.value.retry_after_s <= RETRY_AFTER_MOST_S


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "0"}, 0),
        ({"retry-after": "7"}, 7),
        ({"retry-after": " 7.5 "}, 7.5),
        ({"retry-after": "Sat, 21 Nov 2026 12:00:30 GMT", "date": "Sat, 21 Nov 2026 12:00:00 GMT"}, 30),
        ({"retry-after": "Saturday, 21-Nov-26 12:00:30 GMT", "date": "Sat, 21 Nov 2026 12:00:00 GMT"}, 30),
        ({"retry-after": "Sat, 21 Nov 2026 11:00:00 GMT", "date": "Sat, 21 Nov 2026 12:00:00 GMT"}, 0),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "1e9"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "NaN"}, None),
        ({"retry-after": "1792000000"}, None),
        ({"retry-after": "\u0663"}, None),
        ({"retry-after": "9" * 5000}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_a_retry_after_is_read_in_both_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert parse_retry_after(HttpResponse(status=429, headers=headers)) == seconds


def test_a_retry_after_as_a_date_is_counted_from_now_where_the_reply_has_no_date() -> None:
    at = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    found = parse_retry_after(HttpResponse(status=429, headers={"retry-after": at}))
    assert found is not None
    assert 60 < found < 91


@pytest.mark.parametrize("code", [429, 503])
def test_a_pause_that_the_provider_asks_for_holds_every_read_and_no_act(code: int) -> None:
    left = [status(code, Retry_After="120")]
    cloud = Told(lambda _: left.pop() if left else Answer.of({}))
    with channel_to(cloud, buckets={"": TokenBucket(100, 100)}) as channel:
        for _ in range(2):
            with pytest.raises(ProviderError):
                channel.read("/v2", deadline=Deadline(2))
        assert len(cloud.asked) == 1
        assert channel.act("POST", "/v2/stop").status == 200


def test_what_a_good_reply_says_of_its_quota_pauses_reads() -> None:
    cloud = Told(Answer.of({}, RateLimit_Reset="55"))
    pause = lambda reply: float(reply.headers["ratelimit-reset"])  # noqa: E731
    with channel_to(cloud, buckets={"": TokenBucket(100, 100), "one": TokenBucket(100, 100)}, pause=pause) as channel:
        assert channel.read("/v2", bucket="one").status == 200
        with pytest.raises(ThrottledError, match="no request was sent") as caught:
            channel.read("/v2", deadline=Deadline(1))
    assert caught.value.status == 0
    assert len(cloud.asked) == 1


@pytest.mark.parametrize("seconds", [None, 0.0, -5.0, float("nan"), float("inf")])
def test_a_pause_that_is_none_changes_nothing(seconds: float | None) -> None:
    with channel_to(Told(), buckets={"": TokenBucket(100, 100)}, pause=lambda _: seconds) as channel:
        for _ in range(3):
            assert channel.read("/v2", deadline=Deadline(5)).status == 200


@pytest.mark.usefixtures("quick")
def test_a_scope_that_keeps_failing_is_left_alone_and_the_others_are_not() -> None:
    cloud = Told(status(500))
    with channel_to(cloud) as channel:
        for _ in range(CIRCUIT_FAILURES):
            with pytest.raises(UnreachableError):
                channel.read("/v2", scope="a")
        asked = len(cloud.asked)
        with pytest.raises(UnreachableError, match="failed repeatedly"):
            channel.read("/v2", scope="a")
        assert len(cloud.asked) == asked
        with pytest.raises(UnreachableError):
            channel.read("/v2", scope="b")
        assert len(cloud.asked) > asked
        with pytest.raises(UnreachableError):
            channel.act("POST", "/v2/stop")
        assert cloud.asked[-1].method == "POST"


@pytest.mark.parametrize("code", [401, 404, 429])
@pytest.mark.usefixtures("quick")
def test_an_answer_that_is_a_no_opens_no_circuit(code: int) -> None:
    cloud = Told(status(code))
    with channel_to(cloud) as channel:
        for _ in range(CIRCUIT_FAILURES + 2):
            with pytest.raises(ProviderError):
                channel.read("/v2", scope="a")
    assert len(cloud.asked) >= CIRCUIT_FAILURES + 2


ECHO = f'{{"error": {{"code": "{CANARY}", "message": "{"x" * 190}{CANARY}"}}}}'.encode()


def told(reply: HttpResponse) -> tuple[str, str]:
    error = msgspec.json.decode(reply.body)["error"]
    return error["code"], error["message"]


@pytest.mark.parametrize("code", [400, 401, 403, 409, 429, 500])
@pytest.mark.usefixtures("quick")
def test_a_key_that_is_echoed_is_shown_nowhere(code: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    cloud = Told(Answer(status=code, headers={"X-Echo": CANARY}, body=ECHO))
    with channel_to(cloud, fault=make_status_fault_reader("cloud", told)) as channel, pytest.raises(ProviderError) as caught:
        channel.read("/v2", {"q": "1"})
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + caught.value.code + caplog.text
    assert CANARY[:8] not in shown
    assert "[secret]" in shown


def test_a_key_in_a_good_answer_is_taken_out_as_well() -> None:
    with channel_to(Told(Answer.of({"env": {"KEY": CANARY}}))) as channel:
        assert channel.read("/v2").body == b'{"env": {"KEY": "[secret]"}}'


@pytest.mark.usefixtures("quick")
def test_no_frame_of_an_error_shows_the_key() -> None:
    with channel_to(Told(status(500))) as channel, pytest.raises(UnreachableError) as caught:
        channel.read("/v2")
    error: BaseException | None = caught.value
    while error is not None:
        walked = traceback.walk_tb(error.__traceback__)
        assert not any(CANARY in repr(value) for frame, _ in walked for value in frame.f_locals.values())
        error = error.__context__


@pytest.mark.parametrize("key", [f"{CANARY}\n", f"{CANARY}\r\nX: y", "sch\u00f6n-key-0123", "a\0b"])
def test_a_key_that_no_header_can_hold_is_refused_without_showing_it(key: str) -> None:
    transport = Transport()
    with pytest.raises(CredentialsError) as caught:
        ProviderChannel(transport, provider="cloud", base_url="https://a.example", headers={"Authorization": Secret(key)})
    transport.close()
    assert caught.value.hint
    assert key.strip() not in str(caught.value)


@pytest.mark.usefixtures("quick")
def test_an_error_says_what_to_do_about_its_kind() -> None:
    advice = {CredentialsError: "make a new key", ProviderError: "look at the status page"}
    for code, hint in ((401, "make a new key"), (500, "look at the status page")):
        with channel_to(Told(status(code)), advice=advice) as channel, pytest.raises(ProviderError) as caught:
            channel.read("/v2")
        assert caught.value.hint == hint


class Shape(msgspec.Struct):
    ok: bool


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"<html>",
        b"null",
        b"[]",
        b'{"ok": 1}',
        b"{}",
        b"[" * 100_000,
        b'{"ok": ' * 100_000,
        b"\xff\xfe",
        b'{"ok": NaN}',
        b"1e999999",
    ],
    ids=lambda body: str(body[:12]),
)
def test_a_body_of_another_shape_is_odd_and_not_shown(body: bytes) -> None:
    with channel_to(Told()) as channel, pytest.raises(InvalidAnswerError) as caught:
        channel.decode(HttpResponse(status=200, body=body), Shape, "the list")
    assert len(str(caught.value)) < 400


def test_a_body_of_the_right_shape_is_read() -> None:
    with channel_to(Told()) as channel:
        assert channel.decode(channel.read("/v2"), Shape, "the list").ok


@pytest.mark.usefixtures("quick")
def test_the_providers_clock_is_known_after_an_answer_even_a_bad_one() -> None:
    cloud = Told(status(500))
    with channel_to(cloud) as channel:
        assert channel.date is None
        with pytest.raises(UnreachableError):
            channel.read("/v2")
        assert channel.date == cloud.clock.now()


@pytest.mark.parametrize(
    "date", ["", "yesterday", "9" * 500, "Sat, 99 Nov 2026 12:00:00 GMT", "Sat, 21 Nov 99999 12:00:00 GMT"]
)
def test_a_date_that_cannot_be_read_is_no_date(date: str) -> None:
    with channel_to(Told(Answer.of({}, Date=date))) as channel:
        channel.read("/v2")
        assert channel.date is None


def test_retries_print_and_log_nothing(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    caplog.set_level(logging.DEBUG)
    with channel_to(Told(failing(500))) as channel:
        channel.read("/v2")
    assert (caplog.text, *capfd.readouterr()) == ("", "", "")
