"""What sections of plain fields say, checked as a whole when they are read, so that a slip is told at the start."""

from __future__ import annotations

import re
from datetime import timedelta

from costguard.core.checks import require
from costguard.settings.environment import origin
from costguard.settings.lasting import lasting
from costguard.settings.sections import Settings

SHORTEST, LONGEST = timedelta(seconds=1), timedelta(hours=1)
"""Between two polls."""
OWNER = re.compile(r"(?:label|tag):[^\s=][^=]*")
PROTECTED = re.compile(r"(?:label|tag):[^\s=][^=]*(?:=.*)?")
"""Labels only: one machine is protected by `costguard protect ID`."""


def check_sections(settings: Settings, where: str) -> None:
    """InputError for what [watch] or [defaults] cannot mean."""
    lasting(settings.watch.interval, origin("watch", "interval", where), least=SHORTEST, most=LONGEST)
    lasting(settings.watch.jitter, origin("watch", "jitter", where))
    if settings.watch.heartbeat_url is not None:
        from costguard.settings.addresses import check_address

        check_address(settings.watch.heartbeat_url, origin("watch", "heartbeat_url", where), "HEARTBEAT_URL")
    for key, pattern, example in (("owner_from", OWNER, "label:owner"), ("protect", PROTECTED, "label:costguard=never")):
        for text in getattr(settings.defaults, key):
            hint = f'write ["{example}"]' + ("; one machine: costguard protect ID" if key == "protect" else "")
            require(bool(pattern.fullmatch(text)), origin("defaults", key, where), f"'{text}' says not where to look", hint)
