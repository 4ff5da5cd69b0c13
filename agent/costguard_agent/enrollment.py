"""The enrollment at a watchdog: address, name, keys.

Created by `join`, read by everything else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from costguard_agent import __version__, ed25519
from costguard_agent.diagnostics import AgentError, make_printable
from costguard_agent.protocol import EVERY_S, JOIN_PATH, decode_base64, encode_base64
from costguard_agent.state_dir import CONFIG, KEY, make_dir, parse_object, read_private_file, write_file

AGENT_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
EVERY_LEAST_S, EVERY_MOST_S = 1.0, 300.0
OK, CREATED = 200, 201


class Enrollment(NamedTuple):
    """`agent`: this agent's id at the watchdog.

    `guard_key`: the key that verifies the watchdog's answers. `more`: other settings.
    """

    url: str
    agent: str
    guard_key: bytes
    name: str
    every_s: float = EVERY_S
    ca: str = ""
    proxy: str = ""
    more: Mapping[str, Any] = {}


def load_enrollment(folder: Path) -> Enrollment:
    """Return the enrollment stored in `folder`; raises AgentError if there is none or it is damaged."""
    path = folder / CONFIG
    found = parse_object(read_private_file(path))
    guard_key = decode_base64(str(found.get("guard_key")))
    if guard_key is None or len(guard_key) != ed25519.KEY_BYTES or not AGENT_ID.fullmatch(str(found.get("agent"))):
        raise AgentError(f"{path} is damaged: join again with costguard-agent join URL CODE --again")
    known = {"url", "agent", "guard_key", "name", "every_s", "ca", "proxy"}
    return Enrollment(
        url=str(found.get("url")),
        agent=str(found["agent"]),
        guard_key=guard_key,
        name=str(found.get("name") or ""),
        every_s=clamp_interval(found.get("every_s")),
        ca=str(found.get("ca") or ""),
        proxy=str(found.get("proxy") or ""),
        more={key: value for key, value in found.items() if key not in known},
    )


def save_enrollment(folder: Path, joined: Enrollment) -> None:
    """Store the enrollment; raises OSError."""
    found = {**joined.more, **joined._asdict(), "guard_key": encode_base64(joined.guard_key)}
    del found["more"]
    write_file(folder / CONFIG, json.dumps(found, indent=1).encode() + b"\n", sure=True)


def load_key(folder: Path) -> bytes:
    """Return the private key; raises AgentError if others may have read it or it is damaged."""
    found = decode_base64(read_private_file(folder / KEY).decode("ascii", "replace").strip())
    if found is None or len(found) != ed25519.KEY_BYTES:
        raise AgentError(f"{folder / KEY} is damaged: join again with costguard-agent join URL CODE --again")
    return found


def clamp_interval(value: object) -> float:
    """Return the watchdog's seconds between beats, limited to the allowed range."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return EVERY_S
    return min(max(float(value), EVERY_LEAST_S), EVERY_MOST_S) if value == value else EVERY_S  # noqa: PLR0124 - NaN


def join_watchdog(folder: Path, url: str, code: str, *, ca: str = "", proxy: str = "", again: bool = False) -> Enrollment:
    """Create a key, enrol it with a one-time code, and store the watchdog's answer; raises AgentError.

    The key is stored before it is sent, so that after a crash in between the same command completes.
    """
    from costguard_agent.http_client import UnreachedError, WatchdogConnection

    make_dir(folder)
    if (folder / CONFIG).exists() and not again:
        raise AgentError(f"this machine has joined {load_enrollment(folder).url} already: add --again to join anew")
    wire = WatchdogConnection(url, ca=ca, proxy=proxy)
    try:
        secret = _make_key(folder, again=again and (folder / CONFIG).exists())
    except OSError as error:
        raise AgentError(f"cannot keep a key in {folder}: {error.strerror}") from error
    public = encode_base64(ed25519.derive_public_key(secret))
    body = json.dumps({"code": code, "public_key": public, "version": __version__}).encode()
    try:
        reply = wire.post(JOIN_PATH, body, {})
    except UnreachedError as error:
        raise AgentError(f"the watchdog at {url} cannot be reached: {error}") from error
    finally:
        wire.close()
    told = parse_object(reply.body)
    if reply.status not in {OK, CREATED}:
        raise AgentError(
            f"the watchdog at {url} refused ({reply.status}): "
            f"{format_refusal(told) or 'costguard agent enrol makes a new code'}"
        )
    found = _parse_enrollment(url, told, ca=ca, proxy=proxy)
    try:
        save_enrollment(folder, found)
    except OSError as error:
        raise AgentError(f"cannot keep what was joined in {folder}: {error.strerror}; run the same command again") from error
    return found


def format_refusal(told: dict[str, Any]) -> str:
    """Return a refusal's message, printable and short."""
    text = told.get("says") or told.get("error") or ""
    return make_printable(text if isinstance(text, str) else "")


def _make_key(folder: Path, *, again: bool) -> bytes:
    path = folder / KEY
    if path.exists() and not again:
        return load_key(folder)
    secret = ed25519.generate_key()
    write_file(path, encode_base64(secret).encode() + b"\n", sure=True)
    return secret


def _parse_enrollment(url: str, told: dict[str, Any], *, ca: str, proxy: str) -> Enrollment:
    agent, guard_key = str(told.get("agent")), decode_base64(str(told.get("guard_key")))
    if not AGENT_ID.fullmatch(agent) or guard_key is None or len(guard_key) != ed25519.KEY_BYTES:
        raise AgentError(f"what answers at {url} is not a costguard watchdog of this version: check the address")
    name = make_printable(str(told.get("name") or ""))
    return Enrollment(
        url, agent, guard_key, name, clamp_interval(told.get("every_s")), str(Path(ca).resolve()) if ca else "", proxy
    )
