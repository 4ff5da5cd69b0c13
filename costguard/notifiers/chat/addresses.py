"""Addresses as services show them: which https address is a service's, and not a webhook for costguard's own JSON.

https://hooks.slack.com/services/T0/B0/x    Slack's: Apprise reads it
https://chat.lab.org/hooks/<26 letters>     Mattermost's: mmosts://chat.lab.org/<26 letters>
https://api.opsgenie.com/v2/alerts          Opsgenie's, without its key: refused, write opsgenie://API_KEY
https://example.com/costguard               a webhook
"""

from __future__ import annotations

import logging
import re
import sys
import warnings
from contextlib import suppress
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from costguard.errors import InputError

NOISY_LOGGERS = ("apprise", "urllib3", "urllib3.connectionpool", "requests", "httpx", "httpcore", "paho", "slixmpp")
GENERIC = ("apprise", "apprises")
"""Schemes whose address as shown, https://HOST/notify/KEY, may be anybody's: theirs only if the host is called apprise."""
TRANSLATIONS = tuple(
    (re.compile(pattern, re.IGNORECASE if "[A-Z" not in pattern else 0), address)
    for pattern, address in (
        (r"http(s?)://([^/?#@]+(?:/[^?#]*?)?)/hooks/([a-z0-9]{26})/?", r"mmost\1://\2/\3"),
        (r"http(s?)://([^/?#@]+)/hooks/([A-Za-z0-9]{17,24})/([A-Za-z0-9]{40,64})/?", r"rocket\1://\3/\4@\2"),
        (r"http(s?)://([^/?#@]+(?:/[^?#]*?)?)/message\?token=([\w.-]{15})", r"gotify\1://\2/\3"),
        (r"http(s?)://([^/?#@]+)/api/v2/generic/incoming\?token=([0-9a-f-]{36})", r"goalert\1://\2/\3"),
        (r"https://(?:\w+\.)?discord(?:app)?\.com/api/(?:v\d+/)?webhooks/(\d+)/([\w-]+)/?", r"discord://\1/\2/"),
        (r"https://api\.telegram\.org/bot(\d+:[\w-]+)/sendMessage\?chat_id=(-?\w+)", r"tgram://\1/\2/"),
    )
)
"""Addresses that these services show and Apprise 2.2 reads only in its own form.

An id of Mattermost has 26 letters and digits; Rocket.Chat's ids 17 or 24, its tokens 40 or more; an application's token of
Gotify 15. docs of each service, read 2026-11.
"""
RETIRED = "Microsoft retired these connectors: create a workflow of Teams, and write its address"
OTHER_PLACES = {
    "hooks.chime.aws": "Apprise does not know Amazon Chime: use another channel",
    "outlook.office.com": RETIRED,
    "outlook.office365.com": RETIRED,
    "webhook.office.com": RETIRED,
    "zulipchat.com": "write zulip://BOTNAME@ORGANISATION/TOKEN/STREAM",
}
"""Hosts, and all below them, that take no JSON of ours and that Apprise does not name; and what to write."""
PLACEHOLDER = re.compile(r"\{(\w*)\}")
APPRISE_NEEDED = re.compile(
    r"hooks\.slack(-gov)?\.com|(.+\.)?(discord(app)?|powerplatform|logic\.azure)\.com|chat\.googleapis\.com"
)
"""Hosts of addresses that only Apprise can read, where it is not installed."""


def disable_loggers() -> None:
    """Disable the loggers of Apprise and of what it uses, which log addresses with keys, and the warnings of its imports."""
    for name in NOISY_LOGGERS:
        logging.getLogger(name).disabled = True
    _load_apprise()


@cache
def _load_apprise() -> None:
    with warnings.catch_warnings(), suppress(ImportError):
        warnings.simplefilter("ignore", DeprecationWarning)
        import apprise.plugins

        library: Any = apprise.plugins
        list(library.N_MGR.plugins())


def translate_address(address: str) -> str:
    """Return `address` as Apprise takes it, if it is the http(s) address of a service; "" for a webhook.

    Raises InputError, which does not show the address, if it is a service's and cannot be used.
    """
    for pattern, scheme in TRANSLATIONS:
        if match := pattern.fullmatch(address):
            return match.expand(scheme)
    try:
        host = (urlsplit(address).hostname or "").lower()
    except ValueError:
        return ""
    try:
        disable_loggers()
        import apprise.plugins
    except ImportError:
        return address if APPRISE_NEEDED.fullmatch(host) else ""
    library: Any = apprise.plugins  # it says no types
    with suppress(Exception):  # some of its parsers fail on an address that only resembles theirs
        parts = library.url_to_dict(address, secure_logging=True)
        if parts and (parts["schema"] not in GENERIC or host.startswith("apprise.")):
            return address
    plugins = list(library.N_MGR.plugins())
    translated = next(filter(None, (_fit_own_url(plugin, address) for plugin in plugins)), "")
    if translated:
        return translated
    for plugin in plugins:
        if host in _list_hosts(plugin):
            form = PLACEHOLDER.sub(lambda name: name[1].upper(), _fill_scheme(plugin))
            what = f"is an address of {plugin.service_name} that cannot be used"
            raise InputError(what, hint=f"write {form}, or the whole address of the channel that {plugin.service_name} shows")
    place = next((one for one in OTHER_PLACES if host == one or host.endswith(f".{one}")), "")
    if place:
        raise InputError(f"is an address of {place}, which does not take costguard's JSON", hint=OTHER_PLACES[place])
    return ""


def _fit_own_url(plugin: Any, address: str) -> str:  # noqa: ANN401 - Apprise's, which says no types
    """Return Apprise's form of an address to which `plugin` itself would post, such as Feishu's; "" if it is none."""
    names = [name for name in PLACEHOLDER.findall(_fill_scheme(plugin)) if name]
    parts = PLACEHOLDER.split(str(getattr(plugin, "notify_url", "")).rstrip("/"))
    fields = [name or names[0] for name in parts[1::2]] if names else []
    if not fields or set(fields) != set(names):
        return ""
    pattern = "([^/?&]+)".join(map(re.escape, parts[::2]))
    match = re.fullmatch(f"{pattern}/?", address)
    return _fill_scheme(plugin).format(**dict(zip(fields, match.groups(), strict=True))) if match else ""


def _fill_scheme(plugin: Any) -> str:  # noqa: ANN401 - see `_fit_own_url`
    """Return the first form of the addresses of `plugin`: `opsgenie://{apikey}`."""
    scheme = plugin.secure_protocol or plugin.protocol or ""
    form = plugin.templates[0] if plugin.templates else ""
    return str(form).replace("{schema}", scheme if isinstance(scheme, str) else scheme[0])


def _list_hosts(plugin: Any) -> set[str]:  # noqa: ANN401 - see `_fit_own_url`
    """Return the hosts to which `plugin` posts, from its constants."""
    values = [*vars(plugin).items(), *vars(sys.modules[plugin.__module__]).items()]
    urls = [value for name, value in values if isinstance(value, str) and (name.isupper() or name.endswith("url"))]
    urls += [url for _, value in values if isinstance(value, dict) for url in value.values() if isinstance(url, str)]
    return {urlsplit(url).netloc for url in urls if url not in (plugin.service_url, plugin.setup_url)} - {""}
