"""The protocol between agent and watchdog, defined once for both.

    GET  /v1/agents/hello?nonce=...      -> {"guard_key"}, signed
    POST /v1/agents/join                 {"code", "public_key", "version"}      -> {"agent", "guard_key", "every_s", "name"}
    POST /v1/agents/{agent}/beats        a beat                                 -> an answer

A code reads CODE.FINGERPRINT: the fingerprint is of the watchdog's key, and CODE is the seed of a key pair that is used once.
An agent first sends a nonce and continues only if the answer is signed by the key of that fingerprint. `code` in a join is the
public half of the code's key, and the join is signed by its private half over `build_signed_join`: the code itself never leaves
the machine, and who relays a join can change nothing in it. The answer is signed over the nonce of the join. Headers of a join:
Costguard-Nonce, Costguard-Signature. An agent older than that sends the code itself and no headers.

A beat has three headers: Costguard-Seq (increases with every message and is never reused), Costguard-At (the time of sending,
Unix milliseconds) and Costguard-Signature (base64 of Ed25519 over `build_signed_request`). The answer is signed in the same way
with the watchdog's key, which the agent received when it joined: Costguard-At, Costguard-Signature over `build_signed_answer`.

    beat   {"agent": {"version", "python", "boot_id"}, "records": [{"at", "over_s", "signals": {name: number}}],
            "troubles": [text], "dropped": n, "ask": [{"id", "what": "phase" | "busy" | "keep", "name", "for_s", "why"}]}
    answer {"seq", "every_s", "guard_at", "state", "notices": [text], "kept_until", "protected", "asked": {id: "" or why not}}

A record holds the measurements of the `over_s` seconds that end at `at` (Unix milliseconds), in the units of `SIGNALS`. A value
that could not be measured is left out: missing is never zero. `boot_id` identifies the boot and the start of the agent. Unknown
keys are refused by the watchdog and ignored by the agent, so that a newer watchdog may send more.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from typing import Any

VERSION = 1
JOIN_PATH, HELLO_PATH = "/v1/agents/join", "/v1/agents/hello"
BEATS_PATH = "/v1/agents/{}/beats"
SEQ_HEADER, AT_HEADER, SIGNATURE_HEADER = "Costguard-Seq", "Costguard-At", "Costguard-Signature"
NONCE_HEADER, NONCE_BYTES = "Costguard-Nonce", 24
NONCE_PATTERN = re.compile(r"[A-Za-z0-9_-]{16,64}")
FINGERPRINT_LENGTH, FINGERPRINT_GROUP = 20, 4
"""Letters of base32 (5 bits each) of the SHA-256 of a key: 100 bits. Another key with the same ones cannot be searched for."""

BODY_MOST = 64 * 1024
"""Bytes of a body."""
RECORDS_MOST, TROUBLES_MOST, ASKS_MOST, TEXT_MOST = 240, 16, 8, 300
"""Of one beat: records (an hour of 15 s), texts and what is asked for; characters of a text."""
WINDOW_MS = 120_000
"""How far the moment of sending may be from the watchdog's clock, either way."""
SEQ_MOST = 2**53 - 1
EVERY_S = 15
"""Seconds between beats, where the watchdog says nothing else."""

PHASE, BUSY, KEEP = "phase", "busy", "keep"
ASKS = (PHASE, BUSY, KEEP)

SIGNALS = (
    "gpu_util",
    "gpu_memory_util",
    "gpu_memory_used",
    "gpu_power_w",
    "gpu_power_busiest_w",
    "gpu_power_limit_w",
    "gpu_busy_count",
    "gpu_temperature_c",
    "cpu_util",
    "cpu_cores",
    "memory_used",
    "network_bytes_s",
    "disk_bytes_s",
    "pcie_bytes_s",
    "sm_active",
    "step",
    "heartbeat",
    "queue_jobs",
    "input_age_s",
    "connections",
    "agent_alive",
    "server_requests",
    "server_tokens",
    "server_cores",
)
"""As `costguard.values.sample.SIGNALS` has them, with units (tests hold the two together)."""


def build_signed_request(method: str, path: str, *, agent: str, seq: int, at_ms: int, body: bytes) -> bytes:
    """Return the bytes that an agent signs: they include every field that an attacker could replace."""
    return _join_lines(
        f"costguard-agent-{VERSION}", method, path, agent, str(seq), str(at_ms), hashlib.sha256(body).hexdigest()
    )


def build_signed_answer(*, agent: str, seq: int, at_ms: int, body: bytes) -> bytes:
    """Return the bytes that the watchdog signs for its answer to message `seq` of `agent`."""
    return _join_lines(f"costguard-guard-{VERSION}", agent, str(seq), str(at_ms), hashlib.sha256(body).hexdigest())


def build_signed_hello(*, nonce: str, body: bytes) -> bytes:
    """Return the bytes that the watchdog signs to prove to an agent with `nonce` that it has its key."""
    return _join_lines(f"costguard-hello-{VERSION}", nonce, hashlib.sha256(body).hexdigest())


def build_signed_join(*, guard_key: str, nonce: str, body: bytes) -> bytes:
    """Return the bytes that the code's key signs for a join. `guard_key`: base64 of the watchdog's key, for which it counts."""
    return _join_lines(f"costguard-join-{VERSION}", guard_key, nonce, hashlib.sha256(body).hexdigest())


def build_signed_joined(*, nonce: str, join_body: bytes, body: bytes) -> bytes:
    """Return the bytes that the watchdog signs for its answer `body` to the join `join_body`."""
    digests = hashlib.sha256(join_body).hexdigest(), hashlib.sha256(body).hexdigest()
    return _join_lines(f"costguard-joined-{VERSION}", nonce, *digests)


def make_nonce() -> str:
    """Return a new nonce, which is never used twice."""
    return base64.urlsafe_b64encode(os.urandom(NONCE_BYTES)).decode("ascii")


def compute_fingerprint(guard_key: bytes) -> str:
    """Return the fingerprint of a public key as it is shown in a code: ABCD-EFGH-IJKL-MNOP-QRST."""
    letters = base64.b32encode(hashlib.sha256(guard_key).digest()).decode("ascii")[:FINGERPRINT_LENGTH]
    return "-".join(letters[at : at + FINGERPRINT_GROUP] for at in range(0, FINGERPRINT_LENGTH, FINGERPRINT_GROUP))


def split_code(shown: str) -> tuple[str, str]:
    """Return the code and the fingerprint in what `costguard agent enrol` shows, in capitals without dashes.

    The fingerprint is "" if there is none (codes before 2026-11-25).
    """
    code, _, fingerprint = shown.upper().partition(".")
    return _drop_separators(code), _drop_separators(fingerprint)


def derive_code_secret(shown: str) -> bytes:
    """Return the private key whose seed is the code in `shown`."""
    return hashlib.sha256(_join_lines(f"costguard-code-{VERSION}", split_code(shown)[0])).digest()


def encode_base64(data: bytes) -> str:
    """Encode a key or signature as base64."""
    return base64.b64encode(data).decode("ascii")


def decode_base64(text: str) -> bytes | None:
    """Decode base64; None if `text` is malformed."""
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (ValueError, UnicodeEncodeError):
        return None


def build_record(at_ms: int, over_s: float, signals: dict[str, float]) -> dict[str, Any]:
    """Return one record of a beat."""
    return {"at": at_ms, "over_s": over_s, "signals": signals}


def _drop_separators(text: str) -> str:
    return "".join(sign for sign in text if sign.isascii() and sign.isalnum())


def _join_lines(*parts: str) -> bytes:
    return "\n".join(parts).encode("utf-8")
