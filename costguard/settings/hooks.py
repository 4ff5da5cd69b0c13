"""The `[[hook]]` tables: what a policy's ladder may run before it goes on.

[[hook]]
name = "checkpoint"
command = ["/usr/local/bin/save", "--all"]      # run without a shell; or
env = ["AWS_PROFILE"]                           # variables that it gets of ours; it gets no key and no secret unless named
url = "https://example.com/save"                # asked by POST; "env:NAME" and "file:PATH" say where the address is kept
"""

from __future__ import annotations

import re

from costguard.errors import InputError
from costguard.guard.hook import Hook
from costguard.settings.addresses import check_address
from costguard.settings.fields import SettingsTable, read_name, read_tables, read_text, read_texts, require_unique_names
from costguard.values.checks import require, require_known_keys

HOOK_KEYS = ("name", "command", "url", "env")
VARIABLE_NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
HOOK_VARIABLES_MAX = 32
COMMAND_HINT = 'write a list, as no shell reads it: command = ["/usr/local/bin/save", "--all"]'


def read_hooks(stated: object, where: str) -> tuple[Hook, ...]:
    """The hooks of `where` (a file) in their order."""
    hooks = tuple(_read_hook(table, f"{where}: hook {n}") for n, table in enumerate(read_tables(stated, where, "hook"), 1))
    require_unique_names([hook.name for hook in hooks], where, "hook")
    return hooks


def _read_hook(table: SettingsTable, place: str) -> Hook:
    name = read_name(table.get("name"), f"{place}.name", "checkpoint")
    place = f"{place} ({name})"
    require_known_keys(table, HOOK_KEYS, place)
    require(("command" in table) != ("url" in table), place, "needs a command or a url, and not both", COMMAND_HINT)
    if "url" in table:
        require("env" not in table, f"{place}.env", "belongs to a command", "take it out: a web server gets no variables")
        return Hook(name=name, url=check_address(read_text(table["url"], f"{place}.url"), f"{place}.url", "HOOK_URL"))
    if isinstance(table["command"], str):
        raise InputError("must be a list of texts, not one text", field=f"{place}.command", hint=COMMAND_HINT)
    command = read_texts(table["command"], f"{place}.command")
    require(bool(command) and bool(command[0].strip()), f"{place}.command", "names no program", COMMAND_HINT)
    env = read_texts(table.get("env", []), f"{place}.env")
    require(len(env) <= HOOK_VARIABLES_MAX, f"{place}.env", f"names {len(env)} variables", f"name {HOOK_VARIABLES_MAX} at most")
    for variable in env:
        require(
            bool(VARIABLE_NAME_PATTERN.fullmatch(variable)),
            f"{place}.env",
            f"'{variable}' is no name of a variable",
            'write "AWS_PROFILE"',
        )
    return Hook(name=name, command=command, env=env)
