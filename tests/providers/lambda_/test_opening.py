"""From settings to accounts: where keys are looked for, what is refused, and how haste is held back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from costguard_lambda import LambdaPlugin, provider
from costguard_lambda.account import LambdaAccount

from costguard.errors import CredentialsError, InputError
from costguard.metering.inventory import Complete
from costguard.providers.ports import InstanceSource
from costguard.providers.transport import ProviderContext, TokenBucket, Transport
from tests.contract.rig import BILLS, NAMES, NoCache
from tests.fakes.lambda_ import KEY
from tests.fakes.server import Hands
from tests.providers.lambda_.open_fake import account, polled
from tests.providers.lambda_.rig import LambdaRig


def opened(table: Mapping[str, object], home: Path, **environ: str) -> list[InstanceSource]:
    transport = Transport()
    around = ProviderContext(
        transport=transport, clock=Hands(), gpus=NAMES, bills=BILLS, cache=NoCache(), environ=environ, home=home
    )
    try:
        return list(provider.open(table, around))
    finally:
        transport.close()


def source_of(home: Path, table: Mapping[str, object] | None = None, **environ: str) -> str:
    """Where the key was found."""
    (one,) = opened(table or {}, home, **environ)
    assert isinstance(one, LambdaAccount)
    return one._key.source


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_key_is_looked_for_in_the_environment_then_the_named_file_then_skypilots(tmp_path: Path) -> None:
    put(tmp_path / ".lambda_cloud" / "lambda_keys", f"api_key = {KEY}\n")
    named = str(put(tmp_path / "key", KEY + "\n"))
    assert source_of(tmp_path) == "the file ~/.lambda_cloud/lambda_keys"
    assert source_of(tmp_path, LAMBDA_API_KEY_FILE=named) == "the file that LAMBDA_API_KEY_FILE names"
    assert source_of(tmp_path, LAMBDA_API_KEY_FILE=named, LAMBDA_API_KEY=KEY) == "the variable LAMBDA_API_KEY"
    assert source_of(tmp_path, LAMBDA_API_KEY="  ") == "the file ~/.lambda_cloud/lambda_keys"


def test_no_key_names_every_place_that_was_looked_at(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError) as caught:
        opened({}, tmp_path)
    for place in ("LAMBDA_API_KEY", "~/.lambda_cloud/lambda_keys", "https://cloud.lambda.ai/api-keys"):
        assert place in str(caught.value)


@pytest.mark.parametrize(
    "table",
    [
        {"acount": "x"},
        {"account": 3},
        {"account": "a\0b"},
        {"base_url": "http://cloud.lambda.ai/api/v1"},
        {"base_url": "ftp://x"},
        {"timeout_s": 0},
        {"timeout_s": 601},
        {"timeout_s": True},
        {"timeout_s": "60"},
        {"accounts": {"account": "x"}},
        {"accounts": [{"account": "x"}], "account": "y"},
        {"accounts": [{"account": "x", "key_env": "A"}, {"account": "x", "key_env": "B"}]},
        {"accounts": [{"account": "x", "key_env": "A"}, {"account": "y", "key_env": "A"}]},
        {"accounts": [{"account": "x", "base_url": "https://x"}]},
    ],
    ids=str,
)
def test_settings_that_cannot_be_meant_are_refused(tmp_path: Path, table: Mapping[str, object]) -> None:
    with pytest.raises(InputError) as caught:
        opened(table, tmp_path, LAMBDA_API_KEY=KEY, A=KEY, B=KEY[::-1])
    assert "providers.lambda" in str(caught.value)
    assert KEY not in str(caught.value)


def test_a_poll_keeps_to_one_request_a_second_and_is_never_throttled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def bucket(per_s: float) -> TokenBucket:
        return TokenBucket(per_s, monotonic=lambda: now[0], sleep=sleep)

    monkeypatch.setattr("costguard_lambda.account.TokenBucket", bucket)
    rig = LambdaRig()
    rig.put(5)
    rig.fake.log_page, rig.fake.per_s, rig.fake.monotonic = 2, 1.0, lambda: now[0]
    monkeypatch.setattr(LambdaRig, "plugin", lambda _: LambdaPlugin())
    with account(rig, tmp_path) as source:
        polls = [polled(source) for _ in range(3)]
    assert all(isinstance(poll.inventory, Complete) for poll in polls)
    calls = len(rig.fake.asked)
    assert now[0] == pytest.approx(calls - 1)


@pytest.mark.parametrize("body", [b"", b'{"error":{"code":"global/too-many-requests","message":"x"}}'])
def test_after_a_429_without_a_word_of_when_lambda_is_left_alone(tmp_path: Path, body: bytes) -> None:
    rig = LambdaRig()
    rig.fake.fault(rig.lists, "status", status=429, body=body, times=1)
    with account(rig, tmp_path) as source:
        assert isinstance(polled(source).inventory, Complete)
        bucket = source._api.channel._buckets[""]
    assert bucket._closed_until > 0
