"""One format an answer, whichever way it was asked for."""

from __future__ import annotations

import pytest

from costguard.cli.options import choose_format
from costguard.errors import InputError


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({}, "table"),
        ({"csv": True}, "csv"),
        ({"json": False, "format": "markdown"}, "markdown"),
        ({"json": True, "format": "json"}, "json"),
        ({"format": "focus"}, "focus"),
        ({"format": None, "markdown": True}, "markdown"),
    ],
)
def test_a_format_is_asked_for_by_its_flag_or_by_its_name(params: dict[str, object], name: str) -> None:
    assert choose_format(params) == name


@pytest.mark.parametrize("params", [{"json": True, "csv": True}, {"csv": True, "format": "json"}])
def test_two_formats_exclude_each_other(params: dict[str, object]) -> None:
    with pytest.raises(InputError, match="cannot be used together"):
        choose_format(params)
