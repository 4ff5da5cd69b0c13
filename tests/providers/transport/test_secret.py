from __future__ import annotations

import base64
import copy
import pickle
from dataclasses import dataclass
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costguard.errors import InputError
from costguard.ledger.db.address import parse_ledger_address
from costguard.providers.transport import Secret
from costguard.system.secret import (
    find_unencoded,
    list_url_secrets,
    scrub_bytes,
    scrub_environment,
    scrub_text,
    split_secret,
)

CANARY = "rp_canary+/=0123456789"


@dataclass(frozen=True)
class Holder:
    key: Secret


def test_a_secret_shows_itself_nowhere() -> None:
    secret = Secret(CANARY)
    holder = Holder(secret)
    texts = (
        repr(secret),
        str(secret),
        f"{secret}",
        f"{secret:>40}",
        f"{secret!r}",
        repr(holder),
        str([secret]),
        repr({"k": secret}),
    )
    assert not any("canary" in text for text in texts)


@pytest.mark.parametrize("write", [pickle.dumps, copy.deepcopy, copy.copy])
def test_a_secret_is_not_written_anywhere(write: object) -> None:
    assert callable(write)
    with pytest.raises(TypeError, match="not written"):
        write(Holder(Secret(CANARY)) if write is not copy.copy else Secret(CANARY))
    with pytest.raises(TypeError, match="not written"):
        Secret(CANARY).__getstate__()


@given(st.text(min_size=4, max_size=60), st.text(max_size=30), st.text(max_size=30))
def test_a_scrubbed_text_does_not_hold_the_secret(value: str, before: str, after: str) -> None:
    secrets = (Secret(value),)
    assert value in "[secret]" or value not in scrub_text(before + value + after, secrets).replace("[secret]", "\0")
    assert quote(value, safe="") in "[secret]" or quote(value, safe="") not in scrub_text(
        quote(value, safe=""), secrets
    ).replace("[secret]", "\0")


def test_bytes_are_scrubbed_as_text_is_and_left_alone_where_there_is_nothing() -> None:
    secrets = (Secret(CANARY),)
    assert scrub_bytes(f'{{"k": "{CANARY}"}}'.encode(), secrets) == b'{"k": "[secret]"}'
    clean = b"nothing here"
    assert scrub_bytes(clean, secrets) is clean


def test_a_short_secret_does_not_strike_out_every_word() -> None:
    assert scrub_text("a key", (Secret("a"), Secret(""))) == "a key"


def test_the_parts_of_a_header_are_secrets_too() -> None:
    basic = base64.b64encode(b"user-key:pass-word").decode()
    assert {one.reveal() for one in split_secret(Secret("Bearer tok-en"))} == {"Bearer tok-en", "tok-en"}
    assert {one.reveal() for one in split_secret(Secret(f"Basic {basic}"))} == {
        f"Basic {basic}",
        basic,
        "user-key",
        "pass-word",
    }
    assert {one.reveal() for one in split_secret(Secret("Basic !!"))} == {"Basic !!", "!!"}
    assert {one.reveal() for one in split_secret(Secret("two words"))} == {"two words"}


def test_a_hint_is_four_characters_of_a_long_one_and_none_of_a_short_one() -> None:
    assert Secret(CANARY).get_hint() == "...6789"
    assert Secret("short").get_hint() == "..."


@pytest.mark.parametrize(
    ("url", "character"),
    [
        *((f"postgresql://me:pa{one}ss@host/db", one) for one in "/?#@[] "),
        *((f"postgresql://m{one}e:pass@host/db", one) for one in "/?#@"),
        ("postgresql://me:p@ss/w#rd?x%y:z@host/db", "#"),
        ("postgresql://me:pa%ss@host/db", "%"),
        ("postgresql://me:pa?x=ss@host/db", "?"),
        ("postgresql://host/db?user=me@lab", "@"),
        ("http://me:pa@ss@proxy.example:3128", "@"),
        ("postgresql://me:p%40ss:w@host/db?host=/run/pg", ""),
        ("postgresql://[::1]:5432/db", ""),
        ("postgresql:///db", ""),
    ],
)
def test_what_must_be_encoded_in_an_address_is_named(url: str, character: str) -> None:
    assert find_unencoded(url) == character
    if character and url.startswith("postgresql"):
        with pytest.raises(InputError, match=f"encode it: {quote(character, safe='')};") as caught:
            parse_ledger_address(url)
        assert not any(part in str(caught.value) for part in ("ss@", "pa%s", "me:", "rd?", "ss/"))


@pytest.mark.parametrize(
    "said", ["p%40ss/w:rd", "p@ss/w:rd", 'host "ss/w:rd@db"', 'port "w:rd"', "with p@ss/w", "query s3cr%2Ft s3cr/t"]
)
def test_no_part_of_a_password_is_left_in_what_a_library_says(said: str) -> None:
    secrets = list_url_secrets("postgresql://me:p%40ss/w:rd@db/x?sslpassword=s3cr%2Ft")
    left = scrub_text(f"{said} failed", secrets)
    assert left.endswith(" failed")
    assert not any(part in left for part in ("ss/w", "w:rd", "s3cr"))


def test_passwords_of_the_environment_are_taken_out_of_what_is_unexpected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSTGUARD_NETWORK__PROXY", "http://me:hunter2hunter@proxy:1")
    assert scrub_environment("no route to me:hunter2hunter@proxy") == "no route to me:[secret]@proxy"
