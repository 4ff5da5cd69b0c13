"""The cost of a change: each job file that it touches is quoted as it was and as it is.

    base -> worktree of base ; git diff -> files that match ; `answer_quote` for both sides -> changes -> limits -> document

The files are read and never run. A value of the change (a file's name, a model) reaches no shell: git gets lists of arguments.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from time import monotonic

from costguard.errors import CostguardError, InputError, NoAnswerError, shorten, to_one_line
from costguard.quoting.job_change import ChangeLimits, JobChange, JobCost, list_breaches
from costguard.quoting.quote import CHEAPEST
from costguard.services import CommandAnswer
from costguard.services.quote.file_limit import restrict_files
from costguard.services.quote.quote_commands import answer_quote
from costguard.services.quote.review.git import ChangedFiles, find_checkout, open_base_folder
from costguard.system.child.limited import ChildLimits, run_limited
from costguard.values.money import Money
from costguard.views.review import build_review_document

FILES_MAX, RUN_S = 100, 120.0
"""Job files of one change that are quoted, each takes about 0.2 s; and seconds after which no further one is begun."""
FILE_LIMITS = ChildLimits(cpu_s=4, wall_s=20.0, memory_bytes=400 * 2**20)
"""Of both sides of a file together; a usual one takes 0.2 s of either."""
NOTE_CHARS_MAX = 300


def answer_review(
    *,
    patterns: Sequence[str],
    base: str,
    max_usd: str | None = None,
    max_increase: str | None = None,
    market: str | None = None,
    config: str | None = None,
    root: Path | None = None,
) -> CommandAnswer:
    """Answer `costguard review`: quote what changed since the revision `base`, in the repository around `root` (default: here).

    `patterns`: which files are job files; `*` also matches `/`. `max_usd`, `max_increase`: dollars for all changed jobs.
    Raises InputError for a revision that git does not know; the answer's refusal says which limit is passed.
    """
    if not patterns:
        raise InputError("is required: it names the job files", field="--path", hint="write --path 'jobs/*.toml'")
    limits = ChangeLimits(usd_max=_parse_usd(max_usd, "--max-usd"), increase_usd_max=_parse_usd(max_increase, "--max-increase"))
    checkout = find_checkout((root or Path.cwd()).resolve())  # whose folder git's names begin at
    with open_base_folder(checkout, base) as both:
        files = [name for name in both.files if any(fnmatchcase(name, pattern) for pattern in patterns)]
        changes = tuple(_quote_files(files, both, market, config))
    breaches = list_breaches(changes, limits)
    refusal = NoAnswerError("; ".join(breaches), hint="change the jobs, or raise the limit") if breaches else None
    return CommandAnswer(document=build_review_document(changes, limits, breaches), refusal=refusal)


def _parse_usd(text: str | None, field: str) -> Decimal | None:
    return None if text is None else Decimal(Money.parse(text, field=field).format())


def _quote_files(files: Sequence[str], both: ChangedFiles, market: str | None, config: str | None) -> Iterator[JobChange]:
    """Yield each file's change, and at the end one for all that are not quoted: too many, or too late."""
    ends = monotonic() + RUN_S
    for place, name in enumerate(files):
        if place >= FILES_MAX or monotonic() > ends:
            problem = f"not read: at most {FILES_MAX} files of a change are quoted, within {RUN_S:.0f} s; narrow --path"
            yield JobChange(file=f"{len(files) - place} more files", before=None, after=JobCost(problem=problem))
            return
        change = run_limited(partial(_quote_both_sides, name, both, market, config), FILE_LIMITS)
        problem = f"not read: it takes more than {FILE_LIMITS.cpu_s} s or {FILE_LIMITS.memory_bytes // 2**20} MiB"
        change = change or JobChange(file=_format_name(name), before=None, after=JobCost(problem=problem))
        if change.before or change.after:
            yield change


def _quote_both_sides(name: str, both: ChangedFiles, market: str | None, config: str | None) -> JobChange:
    sides = [quote_job_file(folder, name, market=market, config=config) for folder in (both.before, both.after)]
    return JobChange(file=_format_name(name), before=sides[0], after=sides[1])


def _format_name(name: str) -> str:
    """Return a file's name as it can be printed: git's may hold bytes that are no text."""
    return os.fsencode(name).decode(errors="replace")


def quote_job_file(folder: Path, name: str, *, market: str | None = None, config: str | None = None) -> JobCost | None:
    """Return the cheapest quote of the job file `name` below `folder`, or why there is none; None: there is no such file.

    A folder of that name is none: git names the files in it, and nothing of a submodule.
    """
    path = folder / name
    try:
        if not path.is_symlink() and (path.is_dir() or not path.exists()):
            return None
        if path.is_symlink() or not path.is_file() or not path.resolve().is_relative_to(folder.resolve()):
            return JobCost(problem="it is not a regular file of the repository: links are not followed")
        with restrict_files(folder):
            answer = answer_quote(flags={}, job_file=str(path), every=True, market=market, config=config)
        return JobCost(problem=answer.refusal.what) if answer.refusal is not None else _read_cheapest(answer)
    except CostguardError as error:
        return JobCost(problem=next(iter(str(error).replace(f"{folder}/", "").splitlines()), type(error).__name__))
    except MemoryError:  # `run_limited` says so
        raise
    except Exception as broken:  # noqa: BLE001 - one file does not end the review of the others, whatever is in it
        return JobCost(problem=f"cannot be read: {_explain_exception(broken)}")


def _explain_exception(broken: Exception) -> str:
    """Return why, without the exception's own text: it may hold a path of the runner, or what a file says."""
    why = broken.strerror if isinstance(broken, OSError) else None
    return shorten(to_one_line(why or type(broken).__name__))


def _read_cheapest(answer: CommandAnswer) -> JobCost:
    """Return the cheapest option with a fresh price, else the first, from the JSON that the command answers."""
    options = [one for one in _list_tables(answer.document.data["options"]) if one["usd"] is not None]
    if not options:
        return JobCost(problem="it has no tokens, so its hours and cost are unknown")
    best = next((one for one in options if CHEAPEST in _list_texts(one["marks"])), options[0])
    (usd,), hours = _list_tables([best["usd"]]), best["hours"]
    low, expected, high = (Decimal(str(usd[end])) for end in ("low", "expected", "high"))
    serves = best.get("serving") is not None
    return JobCost(
        low=low,
        expected=expected,
        high=high,
        hours=float(hours["expected"]) if isinstance(hours, Mapping) and not serves else None,
        monthly=serves,
        place=_format_place(best),
        notes=tuple(shorten(one, NOTE_CHARS_MAX) for one in answer.warnings),
    )


def _format_place(option: Mapping[str, object]) -> str:
    nodes = f" on {option['nodes']} machines" if option["nodes"] != 1 else ""
    return f"{option['gpu']} x{option['gpu_count']}{nodes}, {option['provider']} {option['tier']}"


def _list_tables(value: object) -> list[Mapping[str, object]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _list_texts(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list | tuple) else []
