from __future__ import annotations

import pytest

from costguard.errors import InputError
from costguard.providers.transport import check_url

GOOD = {
    "https://api.runpod.io": "https://api.runpod.io",
    "https://api.runpod.io/": "https://api.runpod.io",
    "https://api.runpod.io/v2/": "https://api.runpod.io/v2",
    " https://api.runpod.io/v2\n": "https://api.runpod.io/v2",
    "https://api.runpod.io:8443/v2": "https://api.runpod.io:8443/v2",
    "HTTPS://API.RunPod.IO": "HTTPS://API.RunPod.IO",
    "https://xn--bcher-kva.example": "https://xn--bcher-kva.example",
    "https://my_proxy.internal": "https://my_proxy.internal",
    "https://192.0.2.7": "https://192.0.2.7",
    "https://[2001:db8::1]:8443/x": "https://[2001:db8::1]:8443/x",
    "http://127.0.0.1:8080": "http://127.0.0.1:8080",
    "http://127.9.9.9": "http://127.9.9.9",
    "http://localhost:8080/v2": "http://localhost:8080/v2",
    "http://LocalHost": "http://LocalHost",
    "http://[::1]:80": "http://[::1]:80",
}
IN_THE_OPEN = [
    "http://api.runpod.io",
    "http://192.0.2.7",
    "http://10.0.0.1",
    "http://0.0.0.0",
    "http://[::]",
    "http://[::2]",
    "http://[::ffff:192.0.2.7]",
    "http://localhost.example.com",
    "http://127.0.0.1.example.com",
    "http://localhost.localdomain",
    "http://xn--localhost-9ya",
]
ODD = [
    "",
    " ",
    "api.runpod.io",
    "//api.runpod.io",
    "/v2",
    "https://",
    "https:///v2",
    "https:/api.runpod.io",
    "https:api.runpod.io",
    "ftp://api.runpod.io",
    "file:///etc/passwd",
    "javascript:alert(1)",
    "https://api.runpod.io:0",
    "https://api.runpod.io:",
    "https://api.runpod.io:99999",
    "https://api.runpod.io:x",
    "https://user@api.runpod.io",
    "https://user:pass@api.runpod.io",
    "https://@api.runpod.io",
    "http://127.0.0.1@api.runpod.io",
    "http://127.0.0.1\\@api.runpod.io",
    "http://127.0.0.1#@api.runpod.io",
    "http://127.0.0.1%2eapi.runpod.io",
    "https://api.runpod.io?key=1",
    "https://api.runpod.io/?",
    "https://api.runpod.io/#a",
    "https://api%2erunpod.io",
    "https://api.runpod.io/%2e%2e",
    "https://api.runpod.io/../x",
    "https://api.runpod.io/x/./y",
    "https://api.runpod.io//x",
    "https://api.runpod.io./",
    "https://.runpod.io",
    "https://api..io",
    "https://-a.io",
    "https://a-.io",
    "https://api runpod.io",
    "https://api.run\tpod.io",
    "https://api.run\npod.io",
    "https://api.runpod.io\x00",
    "https://api.runpod.io\\v2",
    "https://b\u00fccher.example",
    "http://127\u30020\u30020\u30021",
    "http://\u2460\u2461\u2466.0.0.1",
    "http://2130706433",
    "http://0x7f000001",
    "http://0x7f.1",
    "http://0177.0.0.1",
    "http://127.1",
    "http://127.0.0.1.",
    "http://localhost.",
    "http://127.0.0.256",
    "https://2130706433",
    "https://1.2.3",
    "https://[::1",
    "https://[::1]x",
    "https://[v1.a]",
    "https://[fe80::1%25eth0]",
    "https://" + "a" * 64 + ".io",
    "https://a.io/" + "x" * 2000,
    "https://\u202eoi.dopnur.ipa",
]


@pytest.mark.parametrize("text", GOOD)
def test_a_plain_address_is_kept_without_its_last_slash(text: str) -> None:
    assert check_url(text, "base_url") == GOOD[text]


@pytest.mark.parametrize("text", IN_THE_OPEN)
def test_plain_http_is_for_this_machine_alone(text: str) -> None:
    with pytest.raises(InputError, match="unencrypted"):
        check_url(text, "base_url")


@pytest.mark.parametrize("text", ODD)
def test_what_two_readers_could_read_differently_is_no_address(text: str) -> None:
    with pytest.raises(InputError) as refused:
        check_url(text, "providers.runpod.base_url")
    assert "providers.runpod.base_url" in str(refused.value)
    assert "user:pass" not in str(refused.value)
