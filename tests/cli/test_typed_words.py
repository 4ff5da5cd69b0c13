"""What people type: other letters, names, units and signs, words in another place. Each does what was meant, or says how."""

from __future__ import annotations

from pathlib import Path

import pytest

from costguard.cli import COMMANDS, OTHER_NAMES
from costguard.errors import InputError
from costguard.sizing.job_flags import build_job_table, parse_hours
from tests.conftest import Command

RENTAL = ("quote", "--gpu", "H100", "--hours", "2", "--json")
INPUT_ERROR = 2
JOB = ("quote", "--model", "llama-3.1-8b", "--tokens", "1M", "--json")


@pytest.mark.parametrize(
    ("typed", "exact"),
    [
        ((*JOB, "--method", "LoRA"), (*JOB, "--method", "lora")),
        ((*JOB, "--method", "Q-LoRA", "--quant", "NF4"), (*JOB, "--method", "qlora", "--quant", "nf4")),
        ((*JOB, "--precision", "BF16"), (*JOB, "--precision", "bf16")),
        ((*RENTAL, "--tier", "ondemand"), (*RENTAL, "--tier", "on-demand")),
        ((*RENTAL, "--tier", "Spot,on_demand"), (*RENTAL, "--tier", "spot", "--tier", "on-demand")),
        ((*RENTAL, "-p", "amazon"), (*RENTAL, "-p", "aws")),
        ((*RENTAL, "-p", "aws,GCP"), (*RENTAL, "-p", "aws", "-p", "gcp")),
        ((*RENTAL, "--exclude", "Lambda Labs, Google Cloud"), (*RENTAL, "--exclude", "lambda", "--exclude", "gcp")),
        ((*RENTAL, "--max-usd", "$1,000"), (*RENTAL, "--max-usd", "1000")),
        ((*RENTAL, "--max-usd", "7.50 USD"), (*RENTAL, "--max-usd", "7.50")),
        (("quote", "--gpu", "H100", "--hours", "120m", "--json"), RENTAL),
        (("quote", "llama-3.1-8b", "--tokens", "1M", "--json"), JOB),
        (("quote", "meta-llama/Llama-3.1-8B", "--tokens", "1M", "--json"), JOB),
    ],
)
def test_it_means_the_same(costguard: Command, market: str, typed: tuple[str, ...], exact: tuple[str, ...]) -> None:
    answer, same = costguard(*typed, "--market", market), costguard(*exact, "--market", market)
    assert answer.code == same.code != INPUT_ERROR
    assert answer.out == same.out


@pytest.mark.parametrize(
    ("text", "hours"), [("12", 12), ("12h", 12), ("90m", 1.5), ("2d", 48), ("1.5 hours", 1.5), ("1w", 168), ("30 min", 0.5)]
)
def test_hours_have_a_unit_or_none(text: str, hours: float) -> None:
    assert parse_hours(text, "hours") == pytest.approx(hours)


@pytest.mark.parametrize("text", ["12x", "h", "1,5", "2h30", "-3h", "1e3h"])
def test_what_is_no_time_is_refused_and_not_guessed(text: str) -> None:
    with pytest.raises(InputError, match="--hours: must be a number"):
        parse_hours(text, "hours")


@pytest.mark.parametrize("text", ["1,5", "$", "5 EUR", "$$5", "1.000,00"])
def test_an_amount_that_may_mean_two_things_is_refused(costguard: Command, market: str, text: str) -> None:
    answer = costguard(*RENTAL, "--max-usd", text, "--market", market)
    assert answer.code == 2
    assert "error: --max-usd: is not an amount of money" in answer.err


def test_what_nobody_means_is_left_as_it_was_typed() -> None:
    assert build_job_table({"method": "lorra", "tier": ["soon"]}) == {"method": "lorra", "limits": {"tiers": ["soon"]}}


def test_a_file_of_a_models_name_is_a_file(
    costguard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, market: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("gpt2").write_text('model = "gpt2-medium"\nmethod = "full"\n')
    assert costguard("quote", "gpt2", "--json", "--market", market).data["job"]["model"] == "gpt2-medium"
    Path("gpt2").unlink()
    assert costguard("quote", "gpt2", "--json", "--market", market).data["job"]["model"] == "gpt2"


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (("quote", "lama-3.1"), "lama-3.1: is no file and no known model", "did you mean the model llama-3."),
        (("quote", "H100"), "H100: is a GPU, not a file", "write --on H100 for a job, or --gpu H100 --hours 12"),
        (("quote", "--gpu", "H100"), "model: no model was given", "a rental without a job needs --hours 12"),
        (("quote", "job.toml"), "job.toml: no such file", "looked from"),
        (("--json", "status"), "--json: is no option of costguard itself", "costguard status --json"),
        (("ps",), "unknown command 'ps'", "did you mean status?"),
        (("keep", "train", "--for", "4", "hours", "--why", "x"), "(hours)", "write a time without a space, such as 4h"),
        ((*RENTAL, "-p", "nosuch"), "error: -p: unknown provider 'nosuch'", "known: "),
        ((*RENTAL, "-pnosuch"), "error: -p: unknown provider 'nosuch'", "known: "),
        ((*RENTAL, "--provider", "nosuch"), "error: --provider: unknown provider 'nosuch'", "known: "),
        (("kill", "x"), "unknown command 'kill'", "did you mean terminate?"),
    ],
)
def test_the_error_names_what_was_typed_and_what_to_write(
    costguard: Command, words: tuple[str, ...], error: str, hint: str
) -> None:
    answer = costguard(*words)
    assert answer.code == 2
    assert error in answer.err
    assert hint in answer.err


def test_help_is_a_word_as_well(costguard: Command) -> None:
    assert costguard("help").out == costguard("--help").out
    assert costguard("help", "stop").out == costguard("stop", "--help").out
    assert costguard("-V").out == costguard("--version").out


def test_other_names_lead_to_commands_and_are_none() -> None:
    assert set(OTHER_NAMES.values()) <= {*COMMANDS, "--version"}
    assert not OTHER_NAMES.keys() & COMMANDS.keys()
