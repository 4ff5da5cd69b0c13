"""What a command is doing, for a person who waits: a line on standard error that is renewed, and goes when the answer comes.

Whoever does something that may take long says so with `report_progress`; without a display that costs a function call. The
command line shows it on a terminal after a second, and each step as a line of its own with `--verbose`. In a pipe nothing is
shown.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from time import monotonic

SHOWN_AFTER_S, RENEWED_EVERY_S = 0.8, 0.12
FRAMES, PLAIN_FRAMES = "\u280b\u2819\u2839\u2838\u283c\u2834\u2826\u2827\u2807\u280f", "-\\|/"
_show: list[Callable[[str, int, int], None]] = []
_clear: list[Callable[[], None]] = []


def report_progress(what: str, count: int = 0, total: int = 0) -> None:
    """Say `what` is being done, and that `count` of `total` are done; 0 of 0: that is not known."""
    for show in _show:
        show(what, count, total)


def clear_progress() -> None:
    """Take the line away before something else is written; it comes back when something more is reported."""
    for clear in _clear:
        clear()


@contextmanager
def show_progress(first: str, *, verbose: bool = False, quiet: bool = False) -> Iterator[None]:
    """Show what is reported while the block runs, `first` until something is; nothing where standard error is no terminal.

    `verbose`: a line for each step, also in a pipe. `quiet`: nothing.
    """
    if quiet:
        yield
    elif verbose:
        with _shown(_write_line, lambda: None):
            yield
    elif sys.stderr is not None and sys.stderr.isatty():
        spinner = _Spinner(first)
        with _shown(spinner.update, spinner.clear):
            spinner.start()
            try:
                yield
            finally:
                spinner.end()
    else:
        yield


@contextmanager
def _shown(show: Callable[[str, int, int], None], clear: Callable[[], None]) -> Iterator[None]:
    _show.append(show)
    _clear.append(clear)
    try:
        yield
    finally:
        _show.remove(show)
        _clear.remove(clear)


def _write_line(what: str, count: int, total: int) -> None:
    sys.stderr.write(f"{what}{_format_count(count, total)}\n")


def _format_count(count: int, total: int) -> str:
    return f" ({count} of {total})" if total else ""


class _Spinner:
    """A line that a thread renews. Writing and clearing take turns, so that nothing is written into an answer."""

    def __init__(self, first: str) -> None:
        self._what, self._done, self._total = first, 0, 0
        self._began = monotonic()
        self._since = self._began
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._shown = self._paused = False
        self._frames = cycle(FRAMES if (sys.stderr.encoding or "").lower().startswith("utf") else PLAIN_FRAMES)
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def update(self, what: str, count: int, total: int) -> None:
        with self._lock:
            if what != self._what:
                self._since = monotonic()
            self._what, self._done, self._total = what, count, total
            self._paused = False

    def clear(self) -> None:
        with self._lock:
            self._paused = True
            self._wipe()

    def end(self) -> None:
        self._ended.set()
        self._thread.join(timeout=1.0)
        with self._lock:
            self._wipe()

    def _run(self) -> None:
        while not self._ended.wait(RENEWED_EVERY_S):
            with self._lock:
                if monotonic() - self._began >= SHOWN_AFTER_S and not self._paused:
                    self._draw()

    def _draw(self) -> None:
        import shutil

        passed = monotonic() - self._since
        left = passed * (self._total - self._done) / self._done if self._done and self._total else 0.0
        remaining = f", {left:.0f} s left" if left >= 1 else ""
        line = f"{next(self._frames)} {self._what}{_format_count(self._done, self._total)}{remaining}"
        sys.stderr.write(f"\r\x1b[2K{line[: max(1, shutil.get_terminal_size().columns - 1)]}")
        sys.stderr.flush()
        self._shown = True

    def _wipe(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
            self._shown = False
