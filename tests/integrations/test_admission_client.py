"""The client of the integrations against a real server: held, refused, and every way not to get an answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from costguard_admission import CLOSED, HELD, OPEN, REFUSED, UNKNOWN, AdmissionClient

from tests.web.stations import Station, station

BUDGET = '[[budget]]\nname = "lab"\ncap = "100 USD"\nmatch = { owners = ["ada"] }\n'


@pytest.fixture(scope="module")
def watchdog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    with station(tmp_path_factory.mktemp("integrations"), more=BUDGET) as made:
        made.room.run_guard()
        made.token("cg_sky", name="sky", role="operator")
        yield made


def client(watchdog: Station, *, token: str = "cg_sky", fails: str = OPEN) -> AdmissionClient:  # noqa: S107 - a test's
    return AdmissionClient(url=f"http://{watchdog.at.host}:{watchdog.at.port}", token=token, fails=fails)


def test_an_id_of_a_hold_that_has_ended_is_replaced_and_not_launched_without(watchdog: Station) -> None:
    asks = client(watchdog, fails=CLOSED)
    first = asks.admit({"usd": "1", "owner": "ada", "id": "job-7"})
    assert asks.end(first.hold, started=True)
    again = asks.admit({"usd": "1", "owner": "ada", "id": "job-7"})
    assert (again.outcome, again.hold.startswith("job-7-")) == (HELD, True)
    assert asks.admit({"usd": "1000", "owner": "ada", "id": "job-7"}).outcome == REFUSED
    assert asks.end(again.hold, started=False)


def test_a_run_is_held_refused_and_ended(watchdog: Station) -> None:
    asks = client(watchdog)
    held = asks.admit({"usd": "60", "hours": 1, "owner": "ada"})
    assert (held.outcome, held.may_launch, held.money) == (HELD, True, 60.0)
    refused = asks.admit({"gpu": "H100", "count": 8, "hours": 12, "owner": "ada"})
    assert (refused.outcome, refused.may_launch, refused.hold) == (REFUSED, False, "")
    assert "budget lab: $40.00 of $100.00 left" in refused.says
    assert "Would fit: H100-SXM x" in refused.says
    assert asks.end(held.hold, started=False)
    assert not asks.end(held.hold, started=False)


@pytest.mark.parametrize("fails", [OPEN, CLOSED])
def test_where_costguard_says_neither_the_policy_decides_and_is_said(watchdog: Station, fails: str) -> None:
    nobody = AdmissionClient(url="http://127.0.0.1:9", token="x", fails=fails)  # noqa: S106 - a test's
    answers = [
        nobody.admit({"usd": "1"}),
        client(watchdog, token="wrong", fails=fails).admit({"usd": "1"}),  # noqa: S106 - a test's
        client(watchdog, fails=fails).admit({"gpu": "H100", "count": 7, "hours": 1}),
    ]
    assert [(one.outcome, one.may_launch) for one in answers] == [(UNKNOWN, fails == OPEN)] * 3
    assert all(f"fails {fails}" in one.says for one in answers)
    assert [one.status for one in answers] == [0, 401, 409]
    assert "COSTGUARD_TOKEN" in answers[1].says
    assert answers[2].reason == "no_price"
    assert not nobody.end("x", started=True)


def test_a_request_that_costguard_cannot_take_is_refused_even_where_it_fails_open(watchdog: Station) -> None:
    asks = client(watchdog)
    held = asks.admit({"usd": "1", "owner": "ada", "id": "job-9"})
    answers = [
        asks.admit({"color": "red"}),
        asks.admit({"gpu": "H9000", "count": 1, "hours": 1}),
        asks.admit({"usd": "2", "owner": "ada", "gpu": "T4", "id": "job-9"}),
        asks.admit({"usd": "1", "owner": "x" * 100_000}),
    ]
    assert [(one.outcome, one.may_launch) for one in answers] == [(REFUSED, False)] * 4
    assert [one.status for one in answers] == [400, 400, 400, 0]
    assert "color" in answers[0].says
    assert "is open for a run with another gpu" in answers[2].says
    assert asks.end(held.hold, started=False)


class Odd(BaseHTTPRequestHandler):
    """Answers what costguard never says; `moved` would take the token elsewhere."""

    body, status = b"{}", 200

    def do_POST(self) -> None:
        self.send_response(self.status)
        if self.status == 302:
            self.send_header("Location", "http://127.0.0.1:9/")
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize(
    ("status", "body"),
    [(200, b"<html>"), (200, b"[1]"), (200, b"{}"), (302, b"{}"), (500, b""), (429, b"{}"), (400, b"<html>"), (400, b"{}")],
    ids=str,
)
def test_an_odd_answer_is_no_hold_and_no_refusal(status: int, body: bytes) -> None:
    server = HTTPServer(("127.0.0.1", 0), type("One", (Odd,), {"status": status, "body": body}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        asks = AdmissionClient(url=f"http://127.0.0.1:{server.server_port}", token="x", fails=CLOSED)  # noqa: S106 - a test's
        assert asks.admit({"usd": "1"}).outcome == UNKNOWN
    finally:
        server.shutdown()
        server.server_close()


def test_settings_of_the_environment_are_checked_and_the_token_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("cg_secret\n")
    made = AdmissionClient.from_environment({"COSTGUARD_URL": "https://guard/", "COSTGUARD_TOKEN_FILE": str(file)})
    assert (made.url, made.token, made.fails) == ("https://guard", "cg_secret", OPEN)
    assert "secret" not in repr(made)
    for wrong in (
        {},
        {"COSTGUARD_URL": "guard", "COSTGUARD_TOKEN": "x"},
        {"COSTGUARD_URL": "https://guard"},
        {"COSTGUARD_URL": "https://guard", "COSTGUARD_TOKEN_FILE": str(tmp_path / "none")},
        {"COSTGUARD_URL": "https://guard", "COSTGUARD_TOKEN": "x", "COSTGUARD_FAIL": "maybe"},
    ):
        with pytest.raises(ValueError, match="COSTGUARD_"):
            AdmissionClient.from_environment(wrong)
