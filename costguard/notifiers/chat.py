"""Chats, mail, phones and pagers by one address each, through Apprise: slack://, discord://, tgram://, mailto://, ntfy://, ...

Apprise is imported with the first message. What it logs holds addresses, which hold keys, so it logs nothing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from costguard.core.guard.encoding import chat
from costguard.core.guard.letters import body_of, title_of
from costguard.core.guard.notice import INFO, PAGE, WARNING, Delivery, Message
from costguard.notifiers import Channel

if TYPE_CHECKING:  # it takes 0.2 s to import, and most runs send nothing
    from apprise import AppriseAsset, NotifyBase

LOUD = ("apprise", "urllib3", "urllib3.connectionpool", "requests", "httpx", "httpcore", "paho", "slixmpp")
KINDS = {INFO: "info", WARNING: "warning", PAGE: "failure"}
LOCAL = ("file", "syslog", "dbus", "gnome", "macosx", "windows", "qt", "kde", "glib", "rsyslog")
"""What Apprise can also do on this machine: no channel of a watchdog that runs without a screen."""


def notify(message: Message, channel: Channel) -> Delivery:
    """Send `message` once to the one service that the address names."""
    scheme = channel.address.partition("://")[0].lower()
    if scheme in LOCAL:
        return Delivery(sent=False, why=f"{scheme}:// writes on this machine: use the console", again=False)
    for name in LOUD:
        logging.getLogger(name).disabled = True
    try:
        import apprise
    except ImportError:
        return Delivery(sent=False, why="apprise is not installed: pip install 'gpu-costguard[notify]'", again=False)
    try:
        return _sent(apprise.Apprise.instantiate(channel.address, asset=_asset(channel), suppress_exceptions=True), message)
    except Exception as broken:  # noqa: BLE001 - a hundred services behind one call, and their errors may hold the address
        return Delivery(sent=False, why=f"the service failed ({type(broken).__name__})")


def _asset(channel: Channel) -> AppriseAsset:
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


def _sent(service: NotifyBase | None, message: Message) -> Delivery:
    if service is None:
        return Delivery(sent=False, why="its address is none that Apprise knows", again=False)
    from apprise import Apprise, OverflowMode

    service.overflow_mode = OverflowMode.TRUNCATE  # Discord takes 2,000 characters: the first say most, and the title how many
    room = Apprise()
    room.add(service)
    sent = room.notify(
        title=title_of(message, chat), body=body_of(message, chat), notify_type=KINDS[message.severity], body_format="text"
    )
    return Delivery(sent=True) if sent else Delivery(sent=False, why="the service did not take it")
