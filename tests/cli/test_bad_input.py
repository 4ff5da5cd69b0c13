"""Everything a person can write wrongly, through the real command line: exit 2, the field or file, what to write instead."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from costguard.cli import run_cli
from costguard.data import ShippedFacts
from costguard.errors import CostguardError, InputError
from costguard.ledger.market import MarketReader
from costguard.services.quote.quote import build_quote
from costguard.services.quote.size import size_job
from costguard.sizing.job import KEYS, Table, parse_job
from tests import shop
from tests.campaign import examples
from tests.conftest import Command
from tests.shop import QLORA

CONFIG = {"model_type": "llama", "hidden_size": 1024, "num_attention_heads": 8, "num_hidden_layers": 2}
CONFIG |= {"intermediate_size": 2816, "vocab_size": 32000}


def test_a_hostile_folder_name_cannot_act_on_the_terminal_in_an_answer(costguard: Command, tmp_path: Path) -> None:
    folder = tmp_path / "e\x1b[31m\u202e\nvil"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    for flag in ((), ("--csv",), ("--markdown",), ("--json",)):
        ran = costguard("size", "--model", str(folder / "config.json"), *flag)
        assert ran.code == 0
        ran.is_clean()


def test_hostile_names_in_a_market_file_cannot_act_on_the_terminal(costguard: Command, tmp_path: Path) -> None:
    hostile = shop.offer("a\x1b[31mws", "H100-SXM", "2", region="r\u202e|\n", name="=cmd|' /C calc'!A0")
    path = shop.market(tmp_path, [hostile])
    for command in (("offers",), ("quote", *QLORA)):
        for flag in ((), ("--csv",), ("--markdown",), ("--json",)):
            ran = costguard(*command, "--market", path, *flag)
            assert ran.code == 0
            ran.is_clean()
    assert "\n'=cmd" in costguard("offers", "--market", path, "--csv").out.replace(",", "\n")


def test_a_folder_is_no_job_file_and_the_file_in_it_is_offered(costguard: Command, tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    costguard("quote", "jobs").says("jobs: is a folder", "name a file")
    (tmp_path / "jobs" / "job.toml").write_text("")
    costguard("quote", "jobs").says("jobs: is a folder", "write jobs/job.toml")


def test_a_file_of_weights_is_not_read_to_its_end(costguard: Command, tmp_path: Path) -> None:
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(2**40)
    costguard("quote", "model.safetensors").says("model.safetensors", "larger than 8 MiB")
    costguard("quote", "/dev/zero").says("/dev/zero", "is not a plain file")


def test_a_slip_in_the_settings_is_said_even_where_a_flag_wins(costguard: Command, tmp_path: Path, market: str) -> None:
    (tmp_path / "costguard.toml").write_text("[quote]\nmarkte = 1\n")
    costguard("quote", *QLORA, "--market", market).says("markte")
    costguard("size", "--model", "gpt2").says("markte")


# Any value in any place of the job's table: only our own errors come out, whatever the type.

SCALARS = (
    st.none() | st.booleans() | st.integers(-3, 9) | st.integers() | st.floats() | st.text(max_size=6)
    | st.sampled_from(["full", "qlora", "inference", "none", "nf4", "adamw", "flash", "bf16", 10**400, "\x1b[0m", 2.0])
)  # fmt: skip
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2)
)
SECTIONS = {
    "lora": ("rank", "targets"),
    "parallel": ("zero", "fsdp", "tp", "pp", "cp", "ep", "offload"),
    "dataset": ("examples", "tokens_per_example", "epochs"),
    "limits": ("max_usd", "max_hours", "providers", "regions", "tiers", "gpus", "max_gpus"),
}
TABLES = st.dictionaries(st.sampled_from([k for k in KEYS if k not in SECTIONS]), VALUES, max_size=4).flatmap(
    lambda flat: st.fixed_dictionaries(
        {}, optional={n: VALUES | st.dictionaries(st.sampled_from(keys), VALUES, max_size=3) for n, keys in SECTIONS.items()}
    ).map(lambda nested: {"method": "qlora", "tokens": 10**6} | flat | nested)
)


@settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(table=TABLES)
def test_any_value_in_any_place_of_a_job_gives_an_answer_or_one_of_our_errors(market: str, table: Table) -> None:
    facts = ShippedFacts()
    refused = None
    try:
        job = parse_job(table, facts.get_architecture("gpt2"))
        with MarketReader(Path(market)) as source:
            answer = build_quote(job, market=source, facts=facts)
        size_job(job, facts=facts)
    except CostguardError as error:
        refused = error
    if refused is None:
        assert all(option.placement and option.placement.fits for option in answer.options)
    else:
        assert isinstance(refused, InputError)
        assert refused.field
        assert all(len(str(error).splitlines()) <= 5 for error in getattr(refused, "errors", (refused,)))


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=60) | st.text(max_size=60).map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_any_bytes_as_a_job_file_are_refused_and_not_fallen_over(
    tmp_path: Path, market: str, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    for name in ("any.toml", "any.json"):
        (tmp_path / name).write_bytes(content)
        assert run_cli(["quote", str(tmp_path / name), "--market", market]) == 2
        assert "a bug in costguard" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("quote", "pipe.toml"),
        ("size", "pipe.json"),
        ("reconcile", "--file", "pipe.csv", "--month", "2026-10"),
        ("reconcile", "--file", "pipe.parquet", "--month", "2026-10"),
        ("--config", "pipe.toml", "status"),
    ],
    ids=["job", "model config", "bill", "bill of Parquet", "settings"],
)
def test_a_pipe_without_a_writer_is_not_waited_for(costguard: Command, tmp_path: Path, words: tuple[str, ...]) -> None:
    for name in ("pipe.toml", "pipe.json", "pipe.csv", "pipe.parquet"):
        os.mkfifo(tmp_path / name)
    costguard(*words).says("is not a plain file")
