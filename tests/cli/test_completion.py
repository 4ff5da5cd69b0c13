"""Completion in the shells that are installed: each reads the script that costguard writes for it, and is asked for a value."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costguard.data import ShippedFacts
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Complete, Poll
from costguard.metering.observation import Observation
from costguard.values.resource import ResourceKey, ScopeKey

NOW = datetime.now(UTC).replace(microsecond=0)
SCOPE = ScopeKey("runpod", "me", "all")
SETTINGS = """
[[budget]]
name = "lab"
cap = "3000 USD"

[[policy]]
name = "idle-gpu"
arm = "notify"
when = 'state == "idle"'
for = "45m"
then = [{ do = "notify" }]
"""
BASH = """
eval "$(costguard --show-completion)"
COMP_WORDS=($WORDS)
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_costguard_completion costguard
printf "%s\\n" "${COMPREPLY[@]}"
"""
ZSH = """
compdef() { : }
eval "$(costguard --show-completion)"
_arguments() { print -rl -- ${(Q)${(z)${1//[():*]/ }}} }
words=(${=WORDS})
CURRENT=$#words
_costguard_completion
"""
SHELLS = {
    "bash": ("bash", "--norc", "-c", BASH),
    "zsh": ("zsh", "-fc", ZSH),
    "fish": ("fish", "--no-config", "-c", 'costguard --show-completion | source; complete -C "$WORDS"'),
}
"""How each shell is asked; zsh's own `_arguments` needs a screen, so that another one prints what it gets."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with settings, a command `costguard`, and a ledger with machines of usual, shared and hostile names."""
    names = {"pod-a1": "train-1", "pod-a2": "train-2", "pod-b1": "twin", "pod-b2": "twin", "pod-c": "train; touch pwned"}
    pods = tuple(
        Observation(key=ResourceKey("runpod", "me", "EU", id_), state="running", name=name, started_at=NOW - timedelta(hours=2))
        for id_, name in names.items()
    )
    with LedgerWriter(f"sqlite:///{tmp_path}/ledger.db", rules=ShippedFacts().get_billing_rules(), ceilings={}) as ledger:
        ledger.record_polls([Poll(scope=SCOPE, at=NOW - timedelta(minutes=1), inventory=Complete(pods))])
    (tmp_path / "costguard.toml").write_text(SETTINGS)
    command = tmp_path / "bin" / "costguard"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m costguard "$@"\n')
    command.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("costguard stop tra", {"train-1", "train-2"}),
        ("costguard keep pod-", {"pod-b1", "pod-b2", "pod-c"}),
        ("costguard policy explain idle", {"idle-gpu"}),
        ("costguard quote --gpu H100-S", {"H100-SXM", "H100-SXM-96GB-500W"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_shell_offers_the_values_that_fit_and_no_name_that_it_would_run(
    place: Path, shell: str, words: str, offered: set[str]
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    environment = {
        "PATH": f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(place),
        "COSTGUARD_LEDGER__URL": f"sqlite:///{place}/ledger.db",
        "WORDS": words,
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    ran = subprocess.run(SHELLS[shell], cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert {line.split("\t")[0] for line in ran.stdout.split("\n") if line.strip()} == offered, ran.stderr


def test_what_cannot_be_read_completes_nothing_and_says_nothing(place: Path) -> None:
    (place / "costguard.toml").write_text("[[policy]]\nname = ")
    environment = {"PATH": os.environ["PATH"], "HOME": str(place), "PYTHONPATH": str(Path(__file__).parents[2])}
    environment |= {"COMP_WORDS": "costguard policy explain i", "COMP_CWORD": "3", "_COSTGUARD_COMPLETE": "complete_bash"}
    ran = subprocess.run(
        (sys.executable, "-m", "costguard"), cwd=place, env=environment, capture_output=True, text=True, check=False
    )
    assert (ran.stdout.strip(), ran.stderr) == ("", "")
