"""What a refusal must be (DESIGN section 7, RELIABILITY M5), judged by machine, and its exact text, frozen in `snapshots/`.

The rule: the exit code of the contract; nothing on stdout; at most five lines an error; the first names the file, the line or
the field; a hint says what to write instead; no traceback, no secret, nothing that acts on a terminal; nothing changed on disk.
"""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from tests.conftest import Ran
from tests.inputs.cases import Case

SNAPSHOTS = Path(__file__).parent / "snapshots"
SECRET = "hunter2"  # noqa: S105 - looked for in what is shown
"""Stands in every secret of the corpus, in whatever case."""
MOST_LINES = 5
LONGEST_LINE = 700
"""Characters: a list of all known keys is long, what somebody typed is not."""


def flaws(case: Case, ran: Ran, changed: Collection[str], *, code: int = 2) -> Iterator[str]:
    """What is wrong with how `case` was refused; nothing where it was refused as it should be."""
    lines = ran.err.splitlines()
    if ran.code != code:
        yield f"exit {ran.code}, not {code}"
    if ran.out:
        yield f"stdout: {ran.out[:200]!r}"
    errors = sum(line.startswith("hint: ") for line in lines)  # several of one file are told at once, each with its hint
    if not 1 <= len(lines) <= MOST_LINES * max(1, errors):
        yield f"{len(lines)} lines"
    yield from (f"a line of {len(line)} characters" for line in lines if len(line) > LONGEST_LINE)
    if not lines or not lines[0].startswith("error: "):
        yield "does not begin with 'error: '"
    yield from (f"the first line does not name {name!r}" for name in case.names if not lines or name not in lines[0])
    if not any(line.startswith("hint: ") and len(line) > len("hint: ") for line in lines[1:]):
        yield "does not say what to write instead"
    yield from unclean(ran.out + ran.err)
    yield from (f"changed on disk: {path}" for path in changed)


def unclean(text: str) -> Iterator[str]:
    """What no output may hold, whatever went wrong."""
    if "Traceback" in text or "a bug in costguard" in text:
        yield "a traceback or an unexpected error"
    if SECRET in text.lower():
        yield "echoes a secret"
    odd = {c for c in text if c != "\n" and not c.isprintable()}
    if odd:
        yield f"acts on a terminal: {sorted(map(ascii, odd))}"


def contents(folder: Path) -> dict[str, str]:
    """Every file below `folder` by its path, with what it holds and when it was written.

    What SQLite itself lays beside a file that is read holds nothing: `-shm`, and a `-wal` of no bytes.
    """
    return {
        str(path.relative_to(folder)): f"{hashlib.sha256(path.read_bytes()).hexdigest()} {path.stat().st_mtime_ns}"
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not (path.name.endswith("-shm") or (path.name.endswith("-wal") and not path.stat().st_size))
    }


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """The paths whose content differs, that came or went."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def shown(ran: Ran, folder: Path) -> str:
    """The refusal as it is frozen: the exit code and the text, with the test's own folder masked."""
    return f"exit {ran.code}\n{ran.err.replace(str(folder), 'FOLDER')}"


class Snapshot:
    """The frozen texts of one corpus, in one file: `## case`, its sentence, and its text."""

    def __init__(self, corpus: str, every: Sequence[Case]) -> None:
        self.path = SNAPSHOTS / f"{corpus}.txt"
        self._every = {case.id: case.told for case in every}

    def frozen(self) -> dict[str, str]:
        """Case -> its text, as the file has them."""
        if not self.path.exists():
            return {}
        blocks = self.path.read_text().split("\n## ")
        return {name: text for name, _, text in map(_parted, blocks[1:])}

    def freeze(self, case: Case, text: str) -> None:
        """Put `text` in the place of what the file says of `case`, and drop what the corpus no longer has."""
        SNAPSHOTS.mkdir(exist_ok=True)
        with self.path.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # several workers of pytest may write
            texts = self.frozen() | {case.id: text}
            blocks = [f"\n## {name}\n{told}\n{texts[name]}" for name, told in self._every.items() if name in texts]
            self.path.write_text("How each is refused; written by `make golden`, read in its diff.\n" + "".join(blocks))


def _parted(block: str) -> tuple[str, str, str]:
    name, told, text = block.split("\n", 2)
    return name, told, text
