"""What agent and watchdog say to each other: one definition, read by both.

    POST /v1/agents/join                 {"code", "public_key", "version"}      -> {"agent", "guard_key", "every_s", "name"}
    POST /v1/agents/{agent}/beats        a beat                                 -> an answer

A beat carries three headers: Costguard-Seq (rises with every message, never again the same), Costguard-At (the moment of
sending, Unix milliseconds) and Costguard-Signature (base64 of Ed25519 over `signed`). The answer to it is signed in the same
way with the watchdog's key, which the agent was told when it joined: Costguard-At, Costguard-Signature over `answered`.

    beat   {"agent": {"version", "python", "boot_id"}, "records": [{"at", "over_s", "signals": {name: number}}],
            "troubles": [text], "dropped": n, "ask": [{"id", "what": "phase" | "busy" | "keep", "name", "for_s", "why"}]}
    answer {"seq", "every_s", "guard_at", "state", "notices": [text], "kept_until", "protected", "asked": {id: "" or why not}}

A record is what was measured in the `over_s` seconds that end at `at` (Unix milliseconds), in the units of `SIGNALS`. What
could not be measured is left out: missing is never zero. `boot_id` names the boot and the start of the agent. Unknown keys are
refused by the watchdog, and ignored by the agent, so that a newer watchdog may say more.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any

VERSION = 1
JOIN_PATH = "/v1/agents/join"
BEATS_PATH = "/v1/agents/{}/beats"
SEQ_HEADER, AT_HEADER, SIGNATURE_HEADER = "Costguard-Seq", "Costguard-At", "Costguard-Signature"

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
    "step",
    "heartbeat",
    "queue_jobs",
    "input_age_s",
    "connections",
    "agent_alive",
)
"""As `costguard.values.sample.SIGNALS` has them, with units (tests hold the two together)."""


def build_signed_request(method: str, path: str, *, agent: str, seq: int, at_ms: int, body: bytes) -> bytes:
    """The bytes an agent signs: all that could be exchanged for something else stands in them."""
    return _join_lines(
        f"costguard-agent-{VERSION}", method, path, agent, str(seq), str(at_ms), hashlib.sha256(body).hexdigest()
    )


def build_signed_answer(*, agent: str, seq: int, at_ms: int, body: bytes) -> bytes:
    """The bytes the watchdog signs of its answer to the message `seq` of `agent`."""
    return _join_lines(f"costguard-guard-{VERSION}", agent, str(seq), str(at_ms), hashlib.sha256(body).hexdigest())


def encode_base64(data: bytes) -> str:
    """As keys and signatures travel: base64."""
    return base64.b64encode(data).decode("ascii")


def decode_base64(text: str) -> bytes | None:
    """The bytes of such a text; None where it is none."""
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (ValueError, UnicodeEncodeError):
        return None


def build_record(at_ms: int, over_s: float, signals: dict[str, float]) -> dict[str, Any]:
    """One record of a beat."""
    return {"at": at_ms, "over_s": over_s, "signals": signals}


def _join_lines(*parts: str) -> bytes:
    return "\n".join(parts).encode("utf-8")
