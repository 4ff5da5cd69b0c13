"""The documents are true: each command line in them is one that costguard takes, each settings block one that it reads."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from costguard.cli import run_cli
from costguard.cli.commands import CostguardCommand
from costguard.settings import check_settings

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *ROOT.glob("providers/*/README.md")])


class Block(NamedTuple):
    """A fenced block of a page; `line`: that of its first line."""

    page: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, found.start()) + 2
            yield Block(page.relative_to(ROOT).as_posix(), line, found[1], found[2])


def commands() -> Iterator[tuple[str, str]]:
    """Where a command of costguard stands, and it. `$ ` is a console's prompt; what follows a pipe is another program's."""
    for block in blocks():
        if block.language not in ("sh", "console"):
            continue
        joined = re.sub(r"\\\n\s*", " ", block.text)
        for line in joined.splitlines():
            prompt = line.startswith("$ ")
            stated = line.removeprefix("$ ")
            if stated.startswith("costguard ") and (prompt or block.language == "sh"):
                yield block.place, stated


COMMANDS = list(dict.fromkeys(commands()))
SETTINGS = [block for block in blocks() if block.language == "toml"]


@pytest.mark.parametrize(("place", "line"), COMMANDS)
def test_every_command_of_a_page_is_one(place: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = shlex.split(line, comments=True)[1:]
    for sign in ("|", "&&", ">", "&"):
        arguments = arguments[: arguments.index(sign)] if sign in arguments else arguments
    taken: list[str | None] = []
    monkeypatch.setattr(CostguardCommand, "invoke", lambda _, ctx: taken.append(ctx.command_path.split()[1]))
    assert run_cli(arguments) == 0, place
    assert taken == [next(word for word in arguments if not word.startswith("-"))]


@pytest.mark.parametrize("block", SETTINGS, ids=[block.place for block in SETTINGS])
def test_every_settings_block_of_a_page_is_read(block: Block, tmp_path: Path) -> None:
    if not block.text.startswith("model = "):
        check_settings(block.text, block.place)
        return
    job = tmp_path / "job.toml"
    job.write_text(block.text)
    assert run_cli(["size", str(job)]) == 0


def test_what_a_beginner_puts_together_is_one_file_that_is_read() -> None:
    begun = [block for block in SETTINGS if block.page == "docs/START.md"]
    settings = check_settings("\n".join(block.text for block in begun), "costguard.toml")
    assert set(settings.providers) == {"aws", "azure", "coreweave", "gcp", "lambda", "local", "runpod", "scaleway", "vast"}
    assert [policy.name for policy in settings.policies] == ["idle-gpu"]
