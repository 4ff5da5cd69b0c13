"""What a variable of the environment, or a file of the user, may say about where and how costguard asks: nothing (H48)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from costguard_aws.credentials import CredentialSource, load_credentials, open_botocore_session
from costguard_gcp.credentials import Login, TokenSource

from costguard.notifiers import Channel, chat, webhook
from costguard.providers.transport import Deadline, Transport
from tests.fakes.server import Answer, Asked, Hands, serving
from tests.notifiers.hostile import message_of
from tests.providers.transport.wires import CANARY, Told

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:apprise", "ignore::DeprecationWarning:paho")
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Told]:
    """Whom every variable names as the proxy, and a password for this machine in ~/.netrc."""
    (tmp_path / ".netrc").write_text(f"machine 127.0.0.1 login me password {CANARY}\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    proxy = Told()
    with serving(proxy) as base:
        for name in PROXIES:
            monkeypatch.setenv(name, base)
        yield proxy


def test_the_control_is_heard_by_the_stranger_and_shows_him_the_password(stranger: Told) -> None:
    """What `requests` does where nobody tells it otherwise: without this the tests below would say nothing."""
    with requests.Session() as session:
        session.trust_env = True
        session.get("http://127.0.0.1:9/x", timeout=20)
    assert "authorization" in stranger.asked[0].headers


@pytest.mark.parametrize("kind", ["chat", "webhook"])
def test_a_notice_goes_where_the_settings_say_and_shows_no_password_of_the_user(stranger: Told, kind: str) -> None:
    cloud = Told()
    with serving(cloud) as base:
        address = base.replace("http", "json", 1) if kind == "chat" else base
        notify = chat.notify if kind == "chat" else webhook.notify
        assert notify(message_of("m1"), Channel(name="c", clock=Hands(), address=f"{address}/x")).sent
    assert stranger.asked == []
    assert "authorization" not in cloud.asked[0].headers


def test_a_chat_goes_through_the_proxy_that_the_settings_name(stranger: Told) -> None:
    ours = Told()
    with serving(ours) as proxy:
        channel = Channel(name="c", clock=Hands(), address="json://chat.example/x", proxy=proxy)
        assert chat.notify(message_of("m1"), channel).sent
    assert stranger.asked == []
    assert [asked.line for asked in ours.asked] == ["POST http://chat.example/x"]


def test_a_chat_whose_address_follows_redirects_follows_none() -> None:
    elsewhere = Told()
    with serving(elsewhere) as other, serving(Told(Answer.of({}, status=307, Location=f"{other}/x"))) as base:
        address = base.replace("http", "json", 1) + "/x?redirect=yes"
        assert not chat.notify(message_of("m1"), Channel(name="c", clock=Hands(), address=address)).sent
    assert elsewhere.asked == []


def test_the_keys_of_an_ec2_machine_are_asked_of_the_machine_and_of_nobody_else(stranger: Told, tmp_path: Path) -> None:
    key = {"Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": "ASIA1", "SecretAccessKey": CANARY, "Token": CANARY}
    said = {
        "/latest/api/token": Answer(body=b"token"),
        "/latest/meta-data/iam/security-credentials/": Answer(body=b"role"),
        "/latest/meta-data/iam/security-credentials/role": Answer.of({**key, "Expiration": "2046-01-01T00:00:00Z"}),
    }

    def answer(asked: Asked) -> Answer:
        return said.get(asked.path, Answer(status=404))

    machine = Told(answer)
    with serving(machine) as base:
        environ = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{base}/"}
        session = open_botocore_session(CredentialSource(), environ, tmp_path / "nobody")
        found = load_credentials(CredentialSource(), session, session.create_client)
        assert found.get_frozen_credentials().secret_key == CANARY
    assert stranger.asked == []


def test_the_token_of_a_google_machine_is_asked_of_the_machine_and_of_nobody_else(stranger: Told) -> None:
    cloud, transport = Told(), Transport()
    tokens = TokenSource(Login(source="the machine's metadata server"), transport)
    with serving(cloud) as base:
        tokens._make_requester(Deadline(20))(f"{base}/computeMetadata/v1/instance")
    transport.close()
    assert stranger.asked == []
    assert "authorization" not in cloud.asked[0].headers
