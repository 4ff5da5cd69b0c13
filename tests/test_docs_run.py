"""Each command of README.md, docs/START.md and the pages of four tasks is run in order, in its own home, against five fakes.

A line that cannot be run here stands in NOT_HERE with the reason, and a line whose words must be others here in WRITTEN.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.contract.rig import Rig
from tests.fakes.__main__ import RIGS, _write
from tests.fakes.server import serving
from tests.test_docs import Block, blocks

TASKS = ("README.md", "docs/OPERATE.md", "docs/QUOTE.md", "docs/GUARD.md", "docs/REPORT.md")
"""In the order in which they are run, in one home: OPERATE begins with the settings and the ledger."""
NOT_HERE = {
    "costguard status --watch": "needs a terminal (tests/cli/test_status_watch.py)",
    "costguard size --model gpt2-medium": "needs torch, which is an extra (tests/services/test_exact_step.py)",
    "costguard review": "needs a repository with a change (tests/review/test_review.py)",
    "costguard run --job job.toml --id train-1": "ends the machine on which it runs (tests/cli/test_run_machine.py)",
    "costguard report --month 2026-10 --email": "needs a mail server (tests/cli/test_report_sent.py)",
    "costguard report --month 2026-10 --format focus": "the fakes' ledger is of this month (tests/cli/test_focus.py)",
    "costguard reconcile --month 2026-10": "no cloud here has a bill of that month (tests/cli/test_reconcile.py)",
    "costguard report --week 2026-W44": "needs a route and a channel (tests/cli/test_report_sent.py)",
    "costguard demo": "takes half a minute (tests/cli/test_demo.py)",
    "costguard prices refresh --public": "asks public servers (tests/public_prices)",
    "costguard prices refresh": "Vast's fake serves offers at its own pace of minutes (tests/cli/test_prices.py)",
}
WRITTEN = {
    "costguard watch": "costguard watch --once",
    "costguard run --job job.toml -- python train.py": "costguard run --job job.toml --yes -- true",
    "costguard init": "costguard init --yes",
    "costguard init --guard": "costguard init --guard --yes",
    "costguard init --guard --to env:SLACK_URL": "costguard init --guard --to env:SLACK_URL --yes",
}
MAY_REFUSE = tuple(f"costguard {name}" for name in ("size", "breakeven", "quote", "admit", "run", "simulate", "status --check"))
"""Commands whose answer may be no (exit 3), as the comment behind them says or their figures do."""
SLACK = "json://127.0.0.1:9/hook"
"""An address that takes nothing: nobody is told anything here."""


@pytest.fixture
def clouds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The five fakes, with the variables that hold their keys; the folder has their settings."""
    with ExitStack() as stack:
        rigs: list[Rig] = [rig() for rig in RIGS]
        for rig in rigs:
            rig.clock.at = datetime.now(UTC)
            rig.put(2)
        made = tmp_path / "fakes"
        made.mkdir()
        _write(made, rigs, {rig.provider: stack.enter_context(serving(rig.fake)) for rig in rigs})
        for line in (made / "environment").read_text().splitlines():
            name, _, value = line.removeprefix("export ").partition("=")
            monkeypatch.setenv(name, shlex.split(value)[0])
        monkeypatch.setenv("SLACK_URL", SLACK)
        yield made


def commands_of(page: str, until: str = "") -> Iterator[tuple[Block, str]]:
    """The lines of `page` that call costguard, in order, with the block that they stand in; up to the heading `until`."""
    text = (Path(__file__).parent.parent / page).read_text(encoding="utf-8")
    last = text[: text.index(f"\n{until}\n")].count("\n") if until else text.count("\n")
    for block in blocks():
        if block.page == page and block.line <= last:
            yield block, ""
            if block.language == "sh":
                for line in re.sub(r"\\\n\s*", " ", block.text).splitlines():
                    if line.startswith("costguard "):
                        yield block, line


def point_to(fakes: Path) -> None:
    """Let the settings that `init` wrote speak to the fakes: only the providers' tables are others."""
    file, told = Path("costguard.toml"), (fakes / "costguard.toml").read_text()
    kept = re.split(r"(?m)^#?\[providers\.", file.read_text())[0]
    file.write_text(kept + told[told.index("[providers.") :])


def list_pods(run: Command) -> list[str]:
    ran = run("--offline", "status", "--json")
    return [str(one["id"]) for one in json.loads(ran.out)["resources"] if one["provider"] == "runpod"]


def play(run: Command, pages: Sequence[str], fakes: Path, *, until: str = "", more: str = "") -> list[str]:
    """Run the commands of `pages`; what went wrong, a line each. `more`: what a page says in words that settings need."""
    wrong, machines = [], ["MACHINE", "OTHER"]
    for block, line in (one for page in pages for one in commands_of(page, until)):
        if not line:
            if block.language == "toml" and "[[policy]]" in block.text:
                with Path("costguard.toml").open("a") as file:
                    file.write(block.text.replace('to = ["env:SLACK_URL", "console"]', 'to = ["console"]'))
            continue
        stated = line.partition(" #")[0].strip()
        if any(stated.startswith(one) for one in NOT_HERE):
            continue
        written = WRITTEN.get(stated, stated)
        for name, machine in (("MACHINE", machines[0]), ("train-1", machines[0]), ("train-2", machines[1])):
            written = written.replace(name, machine)
        if "policy accept" in written:
            digest = re.search(r'"digest": "(\w{16})"', run("policy", "lint", "--json").out)
            written = f"costguard policy accept {digest[1] if digest else '?'}"
        ran = run(*shlex.split(written)[1:])
        allowed = {0, 3} if stated.startswith(MAY_REFUSE) else {0}
        if ran.code not in allowed:
            wrong.append(f"{block.place}: {written}: exit {ran.code}: {ran.err.strip()[:300]}")
        if stated.startswith("costguard init"):
            point_to(fakes)
            with Path("costguard.toml").open("a") as file:
                file.write(more)
        if stated == "costguard status":
            machines = list_pods(run)
    return wrong


@pytest.mark.proof
def test_every_step_of_start_works_as_it_is_written(costguard: Command, clouds: Path) -> None:
    assert play(costguard, ["docs/START.md"], clouds, until="## AWS") == []


@pytest.mark.proof
def test_every_command_of_the_readme_and_the_four_tasks_works_as_it_is_written(costguard: Command, clouds: Path) -> None:
    job = next(block for block in blocks() if block.page == "docs/QUOTE.md" and block.text.startswith("model = "))
    Path("job.toml").write_text(job.text.replace("max_usd = 20", "max_usd = 2000"))
    Path("runs.csv").write_text("model,method,gpu,gpu_count,tokens_per_s\nllama-3.1-8b,qlora,A100-80GB-SXM,1,3000\n")
    Path("costs.csv").write_text("what,amount,month,owner\nColab Pro,11.99,2026-10,vision\nOffice power,37.20,2026-10,lab\n")
    assert play(costguard, TASKS, clouds, more='[web]\nlisten = "127.0.0.1:8470"\n') == []


@pytest.mark.usefixtures("clouds")
def test_what_init_writes_takes_the_guides_block_behind_it(costguard: Command) -> None:
    """The first edition wrote an empty [web], and the guide's own [web] then made the file unreadable."""
    assert costguard("init", "--yes").code == 0
    guide = next(block for block in blocks() if block.page == "docs/START.md" and "[[policy]]" in block.text)
    with Path("costguard.toml").open("a") as file:
        file.write(guide.text)
    ran = costguard("policy", "lint")
    assert "Cannot declare" not in ran.err
    assert ran.code == 0, ran.err


def test_every_line_that_is_not_run_is_still_there() -> None:
    lines = [line for page in (*TASKS, "docs/START.md") for _, line in commands_of(page) if line]
    assert [one for one in NOT_HERE if not any(line.startswith(one) for line in lines)] == []
    assert [one for one in WRITTEN if not any(line.startswith(one) for line in lines)] == []
