"""Rails: what holds whatever every policy says, as functions of recent acts, the fleet and the clocks.

Example: 40 machines run. At most 1 act in a guard run, 3 in 10 min (10 % would be 4), 8 in a day (20 %), 1 irreversible
an hour. With 2 machines running each share allows one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fractions import Fraction

from costguard.guard.action_intents import Intent
from costguard.guard.policy import DESTRUCTIVE, Proposal, Rails
from costguard.metering.spending import LiveResource
from costguard.values.money import Money
from costguard.values.resource import RUNNING, ResourceKey, ScopeKey

TEN_MINUTES, HOUR, DAY = timedelta(minutes=10), timedelta(hours=1), timedelta(days=1)
DROP_MIN = 2
"""So many may be gone from a scope at once without a doubt of its listing."""
CHURN_MIN = 3
"""Members of one controller that were replaced within an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """How many acts the rails allow in this run, how many irreversible ones among them, and `why` no more."""

    acts: int
    irreversible: int
    why: str


NO_HEADROOM = Headroom(acts=0, irreversible=0, why="the limits of [rails] were not computed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """Too many machines became idle or unknown at once, and idle acts are held since `opened_at`.

    `keys`: those that turned. `shared`: what they have in common, in words. `recovering_since`: from when on few enough of
    them are idle or unknown, None: still too many.
    """

    opened_at: datetime
    keys: tuple[ResourceKey, ...]
    shared: str
    recovering_since: datetime | None = None


def count_fleet(live: Iterable[LiveResource], sent: Iterable[Intent] = ()) -> int:
    """Of how many machines the rails take shares: those that run in all scopes, and those that were `sent` within a day.

    A fleet does not shrink by what is stopped of it, or the last machines of a hard cap would find no room.
    """
    running = {one.observation.key for one in live if one.observation.state == RUNNING and one.absent_at is None}
    return len(running | {intent.life.key for intent in sent if intent.sends})


def get_limit_10m(fleet: int, rails: Rails) -> int:
    """How many acts the rails allow in ten minutes."""
    return min(rails.acts_per_10m, _take_share(fleet, rails.fleet_share_10m))


def get_limit_day(fleet: int, rails: Rails) -> int:
    """How many acts the rails allow in a day."""
    return _take_share(fleet, rails.fleet_share_day)


def explain_short_headroom(count: int, fleet: int, rails: Rails, overshoot: Money) -> str:
    """Why a cap on `count` machines cannot be kept by acts within the rails, and what to set. 3 machines at 20 % a day: one."""
    day = get_limit_day(fleet, rails)
    if count <= day:
        return ""
    percent = min(100, -(-100 * count // max(fleet, 1)))
    over = f" by up to {overshoot.format()} {overshoot.currency}" if overshoot.nano else ""
    return (
        f"[rails] allows {day} of its {count} stops in a day, so it may be exceeded{over}: to allow them all, write "
        f"[rails] acts = {{ fleet_percent = {percent}, fleet_percent_day = {percent} }}"
    )


def compute_headroom(sent: Iterable[Intent], fleet: int, rails: Rails, now: datetime) -> Headroom:
    """What is left at `now` after the intents that were `sent` in the last day. One that lies in the future counts as well."""
    times = [(i.sent_at, i.irreversible) for i in sent if i.sent_at is not None]
    lately = sum(at > now - TEN_MINUTES for at, _ in times)
    today = sum(at > now - DAY for at, _ in times)
    hardly = sum(irreversible and at > now - HOUR for at, irreversible in times)
    in_10m, in_day = get_limit_10m(fleet, rails), get_limit_day(fleet, rails)
    limits = (
        (rails.acts_per_run, f"at most {rails.acts_per_run} in a run"),
        (in_10m - lately, f"{lately} of {in_10m} in 10 min are done"),
        (in_day - today, f"{today} of {in_day} in a day are done"),
    )
    left, why = min(limits, key=lambda limit: limit[0])
    return Headroom(acts=max(left, 0), irreversible=max(rails.irreversible_per_h - hardly, 0), why=why)


def update_breaker(
    before: Breaker | None,
    turned: Mapping[ResourceKey, datetime],
    live: Sequence[LiveResource],
    rails: Rails,
    now: datetime,
    *,
    reset_at: datetime | None = None,
) -> Breaker | None:
    """The breaker after this run; None: closed. `turned`: since when each machine that is idle or unknown now is that.

    `reset_at`: when somebody last closed it by hand: what turned before that counts no more.
    """
    fleet = count_fleet(live)
    if before is not None and reset_at is not None and before.opened_at <= reset_at:
        before = None
    fresh = {k: at for k, at in turned.items() if reset_at is None or at > reset_at}
    mass = _find_mass_turn(fresh, fleet, rails, now)
    if before is None or (mass and not set(mass) <= set(before.keys)):
        keys = tuple(sorted({*mass, *(before.keys if before else ())}))
        opened = before.opened_at if before else now
        return Breaker(opened_at=opened, keys=keys, shared=describe_common_traits(keys, live)) if mass else before
    if _is_many(sum(key in turned for key in before.keys), fleet, rails):
        return replace(before, recovering_since=None)
    since = before.recovering_since or now
    return None if now - since >= rails.breaker_recovery else replace(before, recovering_since=since)


def describe_common_traits(keys: Sequence[ResourceKey], live: Iterable[LiveResource]) -> str:
    """What all of `keys` have in common, in words, "" for nothing."""
    seen = [one.observation for one in live if one.observation.key in set(keys)]
    words = {
        "provider": {s.key.provider for s in seen},
        "account": {s.key.account for s in seen},
        "region": {s.key.region for s in seen},
        "type": {s.instance_type for s in seen},
        "GPU": {s.gpu for s in seen},
        "owner": {s.owner for s in seen},
    }
    return ", ".join(f"{word} {next(iter(of))}" for word, of in words.items() if len(of) == 1 and next(iter(of)))


def find_quarantined_scopes(live: Iterable[LiveResource]) -> dict[ScopeKey, str]:
    """Scopes of which more than half, and more than two, are gone from the listing and not confirmed yet; with a sentence."""
    count, gone = Counter[ScopeKey](), Counter[ScopeKey]()
    for one in live:
        count[one.scope] += 1
        gone[one.scope] += one.absent_at is not None
    doubted = (scope for scope, n in gone.items() if n > DROP_MIN and 2 * n > count[scope])
    return {scope: f"{gone[scope]} of {count[scope]} in {'/'.join(scope)} disappeared at once" for scope in doubted}


def explain_clock_doubt(wall: timedelta, boot: timedelta, rails: Rails) -> str:
    """Why the clocks cannot be believed, "" where they can: how far each went between the same two moments."""
    apart = abs(wall - boot)
    return f"wall and boot clock disagree by {apart.total_seconds():g} s" if apart > rails.clock_limit else ""


def explain_gap_doubt(last_run_at: datetime | None, interval: timedelta, rails: Rails, now: datetime) -> str:
    """Why this run only observes, "" where it may act: the first one, or the first after a gap, or time went back."""
    if last_run_at is None:
        return "this is the first run"
    gap = now - last_run_at
    if gap < timedelta():
        return f"the last run is dated {-gap} in the future"
    return f"no run for {gap}" if gap > rails.gap_polls * interval else ""


def explain_config_excess(proposals: Iterable[Proposal], fleet: int, rails: Rails, now: datetime) -> str:
    """Why the first run of a config needs a yes, "" where it needs none: it means more acts than ten minutes allow.

    What counts is every act whose condition holds and that nothing would stand against but time and evidence: its grace, the
    rails, that it works at this moment, that its samples are not whole, that it was not seen for long, and this very yes.
    Not what people or a provider hold back, and not a machine of which the condition is false: an idle rule over 50 busy ones
    needs no yes. Of what cannot be judged yet `is_undecided` speaks.

    Example: `age > duration("30d")` over 40 machines that all work means 40 acts, though each waits for its machine to rest.
    """
    meant, most = len(_select_meant_acts(proposals, now, _PASSING_HOLDS)), get_limit_10m(fleet, rails)
    return f"it would act on {meant} of {fleet} machines, and [rails] allows {most} in 10 min" if meant > most else ""


def is_config_undecided(proposals: Sequence[Proposal], fleet: int, rails: Rails, now: datetime) -> bool:
    """Whether the first run of a config is not over: with what cannot be judged yet it might mean more than the rails allow.

    Then it is neither refused nor taken as accepted: the next run asks again.
    """
    return len(_select_meant_acts(proposals, now, _PASSING_HOLDS | {"unknown"})) > get_limit_10m(fleet, rails)


def compute_plan_fingerprint(proposals: Iterable[Proposal], digest: Callable[[bytes], str]) -> str:
    """The hash of what a plan would do to which life, whenever: `digest` (sha256 in hex) of one line an act, sorted."""
    lines = {
        "\x1f".join((p.verdict.policy.name, p.step.do, *p.verdict.life.key, f"{p.verdict.life.started_at}"))
        for p in proposals
        if p.step.do in DESTRUCTIVE
    }
    return digest("\n".join(sorted(lines)).encode())


def find_churning_controllers(
    born: Iterable[tuple[str, datetime]], ended: Iterable[tuple[str, datetime]], now: datetime
) -> dict[str, int]:
    """Controllers that replaced at least three members within an hour: (controller, when) of each that came, and that went."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for which, events in enumerate((born, ended)):
        for controller, at in events:
            counts[controller][which] += bool(controller) and now - HOUR < at <= now
    return {controller: min(two) for controller, two in counts.items() if min(two) >= CHURN_MIN}


_PASSING_HOLDS = frozenset(
    (
        *("grace", "hook", "rate", "working", "not_confident", "first_seen", "stale", "in_doubt", "breaker", "quarantine"),
        *("dry_run", "not_acting", "not_accepted", "gap", "clock", "ledger", "older_ledger"),
    )
)
"""What stands between a condition that holds and its act, and passes by itself."""


def _select_meant_acts(proposals: Iterable[Proposal], now: datetime, passing: frozenset[str]) -> set[tuple[ResourceKey, str]]:
    """The acts that are due within a day, and that only what is `passing` holds back."""
    return {
        (one.verdict.life.key, one.step.do)
        for one in proposals
        if one.step.do in DESTRUCTIVE
        and (one.verdict.since or "unknown" in passing)
        and one.due_at <= now + DAY
        and all(reason in passing for reason, _ in one.held_by)
    }


def _take_share(fleet: int, share: Fraction) -> int:
    return max(1, int(fleet * share))


def _is_many(count: int, fleet: int, rails: Rails) -> bool:
    return count >= rails.breaker_least and count >= rails.breaker_share * fleet


def _find_mass_turn(turned: Mapping[ResourceKey, datetime], fleet: int, rails: Rails, now: datetime) -> tuple[ResourceKey, ...]:
    """The most that turned within one window and are enough to open the breaker; else none. None turned in the future."""
    rows = sorted((at, key) for key, at in turned.items() if at <= now)
    best: tuple[ResourceKey, ...] = ()
    first = 0
    for last, (at, _) in enumerate(rows):
        while at - rows[first][0] > rails.breaker_window:
            first += 1
        if last - first + 1 > len(best):
            best = tuple(key for _, key in rows[first : last + 1])
    return best if _is_many(len(best), fleet, rails) else ()
