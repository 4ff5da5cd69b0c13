"""docs/CONFIGS.md is true: its files are written as they stand there, and its commands answer."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from costguard.formats import FORMATS, load_format
from tests.conftest import Command
from tests.test_docs import ROOT

PAGE = ROOT / "docs" / "CONFIGS.md"
NAMED = re.compile(r"^`([\w.-]+)`", re.MULTILINE)
NAME = re.compile(r"`([\w.-]+\.(?:ya?ml|toml|json|py|sbatch))`")


def list_steps() -> Iterator[tuple[str, str]]:
    """The page's blocks in order: (file name, its text), or ("", commands)."""
    text = PAGE.read_text(encoding="utf-8")
    text = text[text.index("## Training configs") :]
    names: list[str] = []
    for part in re.split(r"(^```\w*\n.*?^```$)", text, flags=re.MULTILINE | re.DOTALL):
        if not part.startswith("```"):
            names = NAME.findall(part) or names
            continue
        language, _, body = part.removeprefix("```").removesuffix("```").partition("\n")
        if language == "sh":
            yield "", body
        else:
            yield names.pop(0), body


def test_every_file_of_the_page_is_read_and_every_command_answers(costguard: Command) -> None:
    wrong, ran = [], 0
    for name, body in list_steps():
        if name:
            Path(name).write_text(body)
            continue
        for line in body.splitlines():
            answer = costguard(*shlex.split(line)[1:], *(("--top", "1") if " quote " in line else ()))
            ran += 1
            if answer.code not in (0, 3) or "read as " not in answer.out.casefold():
                wrong.append(f"{line}: exit {answer.code}: {answer.err or answer.out}")
    assert wrong == []
    assert ran >= 15


def test_the_table_of_the_page_has_every_format() -> None:
    table = PAGE.read_text().partition("## What is read")[2].partition("\n## ")[0]
    for name in FORMATS:
        label = load_format(name).LABEL.replace(" or ", ", ").removesuffix(" script")
        assert f"\n| {label} |" in table, label
