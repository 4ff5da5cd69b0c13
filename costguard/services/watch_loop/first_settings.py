"""`init`: look for credentials, survey the accounts, and write a first settings file, or what an existing one lacks.

A draft is checked as the file that it becomes, after each answer: what is wrong is refused before anything is written.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from costguard.errors import InputError, UnknownNameError
from costguard.providers import plugins
from costguard.services import CommandAnswer
from costguard.services.poll.configured_providers import list_sources, open_providers
from costguard.settings import (
    CONFIG_VARIABLE,
    FILE_NAME,
    Settings,
    check_settings,
    expand_path,
    find_settings_file,
    load_settings,
    load_zone,
)
from costguard.settings.example import render_settings_file, split_sections
from costguard.settings.files import parse_table, read_text
from costguard.settings.first_file import POLICY_DRAFTS, STOP_IDLE, FirstChoices, extend_settings, render_policy
from costguard.system.atomic_file import replace_file
from costguard.system.file_security import describe_foreign_owner, describe_foreign_writers
from costguard.values.checks import find_nearest_names, require, require_one_of
from costguard.values.money import Money
from costguard.values.provider import CHECK_BAD, CREDENTIALS_CHECK, check_provider_table
from costguard.values.resource import INSTANCE
from costguard.views.document import Document
from costguard.views.setup import build_example_document, build_init_document

GUARD_CAP = "200 USD"
"""The monthly budget of `init --guard` where none was stated: that of one person with one rented GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The file to write, with what it holds today ("" and nothing if it does not exist yet) and what was found on this machine.

    `found_providers`: providers with credentials that the file does not name. `unready`: those that need a setting first, with
    the error. `looked`: the places that were searched, of the others.
    """

    target: Path
    text: str
    table: Mapping[str, object]
    settings: Settings
    found_providers: tuple[str, ...]
    unready: Mapping[str, str]
    looked: Mapping[str, Sequence[str]]

    def extend(self, choices: FirstChoices) -> str:
        """Return the text of the file with `choices`; raise InputError for what the settings do not take."""
        if choices.zone is not None:
            load_zone(choices.zone, "--zone")
        text = extend_settings(self.text, self.table, replace(choices, cap=_parse_cap(choices.cap)))
        settings = load_settings(text, self.target)
        for name in self.found_providers:
            manifest = plugins.load_providers().found[name].manifest
            check_provider_table(settings.providers.get(name, {}), manifest.settings, f"providers.{name}")
        return text

    def load(self, choices: FirstChoices) -> Settings:
        """Return the settings that the file would give with `choices`."""
        return load_settings(self.extend(choices), self.target)


def open_draft(path: str | None = None, *, config: str | None = None) -> Draft:
    """Read the file to extend, and look for credentials; no provider is asked.

    The file is `path`, else the settings file that applies, else `costguard.toml` here.
    """
    target = expand_path(path) if path else find_settings_file(config) or Path(FILE_NAME)
    if target.is_dir():
        raise InputError("is a folder", field=str(target), hint=f"write --path {target / FILE_NAME}")
    if target.exists() or target.is_symlink():
        why = describe_foreign_writers(target) or describe_foreign_owner(target) if target.exists() else "it is a broken link"
        require(not why, str(target), f"is not extended: {why}", "name another place with --path")
    text = read_text(target) if target.exists() else ""
    settings = load_settings(text, target) if text else Settings()
    installed = plugins.load_providers()
    with open_providers(settings, found_too=True) as clouds:
        new = [cloud for cloud in clouds if cloud.name not in settings.providers]
    present, unready = tuple(one.name for one in new if one.error is None), {one.name: one.error for one in new if one.error}
    named_providers = {*present, *unready, *settings.providers}
    return Draft(
        target=target,
        text=text,
        table=parse_table(text, target) if text else {},
        settings=settings,
        found_providers=present,
        unready={name: "; ".join(str(error).splitlines()) for name, error in unready.items()},
        looked={name: one.manifest.credentials for name, one in installed.found.items() if name not in named_providers},
    )


def survey_accounts(settings: Settings) -> list[str]:
    """Ask every account, record its machines in the ledger, and return a line for each: key, machines, burn, balance."""
    from costguard.metering.burn import compute_hourly_burn
    from costguard.services.guarding.overrides import get_now
    from costguard.services.guarding.policy import load_machines
    from costguard.services.poll.poll_now import poll_providers_now
    from costguard.services.watch_loop.setup import examine_accounts

    titles = {name: one.manifest.title for name, one in plugins.load_providers().found.items()}
    with open_providers(settings) as clouds:
        names = [cloud.name for cloud in clouds for _ in list_sources([cloud])]
        examined = examine_accounts(list(zip(names, list_sources(clouds), strict=True)))
    polled, now = poll_providers_now(settings), get_now()
    live, lines = load_machines(settings)[0], list[str]()
    for one in examined:
        bad = next((check for check in one.checks if check.outcome == CHECK_BAD), None)
        if bad is not None:
            lines.append(f"{titles[one.provider]}: {bad.told}.{f' Fix: {bad.fix}' if bad.fix else ''}")
            continue
        parts = [check.told for check in one.checks if check.subject == CREDENTIALS_CHECK]
        accounts = {scope[:2] for scope in one.scopes}
        machines = [each for each in live if each.scope[:2] in accounts and each.observation.kind == INSTANCE]
        burns: dict[str, Money] = {}
        for amount in (one.stated for each in live if each.scope[:2] in accounts for one in compute_hourly_burn(each, now)):
            burns[amount.currency] = burns[amount.currency] + amount if amount.currency in burns else amount
        parts.append(f"{len(machines)} machine{'' if len(machines) == 1 else 's'}")
        parts += [f"{burns[name]}/h" for name in sorted(burns)]
        balances = [each for each in polled.balances if (each.provider, each.account) in accounts]
        left = [each.amount for each in balances if each.amount is not None]
        parts += [f"{amount} left" for amount in left]
        lines.append(f"{titles[one.provider]}: {', '.join(parts)}")
    return [*lines, *polled.refused]


def describe_idle_acts(draft: Draft, choices: FirstChoices) -> list[str]:
    """Return on how many of the listed machines the policies of `choices` could act, and what prevents it on the others."""
    from costguard.services.guarding.policy import list_reach

    settings = draft.load(choices)
    return list_reach(settings, [one for one in settings.policies if one.name in choices.list_policies()])


def list_unclaimed(draft: Draft, choices: FirstChoices) -> tuple[str, ...]:
    """Return the chosen providers whose machines have no owner and are not claimed: policies do not act there."""
    installed = plugins.load_providers().found
    names = {*choices.providers, *draft.settings.providers} if draft.settings.watch.claims is None else set()
    return tuple(sorted(name for name in names if name in installed and not installed[name].manifest.names_owners))


def list_losses(choices: FirstChoices) -> dict[str, str]:
    """Return what a stop deletes by chosen provider, where the policy must allow it."""
    drafts = [POLICY_DRAFTS[name] for name in choices.list_policies()]
    return {provider: draft.loses for draft in drafts for provider in draft.providers if draft.loses}


def write_draft(draft: Draft, choices: FirstChoices, *, checked: bool = False) -> CommandAnswer:
    """Write the file, and return what it holds and what to do next. `checked`: accounts and channel were asked already."""
    text = draft.extend(choices)
    if text != draft.text:
        _write_settings(draft.target, text)
    applies = expand_path(os.environ.get(CONFIG_VARIABLE) or FILE_NAME).resolve()
    names = choices.list_policies() if choices.to is not None else []
    channels = dict.fromkeys(channel for route in draft.load(choices).routes for channel in route.channels)
    document = build_init_document(
        str(draft.target),
        tuple(choices.providers),
        draft.looked,
        draft.unready,
        cap=_parse_cap(choices.cap),
        zone=choices.zone,
        usual=draft.target.resolve() == applies or draft.target == find_settings_file(None),
        guarded=", ".join(channels) if choices.to is not None else None,
        policies=names,
        arms=choices.idle == STOP_IDLE,
        added=len(text.splitlines()) - len(draft.text.splitlines()),
        exists=bool(draft.text),
        checked=checked,
    )
    return CommandAnswer(document=document)


def answer_example(name: str, *, path: str | None = None) -> CommandAnswer:
    """Answer `costguard init --example NAME`: write one of the shipped example files."""
    from costguard.data import EXAMPLES

    names = tuple(sorted(one.stem for one in EXAMPLES.glob("*.toml")))
    require_one_of(name, names, "--example")
    target = expand_path(path or FILE_NAME)
    if target.is_dir():
        raise InputError("is a folder", field=str(target), hint=f"write --path {target / FILE_NAME}")
    if target.exists() or target.is_symlink():
        raise InputError("already exists", field=str(target), hint="--path names another; init without --example extends it")
    text = (EXAMPLES / f"{name}.toml").read_text(encoding="utf-8")
    check_settings(text, str(target))
    _write_settings(target, text)
    return CommandAnswer(document=build_example_document(str(target), name))


def _write_settings(target: Path, text: str) -> None:
    """Replace the file that `target` leads to; one that exists keeps its mode."""
    file = target.resolve()
    try:
        with replace_file(file) as unfinished:
            unfinished.write_text(text, encoding="utf-8")
            if file.exists():
                shutil.copymode(file, unfinished)
    except OSError as full:
        what = f"cannot be written: {full.strerror or type(full).__name__}"
        raise InputError(what, field=str(target), hint="name another place with --path") from None


def _parse_cap(amount: str | None) -> str | None:
    """Return an amount with its currency; US dollars if none is stated."""
    text = (amount or "").strip().removeprefix("$")
    if not text:
        return None
    return text if any(character.isalpha() for character in text) else f"{text} USD"


def explain_settings(key: str | None) -> CommandAnswer:
    """Answer `costguard settings explain`: a section or a key of the settings file; without one the names of all sections."""
    installed = plugins.load_providers().found
    text = render_settings_file([installed[name].manifest for name in sorted(installed)])
    sections = split_sections(text)
    section, lines = key or "", [f"{name}: {', '.join(keys)}" for name, keys in sections.items()]
    if key is not None:
        name = key.strip("[]# ").lower()
        section = name if name in sections else name.rpartition(".")[0]
        if section not in sections or (section != name and name.rpartition(".")[2] not in sections[section]):
            every = [*sections, *(f"{one}.{each}" for one, keys in sections.items() for each in keys)]
            hint = "costguard settings explain lists the sections and their keys"
            raise UnknownNameError("setting", key, field="KEY", nearest=find_nearest_names(name, every), hint=hint)
        keys = sections[section] if section == name else {name: sections[section][name.rpartition(".")[2]]}
        lines = [line for each in keys.values() for line in each]
        lines = [f"[[{section}]]" if f"\n#[[{section}]]\n" in text else f"[{section}]", *lines]
    drafts = [render_policy(name, FirstChoices()).strip() for name in POLICY_DRAFTS] if section == "policy" == key else []
    data = {"schema": "costguard.settings/1", "key": key, "lines": lines, "policies": drafts}
    more = ["", "Policies that costguard init writes:", *drafts] if drafts else []
    shown = tuple(line for one in (*lines, *more) for line in one.split("\n"))
    return CommandAnswer(document=Document(data=data, records=tuple({"line": line} for line in lines), lead=shown))
