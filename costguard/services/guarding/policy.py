"""`costguard policy`: lint, explain, test, arm, accept; and what policies can do on the listed machines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from costguard.data import ShippedFacts
from costguard.errors import InputError, NoAnswerError, NoLedgerError, UnknownNameError, shorten
from costguard.guard.cap_acceptance import find_accepted_caps, name_cap_policy
from costguard.guard.cap_forecast import build_cap_policies
from costguard.guard.evaluation import is_claimed
from costguard.guard.facts import DURATION, FACTS, LABELS, MONEY, NUMBER, RATE, TEXT, TRUTH, find_fact
from costguard.guard.overrides import (
    ARM,
    ARMED_FOR,
    ArmedLevel,
    Override,
    find_armed_level,
    find_owner,
    is_override_open,
    join_arming,
)
from costguard.guard.policy import LEVELS, STOP, Policy, Rails
from costguard.guard.policy_evaluation import matches_target
from costguard.ledger.agents.records import load_agents
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.guard.guard_state import load_last_run, load_overrides_since
from costguard.ledger.spans.books import SpendingReader
from costguard.metering.spending import LiveResource
from costguard.providers import plugins
from costguard.services import CommandAnswer
from costguard.services.guarding import overrides
from costguard.services.guarding.guard_inputs import build_guard_config, describe_machines, read_measured_families
from costguard.services.guarding.plan import answer_plan
from costguard.services.guarding.route_checks import check_routes
from costguard.services.guarding.run_view import decode_run_view
from costguard.services.guarding.void_settings import list_void_settings
from costguard.settings import Settings, read_settings, resolve_ledger_url
from costguard.settings.fields import parse_duration
from costguard.values.checks import find_nearest_names, require_one_of
from costguard.values.instant import EARLIEST
from costguard.values.money import Money, Rate
from costguard.values.provider import CHECK_BAD
from costguard.values.resource import INSTANCE, RUNNING, ResourceKey
from costguard.values.text_format import format_local_time
from costguard.views.document import Document
from costguard.views.policy import (
    SCHEMA,
    build_override_data,
    build_policy_explanation_document,
    build_policy_lint_document,
    build_policy_test_document,
)

DIGEST_CHARS_MIN = 8
TRUTH_WORDS = {"true": True, "yes": True, "false": False, "no": False}


def lint_policies(*, config: str | None = None) -> CommandAnswer:
    """Answer `costguard policy lint`: raise an error for invalid settings; else list what is probably unintended.

    It refuses what can never take effect.
    """
    settings = read_settings(config)
    hard = tuple(budget.name for budget in settings.budgets if budget.hard)
    accepted = find_accepted_caps(settings.budgets, _load_overrides(settings), overrides.get_now())
    installed, families = plugins.load_providers().found, read_measured_families(settings)
    configured = [
        replace(one.manifest, measures=families[name]) for name, one in sorted(installed.items()) if name in settings.providers
    ]
    checks = [(route.account, check) for route in check_routes(settings) for check in route.checks]
    problems = [f"route {name}: {one.subject}: {one.told}; {one.fix}" for name, one in checks if one.outcome == CHECK_BAD]
    voids = list_void_settings(settings)
    problems += [one.says for one in voids if one.certain]
    refusal = NoAnswerError(f"bad: {'; '.join(problems)}", hint="correct it; costguard doctor lists all")
    return CommandAnswer(
        refusal=refusal if problems else None,
        document=build_policy_lint_document(
            config or "the settings",
            settings.policies,
            problems=problems,
            hard=hard,
            accepted=[budget.name for budget in settings.budgets if name_cap_policy(budget) in accepted],
            shorts=_load_shorts(settings),
            rails=settings.rails or Rails(),
            configured=configured,
            admin_route=build_guard_config(settings).admin_route,
            machines=[*(one.says for one in voids if not one.certain), *list_reach(settings, settings.policies)],
        ),
    )


def explain_policies(name: str | None = None, *, config: str | None = None) -> CommandAnswer:
    """Answer `costguard policy explain`: describe each policy, and how far it may go today."""
    settings = read_settings(config)
    policies = settings.policies if name is None else (_find_policy(settings, name),)
    past_overrides, at = _load_overrides(settings), overrides.get_now()
    levels = {policy.name: _find_arming(policy, past_overrides, at) for policy in policies}
    return CommandAnswer(document=build_policy_explanation_document(policies, levels, at))


def try_policy(name: str, fact_texts: Sequence[str], *, config: str | None = None) -> CommandAnswer:
    """Answer `costguard policy test`: evaluate the policy for these facts, each `NAME=VALUE`."""
    policy = _find_policy(read_settings(config), name)
    texts = dict(_parse_fact(one) for one in fact_texts)
    facts = {fact: _parse_fact_value(fact, text) for fact, text in texts.items()}
    return CommandAnswer(document=build_policy_test_document(policy, texts, policy.when.evaluate(facts)))


def arm_policy(
    name: str,
    level: str,
    *,
    why: str | None = None,
    config: str | None = None,
    offline: bool = False,
    agree: Callable[[CommandAnswer, str], bool] | None = None,
) -> CommandAnswer:
    """Answer `costguard policy arm`: set how far it may go for 90 days.

    Raising the level shows the plan first; lowering it applies at once. `name`: of a policy, or "budget:NAME" of a hard
    budget, which the settings arm until a person lowers it. `offline`: the plan is made without asking providers.
    `agree`: shows a person the plan and asks before the level is raised; it is then not shown again. NoAnswerError for a no.
    """
    settings, at = read_settings(config), overrides.get_now()
    caps = build_cap_policies(settings.budgets)
    policy = _find_policy(settings, name, caps)
    require_one_of(level, LEVELS[: LEVELS.index(STOP) + 1] if policy in caps else LEVELS, "LEVEL")
    old_level = find_armed_level(policy, _load_overrides(settings), at).level
    raised = LEVELS.index(level) > LEVELS.index(old_level)
    reason = (why or "").strip()
    override = _make_arming(policy, level, reason, at)
    shown = _plan_with_override(config, override, offline=offline) if raised else None
    if shown is not None and agree is not None:
        question = "\n".join((*list_reach(settings, [policy]), f"Arm {name} for {level} for {ARMED_FOR.days} days?"))
        if not agree(shown, question):
            raise NoAnswerError(f"{name} was not armed; it stays at {old_level}", hint="costguard plan shows what it would do")
        shown = None
    with overrides.open_guard_store(settings) as book:
        book.add_override(override)
    goes = min(policy.arm, level, key=LEVELS.index)
    lead = [f"{name} is armed for {goes} until {format_local_time(override.until or at)}; it was {old_level}."]
    if raised and agree is None and policy not in caps:  # whom a budget concerns is its own match, which the plan shows
        lead += [*list_reach(settings, [policy]), *list_unowned(settings, policy)]
    if goes != level:
        lead.append(f'The settings say arm = "{policy.arm}", which is the maximum: change it there too.')
    data: dict[str, object] = {"schema": SCHEMA, "action": "arm", "policy": name, "before": old_level, "level": goes}
    data["wish"] = build_override_data(override)
    if shown is None:
        return CommandAnswer(document=_build_arm_document(data, lead))
    document = shown.document
    data["plan"] = document.data
    return replace(shown, document=replace(document, data=data, lead=(*document.lead, *lead)))


def accept_policies(digests: Sequence[str], *, why: str | None = None, config: str | None = None) -> CommandAnswer:
    """Answer `costguard policy accept`: arm each policy with one of `digests` as far as its file states, for 90 days.

    It is meant for rolling out a reviewed file. If a digest matches no policy here, InputError is raised and nothing is
    recorded.
    """
    settings, at = read_settings(config), overrides.get_now()
    policies = [_find_by_digest(settings, digest) for digest in digests]
    reason = (why or "").strip() or f"accepted {', '.join(policy.digest for policy in policies)}"
    armings = [_make_arming(policy, policy.arm, reason, at) for policy in policies]
    with overrides.open_guard_store(settings) as book:
        for override in armings:
            book.add_override(override)
    until = format_local_time(armings[0].until or at)
    data: dict[str, object] = {
        "schema": SCHEMA,
        "action": "accept",
        "policies": [{"policy": policy.name, "level": policy.arm, "digest": policy.digest} for policy in policies],
        "wishes": [build_override_data(override) for override in armings],
    }
    records = tuple({"policy": policy.name, "level": policy.arm, "digest": policy.digest} for policy in policies)
    lead = [f"{policy.name} ({policy.digest}) is armed for {policy.arm} until {until}." for policy in policies]
    lead += [*list_reach(settings, policies), *(line for policy in policies for line in list_unowned(settings, policy))]
    return CommandAnswer(document=Document(data=data, records=records, lead=tuple(lead)))


def _find_by_digest(settings: Settings, text: str) -> Policy:
    """Return the policy with the digest `text`, which may be shortened to DIGEST_CHARS_MIN digits."""
    digest = text.strip().lower()
    known_digests = ", ".join(f"{policy.name} {policy.digest}" for policy in settings.policies) or "none"
    if len(digest) < DIGEST_CHARS_MIN:
        what = f"is shorter than {DIGEST_CHARS_MIN} digits"
        raise InputError(what, field=f"DIGEST {shorten(text)}", hint=f"policies of these settings: {known_digests}")
    for policy in settings.policies:
        if policy.digest.startswith(digest):
            return policy
    hint = f"policies of these settings: {known_digests}; review what changed: costguard policy explain"
    raise InputError("is the digest of no policy here", field=f"DIGEST {shorten(text)}", hint=hint)


def _make_arming(policy: Policy, level: str, why: str, at: datetime) -> Override:
    until, value = at.replace(microsecond=0) + ARMED_FOR, join_arming(level, policy.digest)
    return overrides.make_override(ARM, why, at, until=until, subject=policy.name, value=value)


def _build_arm_document(data: dict[str, object], lead: Sequence[str]) -> Document:
    return Document(data=data, records=({"policy": data["policy"], "level": data["level"]},), lead=tuple(lead))


def _plan_with_override(config: str | None, override: Override, *, offline: bool) -> CommandAnswer:
    """Return the plan as if `override` were already recorded."""
    return answer_plan(config=config, accept=None, offline=offline, supposed=(override,))


def _find_policy(settings: Settings, name: str, caps: Sequence[Policy] = ()) -> Policy:
    named_policy = next((policy for policy in (*settings.policies, *caps) if policy.name == name), None)
    if named_policy is None:
        names = tuple(policy.name for policy in (*settings.policies, *caps))
        hint = f"known: {', '.join(names)}" if names else "the settings have no [[policy]]"
        raise UnknownNameError("policy", name, field="NAME", nearest=find_nearest_names(name, names), hint=hint)
    return named_policy


def _find_arming(policy: Policy, past_overrides: Sequence[Override], at: datetime) -> tuple[ArmedLevel, datetime | None]:
    """Return how far it may go, and until when that was recorded; None: no arming is in force."""
    armings = [one for one in past_overrides if one.what == ARM and one.subject == policy.name]
    newest = max((one for one in armings if is_override_open(one, at)), key=lambda one: one.at, default=None)
    return find_armed_level(policy, armings, at), newest.until if newest else None


def _load_overrides(settings: Settings) -> list[Override]:
    """Load all overrides ever made, expired ones too; none if there is no ledger yet, which is not created."""
    try:
        with LedgerReader(resolve_ledger_url(settings)) as reader, reader.snapshot() as ask:
            return load_overrides_since(ask, EARLIEST)
    except NoLedgerError:
        return []


def _load_shorts(settings: Settings) -> Mapping[str, str]:
    """Return how the limits delayed the stops of hard budgets at the last guard run, by name; nothing if there was none."""
    try:
        with LedgerReader(resolve_ledger_url(settings)) as reader, reader.snapshot() as ask:
            view = decode_run_view(load_last_run(ask))
    except NoLedgerError:
        return {}
    names = {budget.name for budget in settings.budgets if budget.hard}
    return {name: short for name, short in view.shorts.items() if name in names} if view else {}


def _parse_fact(fact: str) -> tuple[str, str]:
    name, separator, text = fact.partition("=")
    if not separator:
        raise InputError("has no value", field=f"--fact {name}", hint="write --fact state=idle")
    if find_fact(name) is None:
        hint = "costguard policy explain shows the facts that a policy uses"
        raise UnknownNameError("fact", name, field="--fact", nearest=find_nearest_names(name, FACTS), hint=hint)
    return name, text.strip()


def _parse_fact_value(name: str, text: str) -> object:
    """Parse `text` as a fact of its kind: 0.95, true, 3h, "12.50 USD", team=vision,env=prod."""
    fact, field = find_fact(name), f"--fact {name}"
    kind = fact.kind if fact else TEXT
    if kind == NUMBER:
        try:
            return float(text)
        except ValueError:
            raise InputError(f"must be a number, not '{text[:40]}'", field=field, hint=f"write {name}=0.95") from None
    if kind == TRUTH:
        return TRUTH_WORDS[require_one_of(text.lower(), TRUTH_WORDS, field)]
    if kind == DURATION:
        return parse_duration(text, field)
    if kind == LABELS:
        pairs = (pair.partition("=") for pair in text.split(",") if pair)
        return {key.strip(): value.strip() for key, _, value in pairs}
    if kind in {MONEY, RATE}:
        amount, _, currency = text.partition(" ")
        make = Money if kind == MONEY else Rate
        return make.parse(amount.removeprefix("$"), currency.strip() or "USD", field=field)
    return text


NAMES_SHOWN = 20


def list_reach(settings: Settings, policies: Sequence[Policy]) -> list[str]:
    """Return sentences on how many running machines each acting policy can act on, and what prevents it on the others."""
    live, agents = load_machines(settings)
    return describe_machines(settings, policies, live, agents)


def list_unowned(settings: Settings, policy: Policy) -> list[str]:
    """Return, for arming `policy`, sentences per account: whether it is claimed, and its machines without an owner."""
    rules = build_guard_config(settings)
    by_account: dict[tuple[str, str], list[LiveResource]] = {}
    for one in load_machines(settings)[0]:
        observation = one.observation
        owner = find_owner(observation, rules.owner_from)
        if (
            matches_target(policy.target, observation, owner)
            and observation.kind == INSTANCE
            and observation.state == RUNNING
            and not owner
        ):
            by_account.setdefault((observation.key.provider, observation.key.account), []).append(one)
    lines = []
    for (provider, account), machines in sorted(by_account.items()):
        names = [one.observation.name or one.observation.key.id for one in machines]
        more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
        shown = ", ".join(names[:NAMES_SHOWN]) + more
        if is_claimed(rules, machines[0], policy):
            claim = "claimed in [watch] claims" if rules.claims is not None else "counted as ours"
            lines.append(f"{provider}/{account} is {claim}: {len(names)} without an owner may be acted on: {shown}")
        else:
            cure = f'[watch] claims = ["{provider}/{account}"] claims it'
            lines.append(f"{provider}/{account} is not claimed: no acts on {len(names)} without an owner: {shown}; {cure}")
    return lines


def load_machines(settings: Settings) -> tuple[list[LiveResource], frozenset[ResourceKey]]:
    """Load the listed machines, and the keys of those with an agent; nothing if there is no ledger yet."""
    url = resolve_ledger_url(settings)
    try:
        with SpendingReader(url, rules=ShippedFacts().get_billing_rules()) as books:
            live = books.load_live(overrides.get_now())
        with LedgerReader(url) as reader, reader.snapshot() as ask:
            agents = frozenset(one.key for one in load_agents(ask))
    except NoLedgerError:
        return [], frozenset()
    return live, agents
