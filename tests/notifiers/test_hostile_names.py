"""Every hostile name through every sink: it is shown, and does nothing (RELIABILITY H39)."""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
import unicodedata

import pytest

from costguard.notifiers import Channel, format_body, format_title
from costguard.notifiers.console import notify as to_console
from costguard.notifiers.webhook import build_webhook_body
from costguard.values.resource import make_storable
from costguard.values.text_format import LINE_CHARS_MAX, encode_chat, encode_plain, quote_shell_word
from tests.fakes.server import Hands
from tests.notifiers.hostile import CORPUS, LINES, message_of

SINKS = {"terminal and mail": encode_plain, "chat": encode_chat}
NAMED = [pytest.param(name, id=f"{number:03}") for number, name in enumerate(CORPUS)]
ACTING = ("Cc", "Cs", "Zl", "Zp", "Co")


def acts(text: str) -> list[str]:
    """The characters of a text, beyond line breaks of ours and the blank that breaks markup, that a terminal would act on."""
    return [c for c in text if c not in "\n\u200b" and unicodedata.category(c) in (*ACTING, "Cf")]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("sink", SINKS, ids=str)
@pytest.mark.parametrize("name", NAMED)
def test_no_name_makes_a_line_of_its_own_or_a_code(name: str, sink: str) -> None:
    message = message_of(name)
    title, body = format_title(message, SINKS[sink]), format_body(message, SINKS[sink])
    assert len(body.splitlines()) == LINES + title.endswith("…")
    assert "\n" not in title
    assert len(title) <= 200
    assert not acts(title + body)
    assert all(len(line) <= 2 * LINE_CHARS_MAX + 20 for line in body.splitlines())


@pytest.mark.parametrize("name", NAMED)
def test_no_name_is_a_mention_a_tag_markup_or_a_link_in_a_chat(name: str) -> None:
    message = message_of(name)
    text = f"{format_title(message, encode_chat)}\n{format_body(message, encode_chat)}"
    assert not re.search(r"[<>&@`*~|\\]", text)
    assert not re.search(r"(?i)://|www\.|mailto:|javascript:|data:|\]\(|__|\{\{", text)


@pytest.mark.parametrize("name", NAMED)
def test_a_webhook_gets_json_whose_texts_are_clean(name: str) -> None:
    body = build_webhook_body(message_of(name))
    found = json.loads(body)
    assert body.isascii()
    assert found["notices"][0]["subject"].startswith("aws/1/us/")
    assert len(found["text"].splitlines()) == LINES + found["title"].endswith("…")
    assert not acts(json.dumps(found, ensure_ascii=False))


@pytest.mark.parametrize("name", NAMED)
def test_a_console_of_any_encoding_shows_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for encoding in ("utf-8", "ascii"):
        file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="backslashreplace", newline="")
        monkeypatch.setattr(sys, "stderr", file)
        assert to_console(message_of(name), Channel(name="console", clock=Hands())).sent
        file.seek(0)
        text = file.read()
        assert not acts(text)
        assert len(text.splitlines()) == LINES + 1 + text.splitlines()[0].endswith(("…", r"\u2026"))


@pytest.mark.parametrize("name", NAMED)
def test_a_pasted_command_is_one_command_with_the_id_as_one_word(name: str) -> None:
    word = quote_shell_word(name)
    assert "\n" not in word
    assert len(shlex.split(f"costguard keep {word} --for 4h", posix=True)) == 5
    assert shlex.split(word)[0] == "".join(c if c.isprintable() else "\ufffd" for c in name)


@pytest.mark.parametrize("name", NAMED)
def test_a_cleaned_text_can_be_stored_and_sent_anywhere(name: str) -> None:
    assert make_storable(encode_plain(name)) == encode_plain(name)
    assert encode_chat(name).encode().decode() == encode_chat(name)
