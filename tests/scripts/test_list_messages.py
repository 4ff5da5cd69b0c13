"""messages.md beside this file holds every sentence that people read, as the code says it now."""

from __future__ import annotations

import ast

import pytest

from scripts import list_messages


def test_the_page_is_what_the_code_says(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--write-golden"):
        assert list_messages.main([]) == 0
    assert list_messages.main(["--check"]) == 0, "make golden writes tests/scripts/messages.md anew; then read the diff"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ('f"it costs {rate.format(2)} an hour"', "it costs {rate} an hour"),
        ('f"it costs {format_interval(usd.total)} so far"', "it costs {total} so far"),
        ('"one " + f"{two} three"', "one {two} three"),
        ("7", None),
    ],
)
def test_variable_parts_stand_in_braces(code: str, told: str | None) -> None:
    assert list_messages.read_text(ast.parse(code, mode="eval").body) == told
