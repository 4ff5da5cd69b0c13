"""Overrides that people give the guard: keep, protect, snooze, freeze, phase, approve; each recorded with who, why and when."""

from __future__ import annotations

import getpass
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from costguard.data import ShippedFacts
from costguard.errors import InputError, NoAnswerError
from costguard.guard.overrides import (
    APPROVE,
    FREEZE,
    LEASE,
    PHASE,
    PROTECT,
    SNOOZE,
    Override,
    decide_lease,
    find_owner,
    find_protection,
    format_resource,
    resolve_resource,
)
from costguard.guard.policy import STOP, TERMINATE, Rails
from costguard.guard.policy_evaluation import compute_burn_rate, matches_target
from costguard.ledger.spans.books import SpendingReader
from costguard.metering.observation import identify_incarnation
from costguard.metering.spending import LiveResource
from costguard.services import CommandAnswer
from costguard.settings import Settings, read_settings, resolve_ledger_url
from costguard.settings.fields import parse_duration
from costguard.values.checks import require_one_of
from costguard.values.text_format import format_length, format_local_time, get_currency_sign
from costguard.views.policy import build_override_document

if TYPE_CHECKING:  # a type and no more: it brings SQLAlchemy with it
    from costguard.ledger.guard.store import GuardStore

LONGEST_LEASE, LONGEST_SNOOZE, LONGEST_PHASE = timedelta(days=30), timedelta(days=90), timedelta(days=7)
"""Whatever a policy allows: what is meant for longer is `protect`, or a policy."""
APPROVAL_LENGTH = timedelta(hours=24)
"""A yes from last week was said of another situation."""
ACTS = (STOP, TERMINATE)
LOSS_UNKNOWN = "The ledger does not record what would be lost: costguard plan asks the provider."
"""Of an act whose cost nobody has stated: that is not the same as nothing."""


def keep_resource(stated: str, *, length: str | None, why: str | None, config: str | None = None) -> CommandAnswer:
    """`costguard keep`: a lease. NoAnswerError where no policy allows one so long, or so many of them."""
    settings, reason = read_settings(config), require_reason(why, "costguard keep ID --for 4h")
    lasts = parse_duration(length, "--for", least=timedelta(minutes=1), most=LONGEST_LEASE)
    now = get_now()
    live = _find_resource(stated, settings, now)
    seen, life, rate = live.observation, identify_incarnation(live.observation), compute_burn_rate(live, now)
    owner = find_owner(seen, settings.defaults.owner_from)
    meant = [policy for policy in settings.policies if matches_target(policy.target, seen, owner)]
    with open_guard_store(settings) as book:
        allowed = decide_lease(life, book.load_overrides_since(live.first_seen_at), meant, lasts, now, rate=rate)
        if not allowed.allowed:
            hint = (
                f'costguard protect {seen.key.id} --why "..." keeps it without limit; raise lease in the policy to allow more'
            )
            raise NoAnswerError(allowed.why, field=format_resource(seen), hint=hint)
        wish = _make_resource_override(LEASE, reason, now, until=_compute_end(now, lasts), live=live)
        book.add_override(wish)
    costs = "its price is unknown, so the cost is unknown"
    if allowed.costs is not None:
        costs = f"costs up to {get_currency_sign(allowed.costs.currency)}{allowed.costs.format()}"
    left = min((policy.renewals_max for policy in meant), default=None)
    renewals = "" if left is None else f" Renewals left: {max(0, left - allowed.renewals)}."
    lead = (
        f"{format_resource(seen)} is kept until {format_local_time(_compute_end(now, lasts))} "
        f"({format_length(lasts)}): {costs}.{renewals}"
    )
    more = {"costs_up_to": None if allowed.costs is None else {allowed.costs.currency: allowed.costs.format()}}
    notes = ("A lease does not stop a hard cap. It ends when the machine restarts.",)
    return CommandAnswer(document=build_override_document("recorded", (wish,), lead=(lead,), notes=notes, more=more))


def protect_resource(stated: str, *, why: str | None, lift: bool = False, config: str | None = None) -> CommandAnswer:
    """`costguard protect`: never acted on until lifted. Lifting does not remove protection by a provider or a label."""
    settings, now = read_settings(config), get_now()
    reason = "" if lift else require_reason(why, "costguard protect ID")
    live = _find_resource(stated, settings, now)
    key, called = live.observation.key, format_resource(live.observation)
    with open_guard_store(settings) as book:
        there = [w for w in book.load_open_overrides(now) if w.what == PROTECT and w.key == key]
        if lift:
            done = [book.lift_override(w.id, who=describe_user(), now=now) for w in there]
            still = find_protection(live.observation, (), settings.defaults.protect, None, now)
            notes = (
                (f"It stays protected: {still.why}.",)
                if still.protected
                else (f"Policies and hard caps may act on it. {LOSS_UNKNOWN}",)
            )
            lead = (
                f"{called} is no longer protected by a command."
                if done
                else f"{called} is not protected by a command: nothing to lift."
            )
            return CommandAnswer(
                document=build_override_document("lifted" if done else "none", done, lead=(lead,), notes=notes)
            )
        wish = _make_resource_override(PROTECT, reason, now, live=live, whole_life=False)
        book.add_override(wish)
    lead = f"{called} is protected: no policy and no cap acts on it until costguard protect {key.id} --lift."
    return CommandAnswer(document=build_override_document("recorded", (wish,), lead=(lead,)))


def snooze_alerts(stated: str, *, length: str | None, why: str | None = None, config: str | None = None) -> CommandAnswer:
    """`costguard snooze`: no notifications about a machine or a policy until then; acts are not affected."""
    settings, now = read_settings(config), get_now()
    lasts = parse_duration(length, "--for", least=timedelta(minutes=1), most=LONGEST_SNOOZE)
    name = stated.removeprefix("policy:")
    if name in {policy.name for policy in settings.policies}:
        wish, called = (
            _make_resource_override(SNOOZE, why or "", now, until=_compute_end(now, lasts), subject=name),
            f"Policy {name}",
        )
    else:
        live = _find_resource(stated, settings, now, field="TARGET")
        called = format_resource(live.observation)
        wish = _make_resource_override(SNOOZE, why or "", now, until=_compute_end(now, lasts), live=live, whole_life=False)
    with open_guard_store(settings) as book:
        book.add_override(wish)
    lead = f"{called} is snoozed until {format_local_time(_compute_end(now, lasts))} ({format_length(lasts)})."
    notes = ("Only messages are snoozed: policies still act. The next message says that the snooze has ended.",)
    return CommandAnswer(document=build_override_document("recorded", (wish,), lead=(lead,), notes=notes))


def freeze_actions(*, why: str | None, lift: bool = False, config: str | None = None) -> CommandAnswer:
    """`costguard freeze`: no acts at all until lifted."""
    settings, now = read_settings(config), get_now()
    reason = "" if lift else require_reason(why, "costguard freeze")
    with open_guard_store(settings) as book:
        there = [w for w in book.load_open_overrides(now) if w.what == FREEZE]
        if lift:
            done = [book.lift_override(w.id, who=describe_user(), now=now) for w in there]
            lead = (
                "Acts are no longer frozen: due and allowed acts are done in the next run." if done else "Nothing was frozen."
            )
            return CommandAnswer(document=build_override_document("lifted" if done else "none", done, lead=(lead,)))
        wish = _make_resource_override(FREEZE, reason, now)
        book.add_override(wish)
    lead = "All acts are frozen, including hard caps. Polls and messages continue. To lift it: costguard freeze --lift"
    return CommandAnswer(document=build_override_document("recorded", (wish,), lead=(lead,)))


def declare_phase(name: str, *, stated: str | None, length: str | None, config: str | None = None) -> CommandAnswer:
    """`costguard phase`: count the machine as active although no measure shows it."""
    settings, now = read_settings(config), get_now()
    called = name.strip()
    if not called:
        raise InputError("is empty", field="NAME", hint="costguard phase download --id ID --for 3h")
    if not stated:
        raise InputError("is missing", field="--id", hint="costguard status lists running machines")
    lasts = parse_duration(length, "--for", least=timedelta(minutes=1), most=LONGEST_PHASE)
    live = _find_resource(stated, settings, now, field="--id")
    wish = _make_resource_override(PHASE, "", now, until=_compute_end(now, lasts), live=live, subject=called)
    with open_guard_store(settings) as book:
        book.add_override(wish)
    until = format_local_time(_compute_end(now, lasts))
    lead = f"{format_resource(live.observation)} counts as working ({called}) until {until} ({format_length(lasts)})."
    return CommandAnswer(document=build_override_document("recorded", (wish,), lead=(lead,), notes=("Hard caps still apply.",)))


def approve_action(stated: str, act: str, *, why: str | None = None, config: str | None = None) -> CommandAnswer:
    """`costguard approve`: allow one act on the present run of a machine, for a day."""
    settings, now = read_settings(config), get_now()
    require_one_of(act, ACTS, "ACT")
    live = _find_resource(stated, settings, now)
    seen = live.observation
    loses = seen.handling.stop_loses if act == STOP else seen.handling.terminate_loses
    wish = _make_resource_override(APPROVE, why or "", now, until=_compute_end(now, APPROVAL_LENGTH), live=live, subject=act)
    with open_guard_store(settings) as book:
        book.add_override(wish)
    until = format_local_time(_compute_end(now, APPROVAL_LENGTH))
    lead = f"Approved: {act} of {format_resource(seen)}, in this run of it and until {until}, where a policy asks for it."
    told = f"Would be lost for good: {', '.join(loses)}." if loses else LOSS_UNKNOWN
    return CommandAnswer(document=build_override_document("recorded", (wish,), lead=(lead,), notes=(told,)))


def describe_user() -> str:
    """`ada@workstation`: the user of this system, and the machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run as a number that has no name
        user = "somebody"
    return f"{user}@{socket.gethostname()}"


def require_reason(why: str | None, example: str) -> str:
    """`why` as it was given; InputError where nobody gave one."""
    if not (why or "").strip():
        raise InputError("is missing", field="--why", hint=f'{example} --why "evaluation until tomorrow"')
    return (why or "").strip()


def make_override(
    what: str, why: str, now: datetime, *, until: datetime | None = None, subject: str = "", value: str = ""
) -> Override:
    """An override about no particular resource."""
    return Override(
        id=secrets.token_hex(8), what=what, who=describe_user(), why=why, at=now, until=until, subject=subject, value=value
    )


def _make_resource_override(
    what: str,
    why: str,
    now: datetime,
    *,
    until: datetime | None = None,
    live: LiveResource | None = None,
    whole_life: bool = True,
    subject: str = "",
) -> Override:
    """`whole_life`: bound to the present life of `live`; else to its resource whatever life it is in."""
    seen = live.observation if live else None
    return Override(
        id=secrets.token_hex(8),
        what=what,
        who=describe_user(),
        why=why,
        at=now,
        until=until,
        key=seen.key if seen else None,
        life=identify_incarnation(seen) if seen and whole_life else None,
        subject=subject,
    )


def _find_resource(stated: str, settings: Settings, now: datetime, field: str = "ID") -> LiveResource:
    with SpendingReader(resolve_ledger_url(settings), rules=ShippedFacts().get_billing_rules()) as books:
        return resolve_resource(stated, books.load_live(now), field)


@contextmanager
def open_guard_store(settings: Settings) -> Iterator[GuardStore]:
    """The guard's part of the ledger, to be written to."""
    from costguard.ledger.guard.store import GuardStore

    with GuardStore(resolve_ledger_url(settings), rails=settings.rails or Rails()) as book:
        yield book


def _compute_end(now: datetime, lasts: timedelta) -> datetime:
    return (now + lasts).replace(microsecond=0)


def get_now() -> datetime:
    """Now, of the wall clock."""
    return datetime.now(UTC)
