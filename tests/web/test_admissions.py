"""`POST /v1/admit`, its end, and `GET /v1/activity` over real connections, with the watchdog's side and a ledger."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from costguard.agents.messages import NO_TOKEN, NOT_ALLOWED
from costguard.errors import InputError
from costguard.ledger.agents.store import AgentStore
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.guard_state import load_overrides_since
from costguard.ledger.holds import load_open_holds
from costguard.services.report.run_board import RunBoard
from costguard.services.run_jobs.admit import open_holds
from costguard.services.serving.admission_desk import AdmissionDesk
from costguard.services.serving.door_messages import AdmitOffer, AdmitReply, HoldEndOffer, decode_offer, encode_message
from costguard.services.serving.web_activity import ActivityBoard
from costguard.values.money import Money
from tests.web.logins import make_token, write_token
from tests.web.stations import JSON, Reply, Station, station

BUDGETS = "".join(
    f'[[budget]]\nname = "{name}"\ncap = "{cap} USD"\nmatch = {{ owners = ["{owner}"] }}\n'
    for name, cap, owner in (("lab", 100, "ada"), ("bench", 20, "bench"))
)
BUDGETS += '[[budget]]\nname = "at once"\ncap = "12 USD/h"\nmatch = { owners = ["eve"] }\n'
LAB = {"owner": "ada"}
NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def watchdog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    """One that has judged, and knows a launcher, another one, and a reader."""
    with station(tmp_path_factory.mktemp("admissions"), more=BUDGETS) as made:
        made.room.run_guard()
        for name, role in (("slurm", "operator"), ("kube", "operator"), ("grafana", "viewer")):
            made.token(f"cg_{name}", name=name, role=role)
        yield made


def ask(watchdog: Station, path: str, body: object, who: str = "slurm") -> Reply:
    """A request with somebody's token."""
    headers = {**JSON, "Authorization": f"Bearer cg_{who}"}
    return watchdog.ask("POST", path, body if isinstance(body, bytes) else json.dumps(body).encode(), headers)


def admit(watchdog: Station, who: str = "slurm", **body: Any) -> Reply:  # noqa: ANN401 - what JSON has
    """A run of ada's."""
    return ask(watchdog, "/v1/admit", {**LAB, **body}, who)


def holds(watchdog: Station) -> dict[str, Any]:
    """The open holds by id."""
    with LedgerReader(watchdog.url) as reader, reader.snapshot() as query:
        return {hold.id: hold for hold in load_open_holds(query, datetime.now(UTC))}


def test_a_run_is_held_once_and_ended_by_whoever_holds_it(watchdog: Station) -> None:
    body: dict[str, Any] = {
        "gpu": "T4", "count": 1, "hours": 2, "labels": {"team": "vision"}, "name": "nightly", "id": "build-7",
    }  # fmt: skip
    came = admit(watchdog, **body)
    assert came.status == 200, came.body
    said = came.data
    assert (said["schema"], said["held"], said["hold"], said["budget"]) == ("costguard.admit/1", True, "build-7", "lab")
    hold = holds(watchdog)["build-7"]
    assert (hold.who, hold.owner, hold.gpu, hold.labels) == (
        "slurm (token)",
        "ada",
        "T4",
        (("job", "nightly"), ("team", "vision")),
    )
    assert said["usd"] == said["quote"]["usd"]["high"]
    assert hold.expires_at - hold.taken_at == timedelta(hours=4)
    again = admit(watchdog, **body)
    assert (again.status, again.data["reason"]) == (200, "already_held")
    assert again.data["expires_at"] == said["expires_at"], "it counts until then, whenever it is asked for again"
    assert ask(watchdog, "/v1/admit/end", {"hold": "build-7"}, "kube").status == 400, "it is slurm's"
    ended = ask(watchdog, "/v1/admit/end", {"hold": "build-7", "started": False})
    assert (ended.status, ended.data) == (200, {"hold": "build-7", "ended_by": "released"})
    assert "build-7" not in holds(watchdog)


def test_an_id_belongs_to_its_token_and_another_ones_hold_of_the_same_id_is_untouched(watchdog: Station) -> None:
    assert [admit(watchdog, who, usd=usd, id="same").status for who, usd in (("slurm", "3"), ("kube", "4"))] == [200, 200]
    with open_holds(watchdog.room.settings) as store:
        assert {(hold.key, hold.id, hold.money.format()) for hold in store.open_holds(datetime.now(UTC))} == {
            ("slurm/same", "same", "3.00"),
            ("kube/same", "same", "4.00"),
        }
        for other in ("kube/same", "slurm/same", "x/kube/same"):
            assert admit(watchdog, usd="1", id=other).status == 400
            assert ask(watchdog, "/v1/admit/end", {"hold": other}).status == 400
        assert admit(watchdog, "kube", usd="5", id="same").data["was_usd"] == "4.00"
        with pytest.raises(InputError, match="of several tokens"):
            store.release("same", datetime.now(UTC))
        assert ask(watchdog, "/v1/admit/end", {"hold": "same"}).status == 200
        assert [hold.key for hold in store.open_holds(datetime.now(UTC))] == ["kube/same"]
        assert admit(watchdog, usd="3", id="same").status == 400, "ended: the token's own"
        assert store.release("kube/same", datetime.now(UTC)).scope == "kube"


def test_a_run_that_is_asked_for_again_after_its_price_moved_is_renewed_or_refused_with_what_changed(watchdog: Station) -> None:
    assert admit(watchdog, usd="60", hours=2, id="moved").data["was_usd"] is None
    dearer = admit(watchdog, usd="90", hours=2, id="moved")
    assert (dearer.status, dearer.data["reason"], dearer.data["usd"], dearer.data["was_usd"]) == (
        200,
        "renewed",
        "90.00",
        "60.00",
    )
    refused = admit(watchdog, usd="101", hours=2, id="moved")
    assert (refused.status, refused.data["reason"], refused.data["was_usd"]) == (409, "budget_cap", "90.00")
    assert refused.data["says"].endswith("not enough for 101.00 USD; the earlier hold of 90.00 USD stays")
    another = admit(watchdog, usd="90", gpu="T4", hours=2, id="moved")
    assert (another.status, "another gpu (none, now T4)" in another.data["says"]) == (400, True)
    assert holds(watchdog)["moved"].money.nano == 90 * 10**9
    assert ask(watchdog, "/v1/admit/end", {"hold": "moved", "started": False}).status == 200


def test_a_refusal_is_a_409_with_what_would_fit_and_one_alert(watchdog: Station) -> None:
    before = set(holds(watchdog))
    for _ in range(2):
        came = admit(watchdog, gpu="H100", count=8, hours=6)
        assert came.status == 409, came.body
    said = came.data
    assert (said["held"], said["reason"], said["budget"], said["hold"]) == (False, "budget_cap", "lab", None)
    assert said["left"]["low"] == "100.00"
    assert all(float(one["usd"]) <= 100 for one in said["would_fit"])
    assert said["would_fit"]
    assert set(holds(watchdog)) == before
    with LedgerReader(watchdog.url) as reader, reader.snapshot() as query:
        denied = [one for one in load_overrides_since(query, datetime.now(UTC) - timedelta(hours=1)) if one.what == "denied"]
    assert [(one.subject, one.who) for one in denied] == [("lab", "slurm (token)")]
    none = admit(watchdog, gpu="H100", count=7, hours=1)
    assert (none.status, none.data["reason"], none.data["held"]) == (409, "no_price", False)


def test_a_cap_an_hour_is_compared_with_the_price_an_hour(watchdog: Station) -> None:
    eve = {"owner": "eve", "usd": "80"}
    assert admit(watchdog, **eve, hours=10, id="eve-1").status == 200
    said = admit(watchdog, **eve, hours=16, id="eve-2").data
    assert (said["held"], said["reason"], said["budget"], said["left"]["low"]) == (False, "rate_cap", "at once", "4.00")
    assert said["says"] == "budget at once: $4.00 of $12.00 an hour left, not enough for 5.00 USD an hour"
    assert admit(watchdog, **eve, id="eve-3").data["reason"] == "rate_unknown"
    assert holds(watchdog)["eve-1"].hourly == Money.parse("8")


def test_of_many_at_once_no_more_are_held_than_the_budget_has(watchdog: Station) -> None:
    statuses, gate = Counter[int](), threading.Barrier(30)

    def call(number: int) -> None:
        gate.wait()
        statuses[admit(watchdog, usd="1", hours=1, owner="bench", id=f"many-{number}").status] += 1

    threads = [threading.Thread(target=call, args=(number,)) for number in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    mine = [hold for name, hold in holds(watchdog).items() if name.startswith("many-")]
    assert (len(mine), statuses) == (20, Counter({200: 20, 409: 10}))
    for hold in mine:
        assert ask(watchdog, "/v1/admit/end", {"hold": hold.id}).data["ended_by"] == "committed"


@pytest.mark.parametrize(
    ("who", "status"), [("", 401), ("nobody", 401), ("grafana", 403)], ids=["no token", "unknown", "viewer"]
)
def test_who_is_no_operator_admits_nothing(watchdog: Station, who: str, status: int) -> None:
    before = holds(watchdog)
    assert admit(watchdog, who, usd="1").status == status
    assert ask(watchdog, "/v1/admit/end", {"hold": "x"}, who).status == status
    assert holds(watchdog) == before


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"[1]", "must be an object"), (b"{", "not JSON"), (b"[" * 60_000, "not JSON"), ({"usd": 1.5}, "usd"),
        ({"usd": "-1"}, "hold"), ({"usd": "1", "currency": "dollars"}, "currency"), ({"usd": "1", "gpu": "H999"}, "H999"),
        ({"usd": "1", "job": {"model": "gpt2"}}, "nothing is quoted"), ({"usd": "1", "color": "red"}, "unknown key"),
        ({"usd": "1", "id": "a b"}, "id"), ({"usd": "1", "for_s": 0}, "for_s"),
        ({"usd": "1", "labels": {"team": 3}}, "labels"),
        ({"usd": "1", "labels": {str(number): "x" for number in range(40)}}, "labels"),
        ({"usd": "1", "owner": "x" * 600}, "longer than"), ({"usd": "1", "labels": {"team": "x" * 501}}, "longer than"),
        ({"usd": "1", "owner": "\ud800"}, "surrogate"), ({"usd": "1", "labels": {"team": "\udfff"}}, "surrogate"),
        ({"job": {"model": "/etc/passwd", "method": "full", "tokens": 1000}}, "names a file"),
        ({"job": {"path": "config.json", "method": "full", "tokens": 1000}}, "names a file"),
        ({"job": {"model": "gpt9000", "method": "full", "tokens": 1000}}, "gpt9000"),
        ({"gpu": "H100", "hours": 1, "machines": 10**9}, "machines"), ({"gpu": "H100", "hours": "12"}, "hours"),
        ({}, "no job, no rental"),
    ],
)  # fmt: skip
def test_a_request_of_another_form_is_named_and_holds_nothing(watchdog: Station, body: object, said: str) -> None:
    before = holds(watchdog)
    came = ask(watchdog, "/v1/admit", body)
    assert came.status == 400, came.body
    assert said in came.data["says"]
    assert holds(watchdog) == before


def test_the_watchdog_believes_no_token_that_the_ledger_does_not_have_or_that_may_not(watchdog: Station) -> None:
    desk = AdmissionDesk(settings=lambda: watchdog.room.settings)

    def offer(token: str) -> AdmitOffer:
        made = AdmitOffer(token, "forged", 10**9, "USD", 3600.0, "x", "", "", "ada", "", [])
        came = decode_offer(AdmitOffer, encode_message(made))
        assert isinstance(came, AdmitOffer)
        return came

    write_token(watchdog.url, "cg_forged", "forged", "operator")  # as a web that is taken over could
    tokens = ("0" * 64, "cg_grafana", "cg_forged")
    came = desk.admit_all([*map(offer, tokens), HoldEndOffer("cg_grafana", "x", started=True)])
    assert [one.refused for one in came] == [NO_TOKEN, NOT_ALLOWED, NOT_ALLOWED, NOT_ALLOWED]
    assert "costguard web token forged --role operator" in came[2].says
    made = make_token(watchdog.url, "made", "operator")
    assert desk.admit_all([offer(made)])[0].refused == ""
    with AgentStore(watchdog.url) as book:
        watchdog.token("cg_gone", name="gone", role="operator")
        gone = next(one.hash for one in book.load_tokens() if one.name == "gone")
        assert isinstance(desk.admit_all([offer(gone)])[0], AdmitReply)
        book.revoke_token("gone", who="test", now=datetime.now(UTC))
    assert desk.admit_all([offer(gone)])[0].refused == NO_TOKEN


def test_activity_of_what_nobody_measured_or_nobody_knows_is_unknown_and_means_active(watchdog: Station) -> None:
    for machine in ("train-0", "i-0", "no-such-machine", "a/b/c/d", "%2e%2e%2fetc"):
        came = watchdog.ask("GET", f"/v1/activity/{machine}", headers={"Authorization": "Bearer cg_grafana"})
        assert (came.status, came.data["state"], came.data["active"]) == (200, "unknown", True), came.body
        assert came.data["why"]
    assert watchdog.ask("GET", "/v1/activity/i-0").status == 401


def row(state: str = "idle", **change: object) -> dict[str, object]:
    """A machine of a status."""
    work = {"state": state, "reasons": ["GPU under 5 %"], "since": "2026-11-27T10:00:00Z"}
    plain = {"provider": "aws", "account": "1", "region": "eu", "id": "i-1", "name": "train", "state": "running", "work": work}
    return {**plain, "seen_at": "2026-11-27T11:59:00+00:00", **change}


@pytest.mark.parametrize(
    ("rows", "age_s", "late", "state"),
    [
        ([row()], 30.0, False, "idle"), ([row("active")], 30.0, False, "active"), ([row("hung")], 30.0, False, "unknown"),
        ([row("unknown")], 30.0, False, "unknown"), ([row()], 900.0, True, "unknown"), ([row()], None, True, "unknown"),
        ([row(state="stopped")], 30.0, False, "unknown"),
        ([row(seen_at="2026-11-27T11:00:00+00:00")], 30.0, False, "unknown"),
        ([row(seen_at="2026-11-27T12:30:00+00:00")], 30.0, False, "unknown"),
        ([row(), row(id="i-2")], 30.0, False, "unknown"), ([], 30.0, False, "unknown"),
    ],
    ids=["idle", "active", "hung", "unmeasured", "late", "never", "stopped", "stale", "from the future", "two", "none"],
)  # fmt: skip
def test_only_a_machine_that_is_known_to_be_idle_now_is_not_active(
    rows: list[dict[str, object]], age_s: float | None, late: object, state: str
) -> None:
    board = RunBoard(lambda: 1, lambda: json.dumps({"resources": rows}).encode())
    answer = ActivityBoard(board=board, health=lambda: (age_s, bool(late)), clock=lambda: NOW).answer("train")
    assert (answer["state"], answer["active"]) == (state, state != "idle")
