"""init: a settings file from what is found on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from costguard.errors import InputError
from costguard.providers import plugins
from costguard.services import CommandAnswer
from costguard.services.configured_providers import open_providers
from costguard.settings import CONFIG_VARIABLE, FILE_NAME, Settings, check_settings, expand_path, load_zone
from costguard.settings.example import render_settings_file
from costguard.system.whole import write_file_atomically
from costguard.values.provider import check_provider_table
from costguard.views.setup import build_init_document


def answer_init(
    *, path: str | None = None, force: bool = False, budget: str | None = None, zone: str | None = None
) -> CommandAnswer:
    """`costguard init`: write the file with the providers whose credentials are found switched on. It asks no provider."""
    target = check_free_path(path, force=force)
    if zone is not None:
        load_zone(zone, "--zone")
    installed = plugins.load_providers()
    with open_providers(Settings(), found_too=True) as clouds:
        found = tuple(cloud.name for cloud in clouds if cloud.error is None)
        unready = {cloud.name: "; ".join(str(cloud.error).splitlines()) for cloud in clouds if cloud.error}
    cap = _parse_cap(budget)
    manifests = [installed.found[name].manifest for name in sorted(installed.found)]
    text = render_settings_file(manifests, chosen=found, cap=cap, zone=zone)
    settings = check_settings(text, str(target))  # what is written can be read
    for name, table in settings.providers.items():
        check_provider_table(table, installed.found[name].manifest.settings, f"providers.{name}")
    try:
        write_file_atomically(target, text.encode())
    except OSError as full:
        what = f"cannot be written: {full.strerror or type(full).__name__}"
        raise InputError(what, field=str(target), hint="name another place with --path") from None
    looked = {
        name: one.manifest.credentials for name, one in installed.found.items() if name not in found and name not in unready
    }
    usual = target.resolve() == expand_path(os.environ.get(CONFIG_VARIABLE) or FILE_NAME).resolve()
    return CommandAnswer(document=build_init_document(str(target), found, looked, unready, cap=cap, zone=zone, usual=usual))


def check_free_path(path: str | None, *, force: bool) -> Path:
    """Where to write; InputError where something is there already and may not be replaced."""
    target = expand_path(path or FILE_NAME)
    if target.is_dir():
        raise InputError("is a folder", field=str(target), hint=f"write --path {target / FILE_NAME}")
    if not force and (target.exists() or target.is_symlink()):
        raise InputError("is there already", field=str(target), hint="--force replaces it; --path names another")
    return target


def _parse_cap(stated: str | None) -> str | None:
    """An amount with its currency; US dollars where none is stated."""
    text = (stated or "").strip()
    if not text:
        return None
    return text if any(character.isalpha() for character in text) else f"{text} USD"
