"""Holds: money reserved for an admitted run whose spending is not in the ledger yet.

A hold counts in every budget that its run may fall into. An unstated attribute counts as any value: a hold without an owner
counts in the budget of each owner, one for alice only in hers and in budgets for everybody.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from costguard.budgets.budget import Budget, ResourceFilter, matches_filter
from costguard.metering.burn import AttributedBurn
from costguard.metering.meter import COMPUTE
from costguard.metering.spending import Spending
from costguard.values.calendar import Period
from costguard.values.checks import require, require_one_of
from costguard.values.instant import require_instant
from costguard.values.money import Money, MoneyInterval
from costguard.values.resource import INSTANCE, Attribution

RELEASED, COMMITTED, EXPIRED = "released", "committed", "expired"
ENDINGS = (RELEASED, COMMITTED, EXPIRED)
HOLD_DURATION_MAX = timedelta(days=366)
"""Of a hold. Money that nobody asks for in a year is not being spent."""
HOLD_NANO_MAX = 10**18
"""A billion: no run costs it, and the ledger's 64 bits hold nine of them."""
JOB_LABEL = "job"
"""The label that says of which job a run is an attempt (`costguard run`)."""
HOLD_TEXT_MAX = 500
"""Characters of a hold's texts: enough to say why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """`money` reserved at `taken_at` by `who`, for the reason `why`, until `expires_at` at the latest.

    `provider`, `account`, `owner`, `gpu` (canonical): of the run, "" if not known yet; `labels`: the known ones. `ended_at` and
    `ended_by` (released: the run was given up; committed: its spending is in the ledger; expired: its time ran out) are set
    once, together. `spent`: the cost of a committed one, if it was stated; else None. `scope`: the token that gave
    it its id; "": a command did. `hourly`: what its machines cost an hour; zero: a listing has them already; None: not known.
    """

    id: str
    money: Money
    who: str
    why: str
    taken_at: datetime
    expires_at: datetime
    provider: str = ""
    account: str = ""
    owner: str = ""
    gpu: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    ended_at: datetime | None = None
    ended_by: str = ""
    spent: Money | None = None
    scope: str = ""
    hourly: Money | None = None

    @property
    def key(self) -> str:
        """What names the hold in the ledger: `kube/k8s-1` for k8s-1 of the token kube. No id over HTTP has a slash."""
        return f"{self.scope}/{self.id}" if self.scope else self.id

    def __post_init__(self) -> None:
        require(
            self.id.isprintable() and bool(self.id.strip()), "hold.id", "is empty or unprintable", "write letters and digits"
        )
        field = f"hold {self.id}"
        pairs = (text for pair in self.labels for text in pair)
        texts = (self.id, self.who, self.why, self.provider, self.account, self.owner, self.gpu, *pairs)
        require(
            max(map(len, texts)) <= HOLD_TEXT_MAX, field, f"has a text longer than {HOLD_TEXT_MAX} characters", "shorten it"
        )
        fits = 0 < self.money.nano <= HOLD_NANO_MAX
        require(fits, field, f"must be more than zero and at most a billion, not {self.money.format()}", "check the unit")
        require_instant(self.taken_at, f"{field}.taken_at")
        require_instant(self.expires_at, f"{field}.expires_at")
        require(self.taken_at < self.expires_at, field, "expires before it starts", "give it a duration of more than zero")
        require(
            self.expires_at - self.taken_at <= HOLD_DURATION_MAX,
            field,
            f"is for more than {HOLD_DURATION_MAX.days} days",
            "renew it instead",
        )
        require((self.ended_at is None) == (not self.ended_by), field, "has one of ended_at and ended_by", "give both")
        if self.ended_by:
            require_one_of(self.ended_by, ENDINGS, f"{field}.ended_by")
        same = self.spent is None or (self.spent.currency == self.money.currency and self.spent.nano >= 0)
        require(same, f"{field}.spent", f"must be {self.money.currency} of zero or more", "write the amount spent")


def describe_token(name: str) -> str:
    """Return the `who` of a hold that the token `name` took over HTTP."""
    return f"{name} (token)"


def is_open_hold(hold: Hold, now: datetime) -> bool:
    """Return whether it counts at `now`: it was not ended and has not expired."""
    return hold.ended_at is None and now < hold.expires_at


def is_unlisted_run(hold: Hold) -> bool:
    """Return whether it was for a run on a machine that no listing contained, and the cost of that run is known."""
    return hold.spent is not None and hold.ended_at is not None and not hold.account and JOB_LABEL in dict(hold.labels)


def list_unlisted_spending(holds: Iterable[Hold], period: Period) -> list[Spending]:
    """Return the cost of runs that ended in `period` on machines without listings, for which no spans exist.

    The low end is 0: a machine that is listed later, with its times, then has spans of the same run.
    """
    costs = []
    for hold in holds:
        if (
            is_unlisted_run(hold)
            and hold.spent is not None
            and hold.ended_at is not None
            and period.start <= hold.ended_at < period.end
        ):
            at = Attribution(
                provider=hold.provider, account="", region="", kind=INSTANCE, gpu=hold.gpu, owner=hold.owner, labels=hold.labels
            )
            money = MoneyInterval(low=Money(nano=0, currency=hold.spent.currency), expected=hold.spent, high=hold.spent)
            costs.append(Spending(attribution=at, charge=COMPUTE, money=money, us=0))
    return costs


def counts_in_filter(hold: Hold, match: ResourceFilter) -> bool:
    """Return whether the run may match `match`. Its region and tier are never known, and it is an instance."""
    pairs = (
        (match.providers, hold.provider),
        (match.accounts, hold.account),
        (match.owners, hold.owner),
        (match.gpus, hold.gpu),
        (match.kinds, INSTANCE),
    )
    if not all(choices is None or value in choices or (choices and not value) for choices, value in pairs):
        return False
    if match.regions == () or match.tiers == () or match.labels == ():
        return False
    labels = dict(hold.labels)
    return all(labels[key] in values if key in labels else bool(values) for key, values in match.labels or ())


def is_hold_within(hold: Hold, match: ResourceFilter) -> bool:
    """Return whether the run surely matches `match`: what it does not state is in nobody's report but that of everything."""
    return counts_in_filter(hold, match) and not list_open_attributes(hold, match)


def list_open_attributes(hold: Hold, match: ResourceFilter) -> tuple[str, ...]:
    """Return the attributes that `match` selects by and `hold` does not state: if stated, the run may fall outside."""
    pairs = (
        ("provider", match.providers, hold.provider),
        ("account", match.accounts, hold.account),
        ("owner", match.owners, hold.owner),
        ("gpu", match.gpus, hold.gpu),
    )
    labels = dict(hold.labels)
    unlabelled = (f"label {key}" for key, _ in match.labels or () if key not in labels)
    return (*(name for name, choices, value in pairs if choices and not value), *unlabelled)


def sum_open_holds(budget: Budget, holds: Iterable[Hold], now: datetime) -> Money:
    """Return the sum of the open `holds` that count in `budget`, in its currency."""
    counted = (h.money for h in holds if is_open_hold(h, now) and counts_in_filter(h, budget.match))
    currency = budget.cap.currency
    return Money(nano=sum(money.nano for money in counted if money.currency == currency), currency=currency)


def sum_open_rates(budget: Budget, holds: Iterable[Hold], burns: Iterable[AttributedBurn], now: datetime) -> Money:
    """Return what the open `holds` that count in a rate cap add an hour to `burns`, in its currency.

    What began to bill since a hold was taken, and may be its run, is taken for it, so that a run that a listing shows counts
    once. A hold whose rate is not known adds nothing: it was taken before there was a rate cap.
    """
    currency, nano = budget.cap.currency, 0
    fresh = [one for one in burns if one.hourly.low.currency == currency and matches_filter(budget.match, one.attribution)]
    for hold in sorted(holds, key=lambda one: one.taken_at):
        if hold.hourly is None or hold.hourly.currency != currency:
            continue
        if not (is_open_hold(hold, now) and counts_in_filter(hold, budget.match)):
            continue
        left, run = hold.hourly.nano, _make_run_filter(hold)
        for one in tuple(fresh):
            if left > 0 and one.since >= hold.taken_at and matches_filter(run, one.attribution):
                left -= one.hourly.low.nano
                fresh.remove(one)
        nano += max(left, 0)
    return Money(nano=nano, currency=currency)


def _make_run_filter(hold: Hold) -> ResourceFilter:
    """Return what the machines of a hold match: all that it states of them but its labels, which few launchers hand on."""
    return ResourceFilter(
        kinds=(INSTANCE,),
        providers=(hold.provider,) if hold.provider else None,
        accounts=(hold.account,) if hold.account else None,
        owners=(hold.owner,) if hold.owner else None,
        gpus=(hold.gpu,) if hold.gpu else None,
    )
