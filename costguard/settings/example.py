"""Renders every setting with an explanation: `config/costguard.toml` is this text, `costguard settings explain` its parts.

All settings are disabled. A line that starts with `# ` is an explanation; a line that starts with `#` and no space is a
disabled setting. `costguard init` writes `settings.first_file` instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from datetime import date

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from costguard.quoting.own_hardware import LOCAL
from costguard.settings.agreements import AgreementTable
from costguard.settings.budgets import BudgetTable
from costguard.settings.guard import HookTable, RailsTable
from costguard.settings.local import LocalTable
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
LOCAL_TEXT = "# Hardware of your own, which `costguard quote --on` and `breakeven` cost in power and wear."
_LOCAL_HEADER = 3
"""Lines that begin the section of a provider, which the costs of own hardware have already: empty, a comment, the header."""
LINE_LENGTH = 128
HEADER_TEXT = """\
# Settings of costguard. Every key is optional. A line that starts with `#` without a space is a disabled setting.
# A variable COSTGUARD_SECTION__KEY overrides this file; a flag overrides both. This file holds no secrets: keys are read from
# each provider's usual place, and a key in this file is refused.
"""


def render_settings_file(manifests: Iterable[ProviderManifest]) -> str:
    """Return the text of a settings file in which every key is explained, and none is enabled."""
    blocks = [
        *(block for name, model in SECTIONS.items() for block in _render_section(name, model)),
        ["# Budgets: any number of them. `costguard status` shows their status.", *_render_table("[budget]", BudgetTable)],
        [
            "# Agreements: prices that are yours (docs/PRICES.md).",
            *_render_table("[agreement]", AgreementTable, skip=("rate",)),
        ],
    ]
    manifests = tuple(manifests)
    parts = [HEADER_TEXT, *("\n" + "\n".join(block) + "\n" for block in blocks)]
    parts += ["\n" + "\n".join(_render_guard()) + "\n"]
    parts += ["\n".join(_render_provider(one)) + "\n" for one in manifests if one.name != LOCAL]
    machines = [line for one in manifests if one.name == LOCAL for line in list(_render_provider(one))[_LOCAL_HEADER:]]
    parts += ["\n".join(("", LOCAL_TEXT, *_render_table(f"providers.{LOCAL}", LocalTable), *machines)) + "\n"]
    return "".join(parts)


def _render_section(name: str, model: type[BaseModel]) -> Iterator[list[str]]:
    """Yield the lines of a section, then of those within it."""
    yield list(_render_table(name, model))
    for key, field in model.model_fields.items():
        if nested := find_inner_model(field.annotation):
            yield from _render_section(f"{name}.{key}", nested)


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


def _render_table(header: str, model: type[BaseModel], *, skip: Collection[str] = ()) -> Iterator[str]:
    """Yield the lines of a table: its header, then an explanation and an example of each key."""
    yield f"#[{header}]"
    for name, field in model.model_fields.items():
        key, (example,) = field.alias or name, field.examples or [None]
        if key in skip or (header in SECTIONS and find_inner_model(field.annotation)):
            continue
        if isinstance(example, dict) and header in SECTIONS:  # tables by name, each with an endpoint; they end their section
            yield from _format_comment(field.description or "")
            yield from (
                line for one in example for line in (f"#[{header}.{key}.{one}]", f"#endpoint = {json.dumps(example[one])}")
            )
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


def _render_provider(manifest: ProviderManifest) -> Iterator[str]:
    """Yield the lines of a provider's section: the source of its key, then its settings, with tables of tables last."""
    yield ""
    yield from _format_comment(f"{manifest.title}. {_describe_key_place(manifest)}")
    if manifest.extra:
        yield from _format_comment(f"Needs its SDK: in a clone of costguard: pip install '.[{manifest.extra}]'")
    yield f"#[providers.{manifest.name}]"
    for setting in sorted(manifest.settings, key=lambda setting: setting.kind == TABLES_SETTING):
        yield from _format_comment(f"{setting.told}.")
        if setting.kind == TABLES_SETTING:
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


def split_sections(text: str) -> dict[str, dict[str, list[str]]]:
    """Return, of a text of `render_settings_file`, section -> key -> the lines that explain and show it."""
    sections: dict[str, dict[str, list[str]]] = {}
    keys: dict[str, list[str]] = {}
    pending: list[str] = []
    key = ""
    for line in text.splitlines():
        if header := re.fullmatch(r"#\[\[?([\w.]+)\]\]?", line):
            keys, key, pending = sections.setdefault(header[1], {}), "", []
        elif match := re.match(r"#(\w+) = ", line):
            key = match[1]
            keys[key], pending = [*keys.get(key, []), *pending, line], []
        elif line.startswith("# ") or not line:
            pending = [*pending, line] if line else []
        elif key:  # a list goes on
            keys[key].append(line)
    return sections
