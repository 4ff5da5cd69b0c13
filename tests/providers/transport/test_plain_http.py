"""Plain http to another machine is not even tried, so that no key ever goes out in the open."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from costguard.errors import InvalidAnswerError
from costguard.providers.transport import Deadline, Transport
from costguard.providers.transport.client import HttpRequest
from tests.fakes.server import Answer, serving
from tests.providers.transport.wires import Told


@pytest.fixture
def transport() -> Iterator[Transport]:
    made = Transport()
    yield made
    made.close()


@pytest.mark.parametrize(
    "url", ["http://192.0.2.1/", "http://127.0.0.1@192.0.2.1/", "HTTP://cloud.example/v2", "ftp://127.0.0.1/"]
)
def test_it_is_refused_before_anything_is_sent(transport: Transport, url: str) -> None:
    request = HttpRequest(method="GET", url=url, headers={}, body=b"")
    with pytest.raises(InvalidAnswerError, match="is plain http, and is not asked"):
        transport.exchange(request, provider="cloud", deadline=Deadline(2))


def test_on_this_machine_it_is_asked(transport: Transport) -> None:
    with serving(Told(Answer.of({"ok": True}))) as base:
        request = HttpRequest(method="GET", url=base, headers={}, body=b"")
        assert transport.exchange(request, provider="cloud", deadline=Deadline(10)).status == 200
