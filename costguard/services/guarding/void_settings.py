"""Settings that are valid and never take effect: values that no machine has, caps in a currency that nothing is charged in.

    when = 'provider == "AWS"'     policy night: no provider is "AWS": write "aws"
    cap = "10 EUR"                 budget all: its cap is in EUR and charges are in USD, so it can never act

Which providers, activities and tiers there are is known: a value that is none of them is a fault. Regions, accounts and owners
can be new: one that was never seen is a remark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from costguard.budgets.budget import list_current_budgets
from costguard.budgets.budget_status import NEVER_ACTS
from costguard.data import MARKET, ShippedFacts
from costguard.errors import CostguardError
from costguard.guard.overrides import find_owner
from costguard.ledger.market import MarketReader
from costguard.ledger.spans.books import SpendingReader
from costguard.metering.burn import compute_hourly_burn
from costguard.metering.spending import LiveResource
from costguard.providers import plugins
from costguard.services.guarding import overrides
from costguard.settings import Settings, resolve_ledger_url
from costguard.settings.condition_program import make_text_test, quote_text
from costguard.settings.condition_syntax import FACT_CHOICES
from costguard.settings.conditions import CompiledCondition
from costguard.settings.time_zones import describe_fixed_zone
from costguard.values.checks import find_nearest_names, fold_name
from costguard.values.resource import is_within_region

TOPICS = (  # how the topics of alerts begin
    *("act", "agent", "arming", "bill", "blind", "budget", "churn", "clock", "denied", "door", "held", "hook", "hung", "new"),
    *("policy", "provider", "rail", "runway", "start", "twins", "unusual", "until", "waste"),
)
CLOSED = ("provider", *FACT_CHOICES)
"""Facts whose values are all known."""
REGION_OR_ZONE = "region or zone"
"""What `match = { regions = [...] }` names: a region selects its zones. In conditions `region` is the place that is listed."""
VALUES_SHOWN = 8


class VoidSetting(NamedTuple):
    """A sentence on a setting that never takes effect. `certain`: False if it may, or does otherwise than it seems."""

    says: str
    certain: bool


def list_void_settings(settings: Settings) -> list[VoidSetting]:
    """Return what of `settings` never takes effect, by what is installed and what the ledger has seen."""
    live, pairs = _load_seen(settings)
    currencies = {burn.currency for one in live for burn in compute_hourly_burn(one, overrides.get_now())} | {"USD"}
    charged = " and ".join(sorted(currencies))
    voids = [
        VoidSetting(f"budget {budget.name}: {NEVER_ACTS.format(budget.cap.currency, charged)}", certain=True)
        for budget in settings.budgets
        if budget.cap.currency not in currencies
    ]
    counting, now = list_current_budgets(settings.budgets, overrides.get_now()), overrides.get_now()
    for budget in settings.budgets:
        if budget not in counting:
            when = "has ended" if budget.end is not None and budget.end <= now else "has not begun"
            voids.append(VoidSetting(f"budget {budget.name}: {when}, so it counts and stops nothing", certain=False))
    values = {**_collect_values(settings, live), "account": pairs}
    for where, providers, fact, method, text in _list_comparisons(settings):
        names = ("", *(settings.providers if providers is None else providers))
        choices = {value for provider, value in values.get(fact, ()) if provider in names}
        fits = make_text_test(method, text, where) if method else text.__eq__
        if choices and not any(map(fits, choices)):
            what = f"fits {fact}.{method}({quote_text(text)})" if method else f"is {quote_text(text)}"
            respelt = tuple(value for value in sorted(choices) if fold_name(value) == fold_name(text))
            near = respelt or (find_nearest_names(text, choices, most=1) if fact in (*CLOSED, "topic") else ())
            cure = f"write {quote_text(near[0])}" if near else f"known: {', '.join(sorted(choices)[:VALUES_SHOWN])}"
            if any(is_within_region(value, text) for value in choices):
                cure = f"its zones are; write {fact}.startsWith({quote_text(f'{text}-')})"
            voids.append(VoidSetting(f"{where}: no {fact} {what}: {cure}", certain=fact in CLOSED))
    schedules = ((f"policy {policy.name}", policy.schedule.zone) for policy in settings.policies if policy.schedule)
    budgets = ((f"budget {budget.name}", budget.zone) for budget in settings.budgets)
    zones = {zone: where for where, zone in (*schedules, *budgets, ("defaults.timezone", settings.defaults.timezone))}
    fixed = ((where, describe_fixed_zone(zone)) for zone, where in zones.items())
    return [*voids, *(VoidSetting(f"{where}: {says}", certain=False) for where, says in fixed if says)]


def _load_seen(settings: Settings) -> tuple[list[LiveResource], set[tuple[str, str]]]:
    """Return the listed machines, and (provider, account) of every scope; nothing without a readable ledger."""
    try:
        with SpendingReader(resolve_ledger_url(settings), rules=ShippedFacts().get_billing_rules()) as books:
            return books.load_live(overrides.get_now()), {one.scope[:2] for one in books.list_scopes()}
    except CostguardError:  # there is none yet, or another check says what is wrong with it
        return [], set()


def _collect_values(settings: Settings, live: Iterable[LiveResource]) -> Mapping[str, set[tuple[str, str]]]:
    """Return (provider, value) of the values that facts have or can have, provider "": any. Other facts can be anything."""
    observations, registry = [one.observation for one in live], plugins.load_providers()
    names = {*registry.found, *registry.broken, *settings.providers, *(one.key.provider for one in observations)}
    plain = {
        **FACT_CHOICES,
        "provider": names,
        "gpu": {"", *ShippedFacts().get_gpus(), *(one.gpu for one in observations)},
        "owner": {find_owner(one, settings.defaults.owner_from) for one in observations} - {""},
        "topic": TOPICS,
    }
    with MarketReader(MARKET) as market:
        offered = {(name, region) for name in names for region in market.regions(name)}
    places = {(one.key.provider, one.key.region) for one in observations}
    regions = {*offered, *ShippedFacts().get_machine_rates().regions.factors, *places}
    zoned = {region for region in regions - places if any(_is_zone(place, region) for place in places)}
    facts = {fact: {("", value) for value in choices} for fact, choices in plain.items()}
    return {**facts, "region": regions - zoned, REGION_OR_ZONE: regions}


def _is_zone(place: tuple[str, str], region: tuple[str, str]) -> bool:
    """Return whether a (provider, place) is a zone of a (provider, region), or the region."""
    return place[0] == region[0] and is_within_region(place[1], region[1])


def _list_comparisons(settings: Settings) -> Iterator[tuple[str, tuple[str, ...] | None, str, str, str]]:
    """Yield (where, providers that it is limited to, fact, method or "" for equality, text) of each text in the settings."""
    matches = [(f"budget {one.name}", one.match) for one in settings.budgets]
    for where, match in (*matches, *((f"policy {one.name}", one.target.match) for one in settings.policies)):
        for fact in ("provider", "account", "owner"):
            yield from ((where, match.providers, fact, "", value) for value in getattr(match, f"{fact}s") or ())
        yield from ((where, match.providers, REGION_OR_ZONE, "", value) for value in match.regions or ())
    for policy in settings.policies:
        if isinstance(policy.when, CompiledCondition):
            for comparison in policy.when.comparisons:
                yield f"policy {policy.name}", policy.target.match.providers, *comparison
    for route in settings.routes:
        yield from ((f"route {route.name}", None, "owner", "", owner) for owner in route.owners or ())
        heads = (topic.partition(":")[0].removesuffix("*") for topic in route.topics or ())
        yield from ((f"route {route.name}", None, "topic", "startsWith", head) for head in heads)
