"""`costguard until`: record the date that ends a machine, and show the dates of all machines.

No provider's port writes labels, so the date is recorded in the ledger as an override of the present run of the machine. It
replaces the labels that the machine has then; a label that is changed later counts again (`guard.until`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from costguard.data import ShippedFacts
from costguard.errors import InputError, NoAnswerError
from costguard.guard.machine_reference import MachineReference, format_resource
from costguard.guard.overrides import UNTIL, find_owner
from costguard.guard.policy import PASSED, Policy
from costguard.guard.policy_evaluation import select_policies
from costguard.guard.until import UNTIL_HINT, find_until_override, join_until_labels, parse_until, read_end_date
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.guard_state import load_open_overrides
from costguard.ledger.spans.books import SpendingReader
from costguard.metering.observation import identify_incarnation
from costguard.metering.spending import LiveResource
from costguard.services import CommandAnswer
from costguard.services.guarding import overrides
from costguard.settings import Settings, read_settings, resolve_ledger_url
from costguard.settings.fields import parse_duration
from costguard.values.checks import require
from costguard.values.resource import INSTANCE, RUNNING
from costguard.values.text_format import format_command, format_instant, format_length, format_local_time
from costguard.views.document import Document
from costguard.views.policy import build_override_document

SCHEMA = "costguard.until/1"
LEAST = timedelta(minutes=1)
NO_POLICY = 'no policy ends it by its date: write a [[policy]] with match = { until_label = "passed" }'


def set_end_date(
    reference: MachineReference, time: str, *, why: str | None = None, config: str | None = None, renter: str | None = None
) -> CommandAnswer:
    """Answer `costguard until set`: record that the present run of a machine ends at `time`, a date or a duration from now.

    `renter`: only a machine with this label `costguard:rented-by`; None: any. Raises InputError for a time that is not between
    a minute and `until_max` of its policies ahead, and NoAnswerError for a machine of another renter.
    """
    settings, now = read_settings(config), overrides.get_now().replace(microsecond=0)
    at = _parse_end(time, now)
    live = overrides.find_machine(reference, settings, now)
    observation, zone = live.observation, settings.defaults.timezone
    if renter is not None and not _is_rented_by(live, renter):
        hint = f"label what you rent with costguard:rented-by={renter} (in GCP costguard-rented-by); a person sets other dates"
        raise NoAnswerError("this server's token did not rent it", field=format_resource(observation), hint=hint)
    policies = _list_until_policies(live, settings)
    for policy in policies:
        last = now + policy.until.ahead_max if policy.until else at
        what = (
            f"{format_local_time(at, zone)} is after {format_local_time(last, zone)}, the last date that {policy.name} allows"
        )
        require(at <= last, "TIME", what, f"write {format_length(last - now).replace(' ', '')}, or raise until_max")
    override = overrides.make_override(UNTIL, why or "", now, subject=format_instant(at), value=join_until_labels(observation))
    override = replace(override, key=observation.key, life=identify_incarnation(observation))
    with overrides.open_guard_store(settings) as book:
        old = find_until_override(identify_incarnation(observation), book.load_open_overrides(now), now)
        if old is not None:
            book.lift_override(old.id, who=override.who, now=now)
        book.add_override(override)
    doubts = [] if any(one.until and one.until.label == PASSED for one in policies) else [NO_POLICY]
    ends = f"{format_resource(observation)} ends at {format_local_time(at, zone)} (in {format_length(at - now)})."
    lead = (*(f"WARNING: {one}" for one in doubts), ends)
    notes = (
        "The date ends this run of the machine and never keeps it: idle policies and caps act before it.",
        f"next: {format_command('keep', observation.key, '--for 4h')} keeps it; costguard until show lists all dates",
    )
    document = build_override_document("recorded", (override,), lead=lead, notes=notes)
    return CommandAnswer(document=document, warnings=tuple(doubts), value=override)


def show_end_dates(*, config: str | None = None) -> CommandAnswer:
    """Answer `costguard until show`: the date of each running machine as its policies count it, and what is wrong with it."""
    settings, now = read_settings(config), overrides.get_now()
    url, zone = resolve_ledger_url(settings), settings.defaults.timezone
    with SpendingReader(url, rules=ShippedFacts().get_billing_rules()) as books:
        running = [one for one in books.load_live(now) if one.observation.state == RUNNING and one.observation.kind == INSTANCE]
    with LedgerReader(url) as reader, reader.snapshot() as ask:
        current_overrides = load_open_overrides(ask, now)
    rows = []
    for live in running:
        observation, policies = live.observation, _list_until_policies(live, settings)
        override = find_until_override(identify_incarnation(observation), current_overrides, now)
        most = min((one.until.ahead_max for one in policies if one.until), default=overrides.LONGEST_LEASE)
        end = read_end_date(observation, override, now, most, zone)
        rows.append(
            {
                "machine": observation.name or observation.key.id,
                "provider": observation.key.provider,
                "state": end.state,
                "until": format_instant(end.at) if end.at else None,
                "policies": " ".join(one.name for one in policies) or None,
                "why": end.why,
            }
        )
    lead = (f"{sum(row['until'] is not None for row in rows)} of {len(rows)} running machines have a date.",)
    notes = () if any(row["policies"] for row in rows) or not rows else (NO_POLICY,)
    data = {"schema": SCHEMA, "as_of": format_instant(now), "machines": rows, "notes": list(notes)}
    return CommandAnswer(document=Document(data=data, records=tuple(rows), lead=lead, notes=notes))


def _parse_end(time: str, now: datetime) -> datetime:
    """Return the date of `time`, a duration from `now` or a time with a zone."""
    if ":" not in time and "-" not in time:
        return now + parse_duration(time, "TIME", least=LEAST, most=overrides.LONGEST_LEASE)
    try:
        at = parse_until(time)
    except InputError as error:
        raise InputError(error.what, field="TIME", hint=UNTIL_HINT) from None
    least, most = now + LEAST, now + overrides.LONGEST_LEASE
    what = f"{format_local_time(at)} is {'in the past' if at < least else 'more than 30 d ahead'}"
    require(least <= at <= most, "TIME", what, "costguard stop stops a machine now; write a time within 30 d")
    return at


def _list_until_policies(live: LiveResource, settings: Settings) -> list[Policy]:
    owner = find_owner(live.observation, settings.defaults.owner_from)
    return [one for one in select_policies(settings.policies, live.observation, owner) if one.until is not None]


RENTER_KEYS = frozenset(("costguard:rented-by", "costguard-rented-by", "costguard_rented_by"))
"""The label by which an agent marks what it rents, in any case; spelled with `-` in GCP labels."""


def _is_rented_by(live: LiveResource, renter: str) -> bool:
    """Return whether its label, and no other one, names `renter`."""
    return _select_renters(live.observation.labels) == {renter.casefold()}


def _select_renters(labels: Iterable[tuple[str, str]]) -> set[str]:
    return {value.strip().casefold() for key, value in labels if key.casefold() in RENTER_KEYS}
