"""Whoever asks over TLS refuses whatever is wrong with it, says whom and what and what to do, and has said nothing before."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from costguard.errors import ProviderError
from costguard.metering.inventory import Complete, Failed
from costguard.notifiers import Channel, chat, webhook
from costguard.providers.ports import LiveOfferSource
from costguard.providers.transport import Deadline, HttpRequest, Transport
from costguard.services.guarding.watchdog_context import send_heartbeat
from costguard.settings import Settings
from costguard.settings.sections import NetworkSettings, WatchSettings
from costguard.system import network as trust
from tests.contract.case import forms
from tests.contract.rig import Rig
from tests.fakes.server import Hands
from tests.networks.cells import RIGS, unhurried
from tests.networks.tls import CERTIFICATES, HOST, RIGHT, WORDS, WRONG, Authorities, old_tls_is_spoken, wrongly
from tests.notifiers.hostile import message_of
from tests.providers.transport.wires import CANARY, Told

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:apprise", "ignore::DeprecationWarning:paho")
SECRET_PATH = f"/hooks/{CANARY}"
BY_ENVIRONMENT = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE")


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> Authorities:
    return Authorities.made(tmp_path_factory.mktemp("authorities"))


@pytest.fixture
def quick() -> Iterator[None]:
    with unhurried():
        yield


@pytest.fixture(params=RIGS)
def rig(request: pytest.FixtureRequest) -> Rig:
    made = RIGS[request.param]()
    made.put(2)
    return made


def spoken(how: str) -> None:
    if how == "TLS 1.1" and not old_tls_is_spoken():
        pytest.skip("this machine's OpenSSL serves no TLS 1.1")


def is_told(how: str, said: str) -> None:
    """What is wrong and what to do, and nothing that looks like ours."""
    for words in WORDS[how]:
        assert words in said, said
    assert "Traceback" not in said
    assert not [form for form in forms(CANARY) if form in said]


def _refusal(source: Any) -> str:  # noqa: ANN401 - an account
    """Why it cannot be polled."""
    try:
        inventory = source.poll(source.list_scopes()[0]).inventory
    except ProviderError as broken:
        return str(broken)
    assert isinstance(inventory, Failed), inventory
    return inventory.why


def _offered(source: Any) -> int:  # noqa: ANN401 - an account
    """How much it has for sale, where it can say."""
    try:
        return len(source.list_live_offers(None).offers) if isinstance(source, LiveOfferSource) else 0
    except ProviderError:
        return 0


@pytest.mark.sampled(4)
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("how", WRONG)
def test_no_adapter_says_a_word_to_whom_it_cannot_believe(rig: Rig, how: str, authorities: Authorities, tmp_path: Path) -> None:
    spoken(how)
    with wrongly(how, rig.fake, authorities) as (base, file):
        transport = Transport(ca_file=file)
        source: Any = rig.accounts(base, transport, tmp_path, timeout_s=20)[0]
        said = _refusal(source)
        offered = _offered(source)
        transport.close()
    assert offered == 0
    is_told(how, said)
    assert f"https://{HOST}" in said
    assert not [form for canary in (rig.secret, *rig.more_secrets) for form in forms(canary) if form in said]
    assert rig.fake.asked == []


@pytest.mark.usefixtures("quick")
def test_every_adapter_believes_the_authority_that_the_settings_name(
    rig: Rig, authorities: Authorities, tmp_path: Path
) -> None:
    with wrongly(RIGHT, rig.fake, authorities) as (base, file):
        transport = Transport(ca_file=file)
        source: Any = rig.accounts(base, transport, tmp_path, timeout_s=20)[0]
        assert isinstance(source.poll(source.list_scopes()[0]).inventory, Complete)
        transport.close()


def hook(base: str, file: Path | None) -> tuple[bool, str]:
    sent = webhook.notify(message_of("m1"), Channel(name="h", clock=Hands(), address=base + SECRET_PATH, ca_file=file))
    return sent.sent, sent.why


def heart(base: str, file: Path | None) -> tuple[bool, str]:
    network = NetworkSettings.model_construct(ca_file=str(file) if file else None)
    said = send_heartbeat(
        lambda: Settings(watch=WatchSettings.model_construct(heartbeat_url=base + SECRET_PATH), network=network)
    )
    return not said, said


def room(base: str, file: Path | None) -> tuple[bool, str]:
    address = base.replace("https://", "jsons://") + SECRET_PATH
    sent = chat.notify(message_of("m1"), Channel(name="c", clock=Hands(), address=address, ca_file=file))
    return sent.sent, sent.why


@pytest.mark.parametrize("tell", [hook, heart, room])
@pytest.mark.parametrize("how", [RIGHT, *WRONG])
def test_nothing_is_told_to_whom_nobody_can_believe(how: str, tell: Any, authorities: Authorities) -> None:  # noqa: ANN401
    spoken(how)
    cloud = Told()
    with wrongly(how, cloud, authorities) as (base, file):
        sent, why = tell(base, file)
    assert sent == (how == RIGHT) == bool(cloud.asked)
    if how != RIGHT and tell is not room:  # Apprise says no more than that it was not taken
        is_told(how, why)
    assert CANARY not in why
    assert HOST not in why, "a host may be a secret, too: whoever reads it sees the channel's name beside it"


@pytest.mark.usefixtures("quick")
def test_no_variable_of_the_environment_names_an_authority_or_turns_anything_off(
    rig: Rig, authorities: Authorities, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in BY_ENVIRONMENT:
        monkeypatch.setenv(name, str(authorities.file.parent if name.endswith("DIR") else authorities.file))
    for name, value in {"PYTHONHTTPSVERIFY": "0", "NODE_TLS_REJECT_UNAUTHORIZED": "0", "GIT_SSL_NO_VERIFY": "1"}.items():
        monkeypatch.setenv(name, value)
    trust.load_system_context.cache_clear()
    environ = {**rig.environ(), **dict.fromkeys(BY_ENVIRONMENT, str(authorities.file))}
    with wrongly("unknown authority", rig.fake, authorities) as (base, _):
        transport = Transport()
        source: Any = rig.accounts(base, transport, tmp_path, environ, timeout_s=20)[0]
        assert "not trusted" in _refusal(source)
        transport.close()
        for tell in (hook, heart, room):
            assert not tell(base, None)[0]
    assert rig.fake.asked == []
    trust.load_system_context.cache_clear()


def test_a_chat_whose_address_turns_verification_off_is_none(authorities: Authorities) -> None:
    cloud = Told()
    with wrongly("certificate is self-signed", cloud, authorities) as (base, _):
        address = base.replace("https://", "jsons://") + f"{SECRET_PATH}?verify=no"
        sent = chat.notify(message_of("m1"), Channel(name="c", clock=Hands(), address=address))
    assert (sent.sent, sent.again, cloud.asked) == (False, False, [])
    assert "verify=no" in sent.why
    assert "ca_file" in sent.why


@pytest.mark.parametrize("how", CERTIFICATES)
def test_a_certificate_that_is_wrong_is_wrong_behind_a_stated_proxy_as_well(how: str, authorities: Authorities) -> None:
    from tests.networks.tunnel import tunnelled

    cloud = Told()
    with wrongly(how, cloud, authorities) as (base, file), tunnelled(int(base.rpartition(":")[2])) as (proxy, heard):
        transport = Transport(ca_file=file, proxy=proxy)
        for name, right in (("elsewhere.example", how == "another host"), ("other.example", False)):
            request = HttpRequest(method="GET", url=f"https://{name}/x", headers={"Authorization": CANARY})
            if right:
                assert transport.exchange(request, provider="c", deadline=Deadline(20)).status == 200
                continue
            with pytest.raises(ProviderError, match="certificate"):
                transport.exchange(request, provider="c", deadline=Deadline(20))
        transport.close()
    assert CANARY.encode() not in b"".join(heard)


def test_a_python_that_ignores_a_cut_connection_is_made_as_strict_as_newer_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian 12's Python 3.11.2 ignores an unexpected end and speaks old TLS by default."""
    loose = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    loose.options |= ssl.OP_IGNORE_UNEXPECTED_EOF
    loose.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    monkeypatch.setattr("httpx2.create_ssl_context", lambda **_: loose)
    trust.load_system_context.cache_clear()
    try:
        context = trust.load_system_context()
    finally:
        trust.load_system_context.cache_clear()
    assert not context.options & ssl.OP_IGNORE_UNEXPECTED_EOF
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
