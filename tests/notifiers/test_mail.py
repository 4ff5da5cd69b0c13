"""Mail over TLS, from the start and by STARTTLS, with a real server of this machine and an authority of the test."""

from __future__ import annotations

import smtplib
from pathlib import Path

import pytest

from costguard.guard.alerts.alert import DeliveryResult
from costguard.notifiers import Channel
from costguard.notifiers.chat import notify
from costguard.notifiers.chat.mail import CLEAR_TEXT_REFUSAL, DELIVERY_UNCERTAIN
from tests.fakes.server import Hands
from tests.networks.tls import CERTIFICATES, RIGHT, WORDS, Authorities, server_context
from tests.notifiers.hostile import message_of
from tests.smtp import IMPLICIT, PASSWORD, STARTTLS, TAKEN, Post, post_office

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
"""What Apprise's plug-ins do when they are imported is theirs."""


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> Authorities:
    return Authorities.made(tmp_path_factory.mktemp("authorities"))


def told(address: str, ca_file: Path | None = None) -> DeliveryResult:
    """What came of one message to lead@lab.org."""
    channel = Channel(name="mail", clock=Hands(), address=address, ca_file=ca_file, person="lead@lab.org", within_s=20)
    return notify(message_of("m1"), channel)


@pytest.mark.parametrize("tls", [IMPLICIT, STARTTLS])
def test_a_letter_goes_over_tls_to_whom_the_settings_trust(authorities: Authorities, tls: str) -> None:
    with post_office(Post(tls=tls, context=server_context(RIGHT, authorities))) as post:
        assert told(post.url, authorities.file) == DeliveryResult(sent=True)
    [(whom, letter)] = post.read
    assert whom == ("lead@lab.org",)
    assert (letter["To"], letter["From"]) == ("lead@lab.org", "costguard@lab.org")
    assert letter["Subject"] == "costguard: m1 is idle"
    assert "costguard keep aws/1/us/m1" in str(letter.get_content())
    assert not any(word in line for line in post.heard for word in (b"AUTH", b"RCPT", b"MAIL"))


@pytest.mark.parametrize("tls", [IMPLICIT, STARTTLS])
@pytest.mark.parametrize("how", CERTIFICATES)
def test_nothing_is_said_to_whom_nobody_can_believe(authorities: Authorities, tls: str, how: str) -> None:
    file = {"unknown authority": None, "another authority": authorities.other_file}.get(how, authorities.file)
    with post_office(Post(tls=tls, context=server_context(how, authorities))) as post:
        sent = told(post.url, file)
    assert not sent.sent
    assert all(words in sent.why for words in WORDS[how]), sent.why
    assert post.letters == []
    assert not any(b"AUTH" in line for line in post.heard)


def test_a_password_leaves_this_machine_over_tls_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object, **__: object) -> None:
        raise AssertionError("somebody was asked")

    monkeypatch.setattr(smtplib, "SMTP", asked)
    for address in (
        f"mailto://user:{PASSWORD}@smtp.lab.org?from=a@lab.org",
        f"mailtos://user:{PASSWORD}@smtp.lab.org?from=a@lab.org&mode=insecure",
        f"mailto://user:{PASSWORD}@10.0.0.1:25?from=a@lab.org",
    ):
        assert told(address) == DeliveryResult(sent=False, why=CLEAR_TEXT_REFUSAL, again=False)


@pytest.mark.parametrize("tls", [IMPLICIT, STARTTLS])
def test_a_password_that_the_server_does_not_know_is_said_and_not_shown(authorities: Authorities, tls: str) -> None:
    with post_office(Post(tls=tls, context=server_context(RIGHT, authorities), login=f"535 {PASSWORD} is wrong")) as post:
        sent = told(post.url, authorities.file)
    assert (sent.sent, sent.why) == (False, "the server rejected the name and password (535)")
    assert post.letters == []


def test_a_server_that_breaks_off_with_the_letter_may_have_it_and_a_second_copy_is_known_as_one(
    authorities: Authorities,
) -> None:
    post = Post(tls=STARTTLS, context=server_context(RIGHT, authorities), breaks=TAKEN)
    with post_office(post):
        assert told(post.url, authorities.file) == DeliveryResult(sent=False, why=DELIVERY_UNCERTAIN)
        post.breaks = ""
        assert told(post.url, authorities.file).sent
    first, second = (letter for _, letter in post.read)
    assert first["Message-ID"] == second["Message-ID"]
    assert first["Message-ID"].endswith("@costguard>")
