"""A notice that is longer than its channel: every machine stands whole in a message that was accepted, or counts as untold."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from costguard.guard.alerts.alert import Alert, Notification
from costguard.guard.alerts.part_delivery import add_parts, list_undelivered
from costguard.notifiers import Channel
from costguard.notifiers.chat import notify
from tests.fakes.server import Answer, Hands, serving
from tests.notifiers.hostile import AT, message_of
from tests.notifiers.test_recipients import announce
from tests.providers.transport.wires import Told

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
"""What Apprise's plug-ins do when they are imported is theirs."""

NAMES = [f"node-{number:02d}-of-vision" for number in range(20)]
PAGE = "https://guard.lab.org/machine?id=aws/1/us/"


def plan(name: str) -> Alert:
    """What announces a stop, with all that such an alert has."""
    links, keep = (("page", f"{PAGE}{name}"),), f"costguard keep aws/1/us/{name} --for 4h"
    facts = (("per hour", "$32.7700"), ("so far", "$24.58"), ("why", "idle since 18:05 UTC (45 min): GPU duty 0 %"))
    what = f"{name} (8x A100 80GB SXM) stops at 19:05 UTC"
    return replace(announce(name), what=what, keep=keep, facts=facts, links=links, condition=f"stop of {name}")


def crowd(names: list[str] = NAMES) -> Notification:
    return replace(message_of("m"), notices=tuple(map(plan, names)), title=f"{names[0]} (and {len(names) - 1} more)")


def channel(address: str) -> Channel:
    hands = Hands()
    hands.at = AT
    return Channel(name="c", clock=hands, address=address)


class Accepted:
    """What a service says that took a message."""

    status_code, content, text, headers = 200, b'{"ok": true, "result": {"message_id": 1}}', "ok", dict[str, str]()

    def json(self) -> object:
        return {"ok": True, "result": {"message_id": 1}}


CHATS: dict[str, tuple[str, Callable[[Any], int], int]] = {
    "discord": (
        "discord://123456789012345678/abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnop",
        lambda said: len(said["content"].encode("utf-16-le")) // 2,
        2000,
    ),
    "telegram": (
        "tgram://123456789:abcdefg_hijklmnop/12315544/",
        lambda said: len(said["text"].encode("utf-16-le")) // 2,
        4096,
    ),
    "google chat": ("gchat://space/key/token", lambda said: len(said["text"].encode()), 4096),
    "pagerduty": ("pagerduty://A@B/", lambda said: len(said["payload"]["summary"]), 1024),
    "ntfy": ("ntfy://topic", lambda said: len(said["message"].encode()), 4096),
    "mattermost": ("mmost://127.0.0.1/tokentokentoken", lambda said: len(said["text"]), 4000),
    "rocket.chat": ("rocket://web/hook@127.0.0.1/#c?mode=webhook", lambda said: len(said["text"]), 1000),
}


@pytest.mark.parametrize("chat", CHATS, ids=str)
def test_a_chat_shows_each_machine_whole_within_its_limit(chat: str, monkeypatch: pytest.MonkeyPatch) -> None:
    address, measure, size = CHATS[chat]
    sent = list[Any]()

    def request(*_: object, **how: object) -> Accepted:
        sent.append(json.loads(str(how["data"])))
        return Accepted()

    monkeypatch.setattr("requests.Session.request", request)
    result = notify(crowd(), channel(address))
    assert result.sent
    assert len(sent) == len(result.parts)
    assert max(map(measure, sent)) <= size
    for part, said in zip(result.parts, sent, strict=True):
        shown = json.dumps(said)
        assert {NAMES[number] for number in part.alerts} == set(re.findall(r"node-\d\d-of-vision", shown))
        assert len(re.findall(rf"{re.escape(PAGE)}node-\d\d-of-vision", shown)) >= len(part.alerts)


def test_a_part_that_is_refused_leaves_its_machines_untold_and_is_all_that_comes_again() -> None:
    statuses = iter([200, 400, 200, 429])
    cloud = Told(
        lambda _: Answer.of({}, status=(status := next(statuses, 200)), **({"Retry-After": "7"} if status == 429 else {}))
    )
    names = [f"node-{number:03d}" for number in range(100)]
    message = crowd(names)
    with serving(cloud) as address:
        to = channel(address.replace("http://", "gotify://") + "/token")
        result = notify(message, to)
        assert not result.sent
        missing = [one.subject.rpartition("/")[2] for one in list_undelivered(add_parts(message, result.parts))]
        shown = [re.findall(r"^node-\d{3}", asked.json()["message"], re.MULTILINE) for asked in cloud.asked]
        assert missing == [*dict.fromkeys(shown[1]), *names[names.index(shown[3][0]) :]]
        cloud.asked.clear()
        assert notify(add_parts(message, result.parts), to).sent
        again = {
            name for asked in cloud.asked for name in re.findall(r"node-\d{3}", asked.json()["title"] + asked.json()["message"])
        }
    assert again == set(missing)


def test_a_service_that_asks_to_wait_is_not_asked_again_before() -> None:
    cloud = Told(Answer.of({}, status=429, **{"Retry-After": "90"}))
    with serving(cloud) as address:
        result = notify(crowd([f"node-{n}" for n in range(100)]), channel(address.replace("http://", "json://")))
    assert (len(cloud.asked), result.sent, result.retry_after) == (1, False, timedelta(seconds=90))


def test_where_a_line_is_longer_than_a_message_the_alert_counts_as_untold(monkeypatch: pytest.MonkeyPatch) -> None:
    def request(*_: object, **__: object) -> None:
        raise AssertionError("something was sent")

    monkeypatch.setattr("requests.Session.request", request)
    result = notify(crowd(["n" * 300, "m" * 300]), channel("dapnet://user:password@DF1ABC"))
    assert (result.sent, list_undelivered(add_parts(crowd(), result.parts))) == (False, crowd().notices)
    assert "one line is longer" in result.why


def test_what_a_service_cuts_off_is_untold_and_comes_again_in_smaller_parts() -> None:
    """A gotify that keeps 1,000 characters of what it takes, says so in its answer, and is limited nowhere else."""
    cloud = Told(lambda asked: Answer.of({"id": 1, "message": asked.json()["message"][:1_000]}))
    message, told, tries = crowd(NAMES), set[str](), 0
    with serving(cloud) as address:
        to = channel(address.replace("http://", "gotify://") + "/token")
        while not (result := notify(message, to)).sent:
            assert result.why == "the rest follows"
            message, tries = add_parts(message, result.parts), tries + 1
            now_told = set(NAMES) - {one.subject.rpartition("/")[2] for one in list_undelivered(message)}
            kept = "".join(asked.json()["message"][:1_000] for asked in cloud.asked)
            assert told < now_told
            assert all(f"costguard keep aws/1/us/{name} --for 4h" in kept for name in now_told)
            told = now_told
    assert tries > 1


def test_a_service_that_cuts_even_one_alert_has_told_nobody() -> None:
    cloud = Told(lambda asked: Answer.of({"message": asked.json()["message"][:40]}))
    with serving(cloud) as address:
        result = notify(crowd(NAMES[:2]), channel(address.replace("http://", "gotify://") + "/token"))
    assert (result.sent, len(list_undelivered(add_parts(crowd(NAMES[:2]), result.parts)))) == (False, 2)
    assert result.why == "the service accepted it and shows 0 of 2 alerts"


@pytest.mark.parametrize("write", [str, html.escape, lambda text: f"<p>{html.escape(text)}</p>".replace("\n", "<br/>")])
def test_an_answer_that_repeats_the_text_in_another_notation_is_not_taken_for_a_cut_one(write: Callable[[str], str]) -> None:
    cloud = Told(lambda asked: Answer.of({"message": write(asked.json()["message"])}))
    message = crowd(["café & 50%20 <a>+b\\n ünï", "R&D"])
    with serving(cloud) as address:
        result = notify(message, channel(address.replace("http://", "gotify://") + "/token"))
    assert result.sent
    assert list_undelivered(add_parts(message, result.parts)) == ()
