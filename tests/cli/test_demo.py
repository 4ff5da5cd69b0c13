"""`costguard demo`: the main job on the shipped market, as `make demo` runs it."""

from __future__ import annotations

import re

from costguard.cli.demo import AS_TYPED
from tests.conftest import Command


def test_the_demo_ends_with_a_ranked_quote_of_the_main_job(costguard: Command) -> None:
    ran = costguard("demo")
    assert ran.code == 0
    assert ran.out.startswith("llama-3.1-8b (8.03B), qlora, bf16, nf4, seq 2048, batch 2, 50,000,000 tokens")
    assert len(re.findall(r"^ *\d+  \w+ ", ran.out, re.MULTILINE)) >= 10


def test_what_the_demo_says_it_runs_gives_the_same_quote(costguard: Command) -> None:
    demo = costguard("demo", "--json")
    assert demo.err.startswith(f"$ {AS_TYPED}\n")
    typed = costguard(*AS_TYPED.split()[1:], "--json")
    assert demo.data["options"] == typed.data["options"]


def test_nothing_is_left_to_assume_in_the_demo(costguard: Command) -> None:
    assert costguard("demo", "--json").data["job"]["assumed"] == {}
