"""The real command beside a plug-in that somebody wrote badly: the others are whole, it is named, none of its words leak."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import warm

PLUGIN = """
import sys, time
from datetime import UTC, datetime
HOW = {how!r}
if HOW == "import": sys.exit("needs Python 4")
from costguard.metering.inventory import Complete, Poll
from costguard.metering.observation import Observation
from costguard.values.resource import ResourceKey, ScopeKey
from costguard.values.provider import ProviderManifest

class Account:
    def __init__(self, name):
        self.name = name
    @property
    def providers(self):
        if HOW == "providers" and self.name == "bad": raise RuntimeError("sk-secret-words")
        return ("good",) if HOW == "others" else (self.name,)
    def list_scopes(self):
        return ["bad/lab/here"] if HOW == "scopes" and self.name == "bad" else [ScopeKey(self.name, "lab", "here")]
    def poll(self, scope):
        key = ResourceKey(self.name, "lab", "here", "m-1")
        items = None if HOW == "items" and self.name == "bad" else (Observation(key=key, state="running"),)
        return Poll(scope=scope, at=datetime.now(UTC), inventory=Complete(items))

class Plugin:
    def __init__(self, name):
        self.name = name
    @property
    def manifest(self):
        if HOW == "manifest" and self.name == "bad": sys.exit(3)
        name = None if HOW == "name" and self.name == "bad" else self.name
        return ProviderManifest(name=name, title="A cloud", credentials=(), abilities={{}})
    def open(self, table, around):
        if self.name == "bad":
            if HOW == "open": sys.exit(9)
            if HOW == "nothing": return []
            if HOW == "words": return ["account"]
        return [Account(self.name)]

bad = Plugin("bad")
"""
GOOD = PLUGIN.replace('bad = Plugin("bad")', 'good = Plugin("good")')
WAYS = ("import", "manifest", "name", "open", "nothing", "words", "providers", "others", "scopes", "items")


def ran(folder: Path, how: str, *command: str, cold: bool = False) -> tuple[int, dict[str, Any], str]:
    """Its exit code, its JSON, and all that it printed. `cold`: it starts from nothing."""
    for name, text in (("bad", PLUGIN.format(how=how)), ("good", GOOD.format(how=""))):
        info = folder / f"{name}-1.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[costguard.providers]\n{name} = {name}_cloud:{name}\n")
        (folder / f"{name}_cloud.py").write_text(text)
    (folder / "costguard.toml").write_text('[ledger]\nurl = "sqlite:///l.db"\n[providers.good]\n[providers.bad]\n')
    dirs = {f"XDG_{name}_HOME": str(folder) for name in ("CONFIG", "DATA", "CACHE")}
    path = os.pathsep.join((str(folder), *sys.path))
    environ = {**os.environ, **dirs, "HOME": str(folder), "PYTHONPATH": path}
    if cold:
        words = [sys.executable, "-m", "costguard", *command, "--json"]
        done = subprocess.run(words, cwd=folder, env=environ, capture_output=True, timeout=300, check=False)
    else:
        (done,) = warm.run((*command, "--json"), cwd=folder, environs=[environ], limit_s=60)
    assert done.stdout, done.stderr.decode()
    return done.returncode, json.loads(done.stdout), (done.stdout + done.stderr).decode()


@pytest.mark.parametrize("how", WAYS)
def test_it_is_named_hides_no_other_and_says_no_word_of_its_own(tmp_path: Path, how: str) -> None:
    code, data, text = ran(tmp_path, how, "status", "--strict")
    assert code == 4, text
    assert [r["provider"] for r in data["resources"]] == ["good"]
    assert any("bad" in warning for warning in data["warnings"])
    assert "Traceback" not in text
    assert "sk-secret-words" not in text


def test_doctor_names_one_that_ends_the_program_when_it_is_imported(tmp_path: Path) -> None:
    code, data, text = ran(tmp_path, "import", "doctor", cold=True)
    assert code == 3, text
    (check,) = next(one["checks"] for one in data["providers"] if one["provider"] == "bad")
    assert (check["outcome"], "SystemExit: needs Python 4" in check["told"]) == ("bad", True)
