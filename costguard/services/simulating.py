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
from costguard.services import CommandAnswer
from costguard.services.guard_inputs import build_guard_config
from costguard.services.lags import read_measurement_lags
from costguard.services.simulate import SimulationFacts
from costguard.services.simulate import simulate_policies as flow
from costguard.settings import read_settings, resolve_ledger_url
from costguard.settings.lasting import parse_duration
from costguard.values.checks import find_nearest_names, require
from costguard.values.period import Period
from costguard.views.simulation import build_simulation_document, list_simulation_warnings

DEFAULT_SINCE = "30d"
SINCE_MIN = timedelta(minutes=1)


def answer_simulate(
    *, since: str | None, start: str | None, end: str | None, policies: Sequence[str], config: str | None
) -> CommandAnswer:
    """`costguard simulate`: who would have been stopped. Nothing is asked of a cloud, and nothing is written."""
    settings, now = read_settings(config), _get_now()
    rules = build_guard_config(settings)
    rules = replace(rules, policies=_choose_policies(rules.policies, policies))
    period = _choose_period(since, start, end, now, settings.defaults.zone)
    with LedgerReader(resolve_ledger_url(settings)) as reader, reader.snapshot() as ask:
        found = flow(HistoryReader(ask), rules, period, now, _collect_facts())
    return CommandAnswer(document=build_simulation_document(found), warnings=list_simulation_warnings(found))


def _choose_policies(policies: Sequence[Policy], names: Sequence[str]) -> tuple[Policy, ...]:
    """Those of `names`, all where none is named, each by its exact name."""
    require(bool(policies), "policy", "there is none in the settings", "write a [[policy]]; config/costguard.toml shows one")
    known = [policy.name for policy in policies]
    for name in names:
        if name not in known:
            near = find_nearest_names(name, known)
            raise UnknownNameError("policy", name, field="--policy", nearest=near, hint=f"or one of: {', '.join(known)}")
    return tuple(policy for policy in policies if not names or policy.name in names)


def _choose_period(since: str | None, start: str | None, end: str | None, now: datetime, zone: tzinfo) -> Period:
    if since is not None and (start is not None or end is not None):
        raise InputError("says when it begins, and so does --from", field="--since", hint="write --since, or --from and --to")
    until = _parse_moment(end, "--to", zone) if end is not None else now
    begin = (
        until - parse_duration(since or DEFAULT_SINCE, "--since", least=SINCE_MIN)
        if start is None
        else _parse_moment(start, "--from", zone)
    )
    if begin >= now:
        raise InputError("lies in the future: nothing is recorded yet", field="--from", hint="history ends now")
    until = min(until, now)
    require(begin < until, "--to", "lies before the beginning", "state an earlier --from, or a later --to")
    return Period(start=begin, end=until)


def _parse_moment(text: str, field: str, zone: tzinfo) -> datetime:
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


def _collect_facts() -> SimulationFacts:
    found = plugins.load_providers().found
    manifests = {name: one.manifest for name, one in found.items()}
    return SimulationFacts(
        lags=read_measurement_lags(),
        handling={
            name: Handling(stops="stop" in one.abilities, terminates="terminate" in one.abilities)
            for name, one in manifests.items()
        },
        billing=ShippedFacts().get_billing_rules(),
    )


def _get_now() -> datetime:
    return datetime.now(UTC)
