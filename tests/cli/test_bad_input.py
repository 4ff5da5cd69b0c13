"""Everything a person can write wrongly, through the real command line: exit 2, the field or file, what to write instead."""

from __future__ import annotations

import json
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
ESCAPES = "evil\x1b[31m\u202e\x9b"
DIGITS = "9" * 5000


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--model", "lama-3.1-8b"), ("model", "unknown model 'lama-3.1-8b'", "did you mean llama-3.1-8b")),
        (("--model", ""), ("--model", "is empty")),
        ((), ("model", "no model was given", "--model llama-3.1-8b")),
        ((*QLORA, "--tokens=-5"), ("tokens", "at least 1", "-5")),
        ((*QLORA, "--tokens", "1e30"), ("tokens", "at most")),
        ((*QLORA, "--tokens", DIGITS), ("--tokens", "must be a number")),
        ((*QLORA, "--tokens", "1.5"), ("tokens", "whole number", "write 2")),
        ((*QLORA, "--tokens", "many"), ("--tokens", "'many'", "50e6")),
        ((*QLORA, "--micro-batch", "0"), ("micro_batch", "at least 1")),
        ((*QLORA, "--seq-len", "0"), ("seq_len", "at least 1")),
        ((*QLORA, "--global-batch-tokens", "100"), ("global_batch_tokens", "micro_batch x seq_len", "2048")),
        ((*QLORA, "--method", "qlorra"), ("method", "did you mean qlora")),
        ((*QLORA, "--quant", "none"), ("quant", "qlora needs quantised weights")),
        ((*QLORA, "--optimizer", "adam"), ("optimizer", "adamw")),
        ((*QLORA, "--precision", "bf17"), ("precision", "bf16")),
        ((*QLORA, "--lora-rank", "0"), ("lora.rank", "at least 1")),
        ((*QLORA, "--lora-targets", ","), ("lora.targets", "is empty")),
        ((*QLORA, "--lora-targets", "everything"), ("lora.targets", "all-linear")),
        ((*QLORA, "--gpu", "H1000"), ("limits.gpus", "unknown GPU 'H1000'", "H100-SXM")),
        ((*QLORA, "--on", "H1000:8"), ("--on", "unknown GPU 'H1000'")),
        ((*QLORA, "--on", "H100:0"), ("--on", "at least 1")),
        ((*QLORA, "--on", "H100:eight"), ("--on", "H100:8x4")),
        ((*QLORA, "--on", "H100:8x"), ("--on", "H100:8x4")),
        ((*QLORA, "--on", "H100:"), ("--on", "H100:8x4")),
        ((*QLORA, "--on", "H100:²"), ("--on", "H100:8x4")),
        ((*QLORA, "--on", f"H100:{DIGITS}"), ("--on",)),
        ((*QLORA, "--tp", "3"), ("parallel.tp", "3 does not split 32 heads")),
        ((*QLORA, "--tp", "8", "--on", "H100:6"), ("parallel", "8 ranks do not divide 6 GPUs")),
        ((*QLORA, "--tp", "8", "--pp", "4", "--max-gpus", "16"), ("parallel", "max_gpus = 16")),
        ((*QLORA, "--zero", "4"), ("parallel.zero", "at most 3")),
        ((*QLORA, "--fsdp", "--zero", "1"), ("parallel.zero", "fsdp")),
        ((*QLORA, "--offload", "everything"), ("parallel.offload", "optimizer")),
        ((*QLORA, "--provider", "awss"), ("limits.providers", "did you mean aws")),
        ((*QLORA, "--tier", "spott"), ("limits.tiers", "did you mean spot")),
        ((*QLORA, "--max-usd", "0"), ("limits.max_usd", "more than zero")),
        ((*QLORA, "--max-usd", "$50"), ("limits.max_usd", "not an amount of money")),
        ((*QLORA, "--max-usd", "1e400"), ("limits.max_usd", "not an amount of money")),
        ((*QLORA, "--max-hours", "-1"), ("limits.max_hours",)),
        ((*QLORA, "--max-gpus", "0"), ("limits.max_gpus", "at least 1")),
        ((*QLORA, "--disk-gb", "1e18"), ("disk_gb", "at most")),
        ((*QLORA, "--checkpoint-every-hours", "1e9"), ("checkpoint_every_hours",)),
        ((*QLORA, "--sort", "beauty"), ("--sort", "usd_per_hour")),
        ((*QLORA, "--top", "0"), ("--top", "at least 1")),
        ((*QLORA, "--count", "1.5"), ("--count", "whole number")),
        (("--hours", "12"), ("--gpu", "must name one GPU")),
        (("--gpu", "H100", "--gpu", "T4", "--hours", "12"), ("--gpu", "must name one GPU")),
        (("--gpu", "H100", "--hours", "0"), ("--hours", "between")),
        (("--gpu", "H100", "--hours", "12", "--model", "gpt2"), ("--hours", "worked out from tokens")),
        (("--gpu", "H100", "--hours", "12", "--count", "0"), ("--count", "at least 1")),
        (("nowhere.toml",), ("nowhere.toml", "no such file")),
        (("~nobody-here/job.toml",), ("~nobody-here/job.toml", "names the home of an unknown user")),
        (("x" * 5000,), ("cannot be read",)),
        ((*QLORA, "--market", "nowhere.sqlite"), ("nowhere.sqlite", "does not exist")),
        ((*QLORA, "--market", "~nobody-here/m"), ("~nobody-here/m", "names the home of an unknown user")),
        (("--model", "./nowhere/config.json"), ("config.json", "no such file")),
    ],
)  # fmt: skip
def test_a_flag_that_cannot_be_used_is_refused_by_name(
    costguard: Command, market: str, flags: tuple[str, ...], words: tuple[str, ...]
) -> None:
    flags = flags if "--market" in flags else (*flags, "--market", market)
    costguard("quote", *flags).says(*words)


@pytest.mark.parametrize(
    "flags",
    [
        ("--model", ESCAPES),
        ("--model", f"./{ESCAPES}/config.json"),
        (f"{ESCAPES}.toml",),
        (*QLORA, "--provider", ESCAPES),
        (*QLORA, "--gpu", ESCAPES),
        (*QLORA, "--on", f"{ESCAPES}:8"),
        (*QLORA, "--tokens", ESCAPES),
        (*QLORA, "--max-usd", ESCAPES),
        (*QLORA, "--market", ESCAPES),
        (f"--{ESCAPES}",),
        ("--model", "a\nb\nc\nd\ne\nf\ng"),
        ("a\nb\nc\nd\ne\nf\ng.toml",),
        (*QLORA, "--gpu", "a\nb\nc\nd\ne\nf\ng"),
        ("--model", "a\x00b"),
        ("a\x00b.toml",),
        ("--model", "\udcff\udcfe"),
        ("--model", "x" * 100_000),
    ],
    ids=range(17),
)
def test_a_hostile_name_cannot_act_on_the_terminal_or_forge_lines(costguard: Command, flags: tuple[str, ...]) -> None:
    ran = costguard("quote", *flags)
    ran.says()
    assert len(ran.err) < 2000


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


FILES: dict[str, tuple[str, bytes, tuple[str, ...]]] = {
    "toml cut off": ("job.toml", b'model = "llama-3.1-8b"\nmethod = \n', ("job.toml", "line 2")),
    "json with a comma too many": ("job.json", b'{\n"model": "gpt2",\n}', ("job.json", "line 3")),
    "an unknown key": ("job.toml", b'model = "gpt2"\ntokns = 5\n', ("tokns", "did you mean tokens")),
    "an unknown section": ("job.toml", b'model = "gpt2"\n[limts]\nmax_usd = 5\n', ("limts", "did you mean limits")),
    "an unknown key in a section": ("job.toml", b'model = "gpt2"\n[limits]\nusd = 5\n', ("limits.usd", "max_usd")),
    "an unknown key of lora": ("job.toml", b'model = "gpt2"\n[lora]\nranks = 5\n', ("lora.ranks", "rank")),
    "an unknown key of parallel": ("job.toml", b'model = "gpt2"\n[parallel]\ntpp = 5\n', ("parallel.tpp", "tp")),
    "an unknown key of dataset": ("job.toml", b'model = "gpt2"\n[dataset]\nexample = 5\n', ("dataset.example", "examples")),
    "nothing": ("job.toml", b"", ("model", "no model was given")),
    "nothing in json": ("job.json", b"", ("job.json", "line 1")),
    "a list": ("job.json", b"[]", ("job.json", "not a table")),
    "a text": ("job.json", b'"gpt2"', ("job.json", "not a table")),
    "bytes": ("job.toml", bytes(range(256)), ("job.toml", "UTF-8")),
    "bytes as json": ("job.json", b"\xff\xfe{\x00", ("job.json", "UTF-8")),
    "a key twice in json": ("job.json", b'{"model": "gpt2", "tokens": 1, "tokens": 2}', ("job.json", "'tokens'", "twice")),
    "a key twice in toml": ("job.toml", b'model = "gpt2"\nmodel = "gpt2"\n', ("job.toml", "line 2")),
    "deep json": ("job.json", b"[" * 100_000 + b"]" * 100_000, ("job.json", "not valid JSON")),
    "deep tables in json": ("job.json", b'{"a":' * 50_000 + b"1" + b"}" * 50_000, ("job.json", "not valid JSON")),
    "deep toml": ("job.toml", b"a = " + b"[" * 5000 + b"]" * 5000, ("job.toml", "not valid TOML")),
    "an integer of 5,000 digits": ("job.json", b'{"model": "gpt2", "tokens": %s}' % DIGITS.encode(), ("job.json", "digits")),
    "the same in toml": ("job.toml", b'model = "gpt2"\ntokens = %s' % DIGITS.encode(), ("job.toml", "digits")),
    "an integer of 4,000 digits": ("job.json", b'{"model": "gpt2", "tokens": %s}' % (b"9" * 4000), ("tokens", "at most")),
    "NaN tokens": ("job.json", b'{"model": "gpt2", "tokens": NaN}', ("tokens", "whole number")),
    "infinite tokens": ("job.json", b'{"model": "gpt2", "tokens": Infinity}', ("tokens", "whole number")),
    "a NaN cap": ("job.json", b'{"model": "gpt2", "limits": {"max_usd": NaN}}', ("limits.max_usd", "not an amount")),
    "NaN hours": ("job.json", b'{"model": "gpt2", "limits": {"max_hours": NaN}}', ("limits.max_hours", "number")),
    "a cap that is true": ("job.json", b'{"model": "gpt2", "limits": {"max_usd": true}}', ("limits.max_usd", "True")),
    "tokens and a dataset": (
        "job.toml",
        b'model = "gpt2"\ntokens = 5\n[dataset]\nexamples = 1\ntokens_per_example = 5\n',
        ("tokens", "[dataset]"),
    ),
    "half a dataset": ("job.toml", b'model = "gpt2"\n[dataset]\nexamples = 1\n', ("dataset.tokens_per_example", "missing")),
    "two models": ("job.toml", b'model = "gpt2"\n[architecture]\nlayers = 2\n', ("model and architecture", "at once")),
    "a model and a path": ("job.toml", b'model = "gpt2"\npath = "config.json"\n', ("model and path", "at once")),
    "heads that do not divide": (
        "job.toml",
        b'[architecture]\nkind = "decoder"\nlayers = 2\nhidden = 100\nheads = 3\nffn = 10\nvocab = 1000\n',
        ("architecture.heads", "3 heads do not divide a hidden size of 100"),
    ),
    "a model that is a number": ("job.toml", b"model = 5\n", ("model", "not 5")),
    "a path that is a folder": ("job.toml", b'path = "/"\n', ("/", "is a folder")),
    "a number as text": ("job.toml", b'model = "gpt2"\nseq_len = "2048"\n', ("seq_len", "'2048'")),
    "a date": ("job.toml", b'model = "gpt2"\ntokens = 1979-05-27\n', ("tokens", "whole number")),
    "true GPUs": ("job.toml", b'model = "gpt2"\n[limits]\nmax_gpus = true\n', ("limits.max_gpus", "True")),
    "fsdp as a number": ("job.toml", b'model = "gpt2"\n[parallel]\nfsdp = 1\n', ("parallel.fsdp", "true or false")),
    "targets as a number": ("job.toml", b'model = "gpt2"\n[lora]\ntargets = 5\n', ("lora.targets", "list of names")),
    "providers as a number": (
        "job.toml",
        b'model = "gpt2"\n[limits]\nproviders = [1]\n',
        ("limits.providers", "list of names"),
    ),
    "limits that are no table": ("job.toml", b'model = "gpt2"\nlimits = 5\n', ("limits", "must be a table")),
    "a name of half a letter": ("job.json", b'{"model": "\\ud800"}', ("model", "unknown model")),
    "a path of half a letter": ("job.json", b'{"path": "\\ud800"}', ("cannot be read",)),
}


@pytest.mark.parametrize("case", FILES)
def test_a_job_file_that_cannot_be_used_is_refused_by_file_line_or_field(
    costguard: Command, tmp_path: Path, market: str, case: str
) -> None:
    name, content, words = FILES[case]
    (tmp_path / name).write_bytes(content)
    costguard("quote", name, "--market", market).says(*words)


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


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "mamba"}, ("model_type", "unknown model type 'mamba'", "[architecture]")),
        ({"model_type": None}, ("model_type",)),
        ({"hidden_size": 100, "num_attention_heads": 7}, ("num_attention_heads", "7 heads do not divide")),
        ({"num_hidden_layers": 0}, ("num_hidden_layers", "at least 1")),
        ({"num_hidden_layers": -3}, ("num_hidden_layers",)),
        ({"vocab_size": "many"}, ("vocab_size",)),
        ({"hidden_size": 1e30}, ("hidden_size",)),
        ({"intermediate_size": [1]}, ("intermediate_size",)),
        ({"intermediate_size": None}, ("intermediate_size",)),
    ],
)
def test_a_config_that_cannot_be_a_model_is_refused_by_field(
    costguard: Command, tmp_path: Path, change: dict[str, object], words: tuple[str, ...]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | change))
    costguard("size", "--model", "config.json").says(*words)


def test_a_config_without_a_kind_says_what_to_write(costguard: Command, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in CONFIG.items() if k != "model_type"}))
    costguard("size", "--model", "config.json").says("model_type", "is missing")


SETTINGS = [
    ('[quot]\nmarket = "x"\n', ("costguard.toml", "unknown key 'quot'", "did you mean quote")),
    ('[quote]\nmarkte = "x"\n', ("costguard.toml", "[quote]", "did you mean market")),
    ("[quote]\nmarket = 5\n", ("costguard.toml", "quote.market", "must be text")),
    ("quote = 5\n", ("costguard.toml", "quote", "must be a table")),
    ("[quote\n", ("costguard.toml", "line 1")),
    ('[quote]\nmarket = "nowhere.sqlite"\n', ("nowhere.sqlite", "does not exist")),
]


@pytest.mark.parametrize(("text", "words"), SETTINGS)
def test_settings_that_cannot_be_used_are_refused_by_every_command_that_reads_them(
    costguard: Command, tmp_path: Path, text: str, words: tuple[str, ...]
) -> None:
    (tmp_path / "costguard.toml").write_text(text)
    costguard("quote", *QLORA).says(*words)
    costguard("offers").says(*words)


def test_a_slip_in_the_settings_is_said_even_where_a_flag_wins(costguard: Command, tmp_path: Path, market: str) -> None:
    (tmp_path / "costguard.toml").write_text("[quote]\nmarkte = 1\n")
    costguard("quote", *QLORA, "--market", market).says("markte")
    costguard("size", "--model", "gpt2").says("markte")


@pytest.mark.parametrize("command", [("quote", *QLORA), ("size", "--model", "gpt2"), ("offers",), ("demo",), ("breakeven",)])
def test_settings_that_are_named_and_missing_are_refused(costguard: Command, command: tuple[str, ...]) -> None:
    costguard("--config", "nowhere.toml", *command).says("nowhere.toml", "no such file")


@pytest.mark.parametrize("name", ["COSTGUARD_QUOTE__X", "COSTGUARD_QUOT__MARKET", "COSTGUARD_QUOTE__MARKET__X"])
def test_a_variable_nobody_knows_is_refused_by_its_own_name(
    costguard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "costguard.toml").write_text("")
    monkeypatch.setenv(name, "1")
    costguard("quote", *QLORA).says(name, "COSTGUARD_QUOTE__MARKET")


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
        {},
        optional={n: VALUES | st.dictionaries(st.sampled_from(keys), VALUES, max_size=3) for n, keys in SECTIONS.items()},
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
