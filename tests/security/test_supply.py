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

from scripts.check_supply import is_allowed, list_pins

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NEEDS = 13
"""Packages that costguard itself needs. One more wants a page in docs/decisions (0002)."""
FROZEN = (ROOT / "constraints.txt").read_text()
HASHED = (ROOT / "requirements.txt").read_text()
"""What the image installs."""


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
    for name in ("agent", "config", "costguard", "docs", "providers"):
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


def test_what_the_image_installs_is_hashed_has_the_frozen_versions_and_names_no_address() -> None:
    pins, frozen = list_pins(HASHED), {name.replace("_", "-"): version for name, version in list_pins(FROZEN.lower()).items()}
    assert {name: version for name, version in pins.items() if frozen.get(name, version) != version} == {}
    assert len(re.findall(r"^[a-z0-9].*==.*\\\n    --hash=sha256:[0-9a-f]{64}", HASHED, re.MULTILINE)) == len(pins)
    assert "://" not in HASHED
    assert not re.search(r"^-", HASHED, re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text()
    extras = re.search(r"\$\(foreach extra,([a-z ]+),--extra", makefile)
    assert extras is not None
    needs = [need for extra in extras[1].split() for need in PROJECT["optional-dependencies"][extra]] + PROJECT["dependencies"]
    names = {re.split(r"[=<>\[;]", need)[0].lower() for need in needs} - {PROJECT["name"]}
    assert names - set(pins) == set()


@pytest.mark.parametrize(
    ("licence", "allowed"),
    [
        ("MIT", True),
        ("3-Clause BSD License", True),
        ("Apache-2.0 AND CNRI-Python", True),
        ("GPL-2.0-only OR MIT", True),
        ("GNU Lesser General Public License v3 (LGPLv3)", True),
        ("GPL-2.0-only", False),
        ("Apache-2.0 AND AGPL-3.0-or-later", False),
        ("GNU General Public License v3", False),
        ("", False),
        ("see file", False),
    ],
)
def test_a_licence_is_allowed_or_the_check_fails(licence: str, *, allowed: bool) -> None:
    assert is_allowed(licence) is allowed
