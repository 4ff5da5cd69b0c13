"""A change of a policy, tried on recorded history before it is written into the settings and armed.

    the policy as the settings file has it -> changed by a person -> read as the file is read -> both replayed -> compared

The change may be any that a settings file can say: condition, wait, steps, selector, schedule. Nothing is asked and nothing is
written.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from costguard.errors import InputError, UnknownNameError
from costguard.guard.policy import Policy
from costguard.ledger.db.reader import LedgerReader
from costguard.ledger.spans.observations import HistoryReader
from costguard.services.guarding.guard_inputs import build_guard_config
from costguard.services.guarding.simulate import collect_facts, simulate_policies
from costguard.services.serving.web_pages import PageServices
from costguard.settings import Settings, load_tables, resolve_ledger_url
from costguard.settings.fields import parse_duration
from costguard.settings.policies import POLICY_KEYS, read_policies
from costguard.values.calendar import Period
from costguard.values.checks import require
from costguard.views.document import Document
from costguard.views.policy_change import build_policy_change_document
from costguard.views.simulation import build_simulation_document

BACKTEST_DAYS_MAX = timedelta(days=90)
TEXT_CHARS_MAX = 3_000
"""Of a policy that is sent as part of an address: three signs each where they are escaped, and a head has 16 KiB."""
WHERE = "the change"
HEADER = "[[policy]]"
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def write_policy_text(services: PageServices, name: str) -> str:
    """Return the policy `name` as TOML, a key a line, to be changed; "" if the settings have none of that name."""
    tables = load_tables(services.config, "policy")
    policy_table = next((one for one in tables if one.get("name") == name), None)
    if policy_table is None:
        return ""
    order = {key: place for place, key in enumerate(POLICY_KEYS)}
    keys = sorted(policy_table, key=lambda key: order.get(key, len(order)))
    return format_toml_table(HEADER, {key: policy_table[key] for key in keys})


def read_policy_draft(settings: Settings, text: str, name: str) -> Policy:
    """Return the policy that `text` states, read and checked as the settings file is.

    Raises InputError if it is no TOML, more than one policy or another one than `name`, or what a settings file may not say.
    """
    require(len(text) <= TEXT_CHARS_MAX, WHERE, f"has more than {TEXT_CHARS_MAX} characters", "leave comments out")
    lines = text.replace("\r\n", "\n")
    try:
        table = tomllib.loads(lines if HEADER in lines else f"{HEADER}\n{lines}")
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not valid TOML: {error}", field=WHERE, hint='write when = "...", a key a line') from None
    policies = table.get("policy")
    one = set(table) == {"policy"} and isinstance(policies, list) and len(policies) == 1
    require(one, WHERE, "is not one policy", f"write one {HEADER} and its keys, and nothing else")
    hooks = tuple(hook.name for hook in settings.hooks)
    (policy,) = read_policies(policies, WHERE, zone=settings.defaults.timezone, poll=settings.watch.interval, hooks=hooks)
    require(policy.name == name, f"{WHERE}: name", f"is {policy.name}", f"keep the name {name}")
    return policy


def simulate_policy_change(services: PageServices, name: str, text: str, since: str) -> tuple[Document, Document, Document]:
    """Return how the change of policy `name` compares, what it would have done as it is, and as it is changed.

    `text`: the changed policy as TOML. `since`: how long ago the history begins, as in `costguard simulate`; "": 30 days.
    """
    settings, now = services.settings, services.clock()
    rules = build_guard_config(settings)
    policy = next((one for one in rules.policies if one.name == name), None)
    if policy is None:
        raise UnknownNameError("policy", name, field="policy", hint=f"one of: {', '.join(one.name for one in rules.policies)}")
    changed = read_policy_draft(settings, text, name)
    back = parse_duration(since or "30d", "since", least=timedelta(minutes=1), most=BACKTEST_DAYS_MAX)
    period = Period(start=now - back, end=now)
    with LedgerReader(resolve_ledger_url(settings)) as reader, reader.snapshot() as ask:
        history, facts = HistoryReader(ask), collect_facts()
        today = simulate_policies(history, replace(rules, policies=(policy,)), period, now, facts)
        new_simulation = simulate_policies(history, replace(rules, policies=(changed,)), period, now, facts)
    return (
        build_policy_change_document(today, new_simulation),
        build_simulation_document(today),
        build_simulation_document(new_simulation),
    )


def format_toml_table(header: str, table: Mapping[str, object]) -> str:
    """Return `table` as TOML below `header`, a key a line."""
    return "\n".join([header, *(f"{_format_key(key)} = {_format_value(value)}" for key, value in table.items())])


def _format_key(key: str) -> str:
    return key if BARE_KEY.fullmatch(key) else json.dumps(key)


def _format_value(value: object) -> str:
    """Return `value`, as tomllib read it, as TOML on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"'{value}'" if '"' in value and "'" not in value and not CONTROL.search(value) else json.dumps(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_format_value, value))}]"
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_format_key(str(key))} = {_format_value(inner)}' for key, inner in value.items())} }}"
    return str(value)
