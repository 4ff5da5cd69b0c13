"""Which files a job may name: any on the command line, those of one folder in a review, none in a request.

A stranger's job must not open files: the error that a file causes shows text of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from costguard.errors import InputError

NO_FOLDER = Path("/nonexistent")
INSIDE: ContextVar[Path | None] = ContextVar("costguard_inside", default=None)
"""The folder outside of which no file that a job names is opened; None: any file may be; NO_FOLDER: none may be."""


@contextmanager
def restrict_files(folder: Path) -> Iterator[None]:
    """Within the block, refuse a `path` or `model` of a job that leads outside of `folder`, also by a symbolic link.

    For jobs that a stranger wrote, as in a review of a pull request: a file's text is shown in the error that it causes.
    """
    token = INSIDE.set(folder)
    try:
        yield
    finally:
        INSIDE.reset(token)


@contextmanager
def refuse_files() -> Iterator[None]:
    """Within the block, refuse a job that names any file, whether or not it exists: for jobs that come in requests."""
    with restrict_files(NO_FOLDER):
        yield


def require_files_inside(paths: Iterable[Path]) -> None:
    """Raise InputError if one of the job's files is outside of the folder to which they are restricted."""
    folder = INSIDE.get()
    if folder is not None and not all(path.resolve().is_relative_to(folder.resolve()) for path in paths):
        raise InputError("is outside of the allowed folder", field="FILE", hint=f"name a file in {folder.name}")
