"""A real browser for tests, spoken to over a pipe: no driver, no port, no package.

`chromium --remote-debugging-pipe` reads its orders from descriptor 3 and answers on 4: JSON, a NUL after each
(https://chromedevtools.github.io/devtools-protocol/). Where no Chromium is installed, those tests are skipped.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NAMES = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--remote-debugging-pipe")
"""`--no-sandbox`: as root Chromium starts no other way, and the pages are ours."""

LONGEST_S = 300.0
ABOVE = 20
"""Descriptors of ours that are out of the way of 3 and 4."""

TOLD = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded", "Page.javascriptDialogOpening")


def installed() -> str | None:
    """Where a browser is, if there is one."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """A running browser with one page. `told`: what pages said on the console, and dialogs; `asked`: addresses they loaded."""

    def __init__(self, command: str) -> None:
        self.told: list[Mapping[str, Any]] = []
        self.asked: list[str] = []
        self._loaded, self._last, self._buffer = 0, 0, b""
        self._folder = tempfile.mkdtemp(prefix="costguard-browser-")
        theirs_in, self._to = _pipe()
        self._from, theirs_out = _pipe()
        words = (command, *FLAGS, f"--user-data-dir={self._folder}", "about:blank")
        silent = os.open(os.devnull, os.O_RDWR)
        actions = [(os.POSIX_SPAWN_DUP2, silent, n) for n in (0, 1, 2)]
        actions += [(os.POSIX_SPAWN_DUP2, theirs_in, 3), (os.POSIX_SPAWN_DUP2, theirs_out, 4)]
        self._pid = os.posix_spawn(command, words, os.environ | {"HOME": self._folder}, file_actions=actions, setpgroup=0)
        for one in (theirs_in, theirs_out, silent):
            os.close(one)
        self._session: str | None = None
        target = self.order("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.order("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.order(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, wrong: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self._to)
        os.close(self._from)
        os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        shutil.rmtree(self._folder, ignore_errors=True)

    def order(self, method: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401 - their words
        """What the browser answers."""
        number = self._send(method, params)
        while (said := self._read()).get("id") != number:
            self._note(said)
        if "error" in said:
            raise RuntimeError(f"{method}: {said['error']}")
        answer: dict[str, Any] = said["result"]
        return answer

    def open(self, page: Path) -> None:
        """Load a file, and wait until all of it is there."""
        self.told.clear()
        self.asked.clear()
        before = self._loaded
        self.order("Page.navigate", url=page.as_uri())
        while self._loaded == before:
            self._note(self._read())

    def look(self, *, width: int, height: int = 900, dark: bool = False, media: str = "screen") -> None:
        """How wide the window is, in which theme, on what."""
        self.order("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.order("Emulation.setEmulatedMedia", media=media, features=[theme])

    def value(self, expression: str) -> Any:  # noqa: ANN401 - whatever the page computes
        """What `expression` is in the page."""
        said = self.order("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in said:
            raise RuntimeError(str(said["exceptionDetails"]))
        return said["result"].get("value")

    def picture(self, *, whole: bool = True) -> bytes:
        """A PNG of the page."""
        if whole:
            size = self.order("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
            return base64.b64decode(self.order("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"])
        return base64.b64decode(self.order("Page.captureScreenshot")["data"])

    def paper(self, *, width: float = 8.27, height: float = 11.69) -> bytes:
        """A PDF of the page as it is printed, on paper of so many inches."""
        self.order("Emulation.setEmulatedMedia", media="", features=[])
        said = self.order(
            "Page.printToPDF", paperWidth=width, paperHeight=height, printBackground=False, preferCSSPageSize=False
        )
        return base64.b64decode(said["data"])

    def _send(self, method: str, params: Mapping[str, Any]) -> int:
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        session = {"sessionId": self._session} if self._session else {}
        os.write(self._to, json.dumps(message | session).encode() + b"\0")
        return self._last

    def _note(self, said: Mapping[str, Any]) -> None:
        method = said.get("method")
        if method == "Page.loadEventFired":
            self._loaded += 1
        elif method == "Network.requestWillBeSent":
            self.asked.append(said["params"]["request"]["url"])
        elif method in TOLD:
            self.told.append(said)
            if method == "Page.javascriptDialogOpening":
                self._send("Page.handleJavaScriptDialog", {"accept": True})

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], LONGEST_S)
            part = os.read(self._from, 1 << 20) if ready else b""
            if not part:
                raise RuntimeError("the browser says nothing")
            self._buffer += part
        first, _, self._buffer = self._buffer.partition(b"\0")
        said: dict[str, Any] = json.loads(first)
        return said


def _pipe() -> tuple[int, int]:
    """A pipe whose ends have high numbers."""
    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, ABOVE) for end in ends)
    for end in ends:
        os.close(end)
    return high[0], high[1]
