"""Mail over SMTP through the server of an address: mailtos://USER:PASSWORD@HOST?from=ADDRESS&mode=ssl (or starttls).

Apprise parses the address and has the servers of large providers. This module runs the SMTP session, for four reasons: TLS
authorities come from the settings, a password is never sent unencrypted, errors are described in costguard's words, and all
tries of one message have the same Message-ID, so that a second copy is recognised.

Each recipient (To, Cc, Bcc) has a transaction of its own (RFC 5321, 3.3) in one session, because a server refuses recipients
one by one: 5xx is final for that recipient, 4xx is tried again for it alone, and who accepted the mail does not get it again.
"""

from __future__ import annotations

import smtplib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, formataddr
from functools import partial
from hashlib import sha256
from ipaddress import ip_address
from typing import Any

from costguard.guard.alerts.alert import DeliveryResult, Notification
from costguard.guard.alerts.part_delivery import PartDelivery, list_missing
from costguard.notifiers import Channel, format_body, format_title, unpack_enclosure
from costguard.notifiers.chat.parts import PartSending, deliver_parts
from costguard.system import network
from costguard.values.text_format import encode_chat

SCHEMES = ("mailto", "mailtos")
INSECURE, TLS = "insecure", "ssl"
"""Apprise's words for a talk without TLS, and for one that begins with it; the third one, starttls, turns to it."""

CLEAR_TEXT_REFUSAL = "its address holds a password, which would be sent unencrypted: write mailtos://, or add mode=starttls"
NO_STARTTLS = "the server offers no STARTTLS: nothing was sent (mode=ssl and port 465, if it uses implicit TLS)"
NO_LOGIN = "the server does not support login: check its port, or remove name and password"
DELIVERY_UNCERTAIN = "the server disconnected after the message was sent and may have it: a retry uses the same Message-ID"


PERMANENT = 500
"""From this answer on SMTP says that the same request will fail again (RFC 5321, 4.2.1)."""


class _Refused(Exception):  # noqa: N818 - it is caught here, and says why
    """The server does not accept the message, or cannot be given it; the text gives the reason."""


def send_mail(service: Any, message: Notification, channel: Channel) -> DeliveryResult:  # noqa: ANN401 - Apprise's, which says no types
    """Send `message` once to each recipient of `service`, a mail address as Apprise parsed it, that has not accepted it."""
    if service.secure_mode == INSECURE and service.password and not _is_this_machine(service.smtp_host):
        return DeliveryResult(sent=False, why=CLEAR_TEXT_REFUSAL, again=False)
    try:
        return deliver_parts(message, _list_sendings(service, message, channel))
    except _Refused as why:
        return DeliveryResult(sent=False, why=str(why))
    except (OSError, smtplib.SMTPException) as broken:
        return DeliveryResult(sent=False, why=_describe_error(broken))


def _list_sendings(service: Any, message: Notification, channel: Channel) -> Iterator[PartSending]:  # noqa: ANN401 - see `send_mail`
    content = _build_email(service, message).as_bytes()
    recipients = dict.fromkeys((*(address for _, address in service.targets), *sorted(service.cc), *sorted(service.bcc)))
    with _open_session(service, channel) as smtp:
        for address in recipients:
            numbers = list_missing(message, address)
            if numbers:
                send = partial(_transmit, smtp, service.from_addr[1], address, content, numbers)
                yield PartSending(recipient=address, send=send)


def _is_this_machine(host: str) -> bool:
    """Return whether `host` is this machine by name or number, so that nothing crosses a network."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


@contextmanager
def _open_session(service: Any, channel: Channel) -> Iterator[smtplib.SMTP]:  # noqa: ANN401 - see `send_mail`
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


def _transmit(smtp: smtplib.SMTP, sender: str, address: str, content: bytes, numbers: tuple[int, ...]) -> PartDelivery:
    """Send one mail to one recipient. A refusal is given without the server's text, which may name people."""
    part = partial(PartDelivery, recipient=address, alerts=numbers)
    step, code = "the sender", None
    try:
        code, _ = smtp.mail(sender)
        if _is_yes(code):
            step, (code, _) = "the recipient", smtp.rcpt(address)
        if _is_yes(code):
            step, code = "the letter", None
            code = _send_content(smtp, content)
        else:
            smtp.rset()
    except UnicodeError:  # smtplib sends such addresses only with SMTPUTF8
        return part(sent=False, why=f"{step} has characters that the mail server cannot take", again=False)
    except (OSError, smtplib.SMTPException) as broken:
        if code is None or _is_yes(code):
            return part(sent=False, why=DELIVERY_UNCERTAIN if step == "the letter" else _describe_error(broken))
    if code is not None and _is_yes(code):
        return part(sent=True, status=code)
    is_final = step == "the recipient" and code is not None and code >= PERMANENT
    return part(sent=False, why=f"the server did not accept {step} ({code})", again=not is_final, status=code)


def _send_content(smtp: smtplib.SMTP, content: bytes) -> int:
    try:
        return smtp.data(content)[0]
    except smtplib.SMTPDataError as odd:
        return odd.smtp_code


def _is_yes(code: int) -> bool:
    return 200 <= code < 300  # noqa: PLR2004 - SMTP's yes


def _build_email(service: Any, message: Notification) -> EmailMessage:  # noqa: ANN401 - see `send_mail`
    email = EmailMessage(policy=SMTP)
    email["Subject"] = format_title(message, encode_chat)
    email["From"] = formataddr(_split_name(service.from_addr))
    email["To"] = ", ".join(formataddr(_split_name(one)) for one in service.targets)
    if service.cc:
        email["Cc"] = ", ".join(sorted(service.cc))
    email["Date"] = format_datetime(message.at)
    email["Message-ID"] = f"<{sha256(message.id.encode()).hexdigest()[:32]}@costguard>"
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
