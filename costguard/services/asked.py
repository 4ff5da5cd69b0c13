"""What several commands need before they can answer: the job as asked for, the market's file, and what observed runs say."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from costguard.data import MARKET, ShippedFacts
from costguard.errors import CostguardError, LedgerError, UnknownNameError
from costguard.ledger.market import MarketReader
from costguard.ledger.market_refresh import select_newest_market
from costguard.services.job_input import JobInput, read_job, read_observed_runs
from costguard.settings import expand_path, get_cache_path, get_data_path, read_settings
from costguard.sizing.job import Job, JobLimits
from costguard.values import checks

if TYPE_CHECKING:  # types and no more: a quote does not pay for importing them
    from costguard.sizing.evidence import CalibrationAnswer
    from costguard.sizing.observed_runs import ObservedRun

CALIBRATION_LOCK_WAIT_S = 20.0
"""Seconds to wait for another run that takes its own observations in."""


def apply_calibration(job: Job, stated: str | None, config: str | None) -> Job:
    """`job` with what observed runs say. A file that is named by a flag must be there; the usual one need not."""
    path = find_calibration_file(stated, config)
    if stated is None and not path.exists():
        return job
    from costguard.files.calibration_file import CalibrationFile

    return replace(job, calibration=CalibrationFile(path).load_calibration())


def find_calibration_file(stated: str | None, config: str | None) -> Path:
    """Where observed runs are kept."""
    chosen = stated or read_settings(config).quote.calibration
    return expand_path(chosen) if chosen else get_data_path("calibration.json")


def find_market_file(stated: str | None, config: str | None) -> Path:
    """Which market file is asked."""
    settings = read_settings(config)  # read even where a flag wins, so that a slip in it is said
    chosen = stated or settings.quote.market
    return expand_path(chosen) if chosen else select_newest_market(MARKET, get_cache_path("market.sqlite"))


def check_limit_names(limits: JobLimits, market: MarketReader) -> None:
    """A provider or region that the market does not know is a slip of the pen, not a limit."""
    for field, kind, stated, known_to in (
        ("limits.providers", "provider", limits.providers, market.providers),
        ("limits.regions", "region", limits.regions, market.regions),
    ):
        known = known_to() if stated else ()
        for name in stated or ():
            if name not in known:
                near = checks.find_nearest_names(name, known)
                listed = f"known: {', '.join(known)}" if kind == "provider" else "costguard offers lists the market"
                raise UnknownNameError(kind, name, field=field, nearest=near, hint=listed)


def read_asked_job(stated: JobInput, facts: ShippedFacts, *, strict: bool) -> Job:
    """The job; with `strict` only one that leaves nothing to be assumed."""
    job = read_job(stated, facts)
    if strict:
        from costguard.sizing.assumptions import check_nothing_assumed

        check_nothing_assumed(job)
    return job


def update_calibration(
    fresh: Sequence[ObservedRun], path: Path, facts: ShippedFacts, *, keeps: bool = True, anew: bool = False
) -> CalibrationAnswer:
    """What `fresh` runs say beside those kept in the calibration file at `path`, and that kept there where `keeps`.

    `anew`: without those that are kept. One at a time: of two runs that end at once both are kept.
    """
    from costguard.files.calibration_file import CalibrationFile
    from costguard.services import calibration as flow
    from costguard.system.atomic_file import hold_file_lock
    from costguard.system.whole import make_folder

    file = CalibrationFile(path)
    try:
        if keeps:
            make_folder(path.absolute().parent)
        with hold_file_lock(path.absolute().parent, patience_s=CALIBRATION_LOCK_WAIT_S) if keeps else nullcontext():
            kept, broken = (
                ((), ())
                if anew
                else flow.reread_kept_runs(file.load_runs(), lambda rows: read_observed_runs(rows, Path(), facts))
            )
            answer = flow.calibrate_runs(fresh, kept=kept, facts=facts, file=str(file.path), warnings=broken)
            if keeps:
                file.save(answer.weighed.calibration, answer.runs)
    except LedgerError:
        hint = "wait for it to end, then try again; nothing was written"
        raise CostguardError("another costguard is writing it", field=str(path), hint=hint) from None
    except OSError as wrong:
        hint = "name another file with --calibration FILE"
        raise CostguardError(f"cannot be written: {wrong.strerror}", field=str(path), hint=hint) from None
    return answer
