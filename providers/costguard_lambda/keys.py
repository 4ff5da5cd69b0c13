"""Where Lambda's key is kept by other tools: the variable, and the file of SkyPilot."""

from __future__ import annotations

from pathlib import Path

from costguard.providers.api_keys import KeyLocations


def list_key_places(home: Path) -> KeyLocations:
    """In the order in which they count."""
    return KeyLocations(env="LAMBDA_API_KEY", files=((home / ".lambda_cloud" / "lambda_keys", parse_key),))


def parse_key(text: str) -> str:
    """The key in `text`: the line `api_key = KEY` (SkyPilot's form), else all of it; "" where it is empty."""
    for line in text.splitlines():
        name, found, value = line.partition("=")
        if found and name.strip() == "api_key":
            return value.strip().strip("\"'")
    return text.strip()
