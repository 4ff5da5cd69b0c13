"""`costguard admit` and `costguard submit` through the real command line, with a ledger, budgets and real launchers."""

from __future__ import annotations

import os
import shlex
import signal
import sqlite3
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command
from tests.test_docs import blocks

ROOT = Path(__file__).parents[2]
BUDGETS = """
[[budget]]
name = "lab"
cap = "200 USD"
[[budget]]
name = "vision"
cap = "20 USD"
match = { labels = { team = ["vision"] } }
"""
NLP = ("--label", "team=nlp")
RENTAL = ("--gpu", "H100", "--count", "8", "--hours", "12", "--provider", "runpod", *NLP)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"
    (tmp_path / "costguard.toml").write_text(f'[ledger]\nurl = "sqlite:///{path}"\n{BUDGETS}')
    return path


def holds(path: Path, columns: str = "nano, ended_by") -> list[tuple[Any, ...]]:
    """Every hold ever taken, the oldest first."""
    with sqlite3.connect(path) as made:
        return list(made.execute(f"SELECT {columns} FROM hold ORDER BY taken_us, id"))  # noqa: S608 - our own names


def test_a_run_is_held_at_the_high_end_of_its_quote_and_the_hold_ends_by_hand(costguard: Command, ledger: Path) -> None:
    job = ("--model", "llama-3.1-8b", "--method", "qlora", "--tokens", "50e6")
    held = costguard("admit", *job, *NLP, "--name", "nightly", "--owner", "ada", "--json")
    assert held.code == 0
    assert held.data["held"] is True
    assert held.data["usd"] == held.data["quote"]["usd"]["high"]
    assert float(held.data["quote"]["usd"]["low"]) < float(held.data["usd"])
    assert held.data["budget"] == "lab"
    hold = held.data["hold"]
    labels = '[["job", "nightly"], ["team", "nlp"]]'
    assert [(one[0], one[1].replace("],[", "], [").replace('","', '", "')) for one in holds(ledger, "owner, labels")] == [
        ("ada", labels)
    ]
    assert costguard("admit", "--ended", hold).code == 0
    assert holds(ledger, "ended_by") == [("committed",)]
    again = costguard("admit", "--release", hold)
    assert again.code == 2
    assert "was committed" in again.err


def test_a_refusal_names_the_budget_what_is_left_and_what_would_fit_and_holds_nothing(costguard: Command, ledger: Path) -> None:
    refused = costguard("admit", *RENTAL, "--json")
    assert refused.code == 3
    refused.is_clean()
    assert "budget lab: $200.00 of $200.00 left, not enough" in refused.err
    assert (refused.data["held"], refused.data["reason"], refused.data["hold"]) == (False, "budget_cap", None)
    assert refused.data["left"] == {"low": "200.00", "expected": "200.00", "high": "200.00"}
    assert holds(ledger) == []
    fits = refused.data["would_fit"]
    assert any("H100-SXM x4 for 12 h" in one["what"] for one in fits), fits
    assert any("x8 for" in one["what"] for one in fits), fits
    assert all(float(one["usd"]) <= 200 for one in fits)
    admitted = costguard("admit", "--gpu", "H100", "--count", "4", *RENTAL[4:], "--json")
    assert admitted.code == 0
    assert admitted.data["usd"] == next(one["usd"] for one in fits if "x4" in one["what"])


def test_a_budget_that_may_apply_counts_until_the_label_says_otherwise(costguard: Command, ledger: Path) -> None:
    refused = costguard("admit", "--usd", "50", "--hours", "12", "--json")
    assert (refused.code, refused.data["budget"], refused.data["unstated"]) == (3, "vision", ["label team"])
    assert "these are not given: label team" in refused.err
    held = costguard("admit", "--usd", "50", "--hours", "12", *NLP, "--json")
    assert (held.code, held.data["budget"], held.data["quote"]) == (0, "lab", None)
    assert len(holds(ledger)) == 1


def test_the_same_id_is_held_once(costguard: Command, ledger: Path) -> None:
    first = ("admit", "--usd", "15", "--hours", "2", "--id", "build-7", *NLP, "--json")
    assert costguard(*first).data["reason"] == "within_budget"
    assert costguard(*first).data["reason"] == "already_held"
    assert len(holds(ledger)) == 1
    moved = costguard(*first[:2], "16", *first[3:])
    assert (moved.code, moved.data["reason"], moved.data["usd"], moved.data["was_usd"]) == (0, "renewed", "16.00", "15.00")
    refused = costguard(*first[:2], "201", *first[3:])
    assert (refused.code, refused.data["was_usd"]) == (3, "16.00")
    assert "the earlier hold of 16.00 USD stays" in refused.err
    assert holds(ledger, "nano") == [(16 * 10**9,)]
    assert costguard(*first, "--owner", "ada").code == 2


def test_a_launcher_that_fails_leaves_the_hold_that_an_earlier_one_has(costguard: Command, ledger: Path) -> None:
    words = ("submit", "--usd", "15", "--hours", "2", "--id", "build-8", *NLP, "--")
    assert costguard(*words, "true").code == 0
    assert costguard(*words, "false").code == 1
    assert holds(ledger) == [(15 * 10**9, None)]


def test_a_launcher_runs_only_when_its_run_is_held_and_its_exit_code_is_passed_on(
    costguard: Command, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    came = costguard("submit", "--usd", "5", "--hours", "1", *NLP, "--", "sh", "-c", "echo $COSTGUARD_HOLD > launched; exit 7")
    assert came.code == 7
    assert holds(ledger, "id, ended_by") == [(Path("launched").read_text().strip(), "released")], "a failure keeps nothing"
    refused = costguard("submit", "--usd", "500", *NLP, "--", "touch", "launched-too")
    assert (refused.code, "budget lab" in refused.err) == (3, True)
    assert not Path("launched-too").exists()
    Path("job.toml").write_text('model = "gpt2"\nmethod = "full"\ntokens = 1_000_000\n')
    assert costguard("submit", *NLP, "--", "test", "-f", "job.toml").code == 0
    assert [one[1] for one in holds(ledger)] == ["released", None], "a run that was launched keeps its hold"
    Path("rental.toml").write_text('[limits]\ngpus = ["T4"]\n')
    assert costguard("submit", "--hours", "1", *NLP, "--", "sh", "-c", "exit 9", "sh", "rental.toml").code == 9
    assert holds(ledger, "gpu, ended_by")[-1] == ("T4", "released"), "hours of the command line, GPUs of its file"
    assert costguard("submit", "--wait", "--usd", "1", *NLP, "--", "true").code == 0
    assert costguard("submit", "--usd", "1", *NLP, "--", "no-such-launcher").code == 127
    assert sorted(str(one[1]) for one in holds(ledger)) == ["None", "committed", "released", "released", "released"]
    assert costguard("submit", "--", "true").code == 2
    monkeypatch.setenv("COSTGUARD_HOLD", "hold-1")
    twice = costguard("submit", "--usd", "1", "--", "true")
    assert (twice.code, "has a hold" in twice.err) == (2, True)


def test_a_launcher_that_is_ended_from_outside_releases_the_hold(tmp_path: Path, ledger: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'agent'}:{ROOT / 'providers'}", "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "costguard", "submit", "--usd", "5", *NLP, "--", "sh", "-c", "echo up; exec sleep 60"]
    with subprocess.Popen(command, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as made:
        assert made.stdout is not None
        assert made.stdout.readline() == b"up\n"
        made.send_signal(signal.SIGTERM)
        assert made.wait(30) == 128 + signal.SIGTERM
    assert holds(ledger, "ended_by") == [("released",)]


@pytest.mark.parametrize("page", ["ADMIT", "SKYPILOT", "KUBERNETES", "SLURM"])
def test_every_command_of_the_pages_works_as_it_is_written(costguard: Command, page: str) -> None:
    lines = [
        line.partition(" #")[0]
        for block in blocks()
        if block.page == f"docs/{page}.md" and block.language == "sh"
        for line in block.text.splitlines()
        if line.startswith("costguard ")
    ]
    assert lines
    for line in lines:
        ran = costguard(*shlex.split(line)[1:])
        assert ran.code == 0, f"{line}: {ran.err}"


def test_a_cap_an_hour_refuses_a_run_by_its_price_an_hour(costguard: Command, ledger: Path) -> None:
    settings = ledger.parent / "costguard.toml"
    settings.write_text(f'{settings.read_text()}[[budget]]\nname = "at once"\ncap = "12 USD/h"\n')
    refused = costguard("admit", "--usd", "150", "--hours", "10", *NLP, "--json")
    assert (refused.code, refused.data["reason"], refused.data["budget"]) == (3, "rate_cap", "at once")
    assert "budget at once: $12.00 of $12.00 an hour left, not enough for 15.00 USD an hour" in refused.err
    unknown = costguard("admit", "--usd", "1", *NLP, "--json")
    assert (unknown.code, unknown.data["reason"]) == (3, "rate_unknown")
    assert "state its hours" in unknown.err
    assert holds(ledger) == []
    quoted = costguard("admit", "--gpu", "H100", "--count", "2", "--hours", "2", *NLP, "--json")
    assert (quoted.code, quoted.data["reason"]) == (0, "within_budget")
    ((nano, hourly),) = holds(ledger, "nano, hourly_nano")
    assert hourly == nano // 2
    left = Decimal(12 * 10**9 - hourly).scaleb(-9)
    assert costguard("admit", "--usd", str(left + Decimal("0.01")), "--hours", "1", *NLP, "--json").code == 3
    assert costguard("admit", "--usd", str(left), "--hours", "1", *NLP, "--json").code == 0
    shown = next(one for one in costguard("status", "--json").data["budgets"] if one["name"] == "at once")
    assert (shown["period"]["kind"], shown["spent"]["high"], shown["left"]) == ("hour", "0.00", "0.00")
