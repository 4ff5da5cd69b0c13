"""`--template`, `--preference` and `--strict` as a user types them."""

from __future__ import annotations

from pathlib import Path

import pytest

from costguard.data import ShippedFacts
from tests.conftest import Command

TEMPLATES = tuple(ShippedFacts().templates())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", TEMPLATES)
def test_every_template_is_answered_in_every_format(costguard: Command, name: str) -> None:
    for flags in ((), ("--json",), ("--markdown",)):
        ran = costguard("quote", "--template", name, "--strict", *flags)
        assert ran.code == 0, ran.err
        assert name in ran.out


def test_scripts_get_the_comparison_and_null_without_a_template(costguard: Command, market: str) -> None:
    told = costguard("quote", "--template", "lora-7b", "--json").data["template"]
    assert told["claim"]["hours"] == [4, 12]
    assert told["comes_out"] is True
    plain = costguard("quote", "--model", "gpt2", "--tokens", "1M", "--market", market, "--json")
    assert plain.data["template"] is None


def test_flags_win_over_a_template_and_then_nothing_is_compared(costguard: Command, market: str) -> None:
    told = costguard("quote", "--template", "lora-7b", "--method", "qlora", "--market", market, "--json").data
    assert told["job"]["method"] == "qlora"
    assert told["template"]["changed"] == ["method"]
    assert told["template"]["costguard"] is None


def test_a_job_file_may_start_from_a_template_and_its_keys_win(costguard: Command, market: str) -> None:
    Path("job.toml").write_text('template = "lora-7b"\nmicro_batch = 2\n')
    job = costguard("quote", "job.toml", "--market", market, "--json").data["job"]
    assert (job["model"], job["micro_batch"], job["seq_len"]) == ("llama-2-7b", 2, 512)


def test_the_warning_says_how_much_an_assumption_moves_the_answer(costguard: Command, market: str) -> None:
    ran = costguard("quote", "--model", "gpt2", "--method", "full", "--tokens", "1B", "--market", market, "--json")
    (said,) = [w for w in ran.data["warnings"] if w.startswith("assumed")]
    assert "micro_batch 16 (1: " in said
    assert "x the hours" in said
    assert "x the memory" in said
