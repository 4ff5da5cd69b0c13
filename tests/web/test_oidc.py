"""Logins at an identity provider over real HTTP: who gets in with which role, and what a bad answer comes to."""

from __future__ import annotations

import json
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from fastapi import FastAPI
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey
from starlette.testclient import TestClient

from costguard.errors import InputError, NoAnswerError
from costguard.ledger.agents.logins import LoginStore
from costguard.providers.transport import Transport
from costguard.services.guarding.overrides import get_now
from costguard.services.serving import oidc
from costguard.services.serving.door_messages import OidcOffer
from costguard.services.serving.person_acts import PersonActs
from costguard.services.serving.web_pages import PageServices
from costguard.settings import check_settings, resolve_ledger_url
from costguard.settings.sections import OidcSettings
from costguard.values.web_login import choose_role, name_person
from costguard.web.middleware import RequestMiddleware
from costguard.web.pages import build_page_router
from tests.web.identity import CLIENT, SECRET, Identity, ec_key, identity_provider, rsa_key
from tests.web.stations import station
from tests.web.test_page_stops import Link

HOST = "http://localhost"
DAY_S = 86_400
"""Later than any run of these tests: what is parametrized is computed when they are collected."""
Sign = Callable[[dict[str, Any]], str]


class Silent:
    def error(self, *_: object, **__: object) -> None:
        """Log nothing."""


class Pages:
    """The pages with a provider, and a browser of one person."""

    def __init__(self, url: str, folder: Path, identity: Identity, secret_file: Path) -> None:
        config = folder / "oidc.toml"
        config.write_text(
            f'[ledger]\nurl = "{url}"\n[web]\nlisten = "127.0.0.1:8470"\nurl = "{HOST}"\n'
            f'[web.oidc]\nissuer = "{identity.issuer}"\nclient_id = "{CLIENT}"\nclient_secret = "file:{secret_file}"\n'
            'viewer = ["ml"]\noperator = ["leads"]\nadmin = ["root"]\n'
        )
        self.identity, self.services = identity, PageServices(config=str(config))
        self.ledger = resolve_ledger_url(self.services.settings)
        app = FastAPI(redirect_slashes=False)
        app.include_router(build_page_router(self.services))
        self.app = RequestMiddleware(app, hosts=("localhost",), log=Silent())  # type: ignore[arg-type]  # a log in part
        self.browser = TestClient(self.app, base_url=HOST, follow_redirects=False)

    def begin(self, path: str = "/oidc/login") -> str:
        came = self.browser.get(path)
        assert came.status_code == 303, came.text
        return str(came.headers["location"])

    def log_in(self, path: str = "/oidc/login", **more: str) -> Any:  # noqa: ANN401 - a response of the test client
        return self.browser.get(self.identity.authorize(self.begin(path), **more).removeprefix(HOST))


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with station(tmp_path_factory.mktemp("oidc")) as made:
        made.room.run_guard()
        yield made.url


@pytest.fixture
def pages(ledger: str, tmp_path: Path) -> Iterator[Pages]:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    with identity_provider() as identity:
        yield Pages(ledger, tmp_path, identity, secret)


def test_a_person_logs_in_and_comes_back_to_the_page_that_was_asked_for(pages: Pages) -> None:
    pages.identity.claims = {"email": "ada@example.org", "email_verified": True}
    refused = pages.browser.get("/log?since=7d")
    assert refused.status_code == 401
    link = refused.text.partition('class="button" href="')[2].partition('"')[0]
    came = pages.log_in(link)
    assert came.status_code == 200
    assert 'content="0;url=/log?since=7d"' in came.text
    session = next(one for one in came.headers.get_list("set-cookie") if one.startswith("costguard=")).lower()
    assert "httponly" in session
    assert "samesite=strict" in session
    page = pages.browser.get("/log?since=")
    assert page.status_code == 200
    assert "oidc:2481 ada@example.org" in page.text
    assert pages.identity.wrong == []


def test_the_request_has_pkce_state_and_nonce_and_comes_back_to_the_address_of_the_settings(pages: Pages) -> None:
    first, second = (parse_qs(urlsplit(pages.begin()).query) for _ in range(2))
    assert first["redirect_uri"] == [f"{HOST}/oidc/callback"]
    assert first["code_challenge_method"] == ["S256"]
    assert first["scope"] == ["openid profile email"]
    assert all(first[name] != second[name] and len(first[name][0]) >= 43 for name in ("state", "nonce", "code_challenge"))


@pytest.mark.parametrize(
    ("groups", "role"),
    [(["ml"], "viewer"), (["ml", "leads"], "operator"), (["root", "ml"], "admin"), (["other"], None), ("leads", "operator")],
)
def test_groups_decide_the_role_and_who_has_none_is_refused(pages: Pages, groups: object, role: str | None) -> None:
    pages.identity.claims = {"groups": groups}
    came = pages.log_in()
    page = pages.browser.get("/")
    if role is None:
        assert (came.status_code, page.status_code) == (403, 401)
        assert "no group in" in came.text
    else:
        assert f"<small>{role}</small>" in page.text


def sign_plainly(said: dict[str, Any]) -> str:
    parts = [json.dumps(one).encode() for one in ({"alg": "none"}, said)]
    return ".".join([*(urlsafe_b64encode(one).rstrip(b"=").decode() for one in parts), ""])


def sign_with_public_key(said: dict[str, Any]) -> str:
    key = OctKey.import_key(rsa_key("one").as_pem(private=False))
    return jwt.encode({"alg": "HS256", "kid": "one"}, said, key, algorithms=["HS256"])


def sign_with_foreign_key(said: dict[str, Any]) -> str:
    return jwt.encode({"alg": "RS256", "kid": "one"}, said, rsa_key("foreign"))


@pytest.mark.parametrize(
    ("claims", "sign"),
    [
        ({"aud": "another"}, None), ({"aud": [CLIENT, "another"]}, None),
        ({"aud": [CLIENT, "another"], "azp": "another"}, None), ({"iss": "https://another.example"}, None),
        ({"exp": int(time.time()) - 120}, None), ({"exp": None}, None), ({"iat": int(time.time()) + DAY_S}, None),
        ({"nbf": int(time.time()) + DAY_S}, None), ({"nonce": "another"}, None), ({"at_hash": "another"}, None),
        ({"sub": "two words"}, None), ({"sub": 7}, None), ({}, sign_plainly), ({}, sign_with_public_key),
        ({}, sign_with_foreign_key), ({}, lambda _: "no.token.at"), ({}, lambda _: "[" * 9_000 + ".a.b"),
        ({}, lambda said: jwt.encode({"alg": "RS256", "kid": "one"}, {**said, "much": "x" * 20_000}, rsa_key("one"))),
    ],
)  # fmt: skip
def test_an_id_token_that_does_not_count_logs_nobody_in(pages: Pages, claims: dict[str, Any], sign: Sign | None) -> None:
    pages.identity.claims, pages.identity.sign = claims, sign
    assert pages.log_in().status_code == 403
    assert pages.browser.get("/").status_code == 401


def test_an_answer_counts_once_in_the_browser_that_asked_and_in_time(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    back = pages.identity.authorize(pages.begin()).removeprefix(HOST)
    stranger = TestClient(pages.app, base_url=HOST, follow_redirects=False)
    assert "a login of this browser" in stranger.get(back).text
    assert stranger.get("/").status_code == 401
    kept = dict(pages.browser.cookies)
    assert pages.browser.get(back).status_code == 200
    for name, value in kept.items():
        stranger.cookies.set(name, value)
    assert "was used already" in stranger.get(back).text
    late = pages.identity.authorize(pages.begin()).removeprefix(HOST)
    monkeypatch.setattr(oidc, "LOGIN_WITHIN_S", -1.0)
    assert "arrived too late" in pages.browser.get(late).text


def test_a_second_login_in_another_tab_or_browser_ends_no_other(pages: Pages) -> None:
    first, second = (pages.identity.authorize(pages.begin(f"/oidc/login?next=/{page}")) for page in ("log", "report"))
    pages.browser.get("/oidc/callback?code=x&state=" + "0" * 64)  # an answer of another site's link ends none either
    for answer, page in ((first, "log"), (second, "report")):
        assert f'content="0;url=/{page}"' in pages.browser.get(answer.removeprefix(HOST)).text
    assert "costguard-login" not in pages.browser.cookies
    session = dict(pages.browser.cookies)
    other = TestClient(pages.app, base_url=HOST, follow_redirects=False)
    link = other.get("/oidc/login").headers["location"]
    assert other.get(pages.identity.authorize(link).removeprefix(HOST)).status_code == 200
    assert [one.get("/").status_code for one in (pages.browser, other)] == [200, 200]
    token = other.get("/").text.partition('name="token" value="')[2].partition('"')[0]
    assert other.post("/logout", data={"token": token}).status_code == 200
    assert [one.get("/").status_code for one in (pages.browser, other)] == [200, 401]
    assert dict(pages.browser.cookies) == session


def test_a_forged_state_or_a_changed_cookie_asks_the_provider_nothing(pages: Pages) -> None:
    pages.begin()
    pages.identity.asked.clear()
    for query in ("", "?code=x", "?code=x&state=", "?code=x&state=" + "0" * 64, "?" + "&".join(f"a{n}=1" for n in range(99))):
        assert pages.browser.get(f"/oidc/callback{query}").status_code == 403
    for cookie in ("", ".", "a.b.c", "a." + "9" * 5_000, "a.1." + "%2F" * 400):
        stranger = TestClient(pages.app, base_url=HOST, cookies={"costguard-login": cookie})
        assert stranger.get("/oidc/callback?code=x&state=0").status_code == 403
    assert pages.identity.asked == []


@pytest.mark.parametrize(
    "back",
    [
        *("//evil.example", "https://evil.example", "/\\evil.example", "\\\\evil.example", "javascript:alert(1)"),
        *("/x\r\nx: y", '/"><script>', "/oidc/login", "/logout", "", "/" + "a" * 600),
    ],
)
def test_nobody_is_sent_to_another_place_after_a_login(pages: Pages, back: str) -> None:
    start = pages.browser.get("/oidc/login", params={"next": back})
    came = pages.browser.get(pages.identity.authorize(start.headers["location"]).removeprefix(HOST))
    assert 'content="0;url=/"' in came.text


def test_an_answer_of_another_issuer_is_refused(pages: Pages) -> None:
    assert pages.log_in(iss="https://another.example").status_code == 403
    assert pages.log_in(iss=pages.identity.issuer).status_code == 200
    for name in ("issuer", "token_endpoint", "jwks_uri", "authorization_endpoint", "end_session_endpoint"):
        with identity_provider() as other:
            other.discovery = {name: "http://another.example/x"}
            given = OidcSettings.model_construct(issuer=other.issuer, client_id=CLIENT, admin=("root",))
            client = oidc.OidcClient(settings=given, callback=HOST, transport=Transport(), clock=get_now)
            with pytest.raises(NoAnswerError):
                client.begin_login("/")


def test_a_provider_that_states_its_name_in_answers_must_state_it(pages: Pages) -> None:
    pages.identity.discovery = {"authorization_response_iss_parameter_supported": True}
    assert pages.log_in().status_code == 403
    assert pages.log_in(iss=pages.identity.issuer).status_code == 200


def test_new_keys_are_read_once_and_huge_or_odd_key_sets_log_nobody_in(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pages.log_in().status_code == 200
    pages.identity.key = ec_key("two")
    assert pages.log_in().status_code == 403  # keys that are younger than half a minute are not read again
    monkeypatch.setattr(oidc, "KEYS_AGAIN_S", 0.0)
    assert pages.log_in().status_code == 200
    read = pages.identity.asked.count("/jwks_uri")
    assert pages.log_in().status_code == 200
    assert pages.identity.asked.count("/jwks_uri") == read
    monkeypatch.setattr(oidc, "KEYS_LAST_S", 0.0)
    spent, finish = list[float](), oidc.OidcClient.finish_login

    def timed(client: oidc.OidcClient, cookie: str, query: Mapping[str, str]) -> Any:  # noqa: ANN401 - what it returns
        began = time.thread_time()
        try:
            return finish(client, cookie, query)
        finally:
            spent.append(time.thread_time() - began)

    monkeypatch.setattr(oidc.OidcClient, "finish_login", timed)
    good = pages.identity.key.as_dict(private=False)
    for odd in (
        [{**good, "n": "A" * 1_000} for _ in range(5_000)],
        [{"kty": "RSA", "kid": "two", "n": "A" * 60_000, "e": "AQAB"}],
        [{"kty": "EC", "kid": "two", "crv": "P-256", "x": "AA", "y": ["AA"]}],
        [{"kty": ["EC"], "kid": "two"}],
        [{"kid": "two"}],
        [{**good, "kid": f"k{n}", "x": "A"} for n in range(400)],
        [],
    ):
        pages.identity.published = odd
        assert pages.log_in().status_code == 403
    assert max(spent) < 1, "of CPU: 0.05 is what a request that nobody signed may cost (WEB.md), and a busy core is slower"


def test_a_key_that_was_replaced_under_its_old_name_is_read_again_once(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pages.log_in().status_code == 200
    pages.identity.key = RSAKey.generate_key(2048, {"kid": "one"})
    assert pages.log_in().status_code == 403, "within half a minute keys are not read again"
    monkeypatch.setattr(oidc, "KEYS_AGAIN_S", 0.0)
    read = pages.identity.asked.count("/jwks_uri")
    assert [pages.log_in().status_code for _ in range(2)] == [200, 200]
    assert pages.identity.asked.count("/jwks_uri") == read + 1


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({"email": "boss@example.org", "email_verified": False}, "oidc:2481"), ({"email": "boss@example.org"}, "oidc:2481"),
        ({"email": "boss@example.org", "email_verified": "true"}, "oidc:2481"),
        ({"email": "boss@example.org", "preferred_username": "boss@example.org", "name": "Ada L"}, "oidc:2481 Ada L"),
        ({"name": "ada\n\x1b[2Jevil"}, "oidc:2481"), ({"sub": "a b"}, None), ({"sub": ""}, None), ({"sub": "x" * 256}, None),
    ],
)  # fmt: skip
def test_an_address_that_nobody_verified_is_not_shown_and_never_identifies(claims: dict[str, Any], name: str | None) -> None:
    assert name_person({"sub": "2481", **claims}) == name


def test_a_role_may_stand_deep_in_the_claims() -> None:
    given = {"viewer": (), "operator": ("ops",), "admin": ()}
    assert choose_role({"realm_access": {"roles": ["ops"]}}, "realm_access.roles", given) == "operator"
    assert choose_role({"a.b": ["ops"]}, "a.b", given) == "operator"
    assert choose_role({"realm_access": "ops"}, "realm_access.roles", given) is None
    assert choose_role({"groups": [["ops"], 7, None]}, "groups", given) is None


def test_a_provider_that_hangs_holds_up_nobody_else_and_few_logins_wait(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oidc, "ANSWERS_WITHIN_S", 300.0)
    pages.identity.answers.clear()
    with TestClient(pages.app, base_url=HOST, follow_redirects=False) as one:
        found = list[int]()
        logins = [threading.Thread(target=lambda: found.append(one.get("/oidc/login").status_code)) for _ in range(25)]
        for each in logins:
            each.start()
        assert one.get("/static/icon.svg").status_code == 200
        assert one.get("/").status_code == 401
        wait_for(lambda: len(found) == 9)
        assert set(found) == {429}, "the other logins wait for the provider, and what was asked beside them was answered"
        pages.identity.answers.set()
        for each in logins:
            each.join(120)
    assert (found.count(429), found.count(303)) == (9, 16)


def wait_for(true: Callable[[], bool]) -> None:
    """Wait for what threads do."""
    end = time.monotonic() + 120
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_one_address_is_slowed_down_before_the_provider_is_asked(pages: Pages) -> None:
    found = [pages.browser.get("/oidc/callback?code=x&state=0") for _ in range(40)]
    assert [one.status_code for one in found[:30]] == [403] * 30
    assert {one.status_code for one in found[32:]} == {429}
    assert int(found[-1].headers["retry-after"]) >= 1
    assert pages.identity.asked == []


def test_who_logs_out_is_out_and_is_told_where_to_log_out_as_well(pages: Pages) -> None:
    assert pages.log_in().status_code == 200
    page = pages.browser.get("/")
    token = page.text.partition('name="token" value="')[2].partition('"')[0]
    left = pages.browser.post("/logout", data={"token": token})
    assert f'href="{pages.identity.issuer}/end?client_id={CLIENT}"' in left.text
    assert pages.browser.get("/").status_code == 401


def test_a_command_ends_the_sessions_of_one_subject_whatever_is_shown_beside_it(pages: Pages) -> None:
    pages.identity.claims = {"sub": "77", "name": "Ada"}
    assert pages.log_in().status_code == 200
    with LoginStore(pages.ledger) as book:
        assert book.revoke_sessions(who="t", now=get_now(), name="oidc:7") == 0
        assert book.revoke_sessions(who="t", now=get_now(), name="oidc:77") == 1
    assert pages.browser.get("/").status_code == 401


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ('issuer = "http://login.example"', "is not https"),
        ('issuer = "https://user:pw@login.example"', "holds a user or a password"),
        ('issuer = "https://["', "is not an address"),
        ('issuer = "https://x.example"\nclient_secret = "abc"', "holds a secret"),
        ('issuer = "https://x.example"\nscopes = ["email"]', "must contain openid"),
        ('issuer = "https://x.example"\nadmin = []', "gives no role"),
        ('issuer = "https://x.example"\nadmins = ["x"]', "unknown key"),
    ],
)
def test_settings_that_no_login_could_be_made_with_are_refused(lines: str, told: str) -> None:
    given = lines if "admin" in lines else f'{lines}\nadmin = ["x"]'
    with pytest.raises(InputError, match=told) as error:
        check_settings(f'[web]\nurl = "https://guard.example"\n[web.oidc]\nclient_id = "c"\n{given}\n', "costguard.toml")
    assert "pw@" not in str(error.value)


def test_a_login_at_a_provider_is_finished_by_the_watchdog(pages: Pages) -> None:
    acts = PersonActs(url=pages.ledger, config=pages.services.config)
    app = FastAPI(redirect_slashes=False)
    app.include_router(build_page_router(pages.services, Link(acts)))  # type: ignore[arg-type]  # a part of it
    pages.browser = TestClient(
        RequestMiddleware(app, hosts=("localhost",), log=Silent()),  # type: ignore[arg-type]  # a log in part
        base_url=HOST,
        follow_redirects=False,
    )
    pages.identity.claims = {"groups": ["ml"]}
    assert pages.log_in().status_code == 200
    assert pages.browser.get("/").status_code == 200
    client = oidc.open_oidc_client(pages.services.settings, get_now)
    assert client is not None
    start = client.begin_login("/")
    state = parse_qs(urlsplit(start.url).query)["state"][0]
    for code in ("invented", ""):  # the web's own code may begin a login; it has no person's code
        reply = acts.answer(OidcOffer(start.cookie, {"state": state, "code": code}))
        assert (reply.done, reply.secret) == (False, "")
    with LoginStore(pages.ledger) as book:
        assert book.revoke_sessions(who="t", now=get_now(), name="oidc:2481") >= 1
    assert pages.browser.get("/").status_code == 401
