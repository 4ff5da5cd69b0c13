"""The corpus of bad inputs, as data: `corpus/*.toml`, where each case is wrong in one way and says in which.

A group is cases that share a `text` in which `%s` stands where they differ, the command that reads it (`run`), and how the
place begins that the refusal must name (`place`). `kind` says what a case's own text becomes:

    text          `file`, put into `text` for %s; a list of [piece, how often] is its pieces in a row
    hex           the bytes of `file`
    environment   a variable, NAME=VALUE
    arguments     the command line itself, as a shell would split it
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).parent / "corpus"
SETTINGS = "costguard.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One bad input. `told`: what is wrong with it. `names`: what the first line of its refusal must name."""

    group: str
    name: str
    told: str
    names: tuple[str, ...]
    arguments: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """How tests and snapshots call it."""
        return f"{self.group}/{self.name}"


def cases(corpus: str) -> list[Case]:
    """Every case of `corpus` ("settings"), in its order."""
    groups = tomllib.loads((CORPUS / f"{corpus}.toml").read_text())["group"]
    return [_case(group, *row) for group in groups for row in group["cases"]]


def _case(group: Mapping[str, Any], name: str, told: str, names: str, own: str | list[tuple[str, int]]) -> Case:
    kind, place = group.get("kind", "text"), group.get("place", "")
    text = own if isinstance(own, str) else "".join(piece * times for piece, times in own)
    variable, _, value = text.partition("=")
    file = {group.get("file", SETTINGS): bytes.fromhex(text) if kind == "hex" else _filled(group, text)}
    return Case(
        group=group["name"],
        name=name,
        told=told,
        names=tuple(filter(None, (place, names))),
        arguments=tuple(shlex.split(text) if kind == "arguments" else group["run"]),
        files=file if kind in ("text", "hex") else {},
        environ={variable: value} if kind == "environment" else {},
    )


def _filled(group: Mapping[str, Any], own: str) -> bytes:
    return str(group.get("text", "%s")).replace("%s", own).encode()
