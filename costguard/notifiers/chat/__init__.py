"""Sends to chats, mail, phones and pagers through Apprise, by one address each.

Examples of addresses: slack://, discord://, tgram://, mailto://, ntfy://.

Apprise is imported with the first message. Its logging is disabled, because it logs addresses, which hold keys.

Each target of an address (a chat, a room, a phone) is a recipient for itself, so that who accepted a message does not get it
again because another one failed. Apprise says only whether a target accepted; the status and the wait that the service asks for
are taken from the answers that `requests` got.

Most of its services use `requests`, which by default takes proxies, authorities and passwords from the environment
(HTTPS_PROXY, REQUESTS_CA_BUNDLE, ~/.netrc). Here they come only from the settings (class `Stated`). Mail addresses are parsed
by Apprise, and `mail` sends them; `pagers` makes incidents. Services with other protocols (MQTT, XMPP) verify certificates with
Apprise's or the system's authorities.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cache, partial
from hashlib import sha256
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from costguard.errors import InputError
from costguard.guard.alerts.alert import INFO, PAGE, WARNING, DeliveryResult, Notification
from costguard.guard.alerts.part_delivery import PartDelivery, list_missing
from costguard.notifiers import Channel, unpack_enclosure
from costguard.notifiers.chat import mail, pagers
from costguard.notifiers.chat.addresses import disable_loggers
from costguard.notifiers.chat.answers import NO_REQUEST, describe_answer, is_cut, is_refusal, is_shown, is_unsent
from costguard.notifiers.chat.parts import PartSending, deliver_parts
from costguard.notifiers.chat.split import Fits, MessagePart, split_message
from costguard.values.text_format import encode_chat

if TYPE_CHECKING:  # it takes 0.2 s to import, and most runs send nothing
    from apprise import AppriseAsset, NotifyBase

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
OWN_RECEIVERS = ("json", "jsons", "xml", "xmls", "form", "forms", "amqp", "amqps", "mqtt", "mqtts")
"""What receives a message there is the user's own program: no service limits it."""
UNKNOWN_SIZE = 2_000
"""Of a service whose limit Apprise does not state: as much as the chats with the smallest ones take."""
SIZES = {"ntfy": 4_000, "ntfys": 4_000, "slack": 3_000, "viber": 7_000}
"""Limits that are lower than those of Apprise 2.2. ntfy: 4,096 bytes, more becomes a file (release v1.11.0 of ntfy). Slack:
3,000 characters of a section's text (Block Kit, section block). Viber: 7,000 (infobip.com/docs/viber/bots/message-types). Read
2026-11-30 in stored copies of these pages."""
GLUE_SIZE = 8
"""Of what a service puts between a title and a body: a line break, or the marks of bold text."""
PART_INTERVAL_S = 0.5
"""Between the parts of a message; Apprise's 5.5 s would be the whole time of a round. Discord takes five in 2 s."""
ONE_OBJECT_SCHEMAS = frozenset(("opsgenie", "jira", "github", "reddit"))
"""Their targets are those who are responsible for one alert, and no recipients of copies."""
RETRY_AFTER_MAX = timedelta(hours=1)
LOCAL_SCHEMES = ("file", "syslog", "dbus", "gnome", "macosx", "windows", "qt", "kde", "glib", "rsyslog")
"""What Apprise can also do on this machine: no channel of a watchdog that runs without a screen."""


def notify(message: Notification, channel: Channel) -> DeliveryResult:
    """Send `message` once to the service that the address names."""
    try:
        _require_apprise(channel.address)
        if channel.address.partition("://")[0].lower() in mail.SCHEMES:
            return _send_mail(message, channel)
        return deliver_parts(message, _list_sendings(message, channel))
    except InputError as wrong:
        return DeliveryResult(sent=False, why=f"{wrong.what}: {wrong.hint}" if wrong.hint else wrong.what, again=False)
    except Exception as broken:  # noqa: BLE001 - a hundred services behind one call, and their errors may hold the address
        return DeliveryResult(sent=False, why=f"the service failed ({type(broken).__name__})")


def describe_address(channel: Channel) -> str:
    """Return the services of the channel's address: "Slack". Nothing is sent.

    Raises InputError, without showing the address, if nothing can be sent to it.
    """
    _require_apprise(channel.address)
    services = [_open_service(parts, channel) for _, parts in _list_recipients(channel.address)]
    return ", ".join(dict.fromkeys(str(one.service_name) for one in services))


def _require_apprise(address: str) -> None:
    scheme = address.partition("://")[0].lower()
    if scheme in LOCAL_SCHEMES:
        raise InputError(f"{scheme}:// shows messages on this machine", hint="use the console")
    disable_loggers()
    if not find_spec("apprise"):
        raise InputError("apprise is not installed", hint="in a clone of costguard: pip install '.[notify]'")


def _send_mail(message: Notification, channel: Channel) -> DeliveryResult:
    """Send by mail; with a person, only the person is a recipient, whoever else the address names."""
    parts = _parse_address(channel.address)
    if channel.person:
        parts = {**parts, "targets": [channel.person], "cc": "", "bcc": ""}
    return mail.send_mail(_open_service(parts, channel), message, channel)


def _parse_address(address: str) -> dict[str, Any]:
    import apprise.plugins

    plugins: Any = apprise.plugins  # it says no types
    parts: dict[str, Any] | None = plugins.url_to_dict(address, secure_logging=True)
    if not parts:
        raise InputError("Apprise does not know such an address, or a part of it is missing")
    return parts


def _list_recipients(addresses: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the name and the parts of the address of each recipient that `addresses`, one or several of them, name.

    People in Cc and Bcc of a service that sends mail are recipients like all others.
    """
    import apprise.utils.parse

    parser: Any = apprise.utils.parse  # it says no types
    recipients = list[tuple[str, dict[str, Any]]]()
    for address in parser.parse_urls(addresses) if addresses.count("://") > 1 else [addresses]:
        parts = _parse_address(address)
        copies = [name for name in ("cc", "bcc") if parts.get(name)]
        copied = [one for name in copies for one in parser.parse_emails(parts[name])]
        parts |= dict.fromkeys(copies, "")
        targets = parts.get("targets")
        if not targets or not isinstance(targets, (list, tuple)) or parts["schema"] in ONE_OBJECT_SCHEMAS:
            recipients.append((address, parts))
            targets = ()
        recipients += [(f"{address} {one}", {**parts, "targets": [one]}) for one in (*targets, *copied)]
    if len(recipients) == 1:
        return [("", recipients[0][1])]
    marks = [f"of {len(recipients)} ({sha256(text.encode()).hexdigest()[:8]})" for text, _ in recipients]
    return [
        (f"recipient {number} {mark}", parts)
        for number, (mark, (_, parts)) in enumerate(zip(marks, recipients, strict=True), 1)
    ]


def _list_sendings(message: Notification, channel: Channel) -> Iterator[PartSending]:
    for recipient, parts in _list_recipients(channel.address):
        numbers = list_missing(message, recipient)
        if not numbers:
            continue
        service = _open_service(parts, channel)
        now, fits = None if parts["schema"] in MAIL_SERVICES else channel.clock.now(), _build_measure(service, parts["schema"])
        sendings = ((message, part) for part in split_message(message, numbers, fits, encode_chat, now))
        if pagers.has_incidents(service) and message.notices:
            events = [(number, pagers.build_event(message, message.notices[number])) for number in numbers]
            sendings = (
                (event, replace(part, numbers=(number,)))
                for number, event in events
                for part in split_message(event, (0,), fits, encode_chat, now)
            )
        for content, part in sendings:
            yield PartSending(recipient=recipient, send=partial(_send_part, service, content, channel, recipient, part))


def _build_measure(service: NotifyBase, scheme: str) -> Fits:
    """Return whether `service` takes a title and a body whole.

    What counts is the text that Apprise hands over after its conversions, with a title that becomes a part of the body. It is
    counted in the unit in which it is longest, because services count bytes, characters or units of UTF-16; in an SMS that is
    not plain ASCII a unit of UTF-16 takes 16 of 1,120 bits (3GPP TS 23.038).
    """
    from apprise import NotifyBase

    size = min(service.body_maxlen, SIZES.get(scheme, service.body_maxlen))
    if service.body_maxlen == NotifyBase.body_maxlen and scheme not in (*MAIL_SERVICES, *OWN_RECEIVERS):
        size = min(size, UNKNOWN_SIZE)

    def fits(title: str, body: str) -> bool:
        call_format = _choose_format(service)
        [call] = service._build_send_calls(body=body, title=title, body_format=call_format)  # noqa: SLF001 - what `notify` sends
        glue = GLUE_SIZE if call["title"] else 0
        is_within = _count_size(call["title"]) + glue + _count_size(call["body"]) <= size
        lines = body.count("\n") + 1 + (call["title"] != title)
        return (
            is_within and _count_size(call["title"]) <= service.title_maxlen and lines <= (service.body_max_line_count or lines)
        )

    return fits


def _choose_format(service: NotifyBase) -> str | None:
    """Return the format to declare: none where Apprise would escape the text as plain Markdown, in which a link is no link.

    `encode_chat` has disabled the markup of names.
    """
    from apprise import NotifyBase

    is_plain = type(service).dialect_convert is NotifyBase.dialect_convert
    return None if is_plain and service.resolve_format("text") == "markdown" else "text"


def _count_size(text: str) -> int:
    in_bytes = len(text.encode("utf-8", "replace"))
    return in_bytes if text.isascii() else max(in_bytes, -(-len(text.encode("utf-16-le", "replace")) * 8 // 7))


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
_answers: ContextVar[list[Any] | None] = ContextVar("costguard_chat_answers", default=None)


@contextmanager
def _use_proxy(proxy: str | None, answers: list[Any]) -> Iterator[None]:
    """Make `requests` use `proxy`, or no proxy, and add what it is answered to `answers`, within this block."""
    _isolate_requests()
    tokens = _proxy.set(proxy), _answers.set(answers)
    try:
        yield
    finally:
        _proxy.reset(tokens[0])
        _answers.reset(tokens[1])


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

        def request(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as it is there
            answer, answers = super().request(*args, **kwargs), _answers.get()
            if answers is not None:
                answers.append(answer)
            return answer

    requests.sessions.Session = Stated  # type: ignore[misc]  # that is what is meant


def _open_service(parts: dict[str, Any], channel: Channel) -> NotifyBase:
    import apprise

    service = apprise.Apprise.instantiate(parts, asset=_build_asset(channel), suppress_exceptions=True)
    if service is None:
        raise InputError("Apprise does not know such an address, or a part of it is missing")
    if not service.verify_certificate:
        raise InputError(UNVERIFIED)
    service.request_rate_per_sec = PART_INTERVAL_S
    service.redirects = False  # whatever its address says
    if channel.ca_file is not None:
        service.verify_certificate = str(channel.ca_file)  # type: ignore[assignment]  # requests takes a path as well
    service.overflow_mode = apprise.OverflowMode.UPSTREAM  # it must cut nothing: a part fits
    return service


def _send_part(service: NotifyBase, message: Notification, channel: Channel, recipient: str, part: MessagePart) -> PartDelivery:
    delivery = partial(PartDelivery, recipient=recipient, alerts=part.numbers)
    if not part.body:
        return delivery(sent=False, why=f"the service takes {service.body_maxlen} characters, and one line is longer")
    from apprise import Apprise, AppriseAttachment
    from apprise.attachment import memory

    room = Apprise()
    room.add(service)
    files, in_memory = AppriseAttachment(), cast("Any", memory).AttachMemory  # never a file on the disk
    for one in message.enclosures if service.attachment_support and 0 in part.numbers else ():
        files.add(in_memory(content=unpack_enclosure(one), name=one.name, mimetype=one.media))
    answers: list[Any] = []
    try:
        with _use_proxy(channel.proxy, answers):
            is_over = pagers.has_incidents(service) and pagers.set_incident(service, message)
            sent = pagers.close_alert(service, message, f"{part.title}\n{part.body}") if is_over else None
            if sent is None:
                kind, body_format = "success" if is_over else APPRISE_KINDS[message.severity], _choose_format(service)
                sent = bool(
                    room.notify(
                        title=part.title, body=part.body, notify_type=kind, body_format=body_format, attach=files or None
                    )
                )
    except Exception as broken:  # noqa: BLE001 - a hundred services behind one call, and their errors may hold the address
        return delivery(sent=False, why=f"the service failed ({type(broken).__name__})")
    if sent and is_unsent(service, answers):
        return delivery(sent=False, why=NO_REQUEST, again=False)
    status, answer = answers[-1].status_code if answers else None, describe_answer(answers, channel.address)
    delivery = partial(delivery, status=status, answer=answer)
    if sent and not is_refusal(service, answers):
        return _find_shown(delivery(sent=True), part, answers)
    wait = _read_retry_after(answers[-1], channel.clock.now()) if answers else None
    return delivery(sent=False, why=f"the service did not accept it ({answer or 'no answer'})", retry_after=wait)


def _find_shown(delivery: PartDelivery, part: MessagePart, answers: list[Any]) -> PartDelivery:
    """Return `delivery`, which was accepted, without the alerts that the service cut off."""
    if not is_cut(part.body, answers):
        return delivery
    shown = [number for number, line in zip(part.numbers, part.lines, strict=False) if is_shown(line, part.body, answers)]
    why = f"the service accepted it and shows {len(shown)} of {len(part.numbers)} alerts"
    return replace(delivery, sent=bool(shown), alerts=tuple(shown), why=why, is_cut=True)


def _read_retry_after(answer: Any, now: datetime) -> timedelta | None:  # noqa: ANN401 - requests says no types
    """Return the wait that the answer asks for, in seconds or until an instant (RFC 9110, 10.2.3); None: none."""
    text = str(answer.headers.get("Retry-After") or "").strip()
    try:
        wait = timedelta(seconds=float(text)) if text.replace(".", "", 1).isdigit() else parsedate_to_datetime(text) - now
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(wait, timedelta()), RETRY_AFTER_MAX)
