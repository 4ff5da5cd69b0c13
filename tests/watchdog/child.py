"""A process under watch: `python -m tests.watchdog.child STORY`. Its log is JSON on stderr; a story says what its duties do."""

from __future__ import annotations

import signal
import sys
import threading
from datetime import timedelta
from typing import NoReturn

from costguard.errors import InputError, ProviderError
from costguard.system import logs
from costguard.watchdog import Duties, Duty, Watchdog

SECOND = timedelta(seconds=1)


def broken() -> NoReturn:
    """An account that always fails, and whose provider echoes a key."""
    raise ProviderError("said no to Bearer abcdefghijklmnop0123", provider="runpod", account="me")


def exits() -> NoReturn:
    """A plug-in that thinks the process is its own."""
    sys.exit(7)


def no_settings() -> NoReturn:
    """Settings that cannot be used."""
    raise InputError("unknown key 'polcy'", field="costguard.toml", hint="did you mean policy?")


def main(story: str) -> int:
    """Play one story; the exit code."""
    logs.configure_logging(as_json=True)
    told, begun, never, wait = logs.get_log(), threading.Event(), threading.Event(), threading.Event()

    def says(name: str, came: object = None) -> Duty:
        return Duty(name=name, run=lambda: (told.info("ran", job=name), came)[1], every=SECOND)

    def long_run() -> None:
        told.info("ran", job="long")
        begun.set()
        wait.wait()
        told.info("done", job="long")

    def stuck() -> None:
        told.info("ran", job="stuck")
        never.wait()

    guard, outbox = says("guard", came=story != "uncommitted"), says("outbox")
    polls = {
        "raises": (Duty(name="bad", run=broken, every=SECOND), Duty(name="exits", run=exits, every=SECOND), says("good")),
        "long": (Duty(name="long", run=long_run, every=SECOND), says("good")),
        "stuck": (Duty(name="stuck", run=stuck, every=SECOND), says("good")),
        "stuck_long": (Duty(name="stuck", run=stuck, every=SECOND),),
    }.get(story, (says("good"),))
    reload = {"refused": no_settings, "reloads": lambda: Duties(polls=(says("new"),), guard=guard)}.get(story)
    patience = timedelta() if story == "stuck" else timedelta(minutes=1)
    watchdog = Watchdog(
        Duties(polls=polls, guard=guard, outbox=outbox),
        log=told,
        reload=reload,
        heartbeat=lambda: told.info("beat"),
        patience=patience,
    )
    if story == "long":  # let the long run end only after it was asked to stop

        def released() -> None:
            begun.wait()
            while not watchdog.stopping:
                threading.Event().wait(0.01)
            wait.set()

        threading.Thread(target=released, daemon=True).start()
    return watchdog.run()


if __name__ == "__main__":
    signal.alarm(600)  # whatever goes wrong, no child outlives its test by long
    sys.exit(main(sys.argv[1]))
