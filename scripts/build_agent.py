"""The agent as one file, for machines that reach no watchdog yet: `python scripts/build_agent.py costguard-agent.pyz`."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from costguard_agent.installation import build_archive


def main() -> None:
    """Write it, and say what it is."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    data = build_archive()
    Path(sys.argv[1]).write_bytes(data)
    print(f"{sys.argv[1]}: {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}")


main()
