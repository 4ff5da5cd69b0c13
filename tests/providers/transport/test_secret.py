from __future__ import annotations

import base64
import copy
import pickle
from dataclasses import dataclass
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costguard.providers.transport import Secret
from costguard.system.secret import scrub_bytes, scrub_text, split_secret

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
