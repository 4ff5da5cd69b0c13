"""Services of the internet on this machine: every request of Apprise goes to a loopback server, which sees the host meant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from tests.fakes.server import FakeCloud, serving


@contextmanager
def in_place_of_hosts(cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Let `cloud` answer for every host, which it finds in the header x-host, and yield its address."""
    import requests.adapters

    plain = requests.adapters.HTTPAdapter.send
    with serving(cloud) as base, monkeypatch.context() as patch:

        def send(adapter: Any, request: Any, **settings: Any) -> Any:  # noqa: ANN401 - those of requests
            parts = urlsplit(request.url)
            request.headers["X-Host"] = parts.netloc
            request.url = urlunsplit((*urlsplit(base)[:2], *parts[2:]))
            return plain(adapter, request, **settings)

        patch.setattr("requests.adapters.HTTPAdapter.send", send)
        yield base
