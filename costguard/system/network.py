"""TLS and DNS: trusted authorities, readable error messages, name resolution with a time limit.

The authorities are the system's, or those of one file: `ca_file` in [network]. No environment variable adds authorities or
turns verification off: not SSL_CERT_FILE, SSL_CERT_DIR, REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE, AWS_CA_BUNDLE, PYTHONHTTPSVERIFY.
The system's resolver has no deadline and may hang for half a minute, so it is called in a thread.
"""

from __future__ import annotations

import socket
import ssl
import threading
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

import httpx2

from costguard.system.input_file import require_input_file

RENEW = "its operator must renew it, or this machine's clock is wrong"
SET_CLOCK = "check this machine's clock"
WRONG_PLACE = "check the address; a proxy or an attacker may intercept the connection"
NAME_THEM = "if a company's proxy intercepts TLS, set its authority: [network] ca_file"
OTHER_PORT = "check the address and its port"
TOO_OLD = "it must speak TLS 1.2 or later"


class TlsTrouble(NamedTuple):
    """A TLS problem: `what` is wrong with the other side, worded to follow its name, and a hint what to do."""

    what: str
    hint: str


@cache
def load_system_context() -> ssl.SSLContext:
    """Return a TLS context with the system's authorities.

    Reading the certificates takes 20 ms, so it is cached.
    """
    return _restrict_context(httpx2.create_ssl_context(trust_env=False))


def load_file_context(ca_file: Path) -> ssl.SSLContext:
    """Return an equally strict TLS context with the authorities of `ca_file`.

    Raises OSError or ValueError if the file holds none. It does not use `create_default_context`, which writes session keys to
    the file named by SSLKEYLOGFILE.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    require_input_file(ca_file)
    context.load_verify_locations(cafile=ca_file)
    return _restrict_context(context)


def _restrict_context(context: ssl.SSLContext) -> ssl.SSLContext:
    """Return `context` as strict as newer Pythons make it: TLS 1.2 at least, and an answer that TLS does not end is cut.

    Python 3.11.2, which Debian 12 ships, ignores an unexpected end by default: half a list of machines would look whole.
    """
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    context.minimum_version = max(ssl.TLSVersion.TLSv1_2, context.minimum_version)
    return context


def load_text_context(certificates: str) -> ssl.SSLContext:
    """Return an equally strict TLS context with the authorities in `certificates` (PEM); raises ValueError if it has none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=certificates)
    except ssl.SSLError:
        raise ValueError("no certificates") from None
    return _restrict_context(context)


def load_context(ca_file: Path | None) -> ssl.SSLContext:
    """Return a TLS context for `ca_file`; None: the system's authorities."""
    return load_system_context() if ca_file is None else load_file_context(ca_file)


def explain_tls_error(broken: BaseException | None) -> TlsTrouble | None:
    """Return the TLS problem that caused `broken`; None if TLS did not.

    The error's own text is left out, because it may repeat what was sent.
    """
    while broken is not None:
        if isinstance(broken, ssl.SSLCertVerificationError):
            what = _CERTIFICATE_WORDS.get(broken.verify_code)
            return (
                TlsTrouble(*what) if what else TlsTrouble(f"its certificate is not trusted ({broken.verify_code})", NAME_THEM)
            )
        if isinstance(broken, ssl.SSLError):
            return TlsTrouble(
                *next((fields for words, fields in _TLS_WORDS.items() if words in str(broken.reason).upper()), _CUT)
            )
        broken = broken.__cause__ or broken.__context__
    return None


_UNKNOWN = ("its certificate's authority is not trusted here", NAME_THEM)
_OTHERS = ("its certificate is for another host", WRONG_PLACE)
_CERTIFICATE_WORDS = {
    9: ("its certificate is not valid yet", SET_CLOCK),
    10: ("its certificate has expired", RENEW),
    18: ("its certificate is self-signed and not trusted here", NAME_THEM),
    19: _UNKNOWN,
    20: _UNKNOWN,
    21: _UNKNOWN,
    62: _OTHERS,
    64: _OTHERS,
}
"""OpenSSL's X509_V_ERR_... (x509_vfy.h) -> what it means and what to do."""

_NO_TLS = ("the server there does not use TLS", OTHER_PORT)
_OLD = ("it supports no secure TLS version", TOO_OLD)
_CHANGED = ("the data was altered in transit", WRONG_PLACE)
_CUT = ("the TLS connection was closed", "try again later, or check the address and its port")
_TLS_WORDS = {
    "WRONG_VERSION": _NO_TLS,
    "RECORD_LAYER": _NO_TLS,
    "HTTP_REQUEST": _NO_TLS,
    "PACKET_LENGTH": _NO_TLS,
    "UNSUPPORTED_PROTOCOL": _OLD,
    "PROTOCOL_VERSION": _OLD,
    "HANDSHAKE_FAILURE": _OLD,
    "BAD_RECORD_MAC": _CHANGED,
    "DECRYPT": _CHANGED,
}
"""Part of OpenSSL's reason -> what it means and what to do."""


def resolve_addresses(host: str, port: int, seconds: float | None) -> list[str]:
    """Return the distinct IP addresses of `host`.

    Raises TimeoutError after `seconds` (None: no limit), and any other OSError if there are none. The resolver runs in a
    separate thread, which ends when the resolver gives up.
    """
    try:
        return [str(ip_address(host))]
    except ValueError:
        outcome: list[str] | OSError = []

    def ask() -> None:
        nonlocal outcome
        try:
            answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            outcome = list(dict.fromkeys(str(answer[4][0]) for answer in answers))
        except (OSError, UnicodeError) as why:
            outcome = OSError(type(why).__name__)

    thread = threading.Thread(target=ask, name="costguard-resolver", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError("the name was not resolved in time")
    if isinstance(outcome, OSError):
        raise outcome
    return outcome
