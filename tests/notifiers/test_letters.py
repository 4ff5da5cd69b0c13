"""Letters with a file, through each channel: whole where it can take one, and nothing that a name could do."""

from __future__ import annotations

import base64
import re
from dataclasses import replace

import pytest

from costguard.guard.alerts.alert import DUE, INFO, Attachment, Notification
from costguard.notifiers import Channel, chat, console, pack_content, webhook
from tests.fakes.server import Hands, serving
from tests.notifiers.hostile import AT, CORPUS
from tests.providers.transport.wires import Told

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
"""What Apprise's plug-ins do when they are imported is theirs."""

PAGE = b"<!doctype html><p>\xe2\x82\xac 5</p>"
LETTER = Notification(
    id="6c62",
    channel="c",
    why_now=DUE,
    severity=INFO,
    title="GPU spending in 2026-10: $5.00",
    notices=(),
    at=AT,
    letter=(("2026-10: $5.00", "two"), ("three",)),
    enclosures=(Attachment(name="costguard-2026-10.html", media="text/html", packed=pack_content(PAGE)),),
)


def named(name: str) -> Notification:
    """A letter in which everything that somebody else may name is `name`."""
    return replace(LETTER, title=f"of {name}", letter=((f"dearest: {name}", name), (f"owner {name}: $5",)))


def channel(address: str = "") -> Channel:
    return Channel(name="c", clock=Hands(), address=address)


def json_at(address: str) -> Channel:
    return channel(address.replace("http://", "json://"))


def test_a_chat_that_takes_files_gets_the_letter_and_the_file_as_it_is() -> None:
    cloud = Told()
    with serving(cloud) as address:
        assert chat.notify(LETTER, json_at(address)).sent
    [asked] = cloud.asked
    said = asked.json()
    assert said["message"].split("\n\n")[1:] == ["2026-10: $5.00\ntwo", "three"]
    [file] = said["attachments"]
    assert (file["filename"], file["mimetype"]) == ("costguard-2026-10.html", "text/html")
    assert base64.b64decode(file["base64"]) == PAGE


@pytest.mark.parametrize(
    ("media", "content", "key", "value"),
    [
        ("application/json", b'{"a": [1]}', "json", {"a": [1]}),
        ("text/csv", b"a,b\n", "text", "a,b\n"),
        ("application/octet-stream", b"PAR1\xff", "base64", "UEFSMf8="),
    ],
)
def test_a_webhook_gets_what_is_enclosed_within_what_is_signed(media: str, content: bytes, key: str, value: object) -> None:
    cloud = Told()
    enclosed = (Attachment(name="x", media=media, packed=pack_content(content)),)
    with serving(cloud) as address:
        to = replace(channel(f"{address}/hook"), secret="s" * 32)
        assert webhook.notify(replace(LETTER, enclosures=enclosed), to).sent
    [asked] = cloud.asked
    assert asked.json()["enclosed"] == [{"name": "x", "media": media, key: value}]
    headers = {name.lower(): text for name, text in asked.headers.items()}
    signed = webhook.sign_webhook("s" * 32, "6c62", headers["costguard-timestamp"], asked.body)
    assert headers["costguard-signature"] == signed


def test_no_name_in_a_letter_wakes_anybody_or_makes_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    cloud, hook = Told(), Told()
    with serving(cloud) as address, serving(hook) as other:
        for name in CORPUS:
            assert chat.notify(named(name), json_at(address)).sent
            assert webhook.notify(named(name), channel(f"{other}/hook")).sent
            assert console.notify(named(name), channel()).sent
            shown = capsys.readouterr().err
            assert len(shown.splitlines()) == 7, name
            assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2028]", shown)
    texts = [asked.json()["title"] + asked.json()["message"] for asked in cloud.asked]
    assert len(texts) == len(hook.asked) == len(CORPUS)
    assert not [text for text in texts if re.search(r"(?i)[<>&@`*|]|://|\]\(", text)]
