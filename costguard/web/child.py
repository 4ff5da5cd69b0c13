"""What the watchdog does to have HTTP served: bind the socket, start the server as a child, and let others connect.

It imports neither uvicorn nor FastAPI: those are the child's (`process`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from costguard.services.door_channel import DoorChannel, find_channel_folder
from costguard.services.door_process import DoorKeeper, build_words, keep_door, list_door_alerts
from costguard.services.watchdog_context import WatchdogContext
from costguard.services.web_backend import find_key_file
from costguard.settings.web import NO_PROCESS, parse_listen_address
from costguard.system.logs import get_log
from costguard.web.listener import bind_listener, check_web_files

NEEDED = ("authlib", "cryptography", "fastapi", "jinja2", "joserfc", "prometheus_client", "uvicorn")
"""What the extra `web` brings; a test holds the two together."""


def require_packages() -> None:
    """Raise ModuleNotFoundError for the first package that the child needs and that is not installed."""
    for name in NEEDED:
        if find_spec(name) is None:
            raise ModuleNotFoundError(name=name)


@contextmanager
def open_door_process(
    config: str | None, *, json_log: bool, room: WatchdogContext, channel: DoorChannel
) -> Iterator[DoorKeeper | None]:
    """Start the server as a child of the watchdog, and keep it running while the block runs; let others connect as well.

    Yields None where the settings say that somebody else starts it. Raises InputError if the address, or a file that it needs,
    cannot be used.
    """
    web = room.settings.web
    if not channel.listen(find_channel_folder(room.settings)):
        get_log().warning("door_channel_taken", why="another watchdog on this ledger takes what other servers offer")
    if web.process == NO_PROCESS:
        yield None
        return
    check_web_files(web, find_key_file(room.settings))
    bound = bind_listener(web)
    words = build_words(config=config, interval_s=room.guard.rules.interval.total_seconds(), json_log=json_log)
    keeper = DoorKeeper(words=words, listener=bound, channel=channel)
    others = room.guard.more_alerts
    room.guard.more_alerts = lambda now: (*others(now), *list_door_alerts(keeper, now))
    listen = parse_listen_address(web.listen or "", "web.listen")
    get_log().info("web_listens", address=listen.shown, tls=web.tls_cert is not None, proxy=web.behind_proxy or "")
    with keep_door(keeper):
        yield keeper
