"""`costguard review --ci`: the change and the limits that CI states, the comment, and the summary of the job."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from costguard.renderers import github
from costguard.services import CommandAnswer
from costguard.services.configured_providers import open_transport
from costguard.services.review import answer_review
from costguard.services.review.comment import MARKER, ReviewedChange, read_reviewed_change, write_comment
from costguard.services.review.git import find_change_base
from costguard.settings import read_settings


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
    missing; a comment that cannot be written is a warning and no failure.
    """
    change, root = read_reviewed_change(forge, environ), Path.cwd().resolve()
    base = find_change_base(root, change.base, change.head)
    answer = answer_review(
        patterns=patterns, base=base, max_usd=max_usd, max_increase=max_increase, market=market, config=config, root=root
    )
    text = github.render(answer.document)
    _write_summary(text, environ)
    return replace(answer, warnings=(*answer.warnings, *_post_comment(change, answer, text, config))) if comments else answer


def _post_comment(change: ReviewedChange, answer: CommandAnswer, text: str, config: str | None) -> tuple[str, ...]:
    """Write the comment; return what hindered it."""
    transport = open_transport(read_settings(config))
    try:
        done = write_comment(change, text, transport, makes=bool(answer.document.records))
    finally:
        transport.close()
    return (done,) if done.startswith("no comment") else ()


def _write_summary(text: str, environ: Mapping[str, str]) -> None:
    """Append the comment to the summary of a GitHub job, where there is one."""
    place = environ.get("GITHUB_STEP_SUMMARY")
    if place:
        with Path(place).open("a", encoding="utf-8") as file:
            file.write(text.replace(MARKER, ""))
