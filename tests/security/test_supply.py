"""Where what is installed comes from (H50): a wheel that comes out the same twice, few needs, no cloud's SDK for all."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NEEDS = 14
"""Packages that costguard itself needs. One more wants a page in docs/decisions (0002)."""
FROZEN = (ROOT / "constraints.txt").read_text()


def built(source: Path, folder: Path, **environ: str) -> Path:
    """The wheel of `source`."""
    folder.mkdir()
    words = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source))
    done = subprocess.run(
        (sys.executable, *words),
        cwd=folder,
        env={"PATH": os.environ["PATH"], **environ},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = folder.glob("*.whl")
    return made


def digest(wheel: Path) -> str:
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Built from here, and from a copy elsewhere of other modes and times, with another umask's environment."""
    folder = tmp_path_factory.mktemp("wheels")
    copy = folder / "copy"
    copy.mkdir()
    for name in ("agent", "costguard", "providers"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"), copy_function=shutil.copyfile)
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        if (ROOT / name).exists():
            shutil.copyfile(ROOT / name, copy / name)
    for path in copy.rglob("*"):
        if path.is_file():
            path.chmod(0o600)
            os.utime(path, (1_700_000_000, 1_700_000_000))
    return built(ROOT, folder / "a"), built(copy, folder / "b", PYTHONHASHSEED="7", TZ="Asia/Tokyo")


def test_a_wheel_that_is_built_twice_is_the_same(wheels: tuple[Path, Path]) -> None:
    one, other = wheels
    assert one.name == other.name
    names = [ZipFile(wheel).namelist() for wheel in wheels]
    assert names[0] == names[1]
    assert digest(one) == digest(other)


@pytest.mark.proof
def test_another_byte_makes_another_wheel(wheels: tuple[Path, Path], tmp_path: Path) -> None:
    """Control."""
    copy = wheels[1].parents[1] / "copy"
    file = copy / "costguard" / "errors.py"
    before = file.read_text()
    file.write_text(before + "\n")
    try:
        assert digest(built(copy, tmp_path / "c")) != digest(wheels[1])
    finally:
        file.write_text(before)


def test_a_wheel_holds_no_code_that_runs_when_it_is_installed(wheels: tuple[Path, Path]) -> None:
    names = ZipFile(wheels[0]).namelist()
    assert not [name for name in names if name == "setup.py" or name.endswith((".pth", ".so", ".sh")) or ".data/" in name]
    private = [name for name in names if re.search(r"secret|\.env$|\.pem$|\.key$", name)]
    assert private == ["costguard/system/secret.py"]


def test_needs_are_few_and_a_clouds_sdk_is_nobodys_who_rents_elsewhere() -> None:
    assert len(PROJECT["dependencies"]) == NEEDS
    extras = PROJECT["optional-dependencies"]
    clouds = {name: " ".join(extras[name]) for name in ("aws", "gcp", "postgres", "notify", "exact")}
    for name, needs in clouds.items():
        words = re.findall(r"[a-z][a-z0-9-]+", needs)
        assert not [word for word in words if any(word in str(one) for one in PROJECT["dependencies"])], name
    assert "boto3" not in clouds["gcp"]
    assert "google" not in clouds["aws"]


def test_what_is_installed_for_tests_is_frozen_to_one_version_each() -> None:
    lines = [line for line in FROZEN.splitlines() if line.strip() and not line.startswith("#")]
    assert len(lines) > 30
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[^\s;]+(?:\s*;.*)?", line)] == []
    named = {re.split(r"[=<>\[;]", line)[0].lower().replace("_", "-") for line in lines}
    wanted = {re.split(r"[=<>\[;]", line)[0].lower() for line in PROJECT["dependencies"]}
    assert wanted <= named
