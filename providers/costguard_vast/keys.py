"""Where Vast's own tools keep their key: the variable, which wins, then the files of the vastai command."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from costguard.providers.api_keys import KeyLocations, read_plain_key


def list_key_places(home: Path, environ: Mapping[str, str]) -> KeyLocations:
    """In the order in which they count: the file of today, then that of former versions."""
    stated = environ.get("XDG_CONFIG_HOME", "")
    config = Path(stated) if stated.startswith("/") else home / ".config"
    return KeyLocations(
        env="VAST_API_KEY",
        files=((config / "vastai" / "vast_api_key", read_plain_key), (home / ".vast_api_key", read_plain_key)),
    )
