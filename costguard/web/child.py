"""What the watchdog does to have HTTP served: take what the web hands over at a Unix socket, and start the web as a child."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from costguard.services.guarding.watchdog_context import WatchdogContext
from costguard.services.serving.agent_desk import AgentDesk
from costguard.services.serving.web_backend import find_key_file
from costguard.settings.sections import NO_PROCESS
from costguard.settings.web import parse_listen_address
from costguard.system.logs import get_log
from costguard.web.keeper import DoorKeeper, build_words, keep_door, list_door_alerts
from costguard.web.listener import bind_listener, check_web_files
from costguard.web.watchdog_server import serve_desk
from costguard.web.watchdog_socket import HEALTH_NAME, bind_private_socket, bind_watchdog_socket, find_watchdog_socket

NEEDED = ("authlib", "cryptography", "fastapi", "jinja2", "joserfc", "prometheus_client", "uvicorn")
"""What the extra `web` brings; a test holds the two together."""


def require_packages() -> None:
    """Raise ModuleNotFoundError for the first package that the child needs and that is not installed."""
    for name in NEEDED:
        if find_spec(name) is None:
            raise ModuleNotFoundError(name=name)


@contextmanager
def open_door_process(
    config: str | None, *, json_log: bool, room: WatchdogContext, desk: AgentDesk
) -> Iterator[DoorKeeper | None]:
    """Have `desk` take what the web hands over, start the web as a child, and keep it running while the block runs.

    Yields None where the settings say that somebody else starts it. Raises InputError if the address, or a file that it needs,
    cannot be used.
    """
    web = room.settings.web
    path, bound = bind_watchdog_socket(find_watchdog_socket(room.settings))
    with serve_desk(desk, bound), _remove_at_end(path):
        if web.process == NO_PROCESS:
            yield None
            return
        with _keep_child(config, json_log=json_log, room=room, watchdog=path) as keeper:
            yield keeper


@contextmanager
def _remove_at_end(path: Path) -> Iterator[None]:
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def _keep_child(config: str | None, *, json_log: bool, room: WatchdogContext, watchdog: Path) -> Iterator[DoorKeeper]:
    web = room.settings.web
    check_web_files(web, find_key_file(room.settings))
    bound = bind_listener(web)
    health = watchdog.with_name(f"{HEALTH_NAME}-{os.getpid()}")
    words = build_words(config=config, interval_s=room.guard.rules.interval.total_seconds(), json_log=json_log)
    keeper = DoorKeeper(
        words=words,
        listener=bound,
        health_listener=bind_private_socket(health),
        watchdog=watchdog,
    )
    others = room.guard.more_alerts
    room.guard.more_alerts = lambda now: (*others(now), *list_door_alerts(keeper, now))
    listen = parse_listen_address(web.listen or "", "web.listen")
    get_log().info("web_listens", address=listen.shown, tls=web.tls_cert is not None, proxy=web.behind_proxy or "")
    with _remove_at_end(health), keep_door(keeper):
        yield keeper
