"""Pagers by their documented events, over real requests: a page, its repeat and its end are one incident."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from costguard.guard.alerts.alert import INFO, PAGE, REPEAT_DUE, RESOLVED, Alert, Notification
from costguard.notifiers import Channel
from costguard.notifiers.chat import notify
from costguard.settings.notify import PAGER_PATTERN
from tests.fakes.server import Answer, Asked, Hands
from tests.notifiers.hostile import AT
from tests.notifiers.services import in_place_of_hosts
from tests.providers.transport.wires import Told

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
KEY, UUID = "0123456789abcdef0123456789abcdef", "01234567-89ab-cdef-0123-456789abcdef"


def read_opsgenie(asked: Asked) -> tuple[str, bool]:
    parts = asked.path.split("/alerts", 1)[1].split("/")
    if len(parts) == 1:
        return asked.json()["alias"], False
    assert (parts[2], asked.one("identifierType"), asked.headers["authorization"]) == ("close", "alias", f"GenieKey {UUID}")
    return parts[1], True


def read_by(key: str, field: str, end: str) -> Callable[[Asked], tuple[str, bool]]:
    return lambda asked: (asked.json()[key], asked.json().get(field) == end)


PAGERS: dict[str, Callable[[Asked], tuple[str, bool]]] = {
    f"pagerduty://{KEY}@{KEY}": read_by("dedup_key", "event_action", "resolve"),
    f"opsgenie://{UUID}/#ops": read_opsgenie,
    f"jira://{UUID}": read_opsgenie,
    f"splunk://team@{UUID}": read_by("entity_id", "message_type", "RECOVERY"),
    "pagertree://int_0123456789": read_by("id", "event_type", "resolve"),
    "signl4://abcdefghij": read_by("X-S4-ExternalID", "X-S4-Status", "resolved"),
    f"squadcast://{KEY}": read_by("event_id", "status", "resolve"),
    f"ilert://{KEY}": read_by("alertKey", "eventType", "RESOLVE"),
    f"incidentio://{KEY}/01HZXK3V8Q9R7T2W5Y6A1B2C3D": read_by("deduplication_key", "status", "resolved"),
    f"firehydrant://{KEY}": read_by("idempotency_key", "status", "CLOSED"),
    f"goalerts://host.example/{UUID}": read_by("dedup", "action", "close"),
    f"https://api.squadcast.com/v2/incidents/api/{KEY}": read_by("event_id", "status", "resolve"),
}
"""Address -> key of the incident and whether it ends, read off a request by the service's documentation."""


def page(*names: str, over: str = "", route: str = "oncall", **changes: object) -> Notification:
    notices = tuple(
        Alert(
            topic="policy:idle-gpu",
            subject=f"aws/1/us/{name}",
            severity=PAGE,
            what=f"{'resolved: ' if name == over else ''}{name} is idle",
            at=AT,
            is_over=name == over,
        )
        for name in names
    )
    one = Notification(
        id=f"{len(changes)}-{over}", channel="c", why_now="first", severity=PAGE, title=notices[0].what, notices=notices, at=AT
    )
    return replace(one, route=route, **changes)  # type: ignore[arg-type]


def channel(address: str) -> Channel:
    return Channel(name="pager", clock=Hands(), address=address)


@pytest.mark.parametrize("address", PAGERS, ids=lambda address: address.split("/")[2 if address.startswith("http") else 0])
def test_a_page_its_repeat_and_its_end_are_one_incident(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Told(Answer.of({"status": "success", "requestId": "r1"}))
    messages = (page("m1", "m2"), page("m1", "m2", why_now=REPEAT_DUE), page("m1", over="m1", why_now=RESOLVED, severity=INFO))
    with in_place_of_hosts(cloud, monkeypatch):
        assert [notify(one, channel(address)).sent for one in messages] == [True, True, True]
        assert notify(page("m1", route="other"), channel(address)).sent
    keys = [PAGERS[address](asked) for asked in cloud.asked]
    first, second, other = keys[0][0], keys[1][0], keys[5][0]
    assert keys == [(first, False), (second, False), (first, False), (second, False), (first, True), (other, False)]
    assert len({first, second, other}) == 3
    assert PAGER_PATTERN.match(address)


def test_the_pagers_of_the_settings_are_those_of_apprise() -> None:
    import apprise.plugins

    manager: Any = apprise.plugins.N_MGR
    schemes = {one for one in manager.schemas() if "map" in manager[one].template_args.get("action", {}).get("values", ())}
    assert schemes == {one for one in manager.schemas() if PAGER_PATTERN.match(f"{one}://x")}
    assert len(schemes) == 13


@pytest.mark.parametrize("address", [f"opsgenie://{UUID}", f"jira://{UUID}"], ids=["opsgenie", "jira"])
def test_what_no_request_carried_is_not_noted_as_sent(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Told()
    with in_place_of_hosts(cloud, monkeypatch):
        delivery = notify(page("m1", severity=INFO, notices=(replace(page("m1").notices[0], severity=INFO),)), channel(address))
    assert cloud.asked == []
    assert (delivery.sent, delivery.again) == (False, False)
    assert "no request was made" in delivery.why


@pytest.mark.parametrize(
    ("address", "answer"),
    [
        ("lark://abc-def", {"code": 19001, "msg": "param invalid: abc-def"}),
        ("feishu://abcdefgh", {"code": 9499, "msg": "bad abcdefgh"}),
        ("dingtalk://abcdefgh", {"errcode": 310000, "errmsg": "keywords not in content"}),
        ("wecombot://abcdefgh", {"errcode": 93000, "errmsg": "invalid webhook url"}),
        ("json://127.0.0.1/abcdefgh", {"ok": False, "error": "channel_not_found abcdefgh"}),
    ],
    ids=lambda one: one.split(":")[0] if isinstance(one, str) else "",
)
def test_an_answer_of_200_that_refuses_is_a_refusal(
    address: str, answer: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_place_of_hosts(Told(Answer.of(answer)), monkeypatch):
        delivery = notify(page("m1"), channel(address))
    assert not delivery.sent
    assert delivery.parts[0].answer == f"200 {json.dumps(answer)}".replace("abcdefgh", "***").replace("abc-def", "***")
