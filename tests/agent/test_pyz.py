"""The agent as one file, as a wheel of its own, and as a service."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from costguard_agent import installation
from costguard_agent.diagnostics import AgentError

from tests.agent.test_agent_process import ROOT, oldest
from tests.agent.watchdog import CODE, Watchdog


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    path = tmp_path / "costguard-agent.pyz"
    path.write_bytes(installation.build_archive())
    return path


@pytest.mark.parametrize("version", ["oldest", "ours"])
def test_another_folder_clock_umask_zone_and_python_give_the_same_bytes(packed: Path, tmp_path: Path, version: str) -> None:
    """A machine compares the digest that `agent enrol` printed with what it downloaded, whoever built either."""
    source, copied = ROOT / "agent" / "costguard_agent", tmp_path / "elsewhere" / "deep" / "costguard_agent"
    for path in sorted(source.rglob("*.py"), reverse=True):
        to = copied / path.relative_to(source)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(path.read_bytes())
        to.chmod(0o755)
        os.utime(to, (86400, 86400))
    (copied / "__pycache__").mkdir(exist_ok=True)
    (copied / "__pycache__" / "cli.cpython-39.pyc").write_bytes(b"compiled elsewhere")
    binding = [path for path in sys.path if (Path(path) / "pynvml.py").exists()][:1]
    build = (
        "import os, sys; os.umask(int(sys.argv[1])); from costguard_agent import installation; "
        "assert 'elsewhere' in installation.__file__; sys.stdout.buffer.write(installation.build_archive())"
    )
    for umask, zone, epoch in ((0, "Pacific/Kiritimati", "0"), (0o77, "America/Anchorage", "1999999999")):
        env = {"TZ": zone, "SOURCE_DATE_EPOCH": epoch, "LC_ALL": "C", "PYTHONHASHSEED": str(umask), "HOME": str(tmp_path)}
        env["PYTHONPATH"] = os.pathsep.join([str(copied.parent), *binding])
        python = oldest() if version == "oldest" else sys.executable
        done = subprocess.run([python, "-c", build, str(umask)], env=env, capture_output=True, check=True, cwd=tmp_path)
        assert done.stdout == packed.read_bytes()


def test_an_installation_that_systemd_cannot_run_keeps_the_program_beside_the_key(packed: Path, tmp_path: Path) -> None:
    """The file that enrol's commands downloaded lies in a folder that they remove."""
    asked = (
        "import sys, os, pathlib; sys.path[0] = sys.argv[1]; from costguard_agent import installation; os.geteuid = lambda: 0\n"
        "os.fchown = lambda *_: None\n"
        "try: installation.install_service(systemd=pathlib.Path('/nonexistent'))\n"
        "except Exception as error: print(error)"
    )
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "COSTGUARD_AGENT_DIR": str(tmp_path / "agent")}
    said = subprocess.run(
        [sys.executable, "-c", asked, str(packed)], env=env, capture_output=True, text=True, check=True
    ).stdout
    kept = tmp_path / "agent" / "costguard-agent.pyz"
    assert f"{kept} run >>" in said
    assert kept.read_bytes() == packed.read_bytes()


def test_it_carries_the_agent_and_nvidias_binding_and_nothing_else(packed: Path) -> None:
    with zipfile.ZipFile(packed) as whole:
        names = whole.namelist()
    assert {"__main__.py", "costguard_agent/cli.py", "costguard_agent/schedulers/slurm.py", "pynvml.py"} <= set(names)
    assert {name.partition("/")[0] for name in names} == {"__main__.py", "costguard_agent", "pynvml.py"}
    assert names == sorted(names)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("version", ["oldest", "ours"])
def test_one_file_joins_runs_and_unpacks_itself_once(packed: Path, tmp_path: Path, version: str) -> None:
    python = oldest() if version == "oldest" else sys.executable
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "COSTGUARD_AGENT_DIR": str(tmp_path / "agent")}
    dog = Watchdog()
    try:
        said = subprocess.run([python, "-I", str(packed), "version"], env=env, capture_output=True, text=True, check=True)
        assert said.stdout.startswith("costguard-agent ")
        subprocess.run([python, str(packed), "join", dog.url, CODE], env=env, check=True, capture_output=True)
        for _ in range(2):
            known = len(dog.beats)
            with subprocess.Popen([python, str(packed), "run"], env=env, stderr=subprocess.DEVNULL) as agent:
                dog.until(lambda known=known: len(dog.beats) > known)  # type: ignore[misc]
                agent.terminate()
                assert agent.wait(10) == 0
        folders = list((tmp_path / "agent" / "program").iterdir())
        assert len(folders) == 1
        assert list((folders[0] / "__pycache__").iterdir()), "compiled"
    finally:
        dog.close()


def test_a_python_that_is_too_old_is_told_so() -> None:
    source = installation.MAIN.replace("(3, 9)", "(9, 9)")
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("costguard-agent needs Python 3.9 or newer, this is 3.")
    compile(installation.MAIN, "main", "exec")


def test_the_agents_own_wheel_has_the_agent_alone(tmp_path: Path) -> None:
    build = "from hatchling.build import build_wheel; import sys; print(build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], cwd=ROOT / "agent", capture_output=True, text=True, check=True
    )
    with zipfile.ZipFile(tmp_path / done.stdout.split()[-1]) as wheel:
        names = wheel.namelist()
        meta = next(wheel.read(name).decode() for name in names if name.endswith("METADATA"))
        entry = next(wheel.read(name).decode() for name in names if name.endswith("entry_points.txt"))
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == {"costguard_agent"}
    assert "Name: gpu-costguard-agent" in meta
    assert "Requires-Python: >=3.9" in meta
    assert "costguard-agent = costguard_agent.cli:main" in entry


def test_the_unit_in_config_is_the_one_that_is_installed() -> None:
    assert (ROOT / "config" / "systemd" / "costguard-agent.service").read_text() == installation.format_unit()


def test_installing_puts_program_and_unit_in_place_and_starts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "systemctl").write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/asked\n')
    (commands / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(installation, "PROGRAM", tmp_path / "lib" / "agent")
    monkeypatch.setattr(installation, "UNIT", tmp_path / "costguard-agent.service")
    monkeypatch.setattr(installation, "_find_python", lambda: sys.executable)
    (tmp_path / "lib").mkdir()
    for _ in range(2):
        assert installation.install_service(systemd=tmp_path).startswith("costguard-agent.service runs")
    done = subprocess.run([sys.executable, "-I", str(tmp_path / "lib" / "agent"), "version"], capture_output=True, check=True)
    assert done.stdout.startswith(b"costguard-agent ")
    assert f"ExecStart={sys.executable} " in (tmp_path / "costguard-agent.service").read_text()
    assert [path.name for path in (tmp_path / "lib").iterdir()] == ["agent"]
    asked = ["daemon-reload", "enable costguard-agent.service", "restart costguard-agent.service"]
    assert (tmp_path / "asked").read_text().splitlines() == asked * 2


def test_without_systemd_it_says_how_to_start_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(AgentError, match=r"there is no systemd here. Start the agent from .*: nohup .* run >>"):
        installation.install_service(systemd=tmp_path / "none")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(AgentError, match="needs root: sudo costguard-agent install"):
        installation.install_service(systemd=tmp_path)


def test_a_file_that_would_unpack_elsewhere_is_refused(tmp_path: Path) -> None:
    bad = tmp_path / "bad.zip"
    for name in ("../x.py", "/x.py", "x.so"):
        with zipfile.ZipFile(bad, "w") as made:
            made.writestr(name, "")
        with pytest.raises(OSError, match="must not be part of the agent"):
            installation.unpack_archive(bad.read_bytes(), tmp_path / f"out{time.monotonic_ns()}", sys.executable)
