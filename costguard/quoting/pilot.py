"""A pilot: a small share of a job that is run first, so that its speed and memory are measured before the whole is paid for.

Example: `--pilot 1` of a job of 500M tokens is one of 5M. Where it is cheapest it shows that the job runs at all; on the offer
of the full run it measures the speed that this will have, which `costguard calibrate` takes into the next quote.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from costguard.errors import InputError
from costguard.quoting.quote import Quote, QuoteOption, Rental, choose_option
from costguard.sizing.job import Job
from costguard.sizing.job_flags import parse_number
from costguard.values import checks
from costguard.values.money import Money

FIELD = "--pilot"
LARGEST_PERCENT = 50
"""More than half of a job is no pilot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pilot:
    """The options of a pilot of `percent` of a job, and of the full run.

    `cheapest`: of the pilot on any hardware. `alike`: of the pilot on the offer of the full run; None: it is `cheapest`.
    """

    percent: float
    cheapest: QuoteOption
    alike: QuoteOption | None
    full: QuoteOption

    @property
    def total(self) -> Money | None:
        """Return the expected cost of the cheapest pilot and of the full run after it; None if a cost is unknown."""
        usd, rest = self.cheapest.usd, self.full.usd
        return None if usd is None or rest is None else Money(nano=usd.expected.nano + rest.expected.nano)


def parse_percent(text: str) -> float:
    """Return the percent that `1 %`, `1%` or `1` states. Raises InputError if it is none, or above LARGEST_PERCENT."""
    percent = parse_number(text.strip().removesuffix("%"), "pilot")
    if percent <= 0:
        raise InputError(f"must be above 0 %, not {percent:g}", field=FIELD, hint="write --pilot 1%")
    return checks.require_number(percent, FIELD, most=LARGEST_PERCENT)


def cut_job(request: Job | Rental, percent: float) -> Job:
    """Return `percent` of the job. Raises InputError for what has no amount, and if less than one sequence would be left."""
    if not isinstance(request, Job) or request.serving is not None or request.tokens is None:
        raise InputError("is a part of a job with an amount", field=FIELD, hint="state --tokens or --images, or leave it out")
    tokens = int(request.tokens * percent / 100)
    least = int(request.architecture.sample_tokens or request.recipe.seq_len or 1)
    if tokens < least:
        what = f"{percent:g} % of the job is {tokens:,} tokens, less than one sequence of {least:,}"
        enough = math.ceil(100 * least / request.tokens)
        raise InputError(what, field=FIELD, hint=f"write --pilot {enough}%" if enough <= LARGEST_PERCENT else "leave it out")
    return replace(request, tokens=tokens)


def compare_pilot(percent: float, small: Quote, full: Quote) -> Pilot | None:
    """Return the pilot quoted as `small` beside the full job; None if one of them has no option with a cost."""
    cheapest, chosen = choose_option(small.options), choose_option(full.options)
    if cheapest is None or chosen is None:
        return None
    if cheapest.offer == chosen.offer:
        return Pilot(percent=percent, cheapest=cheapest, alike=None, full=chosen)
    alike = next((one for one in small.options if one.offer == chosen.offer and one.nodes == chosen.nodes), None)
    return Pilot(percent=percent, cheapest=cheapest, alike=alike, full=chosen)
