"""Mail over SMTP through the server of an address: mailtos://USER:PASSWORD@HOST?from=ADDRESS&mode=ssl (or starttls).

Apprise parses the address and has the servers of large providers. This module runs the SMTP session, for four reasons: TLS
authorities come from the settings, a password is never sent unencrypted, errors are described in costguard's words, and all
tries of one message have the same Message-ID, so that a second copy is recognised.
"""

from __future__ import annotations

import smtplib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, formataddr
from hashlib import sha256
from ipaddress import ip_address
from typing import Any

from costguard.guard.alerts.alert import DeliveryResult, Notification
from costguard.notifiers import Channel, format_body, format_title, unpack_enclosure
from costguard.system import network
from costguard.values.text_format import encode_chat

SCHEMES = ("mailto", "mailtos")
INSECURE, TLS = "insecure", "ssl"
"""Apprise's words for a talk without TLS, and for one that begins with it; the third one, starttls, turns to it."""

CLEAR_TEXT_REFUSAL = "its address holds a password, which would be sent unencrypted: write mailtos://, or add mode=starttls"
NO_STARTTLS = "the server offers no STARTTLS: nothing was sent (mode=ssl and port 465, if it uses implicit TLS)"
NO_LOGIN = "the server does not support login: check its port, or remove name and password"
DELIVERY_UNCERTAIN = "the server disconnected after the message was sent and may have it: a retry uses the same Message-ID"


class _Refused(Exception):  # noqa: N818 - it is caught here, and says why
    """The server does not accept the message, or cannot be given it; the text gives the reason."""


def send_mail(service: Any, message: Notification, channel: Channel) -> DeliveryResult:  # noqa: ANN401 - Apprise's, which says no types
    """Send `message` once to all recipients of `service`, a mail address as Apprise parsed it."""
    if service.secure_mode == INSECURE and service.password and not _is_this_machine(service.smtp_host):
        return DeliveryResult(sent=False, why=CLEAR_TEXT_REFUSAL, again=False)
    try:
        with _open_session(service, channel) as smtp:
            for name, address in service.targets:
                letter = _build_email(service, message, (name, address))
                _transmit(smtp, service.from_addr[1], [address, *sorted(service.cc), *sorted(service.bcc)], letter)
    except _Refused as why:
        return DeliveryResult(sent=False, why=str(why))
    except (OSError, smtplib.SMTPException) as broken:
        return DeliveryResult(sent=False, why=_describe_error(broken))
    return DeliveryResult(sent=True)


def _is_this_machine(host: str) -> bool:
    """Return whether `host` is this machine by name or number, so that nothing crosses a network."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


@contextmanager
def _open_session(service: Any, channel: Channel) -> Iterator[smtplib.SMTP]:  # noqa: ANN401 - see `send`
    """Yield an SMTP session, over TLS if the address asks for it, and logged in if it has a password."""
    context = network.load_context(channel.ca_file)
    if service.secure_mode == TLS:
        smtp: smtplib.SMTP = smtplib.SMTP_SSL(service.smtp_host, service.port, timeout=channel.within_s, context=context)
    else:
        smtp = smtplib.SMTP(service.smtp_host, service.port, timeout=channel.within_s)
    try:
        if service.secure_mode not in (TLS, INSECURE):
            with _translate_error(smtplib.SMTPNotSupportedError, NO_STARTTLS):
                smtp.starttls(context=context)
        if service.user and service.password:
            with _translate_error(smtplib.SMTPNotSupportedError, NO_LOGIN):
                smtp.login(service.user, service.password)
        yield smtp
        with suppress(OSError, smtplib.SMTPException):  # it has the letter: how it takes leave is nothing to us
            smtp.quit()
    finally:
        smtp.close()


@contextmanager
def _translate_error(error: type[Exception], why: str) -> Iterator[None]:
    try:
        yield
    except error:
        raise _Refused(why) from None


def _transmit(smtp: smtplib.SMTP, sender: str, whom: Sequence[str], letter: EmailMessage) -> None:
    """Send one mail.

    Raise _Refused that names the part that the server did not accept, without the server's text, which may name people.
    """
    code, _ = smtp.mail(sender)
    _require_accepted(code, "the sender")
    for address in whom:
        code, _ = smtp.rcpt(address)
        _require_accepted(code, "a recipient")
    try:
        code, _ = smtp.data(letter.as_bytes())
    except smtplib.SMTPDataError as odd:
        code = odd.smtp_code
    except (OSError, smtplib.SMTPServerDisconnected):
        raise _Refused(DELIVERY_UNCERTAIN) from None
    _require_accepted(code, "the letter")


def _require_accepted(code: int, what: str) -> None:
    if not 200 <= code < 300:  # noqa: PLR2004 - SMTP's yes
        raise _Refused(f"the server did not accept {what} ({code})")


def _build_email(service: Any, message: Notification, to: tuple[str | bool, str]) -> EmailMessage:  # noqa: ANN401 - see `send`
    email = EmailMessage(policy=SMTP)
    email["Subject"] = format_title(message, encode_chat)
    email["From"] = formataddr(_split_name(service.from_addr))
    email["To"] = formataddr(_split_name(to))
    if service.cc:
        email["Cc"] = ", ".join(sorted(service.cc))
    email["Date"] = format_datetime(message.at)
    email["Message-ID"] = f"<{sha256(f'{message.id} {to[1]}'.encode()).hexdigest()[:32]}@costguard>"
    email["X-Application"] = "costguard"
    email.set_content(format_body(message, encode_chat))
    for one in message.enclosures:
        kind, _, rest = one.media.partition(";")[0].partition("/")
        email.add_attachment(unpack_enclosure(one), maintype=kind, subtype=rest, filename=one.name)
    return email


def _split_name(address: tuple[str | bool, str]) -> tuple[str, str]:
    """Return the name and the address; Apprise has False where there is no name."""
    name, its = address
    return (name if isinstance(name, str) else ""), its


def _describe_error(broken: Exception) -> str:
    """Return a description of an error before the mail was transmitted."""
    trouble = network.explain_tls_error(broken)
    if trouble is not None:
        return f"{trouble.what} ({trouble.hint})"
    if isinstance(broken, smtplib.SMTPAuthenticationError):
        return f"the server rejected the name and password ({broken.smtp_code})"
    if isinstance(broken, smtplib.SMTPResponseException):
        return f"the server refused ({broken.smtp_code})"
    return "no answer in time" if isinstance(broken, TimeoutError) else "the server cannot be reached or disconnected"
