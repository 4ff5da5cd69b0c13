"""simulate: the policies of a settings file over the history of its ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo

from costguard.data import ShippedFacts
from costguard.errors import InputError, UnknownNameError
from costguard.guard.policy import Policy
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.spans.history import HistoryReader
from costguard.metering.observation import Handling
from costguard.providers import plugins
from costguard.services import Answer
from costguard.services.guard_inputs import rules_of
from costguard.services.lags import read_measurement_lags
from costguard.services.simulate import Known
from costguard.services.simulate import simulate as flow
from costguard.settings import read_settings, resolve_ledger_url
from costguard.settings.lasting import parse_duration
from costguard.values.checks import find_nearest_names, require
from costguard.values.period import Period
from costguard.views.simulation import build_simulation_document, list_simulation_warnings

SINCE = "30d"
LEAST = timedelta(minutes=1)


def simulate(*, since: str | None, start: str | None, end: str | None, policies: Sequence[str], config: str | None) -> Answer:
    """`costguard simulate`: who would have been stopped. Nothing is asked of a cloud, and nothing is written."""
    settings, now = read_settings(config), _now()
    rules = rules_of(settings)
    rules = replace(rules, policies=_named(rules.policies, policies))
    period = _period(since, start, end, now, settings.defaults.zone)
    with LedgerReader(resolve_ledger_url(settings)) as reader, reader.snapshot() as ask:
        found = flow(HistoryReader(ask), rules, period, now, _known())
    return Answer(document=build_simulation_document(found), warnings=list_simulation_warnings(found))


def _named(policies: Sequence[Policy], names: Sequence[str]) -> tuple[Policy, ...]:
    """Those of `names`, all where none is named, each by its exact name."""
    require(bool(policies), "policy", "there is none in the settings", "write a [[policy]]; config/costguard.toml shows one")
    known = [policy.name for policy in policies]
    for name in names:
        if name not in known:
            near = find_nearest_names(name, known)
            raise UnknownNameError("policy", name, field="--policy", nearest=near, hint=f"or one of: {', '.join(known)}")
    return tuple(policy for policy in policies if not names or policy.name in names)


def _period(since: str | None, start: str | None, end: str | None, now: datetime, zone: tzinfo) -> Period:
    if since is not None and (start is not None or end is not None):
        raise InputError("says when it begins, and so does --from", field="--since", hint="write --since, or --from and --to")
    until = _moment(end, "--to", zone) if end is not None else now
    begin = until - parse_duration(since or SINCE, "--since", least=LEAST) if start is None else _moment(start, "--from", zone)
    if begin >= now:
        raise InputError("lies in the future: nothing is recorded yet", field="--from", hint="history ends now")
    until = min(until, now)
    require(begin < until, "--to", "lies before the beginning", "state an earlier --from, or a later --to")
    return Period(start=begin, end=until)


def _moment(text: str, field: str, zone: tzinfo) -> datetime:
    """The instant that `text` names: a day begins in the zone of the settings, and so does a time without one."""
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InputError(
            f"is no day and no time: '{text[:40]}'", field=field, hint="write 2026-10-01, or 2026-10-01T18:00"
        ) from None
    try:
        return at.replace(tzinfo=zone).astimezone(UTC) if at.tzinfo is None else at.astimezone(UTC)
    except OverflowError:
        raise InputError("lies too far away", field=field, hint="write a day of this century") from None


def _known() -> Known:
    found = plugins.load_providers().found
    manifests = {name: one.manifest for name, one in found.items()}
    return Known(
        lags=read_measurement_lags(),
        handling={
            name: Handling(stops="stop" in one.abilities, terminates="terminate" in one.abilities)
            for name, one in manifests.items()
        },
        billing=ShippedFacts().get_billing_rules(),
    )


def _now() -> datetime:
    return datetime.now(UTC)
