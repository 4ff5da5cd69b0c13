"""Addresses pasted as services show them go to the service in its own words; what is nobody's stays a webhook."""

from __future__ import annotations

import pytest

from costguard.errors import InputError
from costguard.notifiers.chat.addresses import translate_address
from costguard.services.guarding.dispatch import open_notifier
from costguard.settings import check_settings
from tests.fakes.server import Answer, Hands, serving
from tests.notifiers.hostile import message_of
from tests.notifiers.services import in_place_of_hosts
from tests.providers.transport.wires import Told

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
ID, UUID = "abcdefghijklmnopqrstuvwxyz", "01234567-89ab-cdef-0123-456789abcdef"
LOGIC = "workflows/0123456789abcdef/triggers/manual/paths/invoke?api-version=1&sp=%2Ftriggers%2Fmanual%2Frun&sig=abcd-0123"
SHOWN = {
    "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ": "attachments",
    f"https://discord.com/api/webhooks/123456789012345678/{ID * 3}": "content",
    f"https://canary.discord.com/api/v10/webhooks/123456789012345678/{ID * 3}": "content",
    "https://chat.googleapis.com/v1/spaces/AAAA/messages?key=k1&token=t1": "text",
    f"https://prod-12.westeurope.logic.azure.com:443/{LOGIC}": "attachments",
    f"https://default0a1b.5d.environment.api.powerplatform.com:443/powerautomate/automations/direct/{LOGIC}": "attachments",
    f"https://mattermost.lab.org/hooks/{ID}": "text",
    f"https://chat.lab.org/hooks/{ID}": "text",
    f"https://open.larksuite.com/open-apis/bot/v2/hook/{UUID}": "msg_type",
    f"https://open.feishu.cn/open-apis/bot/v2/hook/{UUID}": "msg_type",
    "https://oapi.dingtalk.com/robot/send?access_token=abcdef0123": "msgtype",
    "https://api.telegram.org/bot123456789:abcdefg_hijklmnop/sendMessage?chat_id=-10012345": "chat_id",
    "https://push.lab.org/message?token=AbCdEfGhIjKlMnO": "priority",
    f"https://rocket.lab.org/hooks/64f1c2d3e4f5a6b7c8d9e0f1/{ID * 2}": "text",
    "https://connect.signl4.com/webhook/abcdefghij": "X-S4-ExternalID",
    "https://api.pagertree.com/integration/int_0123456789": "event_type",
}
"""Address -> a field that the service's own JSON has."""
WEBHOOKS = (
    *(
        "https://example.com/notify/costguard",
        "https://example.com/hooks/costguard",
        "https://hooks.zapier.com/hooks/catch/1/a/",
    ),
    *(
        "https://home.lab.org:8123/api/webhook/costguard",
        "https://prod-1.logic.azure.com/workflows/1/runs",
        "http://127.0.0.1:1/x",
    ),
)
REFUSED = {
    "https://api.opsgenie.com/v2/alerts": "opsgenie://APIKEY",
    "https://events.pagerduty.com/v2/enqueue": "pagerduty://INTEGRATIONKEY@APIKEY",
    "https://company.webhook.office.com/webhookb2/x@y/IncomingWebhook/z/w": "create a workflow of Teams",
    "https://hooks.slack.com/services/T1": "or the whole address",
    "https://org.zulipchat.com/api/v1/messages": "zulip://",
    "https://api.telegram.org/bot123456789:abcdefg_hijklmnop/sendMessage": "tgram://",
}


def send(address: str, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setenv("CHAT", address)
    settings = check_settings('[[notify.route]]\nto = ["env:CHAT"]\n', "x.toml")
    return open_notifier("env:CHAT", settings, Hands())(message_of("m1"))


@pytest.mark.parametrize("address", SHOWN, ids=lambda address: address.split("/")[2])
def test_an_address_as_shown_gets_the_words_of_its_service(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ok = b"ok" if "hooks.slack.com" in address else b"{}"
    cloud = Told(Answer(status=202 if "workflows" in address else 200, body=ok))
    with in_place_of_hosts(cloud, monkeypatch):
        delivery = send(address, monkeypatch)
    assert delivery.sent, delivery  # type: ignore[attr-defined]
    [asked] = cloud.asked
    assert SHOWN[address] in asked.json()
    assert "schema" not in asked.json()


@pytest.mark.parametrize("address", WEBHOOKS)
def test_what_is_no_service_stays_a_webhook(address: str) -> None:
    assert translate_address(address) == ""


def test_a_webhook_gets_our_json(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(cloud := Told()) as base:
        assert send(f"{base}/notify/costguard", monkeypatch).sent  # type: ignore[attr-defined]
    assert cloud.asked[0].json()["schema"] == "costguard.message/1"


@pytest.mark.parametrize("address", REFUSED)
def test_an_address_of_a_service_that_cannot_be_used_is_refused_with_what_to_write(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError) as refusal:
        translate_address(address)
    assert REFUSED[address] in str(refusal.value.hint)
    delivery = send(address, monkeypatch)
    assert (delivery.sent, delivery.again) == (False, False)  # type: ignore[attr-defined]
    assert "abcdefg" not in delivery.why  # type: ignore[attr-defined]
