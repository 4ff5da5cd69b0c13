"""Overrides by people: leases, snoozes, protection, arming, freezes, phases and approvals.

Each has who, why and when. They are stored apart from listings, so no state of a machine changes them. The module also finds
the owner of a resource.

Example: the label `costguard=never` protects; `costguard=nevr` protects too, with a warning. A resource whose label disappeared
23 h ago is still protected. A lease until 14:00 holds at 13:59 and not at 14:00.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from costguard.guard.policy import LEVELS, NOTIFY, OBSERVE, TIMED_RULE, Policy
from costguard.metering.observation import Observation
from costguard.values.money import Money, Rate
from costguard.values.resource import Incarnation, ResourceKey, is_same_life

LEASE, SNOOZE, PROTECT, ARM, FREEZE, APPROVE, ACCEPT, PHASE, DENIED, CLOSE_BREAKER, STOP_AT, UNTIL, ACCOUNT = (
    "lease",
    "snooze",
    "protect",
    "arm",
    "freeze",
    "approve",
    "accept",
    "phase",
    "denied",
    "close_breaker",
    "stop_at",
    "until",
    "account",
)
OVERRIDE_VERBS = {
    LEASE: "kept",  # running until then
    SNOOZE: "snoozed",  # no messages about it until then
    PROTECT: "protected",  # no acts on it
    ARM: "armed",  # a policy for a level, until then
    FREEZE: "froze all acts",  # until it is lifted
    APPROVE: "approved",  # one act
    ACCEPT: "accepted",  # a plan by its hash, or an older ledger by its anchor
    PHASE: "declared a phase:",  # of work until then: download, compile, evaluate
    DENIED: "was refused a run by budget",
    CLOSE_BREAKER: "closed the breaker",  # earlier idle machines no longer hold acts
    STOP_AT: "planned a stop at",  # a time
    UNTIL: "set the end to",  # a time
    ACCOUNT: "took the key's account for",  # an account of the ledger; costguard itself where none was known
}
"""What a person did, for the audit log."""

ARMED_FOR = timedelta(days=90)
"""After it a policy that was armed for acts only notifies, until somebody arms it again."""
PROTECTION_LASTS = timedelta(hours=24)
"""How long a protection that vanished from a tag goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One override as recorded. `key`, `life`: its resource and incarnation; None: it is bound to none.

    `subject`: the policy of an arming or a snooze, the hash or anchor of an acceptance, the act of an approval, the name of a
    phase, the account ("runpod/default") of an identity, the budget of a denial, the time of a planned stop, the date of an
    end. `value`: the identity, the level of an arming, the money of a denial, the question that an approval answers ("" any),
    what a planned stop may lose, the until labels that an end replaces. `until` None: until it is lifted.
    `lifted_at`: when somebody lifted it.
    """

    id: str
    what: str
    who: str
    why: str
    at: datetime
    until: datetime | None = None
    key: ResourceKey | None = None
    life: Incarnation | None = None
    subject: str = ""
    value: str = ""
    lifted_at: datetime | None = None
    lifted_by: str = ""


def is_override_open(override: Override, now: datetime) -> bool:
    """Return whether it is in force at `now`: made, not lifted, not expired. At `until` it no longer is."""
    return override.at <= now and all(now < end for end in _list_ends(override))


HEAD_LABELS = frozenset((("ray-node-type", "head"), ("skypilot-head-node", "1"), ("role", "head"), ("role", "master")))
HEAD_SUFFIXES = ("-head", "_head", "-master")
TYPO_LETTERS_MAX = 2
"""Letters that may differ for a label to be a slip of the pen for one that protects."""
LETTERS_PER_TYPO = 4
"""Shorter texts allow fewer slips: `dev` is not a slip for `gpu`."""
LIKE_PROTECTED = "protected"
FALSE_VALUES = frozenset(("", "0", "false", "no", "off", "none"))
LABEL_CHARS_MAX = 64
"""Longer texts are slips for nothing, and would take long to compare."""
RENEWAL_GAP_MAX = timedelta(hours=24)
"""A lease that is taken this long after the last one ended renews nothing: an assumption, 2026-11."""
MANUAL_START_LEASE = timedelta(hours=2)
"""The lease of a machine that somebody started although its schedule wants it off."""


class Protection(NamedTuple):
    """Whether a resource is protected from all acts, `why`, and a warning for its owner ("" for none)."""

    protected: bool
    why: str = ""
    warning: str = ""


UNPROTECTED = Protection(protected=False)
NO_ACTS, NO_ANSWERS = frozenset[str](), frozenset[tuple[str, str]]()
"""Shared by all machines that nobody approved an act of: an empty frozenset takes 216 bytes, and Python makes each anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseDecision:
    """Whether a lease is allowed, and `why` not. `renewals`: leases before it in its row.

    `costs`: the most that it costs; None: unknown price.
    """

    allowed: bool
    why: str
    renewals: int
    costs: Money | None = None


def find_owner(observation: Observation, patterns: Sequence[str]) -> str:
    """Return the owner: the first label of `patterns` ("label:owner", "tag:Owner"), else the provider's owner, else "".

    A key with the same case is preferred over one that differs only in case.
    """
    patterns = tuple(patterns)
    keys = _list_label_keys(patterns)
    owner_labels = tuple([pair for pair in observation.labels if pair[0].casefold() in keys])
    return (_find_label_owner(owner_labels, patterns) if owner_labels else "") or observation.owner


@lru_cache(maxsize=100)
def _list_label_keys(patterns: Sequence[str]) -> frozenset[str]:
    """Return the keys that `patterns` name, without their case."""
    return frozenset((pattern.partition(":")[2] or pattern).casefold() for pattern in patterns)


@lru_cache(maxsize=10_000)
def _find_label_owner(labels: Sequence[tuple[str, str]], patterns: Sequence[str]) -> str:
    """Return the owner that `labels` state, or ""."""
    for pattern in patterns:
        key = pattern.partition(":")[2] or pattern
        values = [v for k, v in labels if k == key] + [v for k, v in labels if k.casefold() == key.casefold()]
        owner = next((value.strip() for value in values if value.strip()), "")
        if owner:
            return owner
    return ""


def is_group_head(observation: Observation) -> bool:
    """Return whether `observation` is the head of a cluster, by the marks of Ray and SkyPilot.

    A head is stopped last, because its stop would orphan its workers. Ray's autoscaler sets the label `ray-node-type=head`
    (2.9, 2024); SkyPilot names the head `...-head` and labels it `skypilot-head-node=1` (0.10, 2025).
    """
    marks = {(key.casefold(), value.strip().casefold()) for key, value in observation.labels}
    return bool(marks & HEAD_LABELS) or observation.name.casefold().endswith(HEAD_SUFFIXES)


def find_protection(
    observation: Observation,
    overrides: Iterable[Override],
    patterns: Sequence[str],
    seen_before: datetime | None,
    now: datetime,
) -> Protection:
    """Return whether anything protects it at `now`.

    `seen_before`: when a label was last seen to protect it (`find_label_protection`), None: never.
    """
    if observation.handling.protected:
        acts = " and ".join(observation.handling.protected)
        return Protection(protected=True, why=f"its provider protects it against {acts}")
    override = next((w for w in overrides if w.what == PROTECT and _is_open_for(w, observation.key, None, now)), None)
    if override is not None:
        return Protection(protected=True, why=f"{override.who} protects it" + (f": {override.why}" if override.why else ""))
    mark = find_label_protection(observation, patterns)
    if mark.protected:
        return mark
    if seen_before is not None and seen_before <= now < seen_before + PROTECTION_LASTS:
        until = f"{seen_before + PROTECTION_LASTS:%Y-%m-%d %H:%M} UTC"
        warning = f"its protection disappeared after {seen_before:%Y-%m-%d %H:%M} UTC and stays in force until {until}"
        return Protection(protected=True, why=warning, warning=warning)
    return UNPROTECTED


def explain_untouchable(
    observation: Observation,
    overrides: Sequence[Override],
    patterns: Sequence[str],
    seen_before: datetime | None,
    now: datetime,
) -> str:
    """Explain why only a person may stop it now: protected, restarted by its controller, or frozen; "" if costguard may."""
    protection = find_protection(observation, overrides, patterns, seen_before, now)
    if protection.protected:
        return protection.why
    if observation.handling.controller:
        return f"{observation.handling.controller} would start it again"
    freeze = find_freeze(overrides, observation.key, now)
    return "" if freeze is None else f"{freeze.who} froze all acts" + (f": {freeze.why}" if freeze.why else "")


def find_label_protection(observation: Observation, patterns: Sequence[str]) -> Protection:
    """Return whether its labels protect it, exactly or with a typo. The result is remembered as `seen_before`."""
    return _match_protecting_label(observation.labels, tuple(patterns))


@lru_cache(maxsize=10_000)
def _match_protecting_label(labels: Sequence[tuple[str, str]], patterns: Sequence[str]) -> Protection:
    protecting_labels = [pattern.partition(":")[2] or pattern for pattern in patterns]
    for key, value in labels:
        pair = f"{key}={value}"
        if pair in protecting_labels or key in protecting_labels:
            return Protection(protected=True, why=f"its label {pair} protects it")
    for key, value in labels:
        near_label = _find_misspelled_label(key, value, protecting_labels)
        if near_label:
            warning = f"its label {key}={value} looks like {near_label}, so it counts as protected: correct or remove it"
            return Protection(protected=True, why=f"its label {key}={value} looks like {near_label}", warning=warning)
    return UNPROTECTED


def find_lease(life: Incarnation, overrides: Iterable[Override], now: datetime) -> Override | None:
    """Return the lease in force at `now` that lasts longest; None: no lease is in force."""
    leases = [w for w in overrides if w.what == LEASE and _is_open_for(w, life.key, life, now)]
    return max(leases, key=lambda w: (w.until is None, w.until or now), default=None)


def find_lease_end(life: Incarnation, overrides: Iterable[Override], now: datetime) -> datetime | None:
    """Return when the last lease of this incarnation ended; evidence from before it no longer counts.

    `overrides` must include ended overrides.
    """
    ends = (
        end for w in overrides if w.what == LEASE and _concerns_life(w, life.key, life) for end in _list_ends(w) if end <= now
    )
    return max(ends, default=None)


def decide_lease(
    life: Incarnation,
    overrides: Iterable[Override],
    policies: Sequence[Policy],
    length: timedelta,
    now: datetime,
    *,
    rate: Rate | None = None,
) -> LeaseDecision:
    """Decide whether `life` may be kept for `length` more under every one of `policies`. `overrides` includes ended ones.

    Consecutive leases are renewals; a lease made at least RENEWAL_GAP_MAX after the last one ended begins a new row.
    """
    leases = sorted(
        (w for w in overrides if w.what == LEASE and _concerns_life(w, life.key, life) and w.at <= now), key=lambda w: w.at
    )
    row: list[Override] = []
    for override in leases:
        row = [*row, override] if row and override.at - max(_find_end(w) for w in row) < RENEWAL_GAP_MAX else [override]
    if row and now - max(_find_end(w) for w in row) >= RENEWAL_GAP_MAX:
        row = []
    costs = rate.multiply_seconds(round(length.total_seconds())) if rate and length > timedelta() else None
    why = "" if length > timedelta() else "a lease must have a length above zero"
    for policy in policies if not why else ():
        if length > policy.lease_max:
            why = f"{policy.name} allows leases of at most {_format_hours(policy.lease_max)}"
        elif len(row) > policy.renewals_max:
            why = f"{policy.name} allows {policy.renewals_max} renewals; this would be number {len(row)}"
        if why:
            break
    return LeaseDecision(allowed=not why, why=why, renewals=len(row), costs=costs)


class ArmedLevel(NamedTuple):
    """How far a policy may go now.

    `why`: what keeps it below the `arm` of its file; "" for nothing. `cure`: the command that arms it; "" where it was lowered
    on purpose, or nothing is to be armed.
    """

    level: str
    why: str = ""
    cure: str = ""

    def explain(self) -> str:
        """Return `why` with the command that helps."""
        return f"{self.why}: {self.cure}" if self.cure else self.why


def find_armed_level(policy: Policy, overrides: Iterable[Override], now: datetime) -> ArmedLevel:
    """Return how far `policy` may go now: as its file states, but no further than the newest arming in force.

    An arming above notify is bound to the digest that it was recorded with (decision 0041). A policy edited since then only
    observes. A policy that was never armed, or whose arming has expired, only notifies; a planned stop is armed by its plan.
    """
    if policy.rule == TIMED_RULE:
        return ArmedLevel(policy.arm)
    armed = [w for w in overrides if w.what == ARM and w.subject == policy.name]
    newest = max((w for w in armed if is_override_open(w, now)), key=lambda w: w.at, default=None)
    cure = f"costguard policy accept {policy.digest}" if policy.digest else f"costguard policy arm {policy.name} {policy.arm}"
    if newest is None:
        level = min(policy.arm, NOTIFY, key=LEVELS.index)
        why = "its arming has expired" if armed else "it is not accepted yet"
        return ArmedLevel(level) if level == policy.arm else ArmedLevel(level, why, cure)
    armed_level, digest = split_arming(newest.value)
    level = min(policy.arm, armed_level if armed_level in LEVELS else NOTIFY, key=LEVELS.index)
    if LEVELS.index(level) <= LEVELS.index(NOTIFY) or digest == policy.digest:
        return ArmedLevel(level, "" if level == policy.arm else f"{newest.who} armed it for {armed_level}")
    if not digest:
        return ArmedLevel(NOTIFY, "it was armed without a digest, by an older version", cure)
    return ArmedLevel(OBSERVE, f"it was edited since {newest.who} armed it, so it only observes", cure)


def join_arming(level: str, digest: str) -> str:
    """Return the value of an arming: "stop 3f9a1c0d2b4e5f60"."""
    return f"{level} {digest}".strip()


def split_arming(value: str) -> tuple[str, str]:
    """Return the level and the digest of an arming's value; the digest is "" if there is none."""
    level, _, digest = value.partition(" ")
    return level, digest


def find_breaker_close(overrides: Iterable[Override], now: datetime) -> datetime | None:
    """Return when somebody last closed the breaker; None: never."""
    return max((w.at for w in overrides if w.what == CLOSE_BREAKER and w.at <= now), default=None)


def find_freeze(overrides: Iterable[Override], key: ResourceKey | None, now: datetime) -> Override | None:
    """Return the freeze in force for all acts or for those on `key`; None: there is none."""
    return next((w for w in overrides if w.what == FREEZE and is_override_open(w, now) and w.key in {None, key}), None)


def find_snooze(life: Incarnation, policy: str, overrides: Iterable[Override], now: datetime) -> Override | None:
    """Return the snooze that silences `policy` for `life`; None: there is none.

    A snooze without a resource silences that policy for all resources, one without a subject silences all policies.
    """
    quiet = (w for w in overrides if w.what == SNOOZE and is_override_open(w, now) and w.subject in {"", policy})
    return next(
        (w for w in quiet if _concerns_life(w, life.key, life) or (w.key is None and w.life is None and w.subject)), None
    )


def find_phase(life: Incarnation, overrides: Iterable[Override], now: datetime) -> Override | None:
    """Return the declared phase of work that lasts longest; None: there is none. A phase without an end does not count."""
    going = [w for w in overrides if w.what == PHASE and w.until is not None and _is_open_for(w, life.key, life, now)]
    return max(going, key=lambda w: w.until or now, default=None)


def list_approved_acts(life: Incarnation, overrides: Iterable[Override], now: datetime) -> frozenset[str]:
    """Return the acts approved for exactly this incarnation, whatever asks for them; see `list_answers`.

    An approval that names no incarnation does not count.
    """
    answers = list_answers(life, overrides, now)
    return frozenset(act for question, act in answers if not question) if answers else NO_ACTS


def list_answers(life: Incarnation, overrides: Iterable[Override], now: datetime) -> frozenset[tuple[str, str]]:
    """Return (question, act) of each approval of this incarnation; question "": of whatever asks for the act.

    Who answers with a link was asked one question, and allows nothing else.
    """
    yes = (w for w in overrides if w.what == APPROVE and w.life is not None and _is_open_for(w, life.key, life, now))
    answers = [(w.value, w.subject) for w in yes]
    return frozenset(answers) if answers else NO_ANSWERS


def name_question(policy: str, episode: str) -> str:
    """Return what a question is known by in the approval that answers it: the policy and the episode of its escalation."""
    return f"{policy}: {episode}"


def find_asking_policy(question: str) -> str:
    """Return the policy of a `name_question`; "" for any question."""
    return question.rpartition(": ")[0]


def _is_open_for(override: Override, key: ResourceKey, life: Incarnation | None, now: datetime) -> bool:
    return is_override_open(override, now) and _concerns_life(override, key, life)


def _concerns_life(override: Override, key: ResourceKey, life: Incarnation | None) -> bool:
    """Return whether `override` is for this resource and, if it names an incarnation, for this one."""
    if override.life is not None:
        return override.life.key == key and (life is None or is_same_life(override.life, life))
    return override.key == key


def _list_ends(override: Override) -> tuple[datetime, ...]:
    """Return when it ended or will end; empty if no end is stated."""
    ends = [at for at in (override.until, override.lifted_at) if at is not None]
    return (min(ends),) if ends else ()


def _find_end(override: Override) -> datetime:
    return max(override.at, *_list_ends(override)) if _list_ends(override) else override.at


def _find_misspelled_label(key: str, value: str, labels: Sequence[str]) -> str:
    """Return the protecting label that this one is a probable typo of, or ""."""
    if len(key) + len(value) > 2 * LABEL_CHARS_MAX or value.strip().casefold() in FALSE_VALUES - {""}:
        return ""
    pair = f"{key.strip()}={value.strip()}".casefold()
    for label in labels:
        text = label.casefold()
        if _is_near(pair if "=" in label else key.strip().casefold(), text):
            return label
    if any(_is_near(text.strip().casefold(), LIKE_PROTECTED) for text in (key, value)):
        return LIKE_PROTECTED
    return ""


@lru_cache(maxsize=10_000)
def _is_near(text: str, label: str) -> bool:
    most = min(TYPO_LETTERS_MAX, len(label) // LETTERS_PER_TYPO)
    return abs(len(text) - len(label)) <= most and compute_edit_distance(text, label) <= most


def compute_edit_distance(one: str, other: str) -> int:
    """Return the least number of insertions, deletions, substitutions and swaps of neighbours from `one` to `other`."""
    previous_row: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, start=1):
        older, previous_row, row = previous_row, row, [i]
        for j, b in enumerate(other, start=1):
            best = min(previous_row[j] + 1, row[j - 1] + 1, previous_row[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                best = min(best, older[j - 2] + 1)
            row.append(best)
    return row[-1]


def _format_hours(length: timedelta) -> str:
    return f"{length.total_seconds() / 3600:g} h"
