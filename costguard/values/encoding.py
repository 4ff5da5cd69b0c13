"""Hostile names and tags, encoded for where they are shown: whoever can name a machine must not be able to do more than that.

Example: a machine called `<!channel> ](https://x)` and an escape code. A terminal shows it without the code; a chat shows other
brackets and an address that is no link, and nobody is woken.

What would act is replaced by what looks like it rather than escaped: between us and a chat stands a library that unescapes, and
an escape that is undone once is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from costguard.errors import shorten, to_one_line

LINE_CHARS_MAX = 600
"""Characters of one line of a message."""
TITLE_CHARS_MAX = 200

_LOOKALIKES = str.maketrans({"<": "‹", ">": "›", "&": "＆", "@": "＠", "`": "ˋ", "*": "∗", "~": "∼", "|": "¦", "\\": "∖"})  # noqa: RUF001 - that they look alike is the point
_ADDRESS = re.compile(r"(?i)(:)(?=//)|(\bwww)(?=\.)|(\b(?:mailto|javascript|tel|data|slack|tg|discord|file|sms))(?=:)")
_BREAK = "\u200b"
"""A blank of no width: what stands on both sides of it is no address and no markup any more."""


def encode_plain(text: str, longest: int = LINE_CHARS_MAX) -> str:
    """One line that no terminal, log or mail header can be steered by: no control codes, line breaks, bidirectional marks.

    For the console, mail and webhooks.
    """
    return shorten(to_one_line(text), longest)


def encode_title(text: str) -> str:
    """`plain`, as short as a subject should be."""
    return encode_plain(text, TITLE_CHARS_MAX)


def encode_chat(text: str, longest: int = LINE_CHARS_MAX) -> str:
    """`plain`, in which nothing is a mention, markup, an HTML tag or a link in Slack, Discord, Telegram, Teams or Matrix."""
    safe = encode_plain(text, longest).translate(_LOOKALIKES)
    safe = _ADDRESS.sub(lambda found: f"{found[0]}{_BREAK}", safe)
    return safe.replace("](", f"]{_BREAK}(").replace("__", f"_{_BREAK}_").replace("{{", "{" + _BREAK + "{")


def quote_shell_word(text: str) -> str:
    """`text` as one word of a command line that somebody will paste: a hostile id cannot add a second command."""
    clean = to_one_line(text)
    return clean if re.fullmatch(r"[A-Za-z0-9._:/=+%-]+", clean) else "'" + clean.replace("'", "'\"'\"'") + "'"


ENCODERS: Mapping[str, Callable[[str], str]] = {
    "terminal": encode_plain,
    "mail": encode_plain,
    "json": encode_plain,
    "chat": encode_chat,
}
"""By kind of sink."""
