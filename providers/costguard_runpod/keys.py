"""Where RunPod's own tools keep their key: the variable, then the file of runpodctl and of the Python SDK."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from costguard.providers.api_keys import KeyLocations


def list_key_places(home: Path) -> KeyLocations:
    """In the order in which they count."""
    return KeyLocations(env="RUNPOD_API_KEY", files=((home / ".runpod" / "config.toml", parse_key),))


def parse_key(text: str) -> str:
    """The key in RunPod's own file: `apikey` (runpodctl), or `api_key` under [default] (the Python SDK); "" where none is."""
    try:
        table: Mapping[str, object] = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return ""
    default = table.get("default")
    held = (table, default) if isinstance(default, Mapping) else (table,)
    keys = (one.get(name) for one in held for name in ("apikey", "api_key", "apiKey"))
    return next((key for key in keys if isinstance(key, str)), "")
