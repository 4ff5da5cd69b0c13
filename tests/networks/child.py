"""`costguard` as its command is, in a watch whose minute is two seconds: circuits open for two seconds, and no pace is kept."""

from __future__ import annotations

from unittest.mock import patch

from costguard.cli import main
from costguard.providers.transport import TokenBucket, channel

if __name__ == "__main__":
    with patch.object(channel, "CIRCUIT_OPEN_S", 2.0), patch.object(TokenBucket, "acquire", lambda *_, **__: True):
        main()
