"""Sends to chats, mail, phones and pagers through Apprise, by one address each.

Examples of addresses: slack://, discord://, tgram://, mailto://, ntfy://.

Apprise is imported with the first message. Its logging is disabled, because it logs addresses, which hold keys.

Most of its services use `requests`, which by default takes proxies, authorities and passwords from the environment
(HTTPS_PROXY, REQUESTS_CA_BUNDLE, ~/.netrc). Here they come only from the settings (class `Stated`). Mail addresses are parsed
by Apprise, and `mail` sends them. Services with other protocols (MQTT, XMPP) verify certificates with Apprise's or the system's
authorities.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from costguard.guard.alerts.alert import INFO, PAGE, WARNING, DeliveryResult, Notification
from costguard.notifiers import Channel, format_body, format_title, unpack_enclosure
from costguard.notifiers.chat import mail
from costguard.values.text_format import encode_chat

if TYPE_CHECKING:  # it takes 0.2 s to import, and most runs send nothing
    from apprise import AppriseAsset, NotifyBase

NOISY_LOGGERS = ("apprise", "urllib3", "urllib3.connectionpool", "requests", "httpx", "httpcore", "paho", "slixmpp")
APPRISE_KINDS = {INFO: "info", WARNING: "warning", PAGE: "failure"}
UNVERIFIED = "its address has verify=no, but certificates are always checked: set your authority in [network] ca_file"
LOOPBACK_URLS = tuple(f"{scheme}://{host}" for scheme in ("http", "https") for host in ("localhost", "127.0.0.1", "[::1]"))
MAIL_SERVICES = (
    "brevo",
    "mailersend",
    "mailgun",
    "azure",
    "o365",
    "postmark",
    "resend",
    "sendgrid",
    "ses",
    "smtp2go",
    "sparkpost",
)
"""Services that send mail: it is read later than it is sent, so its text has no "in 15 min"."""
LOCAL_SCHEMES = ("file", "syslog", "dbus", "gnome", "macosx", "windows", "qt", "kde", "glib", "rsyslog")
"""What Apprise can also do on this machine: no channel of a watchdog that runs without a screen."""


def notify(message: Notification, channel: Channel) -> DeliveryResult:
    """Send `message` once to the service that the address names."""
    scheme = channel.address.partition("://")[0].lower()
    if scheme in LOCAL_SCHEMES:
        return DeliveryResult(sent=False, why=f"{scheme}:// shows messages on this machine: use the console", again=False)
    for name in NOISY_LOGGERS:
        logging.getLogger(name).disabled = True
    try:
        import apprise
    except ImportError:
        return DeliveryResult(sent=False, why="apprise is not installed: pip install 'gpu-costguard[notify]'", again=False)
    try:
        with _use_proxy(channel.proxy):
            service = apprise.Apprise.instantiate(
                _build_address(channel), asset=_build_asset(channel), suppress_exceptions=True
            )
            return _send_message(service, message, channel)
    except Exception as broken:  # noqa: BLE001 - a hundred services behind one call, and their errors may hold the address
        return DeliveryResult(sent=False, why=f"the service failed ({type(broken).__name__})")


def _build_address(channel: Channel) -> Any:  # noqa: ANN401 - what Apprise takes: an address, or its parts
    """Return the address for Apprise; with a person, only the person is a recipient, whoever else the address names."""
    if not channel.person:
        return channel.address
    import apprise.plugins

    plugins: Any = apprise.plugins  # it says no types
    parts = plugins.url_to_dict(channel.address, secure_logging=True)
    return {**parts, "targets": [channel.person], "cc": "", "bcc": ""} if parts else ""


def _build_asset(channel: Channel) -> AppriseAsset:
    from apprise import AppriseAsset

    return AppriseAsset(
        app_id="costguard",
        app_desc="costguard",
        app_url="",
        image_url_mask="",
        image_url_logo="",
        async_mode=False,
        secure_logging=True,
        http_redirects=False,
        interpret_escapes=False,
        interpret_emojis=False,
        allow_templates=False,
        service_timeout=channel.within_s,
        storage_mode="memory",
    )


_proxy: ContextVar[str | None] = ContextVar("costguard_chat_proxy", default=None)


@contextmanager
def _use_proxy(proxy: str | None) -> Iterator[None]:
    """Make `requests` use `proxy`, or no proxy, within this block."""
    _isolate_requests()
    token = _proxy.set(proxy)
    try:
        yield
    finally:
        _proxy.reset(token)


@cache
def _isolate_requests() -> None:
    """Make `requests.post` and similar functions, which Apprise calls, create sessions that ignore the environment.

    These functions create a new `requests.sessions.Session` each time, and none of their arguments excludes the environment.
    """
    import requests.sessions

    plain: Any = requests.sessions.Session

    class Stated(plain):  # type: ignore[misc]  # the stubs are not installed
        def __init__(self) -> None:
            super().__init__()
            self.trust_env = False
            proxy = _proxy.get()
            if proxy is not None:
                self.proxies = {"http": proxy, "https": proxy, **dict.fromkeys(LOOPBACK_URLS, "")}

    requests.sessions.Session = Stated  # type: ignore[misc]  # that is what is meant


def _send_message(service: NotifyBase | None, message: Notification, channel: Channel) -> DeliveryResult:
    if service is None:
        return DeliveryResult(sent=False, why="Apprise does not know this kind of address", again=False)
    if not service.verify_certificate:
        return DeliveryResult(sent=False, why=UNVERIFIED, again=False)
    if channel.address.partition("://")[0].lower() in mail.SCHEMES:
        return mail.send_mail(service, message, channel)
    service.redirects = False  # whatever its address says
    if channel.ca_file is not None:
        service.verify_certificate = str(channel.ca_file)  # type: ignore[assignment]  # requests takes a path as well
    from apprise import Apprise, AppriseAttachment, OverflowMode
    from apprise.attachment import memory

    service.overflow_mode = OverflowMode.TRUNCATE  # Discord takes 2,000 characters: the first say most, and the title how many
    room = Apprise()
    room.add(service)
    files, in_memory = AppriseAttachment(), cast("Any", memory).AttachMemory  # never a file on the disk
    for one in message.enclosures if service.attachment_support else ():
        files.add(in_memory(content=unpack_enclosure(one), name=one.name, mimetype=one.media))
    now = None if channel.address.partition("://")[0].lower() in MAIL_SERVICES else channel.clock.now()
    sent = room.notify(
        title=format_title(message, encode_chat, now),
        body=format_body(message, encode_chat, now),
        notify_type=APPRISE_KINDS[message.severity],
        body_format="text",
        attach=files or None,
    )
    return DeliveryResult(sent=True) if sent else DeliveryResult(sent=False, why="the service did not accept it")
