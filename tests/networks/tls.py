"""Servers whose TLS is wrong, one way each, and one whose TLS is right."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from ipaddress import ip_address
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.fakes.server import FakeCloud, serving
from tests.networks.plan import CONNECT, UP, Fault
from tests.networks.proxy import port_of, proxied

HOST = "127.0.0.1"
RIGHT = "right"
LONG_AGO, LATER, MUCH_LATER = (datetime(year, 1, 1, tzinfo=UTC) for year in (2019, 2045, 2046))


@dataclass(frozen=True, slots=True)
class Authorities:
    """`ours` is trusted by `file`, `other` by `other_file`, and neither by the system."""

    ours: trustme.CA
    other: trustme.CA
    file: Path
    other_file: Path

    @classmethod
    def made(cls, folder: Path) -> Authorities:
        """Two, with their files in `folder`."""
        found = cls(trustme.CA(), trustme.CA(), folder / "ours.pem", folder / "other.pem")
        found.ours.cert_pem.write_to_path(str(found.file))
        found.other.cert_pem.write_to_path(str(found.other_file))
        return found


CERTIFICATES = (
    "expired",
    "not yet valid",
    "another host",
    "unknown authority",
    "another authority",
    "certificate is self-signed",
)
PROTOCOLS = ("TLS 1.1", "no TLS", "garbage first", "handshake cut", "handshake changed", "handshake reset", "hello lost")
WRONG = (*CERTIFICATES, *PROTOCOLS)
WORDS = {
    "expired": ("certificate has expired", "renew"),
    "not yet valid": ("certificate is not valid yet", "clock"),
    "another host": ("certificate is for another host", "address"),
    "unknown authority": ("certificate's authority is not trusted here", "ca_file"),
    "another authority": ("certificate's authority is not trusted here", "ca_file"),
    "certificate is self-signed": ("certificate is self-signed", "ca_file"),
    "TLS 1.1": ("no secure TLS version", "1.2"),
    "no TLS": ("does not use TLS", "port"),
    "garbage first": ("does not use TLS", "port"),
    "handshake cut": ("the TLS connection was closed", "later"),
    "handshake changed": ("", ""),
    "handshake reset": ("", ""),
    "hello lost": ("the TLS connection was closed", "later"),
}
"""What is said of each, and of what to do; a changed byte may break anything, and the reason of a reset is unknown."""
PLANS = {
    "garbage first": Fault(kind="garbage", side=CONNECT, times=None),
    "handshake cut": Fault(kind="cut", at=700, times=None),
    "handshake changed": Fault(kind="corrupt", at=300, times=None),
    "handshake reset": Fault(kind="reset", at=300, times=None),
    "hello lost": Fault(kind="cut", side=UP, at=20, times=None),
}


@contextmanager
def wrongly(how: str, cloud: FakeCloud, authorities: Authorities) -> Iterator[tuple[str, Path | None]]:
    """`cloud` served in this wrong way, or RIGHT: its https address, and the file of authorities that the client is to name."""
    file = {"unknown authority": None, "another authority": authorities.other_file}.get(how, authorities.file)
    context = None if how == "no TLS" else server_context(how, authorities)
    with serving(cloud, context) as base:
        if how not in PLANS:
            yield base.replace("http://", "https://"), file
            return
        with proxied(port_of(base), [PLANS[how]]) as proxy:
            yield f"https://{HOST}:{proxy.port}", file
            assert proxy.struck, f"{how} never happened"


def server_context(how: str, authorities: Authorities) -> ssl.SSLContext:
    """Of a server whose TLS is wrong in this way (one of CERTIFICATES), or RIGHT."""
    return _MAKE.get(how, _right)(authorities)


def _right(authorities: Authorities) -> ssl.SSLContext:
    return _of(authorities.ours.issue_cert(HOST))


def _of(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


def _by_itself(_: Authorities) -> ssl.SSLContext:
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(HOST))]), critical=False)
    signed = made.sign(key, hashes.SHA256())
    plain = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return _of(trustme.LeafCert(key.private_bytes(*plain), signed.public_bytes(serialization.Encoding.PEM), []))


def _old(authorities: Authorities) -> ssl.SSLContext:
    context = _right(authorities)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with _without_warning():
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    return context


@contextmanager
def _without_warning() -> Iterator[None]:
    """Python warns of old versions; here they are what is tried."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


_MAKE: dict[str, Callable[[Authorities], ssl.SSLContext]] = {
    "expired": lambda a: _of(a.ours.issue_cert(HOST, not_before=LONG_AGO, not_after=LONG_AGO + timedelta(days=90))),
    "not yet valid": lambda a: _of(a.ours.issue_cert(HOST, not_before=LATER, not_after=MUCH_LATER)),
    "another host": lambda a: _of(a.ours.issue_cert("elsewhere.example")),
    "certificate is self-signed": _by_itself,
    "TLS 1.1": _old,
}


@cache
def old_tls_is_spoken() -> bool:
    """Whether this machine's OpenSSL can still serve TLS 1.1 to a client that takes anything."""
    import socket
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        authorities = Authorities.made(Path(folder))
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.load_verify_locations(authorities.file)
        client.set_ciphers("ALL:@SECLEVEL=0")
        with _without_warning():
            client.minimum_version = ssl.TLSVersion.TLSv1
        from tests.providers.transport.wires import Told

        with serving(Told(), _old(authorities)) as base:
            try:
                with (
                    socket.create_connection((HOST, port_of(base)), timeout=20) as line,
                    client.wrap_socket(line, server_hostname=HOST) as spoken,
                ):
                    return spoken.version() == "TLSv1.1"
            except OSError:
                return False
