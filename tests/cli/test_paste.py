"""What is there to be pasted stands whole in one line of a terminal: seen through pseudo-terminals of 40 to 200 columns."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import pty
import re
import sqlite3
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costguard.cli import COMMANDS
from costguard.ledger.spans.writer import LedgerWriter
from costguard.metering.inventory import Complete, Poll
from costguard.metering.observation import Observation
from costguard.renderers.table import render
from costguard.values.resource import ResourceKey, ScopeKey
from costguard.views.plan import PlanView, build_plan_document
from tests import shop

OLD = Path(__file__).parents[1] / "ledger" / "old" / "0016.sqlite.sql.gz"
WIDTHS = (40, 80, 200)
LABEL = "[bold]x[/bold]"
POLICY = """
[[policy]]
name = "idle-gpu"
match = { owners = ["[bold]x[/bold]"] }
when = 'state == "idle"'
for = "30m"
then = [{ do = "notify" }, { after = "15m", do = "stop" }]
"""
MANY = ("quote", "--gpu", "H100", "--count", "8", "--hours", "12", "--market", "market.sqlite")
CASES: dict[tuple[str, ...], tuple[str, ...]] = {
    ("agent", "enrol", "train-1"): (
        r'  \( set -eu; umask 077; d=\$\(mktemp -d\) && cd "\$d" \|\| exit 1; trap .* EXIT',
        r"  get https://guard\.example/costguard-agent\.pyz \| head -c 8000000 >costguard-agent\.pyz",
        r"  echo [A-Z0-9.-]{19}\.[A-Z0-9-]{24} \| python3 costguard-agent\.pyz join https://guard\.example -",
        r"  python3 costguard-agent\.pyz install \)",
    ),
    ("agent", "list"): ("costguard agent enrol ID",),
    ("web", "token", "grafana"): (r"  cg_[\w-]{43}",),
    ("web", "invite", "ada"): (r"https://guard\.example/login/[\w-]{43}", "costguard web logout ada"),
    ("init", "--yes", "--path", "new.toml"): (r"costguard --config new\.toml doctor",),
    ("doctor",): ("costguard init",),
    ("--config", "old.toml", "report"): (r"costguard db import \S+/old\.db",),
    ("--config", "old.toml", "db", "check"): (r"costguard db import \S+/old\.db",),
    ("--config", "old.toml", "plan"): (r"costguard db import \S+/old\.db",),
    ("policy", "lint"): ("costguard policy arm idle-gpu notify",),
    ("policy", "explain"): (re.escape(LABEL),),
    ("policy", "arm", "[provider]", "stop"): (re.escape("unknown policy '[provider]'"),),
    ("--wide", "plan"): (re.escape(LABEL),),
    ("--wide", "status"): (re.escape(LABEL), r"\[provider\]"),
    ("approve", "train-1", "stop"): ("costguard plan", "costguard watch --once"),
    ("freeze", "--why", LABEL): ("costguard freeze --lift",),
    ("audit", "adopt"): ("nothing to adopt",),
    MANY: ("costguard prices refresh",),
    ("prices", "sources"): (r"https://raw\.githubusercontent\.com", "costguard prices refresh --public"),
    ("submit",): (r"costguard submit --gpu H100 --hours 12 -- sky launch t\.yaml",),
    ("submit", "--usd", "5", "--hours", "1", "--", "true"): (r"costguard admit --ended hold-[0-9a-f]{12}",),
    ("admit", "--usd", "5", "--hours", "1"): (r"costguard admit --ended hold-[0-9a-f]{12}",),
    ("--config", "wrong.toml", "report"): (r"\[provider\]",),
    ("mcp", "arm", "--why", "x"): ("costguard mcp disarm",),
    ("explain", "not_accepted"): ("costguard plan --accept HASH",),
    ("--help",): ("costguard quote --model llama-3.1-8b --method qlora --tokens 50e6",),
}
"""Command -> what must stand whole in a line of its output (regular expressions)."""
CHILD = """
import json, sys
from costguard.cli import run_cli
for words in json.loads(sys.argv[1]):
    print("@@@", json.dumps(words), flush=True)
    run_cli(words)
    sys.stdout.flush()
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with settings, a ledger with a machine whose name and owner are markup, and an older ledger."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    (tmp_path / "costguard.toml").write_text(f'[ledger]\nurl = "{url}"\n[web]\nurl = "https://guard.example"\n{POLICY}')
    (tmp_path / "old.toml").write_text(f'[ledger]\nurl = "sqlite:///{tmp_path}/old.db"\n')
    (tmp_path / "wrong.toml").write_text(f'[ledger]\nurl = "{url}"\n["[provider]"]\nkey = 1\n')
    now, scope = datetime.now(UTC), ScopeKey("aws", "123456789012", "us-east-1")
    seen = [
        Observation(
            key=ResourceKey(*scope, f"i-0a1b{number}"),
            state="running",
            name=name,
            owner=LABEL,
            started_at=now - timedelta(hours=3),
        )
        for number, name in enumerate(("train-1", LABEL, "[provider]"))
    ]
    with LedgerWriter(url, rules={}, ceilings={}) as ledger:
        ledger.record_polls([Poll(scope=scope, at=now - timedelta(minutes=1), inventory=Complete(tuple(seen)))])
    with sqlite3.connect(tmp_path / "old.db") as file:
        file.executescript(gzip.decompress(OLD.read_bytes()).decode())
    shop.market(tmp_path, [shop.offer("vast", "H100-SXM", "8", count=8, seen=shop.OLD)])
    return tmp_path


def run_on_terminal(
    place: Path, width: int, commands: Sequence[Sequence[str]], **environ: str
) -> dict[tuple[str, ...], list[str]]:
    """Run each of `commands` on a pseudo-terminal of `width` columns, and return the lines that it wrote."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    folders = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"), str(place))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, json.dumps(commands)],
        stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, cwd=place, env={**env, **folders, "TERM": "dumb", **environ},
    )  # fmt: skip
    os.close(slave)
    written = b""
    try:
        while piece := os.read(master, 65536):
            written += piece
    except OSError:  # Linux says so once nobody has the other end any more
        pass
    os.close(master)
    assert child.wait() == 0, written[-2000:]
    parts = written.decode().replace("\r\n", "\n").split("@@@ ")[1:]
    return {tuple(json.loads(part.partition("\n")[0])): re.split("[\r\n]", part)[1:] for part in parts}


def list_broken(written: dict[tuple[str, ...], list[str]]) -> list[str]:
    return [
        f"{' '.join(words)}: {pasted} in {lines}"
        for words, lines in written.items()
        for pasted in CASES[words]
        if not any(re.search(pasted, line) for line in lines)
    ]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("width", WIDTHS)
def test_what_is_there_to_be_pasted_stands_whole_in_one_line(place: Path, width: int) -> None:
    assert list_broken(run_on_terminal(place, width, list(CASES))) == []


@pytest.mark.parametrize("width", WIDTHS)
def test_a_plan_that_waits_shows_whole_how_it_is_accepted(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("costguard.renderers.table.is_terminal", lambda: True)
    why = f"{LABEL} of [provider]: its first run would stop 9 machines"
    drawn = render(
        build_plan_document(PlanView(at=datetime(2026, 11, 1, tzinfo=UTC), rows=(), hash="3f9ac1d2", unaccepted=why))
    )
    assert "costguard plan --accept 3f9ac1d2" in drawn
    assert f"{LABEL} of [provider]" in " ".join(drawn.split())


def test_columns_decide_over_the_terminal(place: Path) -> None:
    written = run_on_terminal(place, 200, [("web", "token", "grafana")], COLUMNS="40")
    prose = [line for line in written["web", "token", "grafana"] if line.startswith("It is shown")]
    assert prose == ["It is shown only once: store it in the"]


@pytest.mark.proof
def test_examples_of_every_help_stand_whole(place: Path) -> None:
    narrow, wide = (run_on_terminal(place, width, [[name, "--help"] for name in COMMANDS]) for width in (40, 200))
    for words, lines in wide.items():
        examples = [line for line in lines if line.startswith("    costguard ")]
        assert examples, words
        assert [line for line in narrow[words] if line.startswith("    costguard ")] == examples
