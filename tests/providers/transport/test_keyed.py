"""Where keys are looked for, and which accounts a table states."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from costguard.errors import CostguardError, CredentialsError, InputError
from costguard.metering.inventory import Failed
from costguard.providers.api_keys import (
    LONGEST_KEY_FILE,
    KeyedAccount,
    KeyLocations,
    LockedAccount,
    check_account_table,
    list_accounts,
    read_plain_key,
    read_timeout,
)
from costguard.providers.transport import ProviderContext, Transport
from costguard.values.provider import TABLES_SETTING, ProviderManifest, ProviderSetting
from costguard.values.resource import ScopeKey
from tests.contract.rig import BILLS, NAMES, NoCache
from tests.fakes.server import Hands

ONE = tuple(ProviderSetting(name=name, told="") for name in ("account", "key_env", "key_file"))
ACME = ProviderManifest(
    name="acme",
    title="Acme",
    credentials=("ACME_API_KEY",),
    abilities={},
    settings=(*ONE, ProviderSetting(name="accounts", told="", kind=TABLES_SETTING, inner=ONE)),
    key_at="https://acme.example/keys",
)


def found(home: Path, table: Mapping[str, object], **environ: str) -> tuple[KeyedAccount, ...]:
    return tuple(one for one in looked_for(home, table, **environ) if isinstance(one, KeyedAccount))


def looked_for(home: Path, table: Mapping[str, object], **environ: str) -> tuple[KeyedAccount | LockedAccount, ...]:
    transport = Transport()
    around = ProviderContext(
        transport=transport, clock=Hands(), gpus=NAMES, bills=BILLS, cache=NoCache(), environ=environ, home=home
    )
    places = KeyLocations(
        env="ACME_API_KEY", files=((home / ".acme" / "key", read_plain_key), (home / ".acme_key", read_plain_key))
    )
    try:
        return list_accounts(check_account_table(table, ACME), ACME, places, around)
    finally:
        transport.close()


def test_the_variable_wins_over_the_file_of_containers_and_both_over_files_of_the_home(tmp_path: Path) -> None:
    (tmp_path / ".acme_key").write_text("old\n")
    assert found(tmp_path, {})[0].key.reveal() == "old"
    (tmp_path / ".acme").mkdir()
    (tmp_path / ".acme" / "key").write_text("new\n")
    assert found(tmp_path, {})[0].source == "the file ~/.acme/key"
    (tmp_path / "mounted").write_text("secret")
    assert found(tmp_path, {}, ACME_API_KEY_FILE=str(tmp_path / "mounted"))[0].key.reveal() == "secret"
    told = found(tmp_path, {}, ACME_API_KEY_FILE=str(tmp_path / "mounted"), ACME_API_KEY="variable")[0]
    assert (told.key.reveal(), told.source) == ("variable", "the variable ACME_API_KEY")


def test_a_place_that_is_named_is_the_only_one_looked_at(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="looked at the variable TEAM") as refused:
        found(tmp_path, {"key_env": "TEAM"}, ACME_API_KEY="another's")
    assert "another's" not in str(refused.value)
    assert "https://acme.example/keys" in str(refused.value)


def test_of_several_accounts_one_without_a_key_fails_alone(tmp_path: Path) -> None:
    table = {"accounts": [{"account": "a", "key_env": "A"}, {"account": "b", "key_env": "B"}]}
    good, locked = looked_for(tmp_path, table, A="key-a")
    assert isinstance(good, KeyedAccount)
    assert isinstance(locked, LockedAccount)
    with pytest.raises(CredentialsError, match="variable B"):
        locked.list_scopes()
    assert locked.examine()[0].outcome == "bad"
    assert isinstance(locked.poll(ScopeKey("acme", "b", "all")).inventory, Failed)


@pytest.mark.parametrize(
    ("accounts", "said"),
    [
        ([], "contains no account"),
        ([{"account": "a"}], "names no key_env or key_file"),
        ([{"account": "a", "key_env": "A"}, {"account": "a", "key_env": "B"}], "two accounts have the name 'a'"),
        ([{"key_env": "A"}, {"key_env": "B"}], "two accounts have the name 'default'"),
        ([{"account": "a", "key_env": "A"}, {"account": "b", "key_env": "A"}], "same key"),
        ([{"account": "a", "key_envv": "A"}], "did you mean key_env"),
        ([{"account": "a\0", "key_env": "A"}], "a NUL character"),
    ],
)
def test_accounts_that_cannot_be_told_apart_are_refused(tmp_path: Path, accounts: list[object], said: str) -> None:
    with pytest.raises(InputError, match=said) as refused:
        found(tmp_path, {"accounts": accounts}, A="key-of-a-0123456789", B="key-of-b-0123456789")
    assert "0123456789" not in str(refused.value)


def test_one_account_beside_several_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be set together with accounts"):
        found(tmp_path, {"key_env": "A", "accounts": [{"account": "b", "key_env": "B"}]}, A="a", B="b")


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "naïve", "x" * 5000, "tab\tkey"])
def test_what_cannot_be_a_key_is_refused_and_not_shown(tmp_path: Path, key: str) -> None:
    with pytest.raises(CredentialsError, match="does not contain a key") as refused:
        found(tmp_path, {}, ACME_API_KEY=key)
    assert key not in str(refused.value)


def test_a_file_that_cannot_be_read_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / ".acme_key").write_bytes(b"\xff\xfe")
    (tmp_path / ".acme").mkdir()
    (tmp_path / ".acme" / "key").write_text("k" * (LONGEST_KEY_FILE + 1))
    with pytest.raises(CredentialsError, match="has no key; looked at"):
        found(tmp_path, {})


@pytest.mark.parametrize("seconds", [0, -1, 601, "60", 1.5, True])
def test_a_timeout_is_from_one_second_to_ten_minutes(seconds: object) -> None:
    with pytest.raises(CostguardError, match="timeout_s"):
        read_timeout({"timeout_s": seconds}, ACME)
    assert read_timeout({}, ACME) == 60
