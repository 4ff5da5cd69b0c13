"""The watchdog that this machine joined: address, name, keys. Made by `join`, read by everything else."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from costguard_agent import __version__, ed25519
from costguard_agent.diagnostics import AgentError
from costguard_agent.printed import printable
from costguard_agent.protocol import EVERY_S, JOIN_PATH, decoded, encoded
from costguard_agent.state_dir import CONFIG, KEY, made, parsed, private, written

AGENT_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
EVERY_LEAST_S, EVERY_MOST_S = 1.0, 300.0
OK, CREATED = 200, 201


class Joined(NamedTuple):
    """`agent`: what the watchdog calls this one; `guard_key`: what its answers are verified with. `more`: other settings."""

    url: str
    agent: str
    guard_key: bytes
    name: str
    every_s: float = EVERY_S
    ca: str = ""
    proxy: str = ""
    more: Mapping[str, Any] = {}


def load(folder: Path) -> Joined:
    """What was joined from `folder`. Raises AgentError where nothing was, or it cannot be used."""
    path = folder / CONFIG
    found = parsed(private(path))
    guard_key = decoded(str(found.get("guard_key")))
    if guard_key is None or len(guard_key) != ed25519.KEY_BYTES or not AGENT_ID.fullmatch(str(found.get("agent"))):
        raise AgentError(f"{path} is damaged: join again with costguard-agent join URL CODE --again")
    known = {"url", "agent", "guard_key", "name", "every_s", "ca", "proxy"}
    return Joined(
        url=str(found.get("url")),
        agent=str(found["agent"]),
        guard_key=guard_key,
        name=str(found.get("name") or ""),
        every_s=every(found.get("every_s")),
        ca=str(found.get("ca") or ""),
        proxy=str(found.get("proxy") or ""),
        more={key: value for key, value in found.items() if key not in known},
    )


def save(folder: Path, joined: Joined) -> None:
    """Keep it. Raises OSError."""
    found = {**joined.more, **joined._asdict(), "guard_key": encoded(joined.guard_key)}
    del found["more"]
    written(folder / CONFIG, json.dumps(found, indent=1).encode() + b"\n", sure=True)


def key(folder: Path) -> bytes:
    """The secret key. Raises AgentError where it may be known to others, or is none."""
    found = decoded(private(folder / KEY).decode("ascii", "replace").strip())
    if found is None or len(found) != ed25519.KEY_BYTES:
        raise AgentError(f"{folder / KEY} is damaged: join again with costguard-agent join URL CODE --again")
    return found


def every(value: object) -> float:
    """Seconds between beats, as the watchdog may set them."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return EVERY_S
    return min(max(float(value), EVERY_LEAST_S), EVERY_MOST_S) if value == value else EVERY_S  # noqa: PLR0124 - NaN


def join(folder: Path, url: str, code: str, *, ca: str = "", proxy: str = "", again: bool = False) -> Joined:
    """Make a key, have it enrolled with a one-time code, and keep what the watchdog said. Raises AgentError.

    The key is kept before it is told, so that after a crash in between the same command finishes.
    """
    from costguard_agent.wire import UnreachedError, Wire

    made(folder)
    if (folder / CONFIG).exists() and not again:
        raise AgentError(f"this machine has joined {load(folder).url} already: add --again to join anew")
    wire = Wire(url, ca=ca, proxy=proxy)
    try:
        secret = _key(folder, again=again and (folder / CONFIG).exists())
    except OSError as error:
        raise AgentError(f"cannot keep a key in {folder}: {error.strerror}") from error
    public = encoded(ed25519.public_key(secret))
    body = json.dumps({"code": code, "public_key": public, "version": __version__}).encode()
    try:
        reply = wire.post(JOIN_PATH, body, {})
    except UnreachedError as error:
        raise AgentError(f"the watchdog at {url} cannot be reached: {error}") from error
    finally:
        wire.close()
    told = parsed(reply.body)
    if reply.status not in {OK, CREATED}:
        raise AgentError(
            f"the watchdog at {url} refused ({reply.status}): {said(told) or 'costguard agent enrol makes a new code'}"
        )
    found = _told(url, told, ca=ca, proxy=proxy)
    try:
        save(folder, found)
    except OSError as error:
        raise AgentError(
            f"cannot keep what was joined in {folder}: {error.strerror}; the same command again finishes"
        ) from error
    return found


def said(told: dict[str, Any]) -> str:
    """What a refusal says to people; printable and short, whoever wrote it."""
    text = told.get("says") or told.get("error") or ""
    return printable(text if isinstance(text, str) else "")


def _key(folder: Path, *, again: bool) -> bytes:
    path = folder / KEY
    if path.exists() and not again:
        return key(folder)
    secret = ed25519.generate()
    written(path, encoded(secret).encode() + b"\n", sure=True)
    return secret


def _told(url: str, told: dict[str, Any], *, ca: str, proxy: str) -> Joined:
    agent, guard_key = str(told.get("agent")), decoded(str(told.get("guard_key")))
    if not AGENT_ID.fullmatch(agent) or guard_key is None or len(guard_key) != ed25519.KEY_BYTES:
        raise AgentError(f"what answers at {url} is no watchdog of this version: is the address right, and is it costguard's?")
    name = printable(str(told.get("name") or ""))
    return Joined(url, agent, guard_key, name, every(told.get("every_s")), str(Path(ca).resolve()) if ca else "", proxy)
