"""Notices that a spot machine is about to be taken away, asked for where each cloud puts them, every five seconds.

| cloud | where | says |
|---|---|---|
| AWS | `GET /latest/meta-data/spot/instance-action`, IMDSv2 | 404 until there is one; action and time, two minutes ahead |
| GCP | `GET /computeMetadata/v1/instance/preempted` | TRUE, about 30 s ahead |
| RunPod, Vast, Lambda | nowhere | RunPod and Vast send SIGTERM as they stop, which is passed on as it is |

Only where the machine's firmware, or the variable that the cloud's own tools read, says that it is that cloud.
"""

from __future__ import annotations

import http.client
import json
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

AWS, GCP, AUTO, NONE = "aws", "gcp", "auto", "none"
CLOUDS = (AUTO, AWS, GCP, NONE)
EVERY_S, WITHIN_S = 5.0, 2.0
MOST_ANSWER_BYTES = 4096
"""Bytes of an answer that are read."""
ENDPOINTS = {AWS: "AWS_EC2_METADATA_SERVICE_ENDPOINT", GCP: "GCE_METADATA_HOST"}
"""The variables by which each cloud's own tools are told another address."""
DEFAULT_ENDPOINTS = {AWS: "http://169.254.169.254", GCP: "http://169.254.169.254"}
FIRMWARE_MARKS = {AWS: ("Amazon EC2",), GCP: ("Google",)}
DMI = Path("/sys/class/dmi/id")
AHEAD_S = {AWS: 110.0, GCP: 25.0}
"""How long what is to be done before the machine goes may take."""
OK, NOT_THERE, UNAUTHORIZED = 200, 404, 401


@dataclass(frozen=True, slots=True)
class SpotNotice:
    """`cloud` will take the machine away. `text`: its words. `within_s`: how long is left, as a rule."""

    cloud: str
    text: str
    within_s: float


def detect_cloud(environ: Mapping[str, str] = os.environ, firmware: Path = DMI) -> str:
    """Whose spot notices can be had here; NONE where nothing says."""
    for cloud, name in ENDPOINTS.items():
        if environ.get(name):
            return cloud
    for cloud, marks in FIRMWARE_MARKS.items():
        for name in ("sys_vendor", "board_vendor", "product_name"):
            with suppress(OSError, UnicodeDecodeError):
                if (firmware / name).read_text(encoding="ascii").startswith(marks):
                    return cloud
    return NONE


@dataclass(slots=True)
class SpotNoticeWatcher:
    """Asks in a thread of its own, until there is a notice or it is told to end. Silence is no notice, and no trouble.

    `base`: the address to ask, "" for the usual one.
    """

    cloud: str
    base: str = ""
    every_s: float = EVERY_S
    notice: SpotNotice | None = None
    _token: str = ""
    _over: threading.Event = field(default_factory=threading.Event)

    def begin(self) -> None:
        """Ask from now on; of no cloud nothing is asked."""
        if self.cloud in CLOUD_QUERIES:
            self.base = self.base or _choose_base(self.cloud)
            threading.Thread(target=self._run, daemon=True, name="spot-notices").start()

    def end(self) -> None:
        """Ask no more."""
        self._over.set()

    def _run(self) -> None:
        while not self._over.is_set():
            with suppress(OSError, http.client.HTTPException, ValueError, RecursionError):
                notice = CLOUD_QUERIES[self.cloud](self)
                if notice is not None:  # once: whoever reads it takes it away
                    self.notice = notice
                    return
            self._over.wait(self.every_s)

    def ask_aws(self) -> SpotNotice | None:
        """What AWS says now."""
        headers = {"X-aws-ec2-metadata-token": self._token} if self._token else {}
        status, body = _fetch(self.base, "/latest/meta-data/spot/instance-action", headers)
        if status == UNAUTHORIZED:
            asked = {"X-aws-ec2-metadata-token-ttl-seconds": "21600"}
            found, token = _fetch(self.base, "/latest/api/token", asked, method="PUT")
            self._token = token if found == OK and token.isprintable() else ""
            headers = {"X-aws-ec2-metadata-token": self._token}
            status, body = _fetch(self.base, "/latest/meta-data/spot/instance-action", headers)
        if status != OK:
            return None
        said = json.loads(body)
        if not isinstance(said, dict) or not isinstance(said.get("action"), str):
            return None
        return SpotNotice(AWS, f"{said['action']} at {said.get('time', 'a time that it does not say')}", AHEAD_S[AWS])

    def ask_gcp(self) -> SpotNotice | None:
        """What GCP says now."""
        status, body = _fetch(self.base, "/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"})
        return SpotNotice(GCP, "the machine is preempted", AHEAD_S[GCP]) if status == OK and body.strip() == "TRUE" else None


CLOUD_QUERIES: Mapping[str, Callable[[SpotNoticeWatcher], SpotNotice | None]] = {
    AWS: SpotNoticeWatcher.ask_aws,
    GCP: SpotNoticeWatcher.ask_gcp,
}


def _choose_base(cloud: str) -> str:
    stated = os.environ.get(ENDPOINTS[cloud], "")
    return DEFAULT_ENDPOINTS[cloud] if not stated else stated if "://" in stated else f"http://{stated}"


def _fetch(base: str, path: str, headers: Mapping[str, str], method: str = "GET") -> tuple[int, str]:
    """The status and the beginning of the body. No proxy, no redirect: the metadata service is next door."""
    parts = urlsplit(base)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=WITHIN_S)
    try:
        connection.request(method, parts.path.rstrip("/") + path, headers=dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read(MOST_ANSWER_BYTES).decode("utf-8", errors="replace")
    finally:
        connection.close()
