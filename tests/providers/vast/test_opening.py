"""Settings, keys and paces, before anything is asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from costguard_vast import provider
from costguard_vast.account import VastAccount
from costguard_vast.api import GAPS_S, make_buckets

from costguard.errors import InputError
from costguard.providers.api_keys import KeyedAccount
from costguard.providers.transport import Deadline, ProviderContext, Transport
from tests.contract.rig import BILLS, NAMES, NoCache
from tests.fakes.server import Hands


def around(home: Path, environ: Mapping[str, str] | None = None) -> ProviderContext:
    transport: Any = Transport.__new__(Transport)
    return ProviderContext(
        transport=transport, clock=Hands(), gpus=NAMES, bills=BILLS, cache=NoCache(), environ=dict(environ or {}), home=home
    )


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def source_of(home: Path, environ: Mapping[str, str] | None = None) -> KeyedAccount:
    (one,) = provider.open({"account": "1"}, around(home, environ))
    assert isinstance(one, VastAccount)
    return one.key


def test_keys_are_looked_for_in_vasts_own_order(tmp_path: Path) -> None:
    put(tmp_path / ".vast_api_key", "legacy-key\n")
    assert source_of(tmp_path).key.reveal() == "legacy-key"
    put(tmp_path / ".config/vastai/vast_api_key", "new-key")
    assert source_of(tmp_path).key.reveal() == "new-key"
    put(tmp_path / "xdg/vastai/vast_api_key", "xdg-key")
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "xdg")}
    assert source_of(tmp_path, environ).key.reveal() == "xdg-key"
    both = source_of(tmp_path, {**environ, "VAST_API_KEY": " env-key "})
    assert (both.key.reveal(), both.source) == ("env-key", "the variable VAST_API_KEY")


@pytest.mark.parametrize(
    "table",
    [
        {"base_url": "http://console.vast.ai"},
        {"base_url": "https://me:you@console.vast.ai"},
        {"account": "me"},
        {"acount": "1"},
        {"timeout_s": 0},
        {"timeout_s": 6000},
        {"timeout_s": True},
        {"traffic_unit": "TB"},
        {"unverified": "yes"},
        {"accounts": []},
        {"accounts": [{"account": "1"}]},
        {"accounts": [{"key_env": "A"}], "key_env": "B"},
        {"accounts": [{"key_env": "A", "base_url": "https://x.example"}]},
    ],
    ids=str,
)
def test_settings_that_cannot_be_used_are_named(tmp_path: Path, table: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"providers\.vast"):
        provider.open(table, around(tmp_path, {"VAST_API_KEY": "k", "A": "k"}))


@pytest.mark.usefixtures("real_paces")
def test_every_endpoint_is_paced_as_published_and_no_act_waits_for_a_listing() -> None:
    paced = make_buckets()
    assert {name: round(1 / paced[name].per_s, 3) for name in GAPS_S} == GAPS_S
    at_once = Deadline(0)
    for name in GAPS_S:
        assert paced[name].acquire(at_once, act=name in ("stop", "destroy"))
        assert not paced[name].acquire(at_once)
    assert sum(paced["search"].acquire(at_once) for _ in range(20)) == 10
