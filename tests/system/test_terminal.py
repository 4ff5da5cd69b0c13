"""Text in cells of a terminal: as wide as it is drawn, cut and wrapped."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from costguard.system.terminal import cut_to_width, measure_width, wrap_text

FAMILY, FLAG = "\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea"
THUMB, HEART = "\U0001f44d\U0001f3fd", "\u2764\ufe0f"
LETTERS = st.sampled_from("ab \u65e5\u672c\u00fc\U0001f600\u0301\ud55c")


@given(st.text(LETTERS, max_size=30), st.integers(2, 12))
@example("\u65e5\u672c\u8a9e", 2)
def test_nothing_is_wider_than_its_place_and_nothing_is_lost(text: str, width: int) -> None:
    assert measure_width(cut_to_width(text, width)) <= width
    lines = wrap_text(text, width)
    assert all(measure_width(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


@pytest.mark.parametrize(
    "pasted",
    [
        *("costguard plan --accept 3f9a1c0d2b4e5f60", "costguard agent enrol train-1 --through-restarts"),
        'costguard audit adopt --why "the disk died, this is the backup"',
        "COSTGUARD_LEDGER__URL=sqlite:///demo.db costguard report",
        *("costguard-agent join https://guard.example:8470 c0de-c0de-c0de", "pip install '.[web]'"),
        "https://guard.example/login#0123456789012345678901234567890123456789",
    ],
)
@pytest.mark.parametrize("width", [10, 40, 60, 80])
def test_what_is_there_to_be_pasted_stands_in_one_line(pasted: str, width: int) -> None:
    for text in (pasted, f"Read it, then run: {pasted}", f"(if this is what you meant: {pasted}); the rest follows here."):
        assert any(pasted in line for line in wrap_text(text, width)), wrap_text(text, width)


@pytest.mark.parametrize("word", ["=" * 6_000, "A" * 6_000, "costguard " * 700, "://" * 3_000, "costguard '" * 700])
def test_a_hostile_word_takes_no_time(word: str) -> None:
    assert "".join("".join(wrap_text(word, 80)).split()) == "".join(word.split())
