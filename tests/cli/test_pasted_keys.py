"""A key that was pasted into the settings where a name belongs: refused, and never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Command

VAST = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    "line",
    [
        'key_env = "rpa_ABCDEFGH12345678"',
        'key_env = "aB3dE6gH9jK2mN5pQ8sT"',
        'key_file = "sk-ABCDEFGH12345678"',
        f'key_file = "{VAST}"',
        f'account = "{VAST}"',
        'accounts = [{ account = "a", key_env = "secret_lab_0123456789.abcdef" }]',
    ],
)
@pytest.mark.parametrize("command", ["doctor", "status", "providers"])
def test_it_is_refused_and_not_shown(costguard: Command, tmp_path: Path, line: str, command: str) -> None:
    (tmp_path / "costguard.toml").write_text(f"[providers.runpod]\n{line}\n")
    ran = costguard(command)
    ran.says("providers.runpod", "looks like a key itself", "the name of the variable")
    assert ran.code == 2
    assert not any(part in ran.out + ran.err for part in ("12345678", "aB3dE6", VAST, "0123456789"))


@pytest.mark.parametrize(
    "line",
    [
        'key_env = "RUNPOD_API_KEY"',
        'key_env = "MY_VERY_LONG_RUNPOD_API_KEY_2"',
        'key_file = "~/.runpod/key2_of_the_lab"',
        'key_file = "runpod-key"',
        'account = "team-7"',
    ],
)
def test_names_and_paths_are_taken(costguard: Command, tmp_path: Path, line: str) -> None:
    (tmp_path / "costguard.toml").write_text(f"[providers.runpod]\n{line}\n")
    assert costguard("providers").code == 0
