"""docs/API.md is true: its blocks are run in order, against the fakes of five clouds; and what the API costs to import."""

from __future__ import annotations

import subprocess
import sys
from inspect import signature
from pathlib import Path

import pytest
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import costguard as package
from costguard.errors import InputError, NoAnswerError, UnknownNameError
from costguard.notebook import draw_columns
from costguard.quoting.quote import ADVISED
from costguard.services.guarding.act import by_hand
from costguard.sizing.job_flags import JobFields
from costguard.views.document import STACKED, Chart, ChartSeries
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


def test_a_notebook_shows_the_five_rows_of_the_command_and_escapes_what_it_shows(tmp_path: Path, market: str) -> None:
    (tmp_path / "a.yml").write_text("base_model: gpt2\nsequence_len: 64\nmicro_batch_size: 1\n<script>alert(1)</script>: 1\n")
    answer = package.quote(tmp_path / "a.yml", tokens=1e6, market=market)
    drawn = answer._repr_html_()
    assert len(answer.options) > ADVISED
    assert drawn.partition("</table>")[0].count("<tr") == 1 + ADVISED
    assert "<script>" not in drawn
    assert "&lt;script&gt;" in drawn
    assert drawn.index("<summary>") < drawn.index("&lt;script&gt;")  # notes are closed
    assert "text-align: left" in drawn


def test_an_answer_is_one_short_line_in_a_prompt(market: str) -> None:
    answer = package.quote(model="llama-3.1-8b", method="qlora", tokens=50e6, market=market)
    small = package.size(model="gpt2", method="full", on="T4:1")
    for one in (answer, answer.best, answer.quote, small):
        assert len(repr(one)) < 200
        assert "\n" not in repr(one)
    assert answer.best is not None
    assert answer.best.gpu.name in repr(answer)
    assert str(answer.best.usd) in repr(answer)


def test_a_frame_has_numbers_where_json_has_exact_text(market: str) -> None:
    answer = package.quote(model="llama-3.1-8b", method="qlora", tokens=50e6, market=market)
    frame = answer.to_frame()
    assert len(frame) == len(answer.options)
    assert answer.best is not None
    assert answer.best.usd is not None
    assert frame.usd_expected[0] == pytest.approx(float(answer.best.usd.expected), abs=0.005)  # JSON has cents
    assert frame.usd_per_hour.dtype == "float64"
    assert frame.provider[0] == answer.data["options"][0]["provider"]  # type: ignore[index]


def test_a_picture_has_a_point_for_each_row_and_the_ends_of_its_intervals(market: str) -> None:
    answer = package.quote(model="llama-3.1-8b", method="qlora", tokens=50e6, market=market)
    drawn = answer.plot(Figure().subplots())
    assert len(drawn.containers) == ADVISED
    first = drawn.containers[0]
    assert isinstance(first, ErrorbarContainer)
    assert answer.best is not None
    assert answer.best.hours is not None
    (low, _), (high, _) = first.lines[2][0].get_segments()[0]
    assert (low, high) == pytest.approx((answer.best.hours.low, answer.best.hours.high))
    with pytest.raises(NoAnswerError, match="state tokens"):
        package.quote(model="llama-3.1-8b", method="qlora", market=market).plot(Figure().subplots())


def test_a_report_is_drawn_by_day_and_owner() -> None:
    chart = Chart(
        title="Spend by day and owner",
        kind=STACKED,
        unit="$",
        labels=("2026-10-01", "2026-10-02"),
        series=(
            ChartSeries(name="ada", values=(1.0, 2.0), texts=("1.00", "2.00")),
            ChartSeries(name="bob", values=(None, 3.0), texts=("", "3.00")),
        ),
    )
    drawn = draw_columns([chart], Figure().subplots())
    tops = [bar.get_y() + bar.get_height() for bar in drawn.patches if isinstance(bar, Rectangle)]
    assert tops == [1.0, 2.0, 1.0, 5.0]
    with pytest.raises(NoAnswerError, match="nothing to draw"):
        draw_columns([], Figure().subplots())


def test_without_pandas_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, market: str) -> None:
    answer = package.quote(model="llama-3.1-8b", method="qlora", tokens=50e6, market=market)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match=r"needs pandas\nhint: .*\.\[notebook\]"):
        answer.to_frame()


def test_editors_complete_the_fields_of_a_job() -> None:
    for function in (package.quote, package.size, package.admit):
        names = set(signature(function).parameters)
        assert names >= JobFields.__annotations__.keys()
        assert "config" in names
        assert "job" not in names


@pytest.mark.proof  # ten seconds of a processor: a checker without a cache reads all that the API names
def test_a_type_checker_of_a_user_sees_the_types(tmp_path: Path) -> None:
    """Mypy outside this tree, without our settings: what `py.typed` promises (PEP 561)."""
    (tmp_path / "mine.py").write_text(
        "import costguard\n\nanswer = costguard.quote(model='gpt2', tokens=1e6)\nreveal_type(answer.best)\n"
        "costguard.quote(modle='gpt2')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "mine.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert 'Revealed type is "costguard.quoting.quote.QuoteOption | None"' in ran.stdout
    assert 'Unexpected keyword argument "modle"' in ran.stdout
    assert "Found 1 error" in ran.stdout


def test_nothing_is_imported_that_a_quote_does_not_need(market: str) -> None:
    script = (
        "import sys; before = set(sys.modules); import costguard; print(*sorted(set(sys.modules) - before));"
        f"costguard.quote(model='llama-3.1-8b', method='qlora', tokens=50e6, market={market!r}); print(*sorted(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    first, seen = ran.stdout.splitlines()
    assert [name for name in first.split() if not name.startswith(("importlib", "_", "warnings"))] == ["costguard"]
    assert set(seen.split()) & {*HEAVY, "typer", "rich", "yaml", "costguard.cli", "costguard.formats"} == set()
