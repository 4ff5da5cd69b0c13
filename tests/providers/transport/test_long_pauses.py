"""A pause that a provider asks for is kept for five minutes at most: a Retry-After of a year silences nobody for a year."""

from __future__ import annotations

import pytest

from costguard.errors import ProviderError, ThrottledError
from costguard.providers.transport import Deadline, TokenBucket
from tests.fakes.server import Answer
from tests.providers.transport.test_channel import channel_to, status
from tests.providers.transport.wires import Told

FIVE_MINUTES_S = 300.0


@pytest.mark.parametrize(("code", "stated"), [(429, "86400"), (503, "86400"), (429, "31536000")])
def test_a_longer_pause_is_over_after_five_minutes(code: int, stated: str) -> None:
    now = [1000.0]
    left = [status(code, Retry_After=stated)]
    cloud = Told(lambda _: left.pop() if left else Answer.of({"ok": True}))
    bucket = TokenBucket(100, 100, monotonic=lambda: now[0])
    with channel_to(cloud, buckets={"": bucket}) as channel:
        with pytest.raises(ProviderError):
            channel.read("/v2", deadline=Deadline(2))
        now[0] += FIVE_MINUTES_S - 5
        with pytest.raises(ThrottledError, match="no request was sent"):
            channel.read("/v2", deadline=Deadline(1))
        now[0] += 5.5
        assert channel.read("/v2", deadline=Deadline(20)).status == 200


def test_whoever_was_refused_is_told_no_longer_pause_than_that() -> None:
    with channel_to(Told(status(429, Retry_After="86400"))) as channel, pytest.raises(ThrottledError) as caught:
        channel.read("/v2", deadline=Deadline(2))
    assert caught.value.retry_after_s == FIVE_MINUTES_S
