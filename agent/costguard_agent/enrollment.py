"""The enrollment at a watchdog: address, name, keys.

Created by `join`, read by everything else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from costguard_agent import __version__, ed25519
from costguard_agent.diagnostics import AgentError, make_printable
from costguard_agent.protocol import (
    EVERY_S,
    FINGERPRINT_LENGTH,
    HELLO_PATH,
    JOIN_PATH,
    NONCE_HEADER,
    SIGNATURE_HEADER,
    build_signed_hello,
    build_signed_join,
    build_signed_joined,
    compute_fingerprint,
    decode_base64,
    derive_code_secret,
    encode_base64,
    make_nonce,
    split_code,
)
from costguard_agent.state_dir import CONFIG, KEY, make_dir, parse_object, read_private_file, write_file

if TYPE_CHECKING:
    from costguard_agent.http_client import WatchdogConnection, WatchdogReply

AGENT_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
EVERY_LEAST_S, EVERY_MOST_S = 1.0, 300.0
OK, CREATED, NOT_FOUND = 200, 201, 404
IMPOSTOR = "nothing was sent to it, and the code can still be used. Another program may have taken the port: check the tunnel"


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
    fields = parse_object(read_private_file(path))
    guard_key = decode_base64(str(fields.get("guard_key")))
    if guard_key is None or len(guard_key) != ed25519.KEY_BYTES or not AGENT_ID.fullmatch(str(fields.get("agent"))):
        raise AgentError(f"{path} is damaged: join again with costguard-agent join URL CODE --again")
    field_names = {"url", "agent", "guard_key", "name", "every_s", "ca", "proxy"}
    return Enrollment(
        url=str(fields.get("url")),
        agent=str(fields["agent"]),
        guard_key=guard_key,
        name=str(fields.get("name") or ""),
        every_s=clamp_interval(fields.get("every_s")),
        ca=str(fields.get("ca") or ""),
        proxy=str(fields.get("proxy") or ""),
        more={key: value for key, value in fields.items() if key not in field_names},
    )


def save_enrollment(folder: Path, joined: Enrollment) -> None:
    """Store the enrollment; raises OSError."""
    fields = {**joined.more, **joined._asdict(), "guard_key": encode_base64(joined.guard_key)}
    del fields["more"]
    write_file(folder / CONFIG, json.dumps(fields, indent=1).encode() + b"\n", sure=True)


def load_key(folder: Path) -> bytes:
    """Return the private key; raises AgentError if others may have read it or it is damaged."""
    key = decode_base64(read_private_file(folder / KEY).decode("ascii", "replace").strip())
    if key is None or len(key) != ed25519.KEY_BYTES:
        raise AgentError(f"{folder / KEY} is damaged: join again with costguard-agent join URL CODE --again")
    return key


def clamp_interval(value: object) -> float:
    """Return the watchdog's seconds between beats, limited to the allowed range."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return EVERY_S
    return min(max(float(value), EVERY_LEAST_S), EVERY_MOST_S) if value == value else EVERY_S  # noqa: PLR0124 - NaN


def join_watchdog(folder: Path, url: str, code: str, *, ca: str = "", proxy: str = "", again: bool = False) -> Enrollment:
    """Create a key, enrol it with a one-time code, and store the watchdog's answer; raises AgentError.

    Nothing that is worth anything is sent before the other side has proved that it has the key whose fingerprint the code
    carries. The key is stored before it is sent, so that after a crash in between the same command completes.
    """
    from costguard_agent.http_client import UnreachedError, WatchdogConnection

    make_dir(folder)
    if (folder / CONFIG).exists() and not again:
        raise AgentError(f"this machine has joined {load_enrollment(folder).url} already: add --again to join again")
    wire = WatchdogConnection(url, ca=ca, proxy=proxy)
    fingerprint = _require_fingerprint(code)
    try:
        guard_key = _verify_watchdog(wire, url, fingerprint)
        secret = _make_key(folder, again=again and (folder / CONFIG).exists())
        answer = _send_join(wire, url, guard_key, code, ed25519.derive_public_key(secret))
    except UnreachedError as error:
        raise AgentError(f"the watchdog at {url} cannot be reached: {error}") from error
    except OSError as error:
        raise AgentError(f"cannot store a key in {folder}: {error.strerror}") from error
    finally:
        wire.close()
    enrollment = _parse_enrollment(url, answer, guard_key, ca=ca, proxy=proxy)
    try:
        save_enrollment(folder, enrollment)
    except OSError as error:
        raise AgentError(f"cannot store the enrolment in {folder}: {error.strerror}; run the same command again") from error
    return enrollment


def _require_fingerprint(code: str) -> str:
    """Return the fingerprint in a code; raises AgentError if it has none, which would let any server enrol this machine."""
    secret, fingerprint = split_code(code)
    if not secret or len(fingerprint) != FINGERPRINT_LENGTH:
        raise AgentError(
            "the code does not name the key of its watchdog, so the watchdog cannot be verified: write the full code, "
            "CODE.FINGERPRINT as costguard agent enrol shows it, or make a new one"
        )
    return fingerprint


def _verify_watchdog(wire: WatchdogConnection, url: str, fingerprint: str) -> bytes:
    """Return the key of the watchdog at `url`, after it proved that it has the one of `fingerprint`; raises AgentError."""
    nonce = make_nonce()
    reply = wire.get(f"{HELLO_PATH}?nonce={nonce}")
    if reply.status == NOT_FOUND:
        raise AgentError(f"the server at {url} is no costguard watchdog, or one older than this agent: {IMPOSTOR}")
    if reply.status != OK:
        raise AgentError(f"the watchdog at {url} refused ({reply.status}): {format_refusal(parse_object(reply.body))}")
    key = decode_base64(str(parse_object(reply.body).get("guard_key")))
    if key is None or len(key) != ed25519.KEY_BYTES:
        raise AgentError(f"the server at {url} is not a costguard watchdog: {IMPOSTOR}")
    if split_code(f".{compute_fingerprint(key)}")[1] != fingerprint:
        raise AgentError(f"the server at {url} has a different key from the watchdog that made the code: {IMPOSTOR}")
    if not _is_signed(reply, key, build_signed_hello(nonce=nonce, body=reply.body)):
        raise AgentError(f"the server at {url} cannot prove that it has the watchdog's key: {IMPOSTOR}")
    return key


def _send_join(wire: WatchdogConnection, url: str, guard_key: bytes, code: str, public: bytes) -> dict[str, Any]:
    """Send the join and return the answer, signed by `guard_key`; raises AgentError or UnreachedError."""
    secret, nonce = derive_code_secret(code), make_nonce()
    code_key, own_key = encode_base64(ed25519.derive_public_key(secret)), encode_base64(public)
    body = json.dumps({"code": code_key, "public_key": own_key, "version": __version__}).encode()
    proof = ed25519.sign(secret, build_signed_join(guard_key=encode_base64(guard_key), nonce=nonce, body=body))
    reply = wire.post(JOIN_PATH, body, {NONCE_HEADER: nonce, SIGNATURE_HEADER: encode_base64(proof)})
    answer = parse_object(reply.body)
    if reply.status not in {OK, CREATED}:
        raise AgentError(
            f"the watchdog at {url} refused ({reply.status}): "
            f"{format_refusal(answer) or 'costguard agent enrol makes a new code'}"
        )
    if not _is_signed(reply, guard_key, build_signed_joined(nonce=nonce, join_body=body, body=reply.body)):
        raise AgentError(
            f"the answer of {url} is not signed by the watchdog's key: nothing was stored; run the same command again"
        )
    return answer


def _is_signed(reply: WatchdogReply, key: bytes, message: bytes) -> bool:
    signature = decode_base64(reply.headers.get(SIGNATURE_HEADER.lower(), ""))
    return signature is not None and ed25519.verify(key, message, signature)


def format_refusal(answer: dict[str, Any]) -> str:
    """Return a refusal's message, printable and short."""
    text = answer.get("says") or answer.get("error") or ""
    return make_printable(text if isinstance(text, str) else "")


def _make_key(folder: Path, *, again: bool) -> bytes:
    path = folder / KEY
    if path.exists() and not again:
        return load_key(folder)
    secret = ed25519.generate_key()
    write_file(path, encode_base64(secret).encode() + b"\n", sure=True)
    return secret


def _parse_enrollment(url: str, answer: dict[str, Any], guard_key: bytes, *, ca: str, proxy: str) -> Enrollment:
    agent = str(answer.get("agent"))
    if not AGENT_ID.fullmatch(agent):
        raise AgentError(f"the server at {url} is not a costguard watchdog of this version: check the address")
    name = make_printable(str(answer.get("name") or ""))
    return Enrollment(
        url, agent, guard_key, name, clamp_interval(answer.get("every_s")), str(Path(ca).resolve()) if ca else "", proxy
    )
