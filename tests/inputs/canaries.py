"""Canary secrets: one for each kind of credential, and a search for them in bytes, however they were written."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, quote_plus

LEAST = 8
"""Characters of a form that is searched for: shorter ones stand anywhere by chance."""


def forms(canary: str) -> frozenset[bytes]:
    """How `canary` may stand in bytes: raw, in an address, JSON, hex, base64 at each of three offsets, UTF-16."""
    raw = canary.encode()
    found = {raw, quote(canary, safe="").encode(), quote_plus(canary).encode(), canary.replace("/", "\\/").encode()}
    found |= {raw.hex().encode(), raw.hex().upper().encode(), canary.encode("utf-16-le")}
    for skip in range(3):
        whole = base64.b64encode(b"\0" * skip + raw).rstrip(b"=")
        middle = whole[4 if skip else 0 : -2]  # without the letters that its neighbours have a part in
        found |= {middle, middle.replace(b"+", b"-").replace(b"/", b"_")}
    return frozenset(one for one in found if len(one) >= LEAST)


class Search:
    """Looks for every form of every canary. `canaries`: name -> the secret. `seen`: bytes that were searched so far."""

    def __init__(self, canaries: Mapping[str, str]) -> None:
        assert all(len(secret) >= LEAST for secret in canaries.values())
        self._forms = {name: forms(secret) for name, secret in canaries.items()}
        self.seen = 0

    def found(self, data: bytes) -> list[str]:
        """The names of the canaries in `data`."""
        self.seen += len(data)
        return sorted(name for name, written in self._forms.items() if any(one in data for one in written))

    def found_below(self, folder: Path, *, but: frozenset[Path] = frozenset()) -> Iterator[str]:
        """`path: name` for every file below `folder` that holds one, its own path included; not in those of `but`."""
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path not in but:
                for name in self.found(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes()):
                    yield f"{path.relative_to(folder)}: {name}"
