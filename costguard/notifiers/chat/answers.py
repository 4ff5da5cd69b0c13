"""What services answer to Apprise's requests.

Apprise says only whether a service accepted a message. Its answers are read here, so that a refusal is shown with its status
and text, a message without any request is not noted as sent, and an answer of 200 whose body is a refusal counts as one.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from html import unescape
from typing import Any
from urllib.parse import unquote_plus

from costguard.notifiers import format_answer

ANSWER_CHARS_READ = 64 * 2**10
JSON_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|[bfnrt])")
PROBE_CHARS, NOT_ALNUM = 12, re.compile(r"[\W_]+")
"""By how many letters and digits the beginning and the end of a text are recognised, however it is escaped."""
NO_REQUEST = "no request was made: the service takes no message of this severity (set min_severity of the route)"
ZERO_FIELDS = {
    "lark": ("code", "StatusCode"),
    "feishu": ("code", "StatusCode"),
    "dingtalk": ("errcode",),
    "wecombot": ("errcode",),
}
"""Scheme -> fields of an answer that are 0 where the message is shown; their status is 200 also where it is not.

open.feishu.cn "custom bot usage guide", open.dingtalk.com "custom bot", developer.work.weixin.qq.com 91770; read 2026-11.
"""
REFUSAL_FIELDS = {"ok": False, "success": False, "result": "error", "status": "error"}
"""Fields by which chats refuse in an answer of 200: Slack and Telegram, Rocket.Chat, Zulip, Rocket.Chat's REST API."""


def is_unsent(service: object, answers: Sequence[Any]) -> bool:
    """Return whether `service`, Apprise's, made no request, as far as it sends by `requests`."""
    return not answers and hasattr(sys.modules[type(service).__module__], "requests")


def describe_answer(answers: Sequence[Any], address: str) -> str:
    """Return the last answer, `403 invalid_token`, without the parts of `address` that may be secrets; "" if there is none."""
    if not answers:
        return ""
    return format_answer(answers[-1].status_code, _read_text(answers[-1]), address)


def is_refusal(service: object, answers: Sequence[Any]) -> bool:
    """Return whether the last of `answers` to `service`, Apprise's, refuses in its body, whatever its status."""
    try:
        body = json.loads(_read_text(answers[-1]))
    except (IndexError, ValueError):
        return False
    if not isinstance(body, dict):
        return False
    codes = [body.get(name, 0) for name in ZERO_FIELDS.get(type(service).__module__.rpartition(".")[2], ())]
    return any(codes) or any(name in body and body[name] == value for name, value in REFUSAL_FIELDS.items())


def is_cut(text: str, answers: Sequence[Any]) -> bool:
    """Return whether a request, or an answer that repeats `text`, has its beginning and not its end."""
    return bool(_list_cut(text, answers))


def is_shown(line: str, text: str, answers: Sequence[Any]) -> bool:
    """Return whether `line` of `text` stands whole in every request and answer that cut `text`."""
    letters = _list_letters(line)[0]
    return all(any(letters in one for one in readings) for readings in _list_cut(text, answers))


def _list_cut(text: str, answers: Sequence[Any]) -> list[list[str]]:
    """Return the readings of each request and answer that has the beginning of `text` and not its end."""
    bodies = [body for one in answers for body in (_read_body(getattr(one, "request", None)), _read_text(one))]
    expected = _list_letters(text)[0]

    def has(readings: list[str], letters: str) -> bool:
        return any(letters in one for one in readings)

    every = map(_list_letters, bodies)
    return [one for one in every if has(one, expected[:PROBE_CHARS]) and not has(one, expected[-PROBE_CHARS:])]


def _list_letters(text: str) -> list[str]:
    """Return the letters and digits of `text` without the escapes of JSON and HTML, and the same of it as a form's field."""
    return [NOT_ALNUM.sub("", unescape(JSON_ESCAPE.sub(_decode_escape, one))) for one in (text, unquote_plus(text))]


def _decode_escape(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16)) if escape[1] else " "


def _read_body(request: Any) -> str:  # noqa: ANN401 - requests says no types
    body = getattr(request, "body", None) or ""
    return body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body)


def _read_text(answer: Any) -> str:  # noqa: ANN401 - requests says no types
    return str(getattr(answer, "text", ""))[:ANSWER_CHARS_READ]
