"""One sample of each JSON schema, to the letter. A change here is a change of contract: raise the schema's number, or be sure.

`make golden` writes the samples anew; then read the diff.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.shop import STATED

HERE = Path(__file__).parent
SAMPLES = {
    "quote": ("quote", *STATED, "--max-usd", "30"),
    "quote_rental": ("quote", "--gpu", "H100", "--count", "8", "--hours", "12"),
    "quote_on": ("quote", *STATED, "--on", "H200:8x2"),
    "size": ("size", "--model", "llama-3.1-8b", "--method", "lora", "--on", "A100-80GB:2"),
    "offers": ("offers",),
    "breakeven": ("breakeven", "--gpu", "A100-80GB", "--price", "15000", "--resale", "3000", "--hours-week", "40"),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_json_is_the_sample_to_the_letter(
    costguard: Command, market: str, request: pytest.FixtureRequest, name: str
) -> None:
    flags = () if name == "size" else ("--market", market)
    ran = costguard(*SAMPLES[name], *flags, "--json")
    assert ran.code == 0, ran.err
    printed = ran.out.replace(market, "MARKET")
    sample = HERE / f"{name}.json"
    if request.config.getoption("--write-golden"):
        sample.write_text(printed)
    assert printed == sample.read_text()


def test_there_is_a_sample_of_every_schema() -> None:
    schemas = {json.loads(p.read_text())["schema"] for p in HERE.glob("*.json")}
    assert schemas == {"costguard.quote/1", "costguard.size/1", "costguard.offers/1", "costguard.breakeven/1"}
    assert {p.stem for p in HERE.glob("*.json")} == set(SAMPLES)
