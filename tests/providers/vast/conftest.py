"""No waiting between tries: the paces are tried by themselves in `test_api.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import stamina

from costguard.providers.transport import Bucket, Deadline
from costguard.providers.transport.circuit import Circuits


@pytest.fixture(autouse=True)
def without_pauses(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Buckets have enough and circuits stay closed, unless a test is marked to have the real ones."""
    if "real_paces" not in request.fixturenames:

        def take(self: Bucket, deadline: Deadline, *, act: bool = False) -> bool:  # noqa: ARG001 - the real one's signature
            return self._closed_until - self._monotonic() <= deadline.left()

        monkeypatch.setattr(Bucket, "take", take)
        monkeypatch.setattr(Circuits, "closed_for", lambda _self, _scope: 0.0)
    with stamina.set_testing(True, attempts=3, cap=True):
        yield


@pytest.fixture
def real_paces() -> None:
    """Ask for the real buckets."""
