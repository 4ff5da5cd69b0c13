"""What holds for every command: help, version, exit codes, streams, formats, pipes, interruption, --debug, --json-log."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from costguard.cli import COMMANDS, run_cli
from costguard.cli.commands import CostguardCommand
from costguard.errors import CostguardError, InputError
from costguard.sizing import job_flags
from tests import shop
from tests.conftest import Command

COSTGUARD = [sys.executable, "-m", "costguard"]
READING = [
    ("quote", *shop.QLORA),
    ("quote", "--gpu", "H100", "--count", "8", "--hours", "12"),
    ("size", "--model", "llama-3.1-8b"),
    ("offers",),
    ("breakeven", "--gpu", "T4"),
]


@pytest.fixture
def clean(tmp_path: Path) -> dict[str, str]:
    """The environment of a person without settings."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("COSTGUARD_")}
    return kept | {"XDG_CONFIG_HOME": str(tmp_path / "config")}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("command", READING, ids=lambda c: " ".join(c[:2]))
def test_every_reading_command_speaks_json_and_nothing_else_on_stdout(costguard: Command, command: tuple[str, ...]) -> None:
    ran = costguard(*command, "--json")
    assert ran.code == 0
    assert ran.data["schema"].startswith(f"costguard.{command[0]}/")


@pytest.mark.sampled(3, first=1)
@pytest.mark.parametrize("command", READING, ids=lambda c: " ".join(c[:2]))
def test_csv_has_a_header_and_rows_of_its_length(costguard: Command, command: tuple[str, ...]) -> None:
    rows = list(csv.reader(io.StringIO(costguard(*command, "--csv").out)))
    assert len(rows) > 1
    assert {len(row) for row in rows} == {len(rows[0])}
    assert len(set(rows[0])) == len(rows[0])


@pytest.mark.sampled(3, first=2)
@pytest.mark.parametrize("command", READING, ids=lambda c: " ".join(c[:2]))
def test_text_in_a_pipe_has_no_colours_and_no_trailing_spaces(costguard: Command, command: tuple[str, ...]) -> None:
    for extra in ((), ("--markdown",)):
        ran = costguard(*command, *extra)
        assert "\x1b" not in ran.out
        if not extra:
            assert [line for line in ran.out.splitlines() if line != line.rstrip()] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example_a_user_can_type(costguard: Command, command: str) -> None:
    ran = costguard(command, "--help")
    assert ran.code == 0
    assert ran.out.startswith(f"Usage: costguard {command}")
    assert ran.err == ""


@pytest.mark.parametrize("arguments", [("--help",), ("-h",), ()])
def test_help_lists_every_command(costguard: Command, arguments: tuple[str, ...]) -> None:
    ran = costguard(*arguments)
    assert (ran.code, ran.err) == (0, "")
    assert all(f"  {name} " in ran.out for name in COMMANDS)


def test_an_option_of_all_commands_may_stand_behind_one(costguard: Command, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text('[defaults]\ntimezone = "Mars/Olympus"\n')
    before = costguard("--config", str(other), "report")
    behind = costguard("report", "--config", str(other))
    assert (before.code, before.err) == (behind.code, behind.err)
    assert "Mars/Olympus" in behind.err
    assert json.loads(costguard("quote", "--model", "nope", "--json-log").err)["exit"] == 2


def test_settings_are_found_in_a_folder_above_up_to_the_home(
    costguard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "home" / "work" / "deep"
    inner.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    broken = '[defaults]\ntimezone = "Mars/Olympus"\n'
    (tmp_path / "costguard.toml").write_text(broken)  # above the home: not ours to read
    monkeypatch.chdir(inner)
    assert "Mars" not in costguard("--offline", "status").err
    (tmp_path / "home" / "costguard.toml").write_text(broken)
    assert "Mars/Olympus" in costguard("--offline", "status").err
    (tmp_path / "home" / "work").joinpath("costguard.toml").write_text("[watch]\n")
    (tmp_path / "home" / "work" / "costguard.toml").chmod(0o666)
    ran = costguard("--offline", "-v", "status")
    assert ran.err.count("work/costguard.toml is not loaded: ") == 1
    assert "Mars/Olympus" in ran.err, "the next one above is taken"


def test_debug_shows_the_traceback_and_keeps_the_exit_code(costguard: Command) -> None:
    ran = costguard("--debug", "quote", "--model", "nope")
    assert ran.code == 2
    assert "Traceback (most recent call last)" in ran.err
    assert ran.err.splitlines()[-2] == "error: --model: unknown model 'nope'"


def test_errors_and_warnings_can_be_json_lines(costguard: Command) -> None:
    refused = json.loads(costguard("--json-log", "quote", "--model", "nope").err)
    assert (refused["level"], refused["exit"]) == ("error", 2)
    assert "unknown model 'nope'" in refused["message"]
    warned = costguard("--json-log", "size", "--model", "llama-2-7b", "--json").err
    assert {json.loads(line)["level"] for line in warned.splitlines()} == {"warning"}


def test_an_unexpected_failure_is_one_line_and_exit_1(costguard: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: object) -> None:
        raise ZeroDivisionError("a\nb" * 1000)

    monkeypatch.setattr("costguard.services.quote.quote_commands.answer_offers", broken)
    ran = costguard("offers")
    assert ran.code == 1
    assert ran.err.startswith("error: unexpected ZeroDivisionError: a")
    assert len(ran.err.splitlines()) == 2
    assert len(ran.err) < 600


def test_a_reader_that_goes_away_is_no_failure(clean: dict[str, str], tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COSTGUARD, "offers", "--top", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean, cwd=tmp_path
    )
    assert process.stdout is not None
    process.stdout.close()  # as `| head -0` does
    assert process.stderr is not None
    said = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), said) == (0, b"")


PIPE_BYTES = 64 * 1024
"""What Linux keeps of a pipe that nobody reads."""


def test_an_interruption_ends_with_130_and_no_traceback(clean: dict[str, str], tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COSTGUARD, "quote", "/dev/stdin"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean,
        cwd=tmp_path,
    )
    assert process.stdin is not None
    process.stdin.write(b"#" * (PIPE_BYTES + 1))  # returns once costguard reads its input, and waits for the rest
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130
    assert out == b""
    assert b"Traceback" not in err


def test_a_terminal_that_knows_only_ascii_still_gets_an_answer(clean: dict[str, str], tmp_path: Path) -> None:
    market = shop.market(tmp_path, [shop.offer("aws", "H100-SXM", "2", region="Zürich")])
    ran = subprocess.run(
        [*COSTGUARD, "offers", "--market", market], capture_output=True, env=clean | {"PYTHONIOENCODING": "ascii"}, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert b"Z?rich" in ran.stdout


@pytest.mark.parametrize(
    ("typed", "number"),
    [
        ("50000000", 50_000_000), ("50_000_000", 50_000_000), ("50,000,000", 50_000_000), ("50e6", 50_000_000),
        ("50M", 50_000_000), ("50m", 50_000_000), ("1_000", 1000), ("1.5B", 1_500_000_000), ("2k", 2000), ("1T", 10**12),
        ("0.07M", 70_000), ("4.35k", 4350), ("5e-1", 0.5), (".5", 0.5), ("2.", 2), (" 7 ", 7), ("-3", -3), ("+3", 3),
        ("9007199254740993", 9007199254740993),
    ],
)  # fmt: skip
def test_a_number_is_read_as_people_type_it(typed: str, number: float) -> None:
    assert job_flags.parse_number(typed, "tokens") == number


NO_NUMBERS = ["", " ", "abc", "1,5", "1,5B", "1.2.3", "5x", "0x10", "1e", "--5", "nan", "inf", "1__0", "_1", "1 000", "٣", "²"]


@pytest.mark.parametrize("typed", [*NO_NUMBERS, "9" * 61, "1e9999"])
def test_what_is_not_clearly_a_number_is_refused_with_its_flag(typed: str) -> None:
    with pytest.raises(InputError, match=r"--seq-len: must be a number"):
        job_flags.parse_number(typed, "seq_len")


GIVEN: dict[str, object] = {
    flag: (str(place) if flag not in job_flags.NUMBER_FLAGS else "7") for place, flag in enumerate(job_flags.FLAG_PLACES)
} | {
    "fsdp": True,
    "provider": ["a", "b"],
    "region": ["c"],
    "tier": ["d"],
    "gpu": ["e"],
    "lora_targets": "attention",
    "params": "3B",
}


@pytest.mark.parametrize("flag", job_flags.FLAG_PLACES)
def test_every_flag_reaches_its_field(flag: str) -> None:
    table: object = job_flags.build_job_table({flag: GIVEN[flag]})
    for key in job_flags.FLAG_PLACES[flag]:
        assert isinstance(table, dict)
        assert list(table) == [key]
        table = table[key]
    assert table == ("3b" if flag == "params" else 7 if flag in job_flags.NUMBER_FLAGS else GIVEN[flag])


@pytest.mark.parametrize("typed", ["0", "-3B", "999k", "11e12", True, "x"])
def test_a_number_of_parameters_that_no_model_has_is_refused(typed: object) -> None:
    with pytest.raises(InputError, match="--params: must be "):
        job_flags.build_job_table({"params": typed})


def test_parameters_and_a_model_are_one_too_many() -> None:
    with pytest.raises(InputError, match="--params: is given together with --model"):
        job_flags.build_job_table({"model": "llama-3.1-8b", "params": "3B"})


@pytest.mark.parametrize(
    "text", ["\x1b[31mred", "\u202ereversed", "\x07bell", "\x9b31m", "a\nb\nc\nd\ne\nf", "\x00", "\ud800", "x" * 10_000]
)
def test_a_message_never_holds_what_acts_on_a_terminal_and_stays_short(text: str) -> None:
    message = str(CostguardError(text[:300], field=text, hint=text[:300]))
    assert all(c == "\n" or c.isprintable() for c in message)
    assert len(message.splitlines()) <= 5
    assert len(message.splitlines()[0]) < 600


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (("prices", "--market", "m.sqlite"), ("prices", "show", "--market", "m.sqlite")),
        (("prices", "--json"), ("prices", "show", "--json")),
        (("prices", "--provider", "aws", "refresh"), ("prices", "refresh", "--provider", "aws")),
        (("prices", "--gpu", "H100", "history", "--days", "3"), ("prices", "history", "--gpu", "H100", "--days", "3")),
        (("agent", "--json", "list"), ("agent", "list", "--json")),
        (("agent", "--through-restarts", "enrol", "ID"), ("agent", "enrol", "ID", "--through-restarts")),
        (("policy", "--json", "lint"), ("policy", "lint", "--json")),
        (("mcp", "--http", "127.0.0.1:1"), ("mcp", "serve", "--http", "127.0.0.1:1")),
    ],
)
def test_what_was_typed_before_there_were_commands_of_a_topic_still_runs(
    before: tuple[str, ...], now: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = list[tuple[str, dict[str, object]]]()
    monkeypatch.setattr(CostguardCommand, "invoke", lambda _, ctx: ran.append((ctx.command_path, dict(ctx.params))))
    assert (run_cli([*before]), run_cli([*now])) == (0, 0)
    first, second = ran
    assert first == second
    assert first[0] == f"costguard {now[0]} {now[1]}"


@pytest.mark.parametrize("action", ["join", "run", "status", "phase", "busy", "keep", "install", "version"])
def test_the_agents_commands_get_their_words_unchanged(
    costguard: Command, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = list[list[str]]()

    def end(words: list[str]) -> int:
        taken.append(words)
        return 7

    monkeypatch.setattr("costguard_agent.cli.main", end)
    words = ["--config", "x", "--json", "-h", "", "list"]
    assert run_cli(["agent", action, *words]) == 7
    assert taken == [[action, *words]]
    assert f"  {action} " not in costguard("agent", "--help").out
