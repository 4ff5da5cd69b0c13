"""Two pages to the letter: a month made by hand with a chart of every kind, and the report of the ledger of `test_golden`.

`make golden` writes them anew; then look at them in a browser. Without their style, which `costguard/reports/html/page.css` is.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from costguard.renderers.html import render
from tests.conftest import Command
from tests.golden.test_golden import ledger  # noqa: F401 - a fixture
from tests.renderers.pages import MONTH

HERE = Path(__file__).parent


def compared(text: str, name: str, request: pytest.FixtureRequest) -> None:
    """`text` is the sample, but for its style."""
    text = re.sub(r"<style>.*?</style>", "<style></style>", text, flags=re.DOTALL)
    sample = HERE / f"{name}.html"
    if request.config.getoption("--write-golden"):
        sample.write_text(text, encoding="ascii")
    assert text == sample.read_text(encoding="ascii")


def test_a_page_of_every_chart_is_the_sample_to_the_letter(request: pytest.FixtureRequest) -> None:
    compared(render(MONTH), "month", request)


def test_the_page_of_a_report_is_the_sample_to_the_letter(
    ledger: Command,  # noqa: F811 - a fixture
    request: pytest.FixtureRequest,
) -> None:
    ran = ledger("report", "--month", "2026-10", "--zone", "Europe/Berlin", "--by", "owner,gpu", "--format", "html")
    assert ran.code == 0, ran.err
    compared(ran.out, "report", request)
