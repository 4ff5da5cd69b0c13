"""Requests that name devices, pipes and files: none is opened, and everybody else is answered meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.web.logins import invite
from tests.web.stations import JSON, Station, station

WITHIN_S = 30.0
"""What all of them may take together; a file that is opened takes for ever."""


@pytest.fixture(scope="module")
def watchdog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    folder = tmp_path_factory.mktemp("named")
    os.mkfifo(folder / "pipe")
    (folder / "config.json").write_text('{"secret": "of this machine"}')
    with station(folder) as made:
        made.room.run_guard()
        made.token("cg_slurm", name="slurm", role="operator")
        yield made


def list_names(watchdog: Station) -> list[str]:
    """Return names of what never ends, of what waits for a writer, and of files that are there."""
    folder = Path(watchdog.url.removeprefix("sqlite:///")).parent
    return ["/dev/ptmx", "/dev/zero", "/dev/stdin", f"{folder}/pipe", f"{folder}/config.json", "./config.json", "~/config.json"]


def log_in(watchdog: Station, name: str) -> dict[str, str]:
    """Return the cookie of a viewer."""
    path = invite(watchdog.url, name, "viewer")
    came = watchdog.ask("POST", path, b"", {"Origin": f"http://{watchdog.at.host}:{watchdog.at.port}"})
    return {"Cookie": came.headers["set-cookie"].partition(";")[0]}


@pytest.mark.parametrize("count", [8, 20])
def test_models_that_are_files_hang_nobody(watchdog: Station, count: int) -> None:
    viewer, launcher = log_in(watchdog, f"viewer-{count}"), {**JSON, "Authorization": "Bearer cg_slurm"}
    names = (list_names(watchdog) * count)[:count]
    quotes = [f"/quote?{urlencode({'model': name, 'method': 'lora', 'tokens': '1e6'})}" for name in names]
    asks = [partial(watchdog.ask, "GET", path, None, viewer) for path in quotes]
    body = b'{"usd": "1", "hours": 1}'
    others = [
        partial(watchdog.ask, "GET", "/healthz"),
        partial(watchdog.ask, "GET", "/metrics", None, watchdog.token(f"cg_{count}", name=f"reader-{count}")),
        partial(watchdog.ask, "GET", "/", None, viewer),
        partial(watchdog.ask, "POST", "/v1/admit", body, launcher),
    ]
    with ThreadPoolExecutor(count + len(others)) as threads:
        refused = [threads.submit(one) for one in asks]
        answered = [threads.submit(one) for one in others]
        assert [one.result(WITHIN_S).status for one in answered] == [200] * len(others)
        for one in refused:
            page = one.result(WITHIN_S).body.decode()
            assert "name a shipped model" in page


def test_a_launcher_names_no_file_either(watchdog: Station) -> None:
    launcher = {**JSON, "Authorization": "Bearer cg_slurm"}
    for name in list_names(watchdog):
        for key in ("model", "path"):
            body = f'{{"job": {{"{key}": "{name}", "method": "lora", "tokens": 1000000}}}}'
            came = watchdog.ask("POST", "/v1/admit", body.encode(), launcher)
            assert (came.status, "name a shipped model" in came.data["says"]) == (400, True), (name, key, came.body)
