"""Where keys are looked for, what the settings may say, and what the doctor finds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from costguard_runpod.account import RunpodAccount, open_accounts

from costguard.errors import CredentialsError, InputError
from costguard.providers.transport import ProviderContext, Transport
from tests.contract.rig import BILLS, NAMES, NoCache
from tests.fakes.server import Hands
from tests.providers.runpod.rig import RunpodRig

MINE = "rpa_1234567890abcdef_mine"


@pytest.fixture
def transport() -> Iterator[Transport]:
    made = Transport()
    yield made
    made.close()


def around(transport: Transport, home: Path, environ: Mapping[str, str]) -> ProviderContext:
    return ProviderContext(
        transport=transport, clock=Hands(), gpus=NAMES, bills=BILLS, cache=NoCache(), environ=environ, home=home
    )


@pytest.mark.parametrize("text", [f'apikey = "{MINE}"', f'[default]\napi_key = "{MINE}"\n'])
def test_the_files_of_both_tools_are_read(transport: Transport, tmp_path: Path, text: str) -> None:
    (tmp_path / ".runpod").mkdir()
    (tmp_path / ".runpod/config.toml").write_text(text)
    (found,) = open_accounts({}, around(transport, tmp_path, {}))
    assert isinstance(found, RunpodAccount)
    assert (found.key.key.reveal(), found.key.source) == (MINE, "the file ~/.runpod/config.toml")
    assert MINE not in repr(found.key)


@pytest.mark.parametrize("text", ["", "apikey = 3", "not [ toml", '[default]\napi_key = ["a"]'])
def test_a_file_without_a_key_is_no_key(transport: Transport, tmp_path: Path, text: str) -> None:
    (tmp_path / ".runpod").mkdir()
    (tmp_path / ".runpod/config.toml").write_text(text)
    with pytest.raises(CredentialsError, match=r"RUNPOD_API_KEY.*~/\.runpod/config\.toml"):
        open_accounts({}, around(transport, tmp_path, {}))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"base_url": "https://rest.runpod.io/v1"}, "REST v1"),
        ({"base_url": "http://api.runpod.io"}, "plain http"),
        ({"graphql_url": "http://api.runpod.io/graphql"}, "plain http"),
        ({"api_key": MINE}, "unknown key"),
        ({"timeout_s": 0}, "at least 1"),
        ({"accounts": [{"account": "a", "key_env": "K"}, {"account": "a", "key_env": "K"}]}, "two accounts have the name"),
        ({"account": "a", "accounts": [{"account": "b", "key_env": "K"}]}, "cannot be set together with accounts"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(
    transport: Transport, tmp_path: Path, table: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said) as caught:
        open_accounts(table, around(transport, tmp_path, {"RUNPOD_API_KEY": MINE, "K": MINE}))
    assert MINE not in str(caught.value)


def test_a_healthy_account_is_examined_in_order(account: RunpodAccount, rig: RunpodRig) -> None:
    rig.put(2)
    checks = account.examine()
    assert [check.subject.split(":")[0] for check in checks] == [
        *("credentials", "reachable", "identity"),
        *["permission"] * 7,
        *("clock", "utilization"),
    ]
    assert {check.outcome for check in checks} == {"good", "unsure"}
    assert rig.secret[-4:] in checks[0].told
    assert rig.secret not in repr(checks)
    assert not any(one.method in ("DELETE", "PATCH") or "/action" in one.path for one in rig.fake.asked)


@pytest.mark.parametrize(
    ("match", "subject"),
    [("network-volumes", "list network volumes"), ("catalog", "read the catalogue"), ("billing", "read the bill")],
)
def test_a_right_that_lacks_is_found_with_its_fix(account: RunpodAccount, rig: RunpodRig, match: str, subject: str) -> None:
    rig.fake.fault(match, "status", status=403)
    (bad,) = [check for check in account.examine() if check.outcome == "bad"]
    assert subject in bad.subject
    assert "read" in bad.fix


def test_a_lost_graphql_is_unsure_and_not_bad(account: RunpodAccount, rig: RunpodRig) -> None:
    rig.fake.graph = "gone"
    checks = account.examine()
    assert [check.subject for check in checks if check.outcome == "bad"] == []
    assert any("balance" in check.subject and check.outcome == "unsure" for check in checks)
