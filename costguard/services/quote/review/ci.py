"""`costguard review --ci`: the change and the limits that CI states, the comment, and the summary of the job.

A token is in the environment here, and the checkout is what a stranger wrote: no settings file of the checkout is used, neither
for the connection that writes the comment (`[network]`) nor for a quote (`[quote]`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from costguard.errors import InputError
from costguard.renderers import github
from costguard.services import CommandAnswer
from costguard.services.poll.configured_providers import open_transport
from costguard.services.quote.review import answer_review
from costguard.services.quote.review.comment import MARKER, ReviewedChange, read_reviewed_change, write_comment
from costguard.services.quote.review.git import find_change_base, find_checkout
from costguard.settings import CONFIG_VARIABLE, FILE_NAME, Settings, expand_path, read_settings


def answer_ci_review(
    *,
    forge: str,
    patterns: Sequence[str],
    max_usd: str | None = None,
    max_increase: str | None = None,
    comments: bool = True,
    market: str | None = None,
    config: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> CommandAnswer:
    """Answer `costguard review --ci FORGE`: as `answer_review` for the pull or merge request of this job, with its comment.

    No comment is made where no job file changed; one that is there says so. Raises InputError for variables that are
    missing, and for a settings file in the checkout; a comment that cannot be written is a warning and no failure.
    """
    change, root = read_reviewed_change(forge, environ), Path.cwd().resolve()
    checkout = find_checkout(root)
    with choose_settings_file(config, checkout, environ) as own:
        settings = read_settings(own)
        base = find_change_base(root, change.base, change.head)
        answer = answer_review(
            patterns=patterns, base=base, max_usd=max_usd, max_increase=max_increase, market=market, config=own, root=root
        )
    text = github.render(answer.document)
    _write_summary(text, environ)
    warnings = [_format_unused(place) for place in dict.fromkeys((checkout, root)) if (place / FILE_NAME).exists()]
    hindered = _post_comment(change, answer, text, settings) if comments else ()
    notes = (*warnings[:1], *hindered)  # as notes too: formats for people hold their warnings themselves
    document = replace(answer.document, notes=(*answer.document.notes, *notes))
    return replace(answer, document=document, warnings=(*answer.warnings, *notes))


@contextmanager
def choose_settings_file(config: str | None, checkout: Path, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the settings file that `--config` or the environment names outside of `checkout`; else an empty one.

    Raises InputError for one in the checkout, or reached by a link there: the change under review decides what it says.
    """
    chosen, field = (config, "--config") if config else (environ.get(CONFIG_VARIABLE), CONFIG_VARIABLE)
    if chosen:
        path = expand_path(chosen).absolute()
        for place in (Path(os.path.normpath(path)), path.parent.resolve() / path.name, path.resolve()):
            if place.is_relative_to(checkout):
                hint = "name a file outside of the checkout, or set COSTGUARD_SECTION__FIELD variables (docs/CI.md)"
                raise InputError("is in the checkout, so the reviewed change can edit it", field=field, hint=hint)
        yield str(path)
        return
    with TemporaryDirectory(prefix="costguard-") as folder:
        empty = Path(folder) / FILE_NAME
        empty.touch()
        yield str(empty)


def _format_unused(place: Path) -> str:
    return f"{FILE_NAME} in {place} is not used: the reviewed change may have edited it (docs/CI.md)"


def _post_comment(change: ReviewedChange, answer: CommandAnswer, text: str, settings: Settings) -> tuple[str, ...]:
    """Write the comment; return what hindered it."""
    transport = open_transport(settings)
    try:
        outcome = write_comment(change, text, transport, makes=bool(answer.document.records))
    finally:
        transport.close()
    return (outcome,) if outcome.startswith("no comment") else ()


def _write_summary(text: str, environ: Mapping[str, str]) -> None:
    """Append the comment to the summary of a GitHub job, where there is one."""
    place = environ.get("GITHUB_STEP_SUMMARY")
    if place:
        with Path(place).open("a", encoding="utf-8") as file:
            file.write(text.replace(MARKER, ""))
