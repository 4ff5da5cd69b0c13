"""What services answer to Apprise's requests.

Apprise says only whether a service accepted a message. Its answers are read here, so that a refusal is shown with its status
and text, a message without any request is not noted as sent, and an answer of 200 whose body is a refusal counts as one.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote_plus

from costguard.notifiers import format_answer

ANSWER_CHARS_READ = 64 * 2**10
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
    bodies = [str(getattr(getattr(one, "request", None), "body", "") or "") for one in answers]
    letters = [NOT_ALNUM.sub("", unquote_plus(one)) for one in (*bodies, *map(_read_text, answers))]
    expected = NOT_ALNUM.sub("", text)
    return any(expected[:PROBE_CHARS] in one and expected[-PROBE_CHARS:] not in one for one in letters)


def _read_text(answer: Any) -> str:  # noqa: ANN401 - requests says no types
    return str(getattr(answer, "text", ""))[:ANSWER_CHARS_READ]
