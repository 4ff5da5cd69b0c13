"""Renders the settings file: every key with an explanation, enabled where a value was chosen.

`config/costguard.toml` is this text with nothing chosen; `costguard init` writes it with the values that it found. Policies,
hooks, rails and notifications are always disabled. A line that starts with `# ` is an explanation; a line that starts with `#`
and no space is a disabled setting.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import date
from types import MappingProxyType

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from costguard.settings.agreements import AgreementTable
from costguard.settings.budgets import BudgetTable
from costguard.settings.guard import HookTable, RailsTable
from costguard.settings.model import find_inner_model
from costguard.settings.notify import NotifyTable, ReportTable, RouteTable
from costguard.settings.policies import PolicyTable
from costguard.settings.sections import SECTIONS
from costguard.values.provider import (
    FLAG_SETTING,
    TABLES_SETTING,
    TEXTS_SETTING,
    WHOLE_SETTING,
    ProviderManifest,
    ProviderSetting,
)

POLICY_TEXT = "Policies: any number of them. `costguard plan` says what each would do now, and why not."
HOOK_TEXT = (
    "Hooks: what a step may run. It receives what, whose, why and when (JSON; COSTGUARD_* variables) and runs for at most "
    "`timeout`; the stop after it waits for its end, and for 5 minutes more if it fails, with a message."
)
LINE_LENGTH = 128
CONSOLE = "console"
HEADER_TEXT = """\
# Settings of costguard. Every key is optional. A line that starts with `#` without a space is a disabled setting.
# A variable COSTGUARD_SECTION__KEY overrides this file; a flag overrides both. This file holds no secrets: keys are read from
# each provider's usual place, and a key in this file is refused.
"""

GUARD_START = """
# Written by `costguard init --guard`: policies that notify, and stop nothing until they are armed. The first is for idle GPUs
# with costguard's agent (`costguard policy arm idle-gpu stop`). Where a stop would lose data, a person is asked.
[[policy]]
name = "idle-gpu"
arm = "stop"
match = {{ gpu = true }}
needs = ["duty", "cpu", "io"]
when = 'state == "idle" && confidence >= 0.9'
for = "45m"
then = [{{ do = "notify" }}, {{ after = "15m", do = "stop" }}]

# A job that hangs: its GPUs are busy, draw little power and make no step. `costguard policy arm hung-job stop` lets it stop the
# machine if steps are counted; else it asks. A false stop costs the work since the last checkpoint.
[[policy]]
name = "hung-job"
arm = "stop"
match = {{ gpu = true }}
when = 'state == "hung" && confidence >= 0.9'
for = "15m"
then = [{{ do = "notify", severity = "page" }}, {{ after = "30m", do = "stop" }}]

# Machines without an agent: the cloud measures less, so the wait is longer, and the message comes an hour before the stop
# (`costguard keep MACHINE --for 4h`). Vast and RunPod measure GPUs and processors: they do not see a slow upload or download.
[[policy]]
name = "idle-vast"
arm = "stop"
match = {{ gpu = true, providers = ["vast"] }}
needs = ["duty", "cpu"]
when = 'state == "idle" && confidence >= 0.8'
for = "3h"
then = [{{ do = "notify" }}, {{ after = "1h", do = "stop" }}]

# A stop on RunPod deletes the container disk: everything outside the volume. Without allow_irreversible a person is asked.
[[policy]]
name = "idle-runpod"
arm = "stop"
match = {{ gpu = true, providers = ["runpod"] }}
needs = ["duty", "cpu"]
when = 'state == "idle" && confidence >= 0.8'
for = "3h"
{loss}allow_irreversible = true
then = [{{ do = "notify" }}, {{ after = "1h", do = "stop" }}]

# AWS and Google measure processors, network and disk, but no GPU: they do not see a job that computes on the GPU alone, or a
# server between two requests. On AWS it needs `signals` in [providers.aws], which CloudWatch bills ($0.01 for 1,000 metrics
# asked for). Lambda measures nothing and has no stop: use the agent.
[[policy]]
name = "idle-processors"
arm = "stop"
match = {{ gpu = true, providers = ["aws", "gcp"] }}
needs = ["cpu", "io"]
when = 'state == "idle" && confidence >= 0.5'
for = "4h"
then = [{{ do = "notify" }}, {{ after = "1h", do = "stop" }}]

[notify]
{delivery}console_is_delivery = true
[[notify.route]]
to = {to}
"""

LOSING_PROVIDER = "runpod"
"""Of the policies of GUARD_START, the one whose stops lose a disk is for its machines."""
GUARD_SETTINGS = {("aws", "signals"): '["gpu_util", "gpu_power_w", "cpu_util", "network_bytes_s", "disk_bytes_s"]'}
"""Settings of providers that the policies of GUARD_START need: CloudWatch asks $0.01 for 1,000 series, so they are off else."""


def render_settings_file(
    manifests: Iterable[ProviderManifest],
    *,
    chosen: Collection[str] = (),
    cap: str | None = None,
    zone: str | None = None,
    notices: str | None = None,
    loss: bool = False,
) -> str:
    """Return the text of the settings file; only sections with a chosen value are enabled.

    `chosen`: providers whose section is enabled. `cap`: cap of one monthly budget. `zone`: time zone of [defaults]. `notices`:
    where the warnings of an idle policy go, "console" or the source of an address; None: no policy. `loss`: a stop on RunPod
    may delete the container disk.
    """
    budget = {"name": "everything", "cap": cap, "period": "month"} if cap else {}
    blocks = [
        *(block for name, model in SECTIONS.items() for block in _render_section(name, model, zone)),
        [
            "# Budgets: any number of them. `costguard status` shows their status.",
            *_render_table("[budget]", BudgetTable, budget),
        ],
        [
            "# Agreements: prices that are yours (docs/PRICES.md).",
            *_render_table("[agreement]", AgreementTable, skip=("rate",)),
        ],
    ]
    parts = [HEADER_TEXT, *("\n" + "\n".join(block) + "\n" for block in blocks)]
    if notices is not None:
        delivery = "" if notices == CONSOLE else "#"
        parts.append(GUARD_START.format(to=json.dumps([notices]), delivery=delivery, loss="" if loss else "#"))
    parts += ["\n" + "\n".join(_render_guard()) + "\n"]
    guarded = GUARD_SETTINGS if notices is not None else {}
    parts += ["\n".join(_render_provider(one, guarded, on=one.name in chosen)) + "\n" for one in manifests]
    return "".join(parts)


def _render_section(name: str, model: type[BaseModel], zone: str | None) -> Iterator[list[str]]:
    """Yield the lines of a section, then of those within it."""
    yield list(_render_table(name, model, {"timezone": zone} if name == "defaults" and zone else {}))
    for key, field in model.model_fields.items():
        if nested := find_inner_model(field.annotation):
            yield from _render_section(f"{name}.{key}", nested, zone)


def _render_guard() -> Iterator[str]:
    """Yield the lines of policies, hooks, rails, notifications and reports."""
    yield from _format_comment(POLICY_TEXT)
    yield from _render_table("[policy]", PolicyTable)
    yield ""
    yield from _format_comment(HOOK_TEXT)
    yield from _render_table("[hook]", HookTable, skip=("url",))
    yield from ("#[[hook]]", '#name = "drain"', *_render_key("url", HookTable.model_fields["url"]))
    yield ""
    yield "# Rails limit all policies."
    yield from _render_table("rails", RailsTable)
    yield ""
    yield "# Notifications."
    yield from _render_table("notify", NotifyTable)
    yield "# Routes: any number of them; without one, messages go to the terminal."
    yield from _render_table("[notify.route]", RouteTable)
    yield ""
    yield "# Reports that `costguard watch` sends: any number of them."
    yield from _render_table("[report]", ReportTable)


def _render_table(
    header: str, model: type[BaseModel], enabled: Mapping[str, object] = MappingProxyType({}), *, skip: Collection[str] = ()
) -> Iterator[str]:
    """Yield the lines of a table: its header, then an explanation and an example of each key. `enabled`: values that count."""
    yield f"{'' if enabled else '#'}[{header}]"
    for name, field in model.model_fields.items():
        key, (example,) = field.alias or name, field.examples or [None]
        if key in skip or (header in SECTIONS and find_inner_model(field.annotation)):
            continue
        if isinstance(example, dict) and header in SECTIONS:  # tables by name, each with an endpoint; they end their section
            yield from _format_comment(field.description or "")
            yield from (
                line for one in example for line in (f"#[{header}.{key}.{one}]", f"#endpoint = {json.dumps(example[one])}")
            )
        elif key in enabled:
            yield from (*_format_comment(field.description or ""), f"{key} = {format_toml(enabled[key])}")
        else:
            yield from _render_key(key, field)


def _render_key(key: str, field: FieldInfo) -> Iterator[str]:
    """Yield the lines of a key that is not enabled; a table within the table stands on one line."""
    example, text = (field.examples or [None])[0], field.description or ""
    inner = find_inner_model(field.annotation)
    if example is None and inner is not None:
        parts = {one.alias or name: one for name, one in inner.model_fields.items() if (one.examples or [None])[0] is not None}
        example = {name: (one.examples or [None])[0] for name, one in parts.items()}
        descriptions = [f"{name}: {one.description.rstrip('.')}" for name, one in parts.items() if one.description]
        text = f"{text} {'; '.join(descriptions)}." if descriptions else text
    if example is not None:
        yield from _format_comment(text)
        for line in f"{key} = {format_toml(example)}".split("\n"):
            yield f"#{line if len(line) < LINE_LENGTH else line.replace('{ ', '{').replace(' }', '}')}"


def format_toml(value: object, *, lines: bool = True) -> str:
    """Return a value as TOML; with `lines`, a list of tables has a line for each."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {format_toml(one)}' for key, one in value.items())} }}"
    if isinstance(value, list):
        tables = lines and bool(value) and isinstance(value[0], dict)
        parts = [format_toml(one) for one in value]
        return "[\n" + "".join(f"{part},\n" for part in parts) + "]" if tables else f"[{', '.join(parts)}]"
    if isinstance(value, str):
        return f"'{value}'" if '"' in value else json.dumps(value)
    return value.isoformat() if isinstance(value, date) else json.dumps(value)


def _render_provider(manifest: ProviderManifest, guarded: Mapping[tuple[str, str], str], *, on: bool) -> Iterator[str]:
    """Yield the lines of a provider's section: the source of its key, then its settings, with tables of tables last."""
    yield ""
    yield from _format_comment(f"{manifest.title}. {_describe_key_place(manifest)}")
    if manifest.extra:
        yield from _format_comment(f"Needs its SDK: in a clone of costguard: pip install '.[{manifest.extra}]'")
    yield f"{'' if on else '#'}[providers.{manifest.name}]"
    for setting in sorted(manifest.settings, key=lambda setting: setting.kind == TABLES_SETTING):
        yield from _format_comment(f"{setting.told}.")
        if on and (value := guarded.get((manifest.name, setting.name))):
            yield f"{setting.name} = {value}"
        elif setting.kind == TABLES_SETTING:
            yield f"#[[providers.{manifest.name}.{setting.name}]]"
            yield from (f"#{inner.name} = {_format_value(inner)}" for inner in setting.inner)
        else:
            yield f"#{setting.name} = {_format_value(setting)}"


def _describe_key_place(manifest: ProviderManifest) -> str:
    if not manifest.credentials:
        return "It needs no key."
    key_sentence = f" Keys are made at {manifest.key_at}." if manifest.key_at else ""
    return f"Its key is looked for in: {'; '.join(manifest.credentials)}.{key_sentence}"


def _format_value(setting: ProviderSetting) -> str:
    """Return the setting's example as valid TOML, even if the manifest does not write it so."""
    example = setting.example.strip()
    if setting.kind == WHOLE_SETTING:
        return example if example.isdigit() else "60"
    if setting.kind == FLAG_SETTING:
        return example if example in ("true", "false") else "true"
    if setting.kind == TEXTS_SETTING:
        return example if example.startswith("[") else json.dumps([example or "..."])
    return example if example.startswith('"') else json.dumps(example or "...")


def _format_comment(text: str) -> Iterator[str]:
    """`text` as comment lines of at most 118 characters."""
    from textwrap import wrap

    return (f"# {line}" for line in wrap(text, 116, break_long_words=False, break_on_hyphens=False))
