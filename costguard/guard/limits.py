"""Limits ("rails") on actions that no policy can override: rate limits, the breaker, quarantine, and doubts of clocks or gaps.

Example: 100 machines run. At most 5 acts in a guard run, 15 in 10 min, 200 in a day, 1 irreversible an hour (decision 0110).
Of 5 machines all may be stopped twice a day and more, since the share of a day allows at least 20.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fractions import Fraction

from costguard.guard.action_intents import Intent
from costguard.guard.policy import CAP_RULE, DESTRUCTIVE, NEVER, TERMINATE, Policy, Proposal, Rails
from costguard.guard.policy_evaluation import compute_burn_rate
from costguard.metering.spending import LiveResource
from costguard.values.money import NANO
from costguard.values.resource import INSTANCE, RUNNING, ResourceKey, ScopeKey

TEN_MINUTES, HOUR, DAY = timedelta(minutes=10), timedelta(hours=1), timedelta(days=1)
DROP_MIN = 2
"""Machines that may vanish from a scope at once before its listing is doubted."""
CHURN_MIN = 3
"""Members of one controller replaced within an hour, from which on it counts as churning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """Acts that this run may still send, irreversible ones among them, and `why`: the nearest limit, in words.

    `in_run`: what the limit of one run leaves, the only limit on an act that a person approved; None: as `acts`.
    """

    acts: int
    irreversible: int
    why: str
    in_run: int | None = None


NO_HEADROOM = Headroom(acts=0, irreversible=0, why="the limits of [rails] were not computed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """The breaker: too many machines turned idle or unknown at once, so idle acts are held since `opened_at`.

    `keys`: the machines that turned; others are not held. `shared`: what they have in common, in words; "" for nothing.
    `recovering_since`: since when few enough of them are idle or unknown; None: still too many. `closed_at`: when it closed; it
    then holds nothing, and machines that turned before no longer count. None: it is open.
    """

    opened_at: datetime
    keys: tuple[ResourceKey, ...]
    shared: str
    recovering_since: datetime | None = None
    closed_at: datetime | None = None

    def holds(self, key: ResourceKey) -> bool:
        """Return whether acts on the idleness of `key` are held."""
        return self.closed_at is None and key in self.keys

    def describe(self, rails: Rails) -> str:
        """Explain in one sentence why it holds, and until when."""
        asks, ends = self.opened_at + rails.breaker_asks, self.opened_at + rails.breaker_lasts
        return (
            f"{len(self.keys)} machines became idle or unknown at once ({self.shared or 'nothing in common'}): each is asked "
            f"about from {asks:%H:%M} UTC on, and the breaker closes at {ends:%Y-%m-%d %H:%M} UTC (costguard breaker show)"
        )


def count_fleet(live: Iterable[LiveResource], sent: Iterable[Intent] = ()) -> int:
    """Count the machines that percentages are taken of: all that run, plus those with an intent in `sent` (the last day).

    Disks and addresses, which are listed as running as well, are none (`send_gate.count_machines` counts the same).
    Stopped machines stay counted for a day; otherwise each stop would lower the limit for the rest of a hard cap.
    """
    machines = (one for one in live if one.observation.kind == INSTANCE and one.absent_at is None)
    running = {one.observation.key for one in machines if one.observation.state == RUNNING}
    return len(running | {intent.life.key for intent in sent if intent.sends})


def get_limit_10m(fleet: int, rails: Rails) -> int:
    """Return the acts allowed in 10 min: the smaller of the number and the share of the fleet, at least 1."""
    return min(rails.acts_per_10m, _take_share(fleet, rails.fleet_share_10m))


def get_limit_day(fleet: int, rails: Rails) -> int:
    """Return the acts allowed in 24 h: the share of the fleet, at least `acts_least_day`."""
    return max(rails.acts_least_day, _take_share(fleet, rails.fleet_share_day))


OTHER_ACTS, NEW_CAPS, ACCEPTED_CAPS = "other acts", "new caps", "accepted caps"
"""What the limits count apart: hard caps that a person accepted, those that nobody accepted yet, and everything else."""


def find_pool(policy: Policy, accepted: Collection[str]) -> str:
    """Return by which limits the acts of `policy` are counted. `accepted`: the policies of accepted hard caps."""
    if policy.rule != CAP_RULE:
        return OTHER_ACTS
    return ACCEPTED_CAPS if policy.name in accepted else NEW_CAPS


def select_counted(pool: str, sent: Iterable[Intent], rails: Rails) -> tuple[Rails, tuple[Intent, ...]]:
    """Return the limits of `pool`, and those of the intents `sent` that they count.

    Accepted caps have limits of their own. New ones count what all other acts used up, which do not count what caps did.
    """
    if pool == ACCEPTED_CAPS:
        return rails.limit_caps(), tuple(one for one in sent if one.rule == CAP_RULE)
    if pool == NEW_CAPS:
        rails = rails.limit_unaccepted()
    return rails, tuple(one for one in sent if pool == NEW_CAPS or one.rule != CAP_RULE)


def is_losing_data(intent: Intent) -> bool:
    """Return whether the limit of acts that lose data counts it."""
    return intent.irreversible or intent.act == TERMINATE


def compute_headroom(sent: Iterable[Intent], fleet: int, rails: Rails, now: datetime) -> Headroom:
    """Return the acts left at `now`.

    `sent`: intents of the last 24 h that `rails` count; one dated in the future (clock set back) counts too.
    """
    times = [(one.sent_at, is_losing_data(one)) for one in sent if one.sent_at is not None]
    in_last_10m = sum(at > now - TEN_MINUTES for at, _ in times)
    in_last_day = sum(at > now - DAY for at, _ in times)
    irreversible_in_1h = sum(irreversible and at > now - HOUR for at, irreversible in times)
    in_10m, in_day = get_limit_10m(fleet, rails), get_limit_day(fleet, rails)
    limits = (
        (rails.acts_per_run, f"at most {rails.acts_per_run} in a run"),
        (in_10m - in_last_10m, f"{in_last_10m} of {in_10m} in 10 min are done"),
        (in_day - in_last_day, f"{in_last_day} of {in_day} in a day are done"),
    )
    left, why = min(limits, key=lambda limit: limit[0])
    return Headroom(
        acts=max(left, 0),
        irreversible=max(rails.irreversible_per_h - irreversible_in_1h, 0),
        why=why,
        in_run=rails.acts_per_run,
    )


def compute_rooms(sent: Iterable[Intent], fleet: int, rails: Rails, now: datetime) -> dict[str, Headroom]:
    """Return the acts left at `now` by pool. `sent`: all intents of the last 24 h."""
    counted = {pool: select_counted(pool, sent, rails) for pool in (OTHER_ACTS, NEW_CAPS, ACCEPTED_CAPS)}
    return {pool: compute_headroom(acts, fleet, limits, now) for pool, (limits, acts) in counted.items()}


class SendSchedule:
    """When the limits let each of a row of acts run.

    Example: 20 acts are allowed in a day and 20 were sent since 09:30; one that is due at 19:05 runs at 09:30 tomorrow.
    """

    def __init__(
        self, sent: Iterable[Intent], fleet: int, rails: Rails, *, now: datetime, interval: timedelta, days: bool = True
    ) -> None:
        """`sent`: intents of the last 24 h that `rails` count. `interval`: between two runs. `days`: a day's limit counts."""
        acts = [(one.sent_at, is_losing_data(one)) for one in sent if one.sent_at is not None]
        self._now = now
        self._taken, self._lost = sorted(at for at, _ in acts), sorted(at for at, lost in acts if lost)
        per_10m, per_day, per_h = get_limit_10m(fleet, rails), get_limit_day(fleet, rails), rails.irreversible_per_h
        self._limits = [
            (self._taken, rails.acts_per_run, interval, f"{rails.acts_per_run} act(s) a run"),
            (self._taken, per_10m, TEN_MINUTES, f"{per_10m} in 10 min"),
        ]
        if days:
            self._limits.append((self._taken, per_day, DAY, f"{per_day} in a day"))
        self._loss_limit = (self._lost, per_h, HOUR, f"{per_h} in an hour that loses data")

    def add(self, due_at: datetime, *, irreversible: bool = False) -> tuple[datetime, str]:
        """Add the next act; return when it runs, and the limit that it waits for ("" for none). NEVER: that limit is 0."""
        at, why = max(due_at, self._now), ""
        limits = [*self._limits, self._loss_limit] if irreversible else self._limits
        while full := next((one for one in limits if _count_within(one[0], at, one[2]) >= one[1]), None):
            times, most, length, why = full
            if not most:
                return NEVER, why
            at = times[bisect_right(times, at) - most] + length
        insort(self._taken, at)
        if irreversible:
            insort(self._lost, at)
        return at, why if at > max(due_at, self._now) else ""


def _count_within(times: Sequence[datetime], at: datetime, length: timedelta) -> int:
    return bisect_right(times, at) - bisect_right(times, at - length)


def update_breaker(
    breaker: Breaker | None,
    turned: Mapping[ResourceKey, datetime],
    live: Sequence[LiveResource],
    rails: Rails,
    now: datetime,
    *,
    reset_at: datetime | None = None,
) -> Breaker | None:
    """Return the breaker after this run; None: it never opened.

    `breaker`: the breaker of the last run. `turned`: when each machine that is idle or unknown now became so; for a group that
    ended as a whole, a single member. `reset_at`: when a person last closed the breaker. Machines that turned before it closed,
    by a person, by recovery or by its time limit, are not counted again. A machine that was stopped is no sign of recovery.
    """
    fleet = count_fleet(live)
    if breaker is not None and breaker.closed_at is not None:
        reset_at, breaker = max(breaker.closed_at, reset_at or breaker.closed_at), None
    if breaker is not None and reset_at is not None and breaker.opened_at <= reset_at:
        breaker = None
    if breaker is not None and now - breaker.opened_at >= rails.breaker_lasts:
        return replace(breaker, closed_at=now)
    fresh = {k: at for k, at in turned.items() if reset_at is None or at > reset_at}
    mass = _find_mass_turn(fresh, fleet, rails, now)
    closed = Breaker(opened_at=reset_at, keys=(), shared="", closed_at=reset_at) if reset_at is not None else None
    if breaker is None and not mass:
        return closed
    if breaker is None or (mass and not set(mass) <= set(breaker.keys)):
        keys = tuple(sorted({*mass, *(breaker.keys if breaker else ())}))
        opened = breaker.opened_at if breaker else now
        return Breaker(opened_at=opened, keys=keys, shared=describe_common_traits(keys, live)) if mass else breaker
    running = {one.observation.key for one in live if one.observation.state == RUNNING}
    if not running.isdisjoint(breaker.keys) and _is_many(
        sum(k in turned or k not in running for k in breaker.keys), fleet, rails
    ):
        return replace(breaker, recovering_since=None)
    since = breaker.recovering_since or now
    if now - since >= rails.breaker_recovery:
        return replace(breaker, closed_at=now)
    return replace(breaker, recovering_since=since)


ENDS_USD_PER_HOUR_MAX = 50
"""Dollars an hour of machines that may end together without the breaker: the most that a wrong measurement puts at risk."""


def select_cheap_ends(ended: Iterable[LiveResource], now: datetime) -> frozenset[ResourceKey]:
    """Return the machines whose process `ended` if they cost little together, else none; an unknown price is not little."""
    rates = {one.observation.key: compute_burn_rate(one, now) for one in ended}
    nano = sum(rate.nano_per_hour for rate in rates.values() if rate is not None)
    return frozenset(rates) if None not in rates.values() and nano <= ENDS_USD_PER_HOUR_MAX * NANO else frozenset()


def drop_explained_turns(
    turned: Mapping[ResourceKey, datetime],
    ended: Collection[ResourceKey],
    activated: Collection[datetime],
    window: timedelta,
) -> dict[ResourceKey, datetime]:
    """Return `turned` without the machines in `ended`, whose process certainly ended: that many end together is no error.

    `activated`: when other machines became active. If half as many did so within a `window` of the ends, the signals of the
    machines may have been exchanged, so those ends count. Example: six jobs of an array end at 01:00, and each frees its GPU
    memory: none counts. Signals of 30 busy and 30 idle machines are swapped: 30 end, 30 begin, and all 30 count.
    """
    times = sorted(turned[key] for key in ended if key in turned)
    starts = sorted(activated)

    def is_mirrored(at: datetime) -> bool:
        return 2 * _count_between(starts, at - window, at + window) >= _count_between(times, at - window, at + window)

    return {key: at for key, at in turned.items() if key not in ended or is_mirrored(at)}


def _count_between(times: Sequence[datetime], start: datetime, end: datetime) -> int:
    return bisect_right(times, end) - bisect_left(times, start)


def describe_common_traits(keys: Sequence[ResourceKey], live: Iterable[LiveResource]) -> str:
    """Describe what all of `keys` share ("provider aws, region us-east-1"); "" for nothing."""
    observations = [one.observation for one in live if one.observation.key in set(keys)]
    words = {
        "provider": {s.key.provider for s in observations},
        "account": {s.key.account for s in observations},
        "region": {s.key.region for s in observations},
        "type": {s.instance_type for s in observations},
        "GPU": {s.gpu for s in observations},
        "owner": {s.owner for s in observations},
    }
    return ", ".join(f"{word} {next(iter(of))}" for word, of in words.items() if len(of) == 1 and next(iter(of)))


def find_quarantined_scopes(live: Iterable[LiveResource]) -> dict[ScopeKey, str]:
    """Return the scopes whose listing is doubted, with the reason: more than half and more than 2 are gone at once."""
    count, absent = Counter[ScopeKey](), Counter[ScopeKey]()
    for one in live:
        count[one.scope] += 1
        absent[one.scope] += one.absent_at is not None
    doubted = (scope for scope, n in absent.items() if n > DROP_MIN and 2 * n > count[scope])
    return {scope: f"{absent[scope]} of {count[scope]} resources in {'/'.join(scope)} disappeared at once" for scope in doubted}


def explain_clock_doubt(wall: timedelta, boot: timedelta, rails: Rails) -> str:
    """Explain why the clocks disagree, "" if they agree. `wall`, `boot`: time that passed on each between the same two runs."""
    apart = abs(wall - boot)
    return f"wall and boot clock disagree by {apart.total_seconds():g} s" if apart > rails.clock_limit else ""


def explain_gap_doubt(last_run_at: datetime | None, interval: timedelta, rails: Rails, now: datetime) -> str:
    """Explain why this run only observes: it is the first, or the first after a gap, or time went back. "" if it may act."""
    if last_run_at is None:
        return "this is the first run"
    gap = now - last_run_at
    if gap < timedelta():
        return f"the last run is dated {-gap} in the future"
    return f"no run for {gap}" if gap > rails.gap_polls * interval else ""


def explain_config_excess(proposals: Iterable[Proposal], fleet: int, rails: Rails, now: datetime) -> str:
    """Explain why the first run of a config needs approval: it plans more acts than 10 min allow. "" if it needs none.

    Counted are the acts due within a day whose condition holds and whose holds all pass by themselves (`_PASSING_HOLDS`:
    grace, rate limits, a busy machine). Not counted are acts that a person or the provider holds back, and machines whose
    condition is false: an idle rule over 50 busy machines needs no approval. For unknown conditions see `is_config_undecided`.

    Example: `age > duration("30d")` over 40 busy machines plans 40 acts, though each waits until its machine is idle.
    """
    machine_acts = _select_meant_acts(proposals, now, _PASSING_HOLDS)
    most = get_limit_10m(fleet, rails.limit_unaccepted())
    machines = len({key for key, _ in machine_acts})
    of = f"of {fleet} machines" if machines <= fleet else f"machines ({fleet} run)"  # stopped ones may be terminated
    acts = f" in {len(machine_acts)} acts" if len(machine_acts) > machines else ""
    says = f"it would act on {machines} {of}{acts}, and [rails] allows new settings {most} in 10 min"
    return says if len(machine_acts) > most else ""


def is_config_undecided(proposals: Sequence[Proposal], fleet: int, rails: Rails, now: datetime) -> bool:
    """Return whether the acts of a new config could exceed the limit once unknown conditions are known.

    Such a config is neither refused nor accepted: the next run checks again.
    """
    most = get_limit_10m(fleet, rails.limit_unaccepted())
    return len(_select_meant_acts(proposals, now, _PASSING_HOLDS | {"unknown"})) > most


def compute_plan_fingerprint(proposals: Iterable[Proposal], digest: Callable[[bytes], str], caps: Iterable[str] = ()) -> str:
    """Hash the destructive acts of policies, independent of order and time, and the hard `caps` (`describe_cap`).

    Which machines a cap stops is not part of it: who accepts a cap accepts it for the fleet's later growth. `digest`: sha256 in
    hex.
    """
    lines = {*caps} | {
        "\x1f".join((p.verdict.policy.name, p.step.do, *p.verdict.life.key, f"{p.verdict.life.started_at}"))
        for p in proposals
        if p.step.do in DESTRUCTIVE and p.verdict.policy.rule != CAP_RULE
    }
    return digest("\n".join(sorted(lines)).encode())


def find_churning_controllers(
    born: Iterable[tuple[str, datetime]], ended: Iterable[tuple[str, datetime]], now: datetime
) -> dict[str, int]:
    """Count replacements in the last hour for controllers with at least 3. `born`, `ended`: (controller, time) of members."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for which, events in enumerate((born, ended)):
        for controller, at in events:
            counts[controller][which] += bool(controller) and now - HOUR < at <= now
    return {controller: min(two) for controller, two in counts.items() if min(two) >= CHURN_MIN}


_PASSING_HOLDS = frozenset(
    (
        *(
            "grace",
            "untold",
            "hook",
            "rate",
            "working",
            "not_confident",
            "first_seen",
            "stale",
            "in_doubt",
            "breaker",
            "quarantine",
        ),
        *("not_acting", "not_accepted", "gap", "clock", "ledger", "older_ledger"),
    )
)
"""Reasons that hold an act back and end without a person."""


def _select_meant_acts(proposals: Iterable[Proposal], now: datetime, passing: frozenset[str]) -> set[tuple[ResourceKey, str]]:
    """Select the destructive acts of policies due within a day that only reasons in `passing` hold back.

    Those of hard caps do not count: a cap that nobody accepted acts within the limits of all other acts.
    """
    return {
        (one.verdict.life.key, one.step.do)
        for one in proposals
        if one.step.do in DESTRUCTIVE
        and one.verdict.policy.rule != CAP_RULE
        and (one.verdict.since or "unknown" in passing)
        and one.due_at <= now + DAY
        and all(reason in passing for reason, _ in one.held_by)
    }


def _take_share(fleet: int, share: Fraction) -> int:
    return max(1, int(fleet * share))


def _is_many(count: int, fleet: int, rails: Rails) -> bool:
    return count >= rails.breaker_least and count >= rails.breaker_share * fleet


def _find_mass_turn(turned: Mapping[ResourceKey, datetime], fleet: int, rails: Rails, now: datetime) -> tuple[ResourceKey, ...]:
    """Return the largest set that turned within one window, if enough to open the breaker; future times are ignored."""
    rows = sorted((at, key) for key, at in turned.items() if at <= now)
    best: tuple[ResourceKey, ...] = ()
    first = 0
    for last, (at, _) in enumerate(rows):
        while at - rows[first][0] > rails.breaker_window:
            first += 1
        if last - first + 1 > len(best):
            best = tuple(key for _, key in rows[first : last + 1])
    return best if _is_many(len(best), fleet, rails) else ()
