"""Where a setting comes from: the flag, the environment, the file that applies, the default, in this order."""

from __future__ import annotations

from pathlib import Path

import pytest

from costguard.errors import InputError
from costguard.settings import LARGEST_FILE, read_settings, read_table
from tests import shop
from tests.conftest import Command


def wrote(path: Path, market: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'[quote]\nmarket = "{market}"\n')
    return str(path)


def test_a_path_in_the_file_starts_at_the_files_folder_and_one_in_the_environment_where_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stated = wrote(tmp_path / "elsewhere" / "settings.toml", "prices.sqlite")
    assert read_settings(stated).quote.market == str(tmp_path / "elsewhere" / "prices.sqlite")
    monkeypatch.setenv("COSTGUARD_QUOTE__MARKET", "prices.sqlite")
    assert read_settings(stated).quote.market == "prices.sqlite"


def test_flag_variable_file_and_default_through_the_command(
    costguard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def provider_of(*flags: str) -> set[str]:
        return {o["provider"] for o in costguard(*flags, "offers", "--json", "--top", "0").data["offers"]}

    markets = {}
    for name in ("aws", "gcp", "vast"):
        (tmp_path / name).mkdir()
        markets[name] = shop.market(tmp_path / name, [shop.offer(name, "T4", "1")])
    assert len(provider_of()) > 10
    config = wrote(tmp_path / "settings.toml", markets["aws"])
    assert provider_of("--config", config) == {"aws"}
    monkeypatch.setenv("COSTGUARD_QUOTE__MARKET", markets["gcp"])
    assert provider_of("--config", config) == {"gcp"}
    offers = costguard("--config", config, "offers", "--json", "--market", markets["vast"]).data["offers"]
    assert {o["provider"] for o in offers} == {"vast"}


@pytest.mark.parametrize("name", ["COSTGUARD_API_KEY", "COSTGUARD_API_URL", "COSTGUARD_SOMETHING", "COSTGUARD_TEST_PG"])
def test_variables_of_other_products_are_left_alone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "x")
    assert read_settings(None).quote.market is None


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("COSTGUARD_LEDGER_URL", "COSTGUARD_LEDGER__URL"),
        ("COSTGUARD__URL", "COSTGUARD_WEB__URL"),
        ("COSTGUARD_DEFAULT_TIMEZONE", "COSTGUARD_DEFAULTS__TIMEZONE"),
        ("COSTGUARD_QUOTE_MARKET", "COSTGUARD_QUOTE__MARKET"),
        ("COSTGUARD_CONFG", "COSTGUARD_CONFIG"),
    ],
)
def test_a_variable_that_nearly_is_one_of_ours_is_refused_with_the_one_meant(
    monkeypatch: pytest.MonkeyPatch, name: str, meant: str
) -> None:
    monkeypatch.setenv(name, "x")
    with pytest.raises(InputError, match=f"unknown variable '{name}'\nhint: did you mean {meant}\\?"):
        read_settings(None)


def test_toml_and_json_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('model = "gpt2"\ntokens = 5_000\n[limits]\ngpus = ["T4"]\n')
    (tmp_path / "a.json").write_text('{"model": "gpt2", "tokens": 5000, "limits": {"gpus": ["T4"]}}')
    (tmp_path / "b").write_text('  {"model": "gpt2", "tokens": 5000, "limits": {"gpus": ["T4"]}}')
    assert read_table(tmp_path / "a.toml") == read_table(tmp_path / "a.json") == read_table(tmp_path / "b")


def test_the_largest_file_is_read_and_one_byte_more_is_not(tmp_path: Path) -> None:
    start = b'{"model": "gpt2"}'
    (tmp_path / "a.json").write_bytes(start + b" " * (LARGEST_FILE - len(start)))
    assert read_table(tmp_path / "a.json") == {"model": "gpt2"}
    (tmp_path / "a.json").write_bytes(start + b" " * (LARGEST_FILE - len(start) + 1))
    with pytest.raises(InputError, match="larger than 8 MiB"):
        read_table(tmp_path / "a.json")


def test_the_network_is_set_by_file_and_environment_and_tls_cannot_be_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.toml").write_text('[network]\nca_file = "company.pem"\n')
    assert read_settings("a.toml").network.ca_file == "company.pem"
    monkeypatch.setenv("COSTGUARD_NETWORK__PROXY", "http://proxy:3128")
    assert read_settings("a.toml").network.proxy == "http://proxy:3128"
    for key in ("verify", "insecure", "tls_verify"):
        (tmp_path / "b.toml").write_text(f"[network]\n{key} = false\n")
        with pytest.raises(InputError, match="unknown key"):
            read_settings("b.toml")


@pytest.mark.parametrize(("line", "word"), [('proxy = "ftp://x"', "network.proxy"), ('ca_file = "none.pem"', "none.pem")])
def test_a_network_that_cannot_be_used_is_a_slip(costguard: Command, tmp_path: Path, line: str, word: str) -> None:
    (tmp_path / "costguard.toml").write_text(f"[network]\n{line}\n[providers.sim]\n")
    costguard("status").says(word)
