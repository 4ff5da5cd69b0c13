"""The default format: plain aligned text in a pipe, drawn and coloured on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costguard.renderers.table import render
from costguard.values.agent import EnrollmentCode
from costguard.values.resource import ResourceKey
from costguard.views.agents import build_enrolment_document
from costguard.views.document import BAD, Document, PastedLine, TableView
from tests import shop
from tests.charges import START

KEY = ResourceKey("aws", "1", "us-east-1", "i-1")
TABLE = TableView(title="Prices", columns=("name", "$/h>"), rows=(("aws", "1.00"), ("lambda", "12.50")))


def test_columns_are_aligned_and_numbers_to_the_right() -> None:
    document = Document(data={}, lead=("A job",), tables=(TABLE,), notes=("A note",))
    assert render(document) == "A job\n\nPrices\nname      $/h\naws      1.00\nlambda  12.50\n\nA note\n"


def test_an_empty_table_is_left_out() -> None:
    empty = TableView(title="Nothing", columns=("a",), rows=())
    assert render(Document(data={}, lead=("x",), tables=(empty,))) == "x\n"


@given(st.lists(st.tuples(st.text(max_size=12), st.text(max_size=12)), max_size=4), st.text(max_size=20))
def test_no_text_adds_a_line_a_colour_or_a_space_at_the_end(rows: list[tuple[str, str]], note: str) -> None:
    table = TableView(title="", columns=("a", "b>"), rows=tuple(rows))
    text = render(Document(data={}, lead=("lead",), tables=(table,), notes=(note,)))
    assert len(text.removesuffix("\n").split("\n")) == (2 + 1 + len(rows) + 2 if rows else 3)
    for line in text.split("\n"):
        assert line == line.rstrip(" ")
        assert line.isprintable()


def test_nothing_is_cut_in_a_pipe() -> None:
    long = "x" * 500
    assert long in render(Document(data={}, tables=(TableView(title="", columns=("a",), rows=((long,),)),)))


def on_a_terminal(market: str, **environment: str) -> str:
    """What `costguard offers` draws on a real pseudo-terminal."""
    ours, theirs = pty.openpty()
    kept = {k: v for k, v in os.environ.items() if not k.startswith("COSTGUARD_") and k not in ("NO_COLOR", "COLUMNS")}
    command = [sys.executable, "-m", "costguard", "offers", "--market", market]
    with subprocess.Popen(command, stdout=theirs, stdin=subprocess.DEVNULL, env=kept | environment) as process:
        os.close(theirs)
        drawn = b""
        while part := _read(ours):
            drawn += part
        assert process.wait() == 0
    os.close(ours)
    return drawn.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says EIO when the other end is closed
        return b""


@pytest.fixture
def market(tmp_path: Path) -> str:
    return shop.market(tmp_path)


def test_a_terminal_gets_colours_unless_no_color_is_set(market: str) -> None:
    colours = {"TERM": "xterm-256color", "COLUMNS": "160"}
    assert "\x1b[" in on_a_terminal(market, **colours)
    plain = on_a_terminal(market, **colours, NO_COLOR="1")
    assert "\x1b[" not in plain
    assert "p5.48xlarge" in plain


@pytest.mark.sampled(3)
@pytest.mark.parametrize("width", [1, 7, 20])
def test_a_tiny_terminal_without_utf8_is_drawn_without_a_traceback(market: str, width: int) -> None:
    tiny = {
        "TERM": "dumb", "NO_COLOR": "1", "COLUMNS": str(width), "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii",
    }  # fmt: skip
    drawn = on_a_terminal(market, **tiny)
    assert "Traceback" not in drawn
    assert "\u2026" not in drawn


def test_a_terminal_that_states_no_width_gets_eighty_columns(market: str) -> None:
    drawn = on_a_terminal(market, TERM="xterm", NO_COLOR="1")
    assert 40 < max(map(len, drawn.splitlines())) <= 80


@pytest.mark.parametrize("width", [40, 60, 80, 110, 200])
def test_a_command_and_an_address_to_paste_are_printed_whole(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copied over a line break of ours a command would run as two."""
    command = f"  costguard-agent join https://guard.example:8470 {'c0de-' * 30}end"
    address = f"https://guard.example:8470/login#{'token' * 30}"
    code = EnrollmentCode(hash="h", key=KEY, who="ada", at=START, expires_at=START, life=None)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    enrolment = build_enrolment_document(
        code, "shown", join=command, script=f"{command}\n{command} again", agent_sha256="0" * 64, called="train-1",
        address="https://guard.example:8470", notes=(PastedLine(f"A tunnel: ssh -N {command}"), "word " * 60),
    )  # fmt: skip
    lines = render(enrolment).splitlines()
    assert {f"  {command}", f"  {command} again", f"A tunnel: ssh -N {command}"} <= set(lines)
    assert all(len(line) <= width for line in lines if command not in line)
    drawn = render(Document(data={}, lead=(f"Open {address} in a browser.",)))
    assert any(address in line for line in drawn.splitlines())


def test_text_in_brackets_is_printed_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    table = TableView(title="[bold]", columns=("[red]",), rows=(("[providers.runpod]",),))
    drawn = render(Document(data={}, lead=("Remove [providers.runpod].",), tables=(table,), notes=("[/] [link=x]",)))
    assert all(text in drawn for text in ("Remove [providers.runpod].", "[bold]", "[red]", "[/] [link=x]"))


def test_force_color_colours_a_pipe_without_wrapping_and_no_color_goes_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    table = TableView(title="", columns=("machine", "why"), rows=(("train", "word " * 60),), tones=(BAD,))
    document = Document(data={}, tables=(table,))
    plain = render(document)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[1;31m" in render(document)
    assert len(render(document).splitlines()) == len(plain.splitlines()) + 1
    monkeypatch.setenv("NO_COLOR", "1")
    assert render(document) == plain
