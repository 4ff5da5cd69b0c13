"""The wheel: built, put into a folder of its own, and used from there by a Python that sees none of the repository."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from importlib.metadata import entry_points
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]
LONGEST_S = 300.0
PARTS = ("agent/costguard_agent", "costguard", "providers")
NOT_SHIPPED = ("__pycache__", ".pyc")


def ran(*words: str, cwd: Path, **environ: str) -> str:
    """What it printed; it must end well."""
    done = subprocess.run(
        words,
        cwd=cwd,
        env={"PATH": os.environ["PATH"], **environ},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by what pyproject.toml names, as it is installed here: nothing is downloaded."""
    folder = tmp_path_factory.mktemp("wheel")
    words = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder))
    ran(*words, str(ROOT), cwd=folder)
    (made,) = folder.glob("gpu_costguard-*.whl")
    return made


def test_every_file_of_the_packages_is_in_it_and_nothing_else(wheel: Path) -> None:
    shipped = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    known = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *PARTS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    names = [name for name in known.stdout.split("\n") if name and (ROOT / name).exists()]
    there = {name.removeprefix("agent/").removeprefix("providers/") for name in names}
    there |= {f"costguard/data/docs/{one.relative_to(ROOT / 'docs')}" for one in (ROOT / "docs").rglob("*") if one.is_file()}
    there |= {f"costguard/data/iam/{one.name}" for one in (ROOT / "config" / "iam").iterdir()}
    assert there - shipped == set()
    assert {name for name in shipped - there if not name.endswith(NOT_SHIPPED)} == set()


def test_costguard_runs_from_it_with_its_data_its_migrations_and_its_plugins(wheel: Path, tmp_path: Path) -> None:
    site, home = tmp_path / "site", tmp_path / "home"
    home.mkdir()
    ran(
        *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--no-index"),
        *("--target", str(site), str(wheel)),
        cwd=home,
    )
    # What stands on PYTHONPATH comes first; -S leaves out the line by which .venv knows the repository.
    paths = {"PYTHONPATH": f"{site}{os.pathsep}{sysconfig.get_path('purelib')}", "HOME": str(home)}
    python = (sys.executable, "-S")  # it compiles what it imports, once for all that follow
    assert ran(*python, "-c", "import costguard; print(costguard.__file__)", cwd=home, **paths).startswith(str(site))
    assert ran(*python, "-m", "costguard", "--version", cwd=home, **paths).startswith("costguard ")

    (home / "costguard.toml").write_text('[ledger]\nurl = "sqlite:///ledger.db"\n')
    known = json.loads(ran(*python, "-m", "costguard", "providers", "--json", cwd=home, **paths))
    assert [one["name"] for one in known["providers"]] == sorted(
        path.name.removeprefix("costguard_")
        for path in (ROOT / "providers").glob("costguard_*")
        if path.name != "costguard_public"  # sources of prices, no provider
    )
    sources = json.loads(ran(*python, "-m", "costguard", "prices", "sources", "--json", cwd=home, **paths))
    assert len(sources["sources"]) == len(list(entry_points(group="costguard.price_sources")))
    quote = ("quote", "--model", "llama-3.1-8b", "--method", "qlora", "--tokens", "50e6", "--json")
    assert json.loads(ran(*python, "-m", "costguard", *quote, cwd=home, **paths))["schema"] == "costguard.quote/1"
    assert "burns $0.0000 an hour" in ran(*python, "-m", "costguard", "--offline", "watch", "--once", cwd=home, **paths)
    assert "is consistent" in ran(*python, "-m", "costguard", "db", "check", cwd=home, **paths)
    example = ("init", "--example", "solo", "--path", "solo.toml")
    assert "the example solo" in ran(*python, "-m", "costguard", *example, cwd=home, **paths)
    assert ran(*python, "-m", "costguard", "docs", "start", cwd=home, **paths) == (ROOT / "docs/START.md").read_text()
    assert "ec2:DescribeInstances" in ran(*python, "-m", "costguard", "iam", "aws-reader", cwd=home, **paths)
    completed = {"_COSTGUARD_COMPLETE": "complete_bash", "COMP_WORDS": "costguard st", "COMP_CWORD": "1"}
    assert ran(*python, "-m", "costguard", cwd=home, **completed, **paths).split() == ["status", "stop", "start"]


def test_the_licence_is_in_it(wheel: Path) -> None:
    (name,) = [one for one in ZipFile(wheel).namelist() if one.endswith("dist-info/licenses/LICENSE")]
    assert b"Apache License" in ZipFile(wheel).read(name)
    (about,) = [one for one in ZipFile(wheel).namelist() if one.endswith("dist-info/METADATA")]
    assert b"License-Expression: Apache-2.0" in ZipFile(wheel).read(about)
