"""docs/API.md is true: its blocks are run in order, against the fakes of five clouds; and what the API costs to import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import costguard as package
from costguard.errors import InputError, UnknownNameError
from costguard.services.guarding.act import by_hand
from tests.cli.test_imports import HEAVY
from tests.conftest import Command
from tests.test_docs import blocks
from tests.test_docs_run import clouds, list_pods

__all__ = ["clouds"]


def test_every_block_of_the_page_runs_in_order(
    costguard: Command, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_hand, "LOOK_EVERY_S", 0.1)
    fakes: Path = request.getfixturevalue("clouds")
    Path("costguard.toml").write_text((fakes / "costguard.toml").read_text())
    space: dict[str, object] = {}
    for block in (one for one in blocks() if one.page == "docs/API.md" and one.language == "python"):
        text = block.text
        if "machine = now.data" in text:
            costguard("status")
            text = text.replace('now.data["resources"][0]["id"]', repr(list_pods(costguard)[0]))
        exec(compile(text, block.place, "exec"), space)  # noqa: S102 - the page's own code
    assert space["done"].data["result"] == "done"  # type: ignore[attr-defined]
    assert space["started"].data["result"] == "done"  # type: ignore[attr-defined]
    assert space["started"].data["act"] == "start"  # type: ignore[attr-defined]


def test_the_answer_is_that_of_the_command(costguard: Command, market: str) -> None:
    stated = ("--model", "llama-3.1-8b", "--method", "qlora", "--tokens", "50e6", "--market", market, "--json")
    answer = package.quote(model="llama-3.1-8b", method="qlora", tokens=50e6, market=market)
    assert costguard("quote", *stated).data == answer.data
    assert package.size(model="gpt2", method="full", on="T4:1").data == costguard(
        "size", "--model", "gpt2", "--method", "full", "--on", "T4:1", "--json"
    ).data  # fmt: skip


def test_a_field_is_every_flag_of_a_job_and_a_wrong_one_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean model"):
        package.quote(modle="gpt2")  # type: ignore[call-arg]
    with pytest.raises(InputError, match="must be a number"):
        package.size(model="gpt2", seq_len="many")
    with pytest.raises(AttributeError):
        _ = package.nonsense  # type: ignore[attr-defined]
    assert {"quote", "size", "status", "report", "keep", "start", "stop"} <= set(dir(package))


def test_a_notebook_shows_ten_rows_and_escapes_what_it_shows(tmp_path: Path, market: str) -> None:
    (tmp_path / "a.yml").write_text("base_model: gpt2\nsequence_len: 64\nmicro_batch_size: 1\n<script>alert(1)</script>: 1\n")
    drawn = package.quote(tmp_path / "a.yml", tokens=1e6, market=market)._repr_html_()
    assert drawn.partition("</table>")[0].count("<tr") == 11
    assert "<script>" not in drawn
    assert "&lt;script&gt;" in drawn


def test_nothing_is_imported_that_a_quote_does_not_need(market: str) -> None:
    script = (
        "import sys; before = set(sys.modules); import costguard; print(*sorted(set(sys.modules) - before));"
        f"costguard.quote(model='llama-3.1-8b', method='qlora', tokens=50e6, market={market!r}); print(*sorted(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    first, seen = ran.stdout.splitlines()
    assert [name for name in first.split() if not name.startswith(("importlib", "_", "warnings"))] == ["costguard"]
    assert set(seen.split()) & {*HEAVY, "typer", "rich", "yaml", "costguard.cli", "costguard.formats"} == set()
