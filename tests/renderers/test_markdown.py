"""`--markdown`: tables that GitHub draws, whatever stands in a cell."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costguard.renderers.markdown import render
from costguard.views.document import Document, TableView

TABLE = TableView(title="Prices", columns=("name", "$/h>"), rows=(("a|b", "1.00"), ("<img src=x>", "2.00")))


def test_a_table_has_its_title_its_rule_and_its_rows() -> None:
    assert render(Document(data={}, tables=(TABLE,))).splitlines() == [
        "**Prices**", "", "| name | $/h |", "| --- | ---: |", "| a\\|b | 1.00 |", "| &lt;img src=x> | 2.00 |",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("![x](https://e.example/x.png)", "`![x](https://e.example/x.png)`"),
        ("![x](e.png)", r"!\[x\](e.png)"),
        ("by @ada, ada@e.example, www.e.example or #12", "by `@ada,` `ada@e.example,` `www.e.example` or `#12`"),
        ("`@a|b!1`", r"`'@a\|b!1'`"),
        ("# big", r"\# big"),
        ("- 1 - -2 50 % 8x A100", r"\- 1 - -2 50 % 8x A100"),
        ("[click](javascript:alert(1))", r"\[click\](javascript:alert(1))"),
        ("`a` *b* ~~c~~", r"\`a\` \*b\* \~\~c\~\~"),
        ("_a_ run_2_b", r"\_a\_ run_2_b"),
        ("&lt;img> R&D 1 & 2", r"\&lt;img> R\&D 1 & 2"),
    ],
)
def test_a_name_is_drawn_as_it_is_written_and_is_no_link(name: str, written: str) -> None:
    assert render(Document(data={}, lead=(name,))) == f"{written}  \n"


@given(st.text(max_size=20), st.text(max_size=20))
def test_no_cell_can_break_its_row(first: str, second: str) -> None:
    table = TableView(title="", columns=("a", "b"), rows=((first, second),))
    lines = render(Document(data={}, tables=(table,))).removesuffix("\n").split("\n")
    assert len(lines) == 3
    assert lines[2].replace("\\\\", "").replace("\\|", "").count("|") == 3
