"""Chats through Apprise, over real sockets of this machine."""

from __future__ import annotations

import json
import logging
import re

import pytest

from costguard.guard.alerts.alert import PAGE
from costguard.notifiers import Channel
from costguard.notifiers.chat import notify
from tests.fakes.server import Answer, Hands, serving
from tests.notifiers.hostile import CORPUS, message_of
from tests.providers.transport.wires import Told

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
"""What Apprise's plug-ins do when they are imported is theirs."""

TOKEN = "canary-token-0123456789abcdef"  # noqa: S105 - looked for in what is shown


def channel(address: str, **changes: object) -> Channel:
    said: dict[str, object] = {"name": "chat", "clock": Hands(), "address": address}
    return Channel(**(said | changes))  # type: ignore[arg-type]


def json_at(address: str) -> Channel:
    """Apprise's own JSON service: the plainest of those that it can reach on this machine."""
    return channel(f"{address.replace('http://', 'json://')}/{TOKEN}")


def test_it_sends_the_title_the_text_and_how_bad_it_is() -> None:
    cloud = Told()
    with serving(cloud) as address:
        assert notify(message_of("m1", severity=PAGE), json_at(address)).sent
    [asked] = cloud.asked
    assert asked.json()["title"] == "costguard: PAGE: m1 is idle"
    assert asked.json()["type"] == "failure"
    assert "to keep it: costguard keep aws/1/us/m1 --for 4h" in asked.json()["message"]


def test_every_hostile_name_in_one_room_wakes_nobody() -> None:
    cloud = Told()
    with serving(cloud) as address:
        for name in CORPUS:
            assert notify(message_of(name), json_at(address)).sent
    texts = [asked.json()["title"] + asked.json()["message"] for asked in cloud.asked]
    assert len(texts) == len(CORPUS)
    assert not [text for text in texts if re.search(r"(?i)[<>&@`*|]|://|\]\(", text)]


def test_a_redirect_is_not_followed() -> None:
    other = Told()
    with serving(other) as elsewhere, serving(Told(Answer.of({}, status=307, Location=f"{elsewhere}/x"))) as address:
        assert not notify(message_of("m1"), json_at(address)).sent
    assert not other.asked


@pytest.mark.parametrize(
    "address", ["", "nonsense", "nosuch://a/b", f"slack://{TOKEN}"], ids=["empty", "no", "unknown", "slack"]
)
def test_an_address_that_is_none_is_said_without_being_shown(address: str) -> None:
    delivery = notify(message_of("m1"), channel(address))
    assert (delivery.sent, delivery.again) == (False, False)
    assert TOKEN not in delivery.why


def test_nothing_of_an_address_is_logged_or_printed(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(1)
    for name in ("apprise", "urllib3", "urllib3.connectionpool"):
        logging.getLogger(name).setLevel(1)
    with serving(Told()) as address:
        notify(message_of("m1"), json_at(address))
    notify(message_of("m1"), channel(f"json://127.0.0.1:1/{TOKEN}"))
    notify(message_of("m1"), channel(f"nosuch://{TOKEN}"))
    assert TOKEN not in caplog.text + "".join(capfd.readouterr()) + repr(json_at("http://127.0.0.1"))


def test_whatever_a_service_raises_is_said_by_its_kind_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError(f"cannot reach https://hooks.example/{TOKEN}")

    monkeypatch.setattr("apprise.Apprise.notify", broken)
    delivery = notify(message_of("m1"), channel("json://127.0.0.1:1/"))
    assert delivery.why == "the service failed (RuntimeError)"


SERVICES = {
    "slack": "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#ops",
    "discord": "discord://123456789012345678/abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnop",
    "telegram": "tgram://123456789:abcdefg_hijklmnop/12315544/",
}


class Accepted:
    """What a service says that took a message."""

    status_code, content, text, headers = 200, b'{"ok": true, "result": {"message_id": 1}}', "ok", dict[str, str]()

    def json(self) -> object:
        return {"ok": True, "result": {"message_id": 1}}


@pytest.mark.parametrize("service", SERVICES, ids=str)
def test_what_goes_to_a_chat_holds_no_mention_link_or_tag_of_a_name(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = list[str]()

    def request(*_: object, **how: object) -> Accepted:
        sent.append(json.dumps(json.loads(str(how["data"])), ensure_ascii=False))
        return Accepted()

    monkeypatch.setattr("requests.Session.request", request)
    monkeypatch.setattr("apprise.plugins.base.NotifyBase.throttle", lambda *_, **__: None)
    names = [name for name in CORPUS if len(name) < 200]
    for name in names:
        notify(message_of(name), channel(SERVICES[service]))
    assert len(sent) == len(names)
    ours = re.compile(r"</?b>")
    assert not [text for text in sent if re.search(r"(?i)<|>|&[a-z#]|@|://|\]\(|www\.[a-z]", ours.sub("", text))]
