"""Where Vast's own tools keep their key: the variable, which wins, then the files of the vastai command."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from costguard.providers.api_keys import Places, first_line


def places(home: Path, environ: Mapping[str, str]) -> Places:
    """In the order in which they count: the file of today, then that of former versions."""
    stated = environ.get("XDG_CONFIG_HOME", "")
    config = Path(stated) if stated.startswith("/") else home / ".config"
    return Places(
        env="VAST_API_KEY",
        files=((config / "vastai" / "vast_api_key", first_line), (home / ".vast_api_key", first_line)),
    )
