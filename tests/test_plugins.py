"""Plug-ins by entry point: found by name, imported only when asked for, and a broken one says which package to mend."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from costguard import plugins
from costguard.core.document import Document
from costguard.errors import CostguardError, UnknownNameError


@pytest.mark.parametrize("name", ["table", "json", "csv", "markdown"])
def test_each_shipped_format_is_found_and_renders(name: str) -> None:
    assert plugins.renderer(name)(Document(data={"schema": "x/1"}, records=({"a": 1},), lead=("a",))).endswith("\n")


def test_a_format_nobody_installed_offers_the_nearest_and_lists_all() -> None:
    with pytest.raises(UnknownNameError) as refused:
        plugins.renderer("jsn")
    assert refused.value.nearest[0] == "json"
    assert "csv, json, markdown, table" in str(refused.value)
    assert refused.value.exit_code == 2


def test_a_plug_in_of_another_package_enters_by_its_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "shout = shouting:render", "def render(document):\n    return 'LOUD\\n'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert plugins.renderer("shout")(Document(data={})) == "LOUD\n"


@pytest.mark.parametrize("line", ["shout = shouting:nothing", "shout = nowhere:render"])
def test_a_plug_in_that_cannot_be_loaded_names_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    installed(tmp_path, line, "")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(CostguardError, match=r"the plug-in 'shout' of costguard\.reports cannot be loaded") as broken:
        plugins.renderer("shout")
    assert "reinstall or remove" in str(broken.value)


def test_no_format_is_imported_before_it_is_asked_for() -> None:
    seen = "import sys, costguard.plugins; print([m for m in sys.modules if m.startswith('costguard.reports')])"
    ran = subprocess.run([sys.executable, "-c", seen], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "[]"


def installed(folder: Path, line: str, code: str) -> None:
    """A package with one report, as pip would leave it in `folder`."""
    (folder / "shouting.py").write_text(code)
    sys.modules.pop("shouting", None)
    about = folder / "shouting-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[costguard.reports]\n{line}\n")
