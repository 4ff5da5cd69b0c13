"""`--json`: one object, valid for any parser, harmless on any terminal."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costguard.renderers.json_text import render
from costguard.views.document import Document


@given(st.text())
def test_any_text_comes_back_as_it_was_and_acts_on_no_terminal(text: str) -> None:
    printed = render(Document(data={"name": text}))
    assert json.loads(printed) == {"name": text}
    assert all(c == "\n" or c.isprintable() for c in printed)
    assert printed.endswith("}\n")


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_what_json_has_no_word_for_is_refused(number: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        render(Document(data={"hours": number}))
