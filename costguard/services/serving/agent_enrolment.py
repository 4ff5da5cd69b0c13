"""Enrolment codes, and what proves both sides of a join: the watchdog its key, the agent its code.

    costguard agent enrol        code Q7KM-2RXD-9VTP-HW4C, key of the watchdog -> Q7KM-2RXD-9VTP-HW4C.ABCD-EFGH-IJKL-MNOP-QRST
    GET hello?nonce=N            N and the answer, signed by the watchdog's key; the agent compares its fingerprint
    POST join                    the public key of the code, the agent's own, signed by the code's key for this watchdog
    the answer                   signed by the watchdog's key over the nonce and the body of the join

A code is 78 bits in letters and digits that are not confused; case and dashes do not matter. It is the seed of an Ed25519 key
pair, and the ledger has the hash of the public half: neither who reads the ledger nor who relays a join learns a code, and no
other agent key can be put into a join on its way. The functions that the agent needs too stand in `costguard_agent.protocol`.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from shlex import quote
from typing import NamedTuple

from costguard_agent.ed25519 import KEY_BYTES, derive_public_key
from costguard_agent.protocol import (
    NONCE_HEADER,
    NONCE_PATTERN,
    SIGNATURE_HEADER,
    build_signed_hello,
    build_signed_join,
    build_signed_joined,
    compute_fingerprint,
    decode_base64,
    derive_code_secret,
)

from costguard.agents.messages import BAD_CODE, MALFORMED, JoinRequest, MessageRefusedError
from costguard.services.poll.ports import Seal

CODE_LETTERS = "23456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Without I, L, O, U, 0 and 1."""
CODE_GROUPS, CODE_GROUP_LENGTH = 4, 4
AGENT_FILE = "costguard-agent.pyz"
AGENT_BYTES_MAX, FETCH_S = 8_000_000, 120
"""The largest file that is downloaded as the agent (it has 0.6 MB, 2026-11-25), and the seconds that this may take."""
UNPROVED = "the join is not signed by the key of its code for this watchdog: run costguard-agent join again"
WRONG_NONCE = "nonce must have 16 to 64 letters, digits, - and _: join with the agent of /costguard-agent.pyz"


class JoinProof(NamedTuple):
    """The headers of a join. `nonce`, `signature`: "" if missing, as from agents before 2026-11-25."""

    nonce: str = ""
    signature: str = ""


def make_code() -> str:
    """Create an enrolment code in the form that is shown, without the fingerprint."""
    return "-".join("".join(secrets.choice(CODE_LETTERS) for _ in range(CODE_GROUP_LENGTH)) for _ in range(CODE_GROUPS))


def format_code(code: str, guard_key: str) -> str:
    """Return `code` as the machine needs it, with the fingerprint of the watchdog's key (base64)."""
    return f"{code}.{compute_fingerprint(decode_base64(guard_key) or b'')}"


def hash_code(code: str) -> str:
    """Return the stored form of a code.

    `code`: the public key of the code in base64, or the code itself, with or without a fingerprint.
    """
    return hashlib.sha256(_parse_code_key(code) or derive_public_key(derive_code_secret(code))).hexdigest()


def check_join_proof(joining: JoinRequest, body: bytes, proof: JoinProof, seal: Seal) -> None:
    """Raise MessageRefusedError if `joining` (parsed from `body`) brings a code's key without its signature, or another nonce.

    An agent before 2026-11-25 brings the code itself, which proves the same, and no nonce.
    """
    by_key = _parse_code_key(joining.code) is not None
    if by_key or proof.nonce:
        _require_nonce(proof.nonce)
    if not by_key:
        return
    message = build_signed_join(guard_key=seal.public_key, nonce=proof.nonce, body=body)
    if not seal.verify(joining.code, message, proof.signature):
        raise MessageRefusedError(BAD_CODE, UNPROVED)


def sign_join_answer(
    answer: Mapping[str, object], join_body: bytes, proof: JoinProof, seal: Seal
) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of the answer to the join `join_body`; without a nonce it is not signed."""
    body = json.dumps(answer).encode()
    if not proof.nonce:
        return body, {}
    message = build_signed_joined(nonce=_require_nonce(proof.nonce), join_body=join_body, body=body)
    return body, {NONCE_HEADER: proof.nonce, SIGNATURE_HEADER: seal.sign(message)}


def answer_hello(nonce: str, seal: Seal) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers that prove to an agent that this watchdog has its key.

    Raises MessageRefusedError for a nonce of another form: nothing else than a nonce is signed for a stranger.
    """
    body = json.dumps({"guard_key": seal.public_key}).encode()
    message = build_signed_hello(nonce=_require_nonce(nonce), body=body)
    return body, {NONCE_HEADER: nonce, SIGNATURE_HEADER: seal.sign(message)}


def format_enrolment_script(address: str, code: str, agent_sha256: str) -> str:
    """Return shell commands that download the agent, compare its SHA-256, join and install.

    POSIX sh with curl or wget, and sha256sum or shasum. The file is below a new folder that others cannot enter. A
    built-in command writes the code to standard input, since other users can read arguments in `ps`. The download is limited in
    time and size.
    """
    url = quote(f"{address}/{AGENT_FILE}")
    refused = (
        f"costguard: {address} serves another agent than enrol named, or none: nothing was run. After an upgrade restart watch"
    )
    return f"""\
( set -eu; umask 077; d=$(mktemp -d) && cd "$d" || exit 1; trap 'rm -rf "$d"' EXIT
get() {{ if command -v curl >/dev/null; then curl -fsS -m {FETCH_S} "$1"; else wget -q -T {FETCH_S} -O - "$1"; fi; }}
sum() {{ if command -v sha256sum >/dev/null; then sha256sum "$1"; else shasum -a 256 "$1"; fi; }}
get {url} | head -c {AGENT_BYTES_MAX} >{AGENT_FILE}
case $(sum {AGENT_FILE}) in {agent_sha256}*) ;; *) echo {quote(refused)} >&2; exit 1;; esac
{format_join_command(address, code)}
python3 {AGENT_FILE} install )"""


def format_tunnel(address: str) -> str:
    """Return the ssh command that brings the watchdog at `address` (http://HOST:PORT) to a machine.

    With ExitOnForwardFailure ssh ends if another program of the machine has the port; otherwise the machine would talk to that
    program.
    """
    port = address.rpartition(":")[2]
    return f"ssh -N -o ExitOnForwardFailure=yes -R 127.0.0.1:{port}:{address.removeprefix('http://')} MACHINE"


def format_join_command(address: str, code: str) -> str:
    """Return the shell command that joins the watchdog at `address`, with the code on standard input."""
    return f"echo {code} | python3 {AGENT_FILE} join {quote(address)} -"


def _parse_code_key(code: str) -> bytes | None:
    """Return the public key of a code in base64; None if `code` is a code itself."""
    key = decode_base64(code)
    return key if key is not None and len(key) == KEY_BYTES else None


def _require_nonce(nonce: str) -> str:
    if not NONCE_PATTERN.fullmatch(nonce):
        raise MessageRefusedError(MALFORMED, WRONG_NONCE)
    return nonce
