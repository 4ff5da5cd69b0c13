"""The watchdog refuses to start a server that could not start: it looks for all packages that the extra `web` brings."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from costguard.web.child import NEEDED, require_packages

ROOT = Path(__file__).parents[2]
MODULES = {"prometheus-client": "prometheus_client"}


def test_the_packages_that_are_looked_for_are_those_of_the_extra() -> None:
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["web"]
    names = [re.split(r"[>=<\[]", one)[0] for one in stated]
    assert sorted(NEEDED) == sorted(MODULES.get(name, name) for name in names if name != "gpu-costguard")
    require_packages()
