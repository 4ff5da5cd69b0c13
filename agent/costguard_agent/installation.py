"""The agent as one file, and as a systemd service.

`python3 costguard-agent.pyz join URL CODE` runs on a machine without a package index. The same packages give the same bytes:
names in order, one date, nothing compressed. NVIDIA's binding (pynvml, one module) is included if it is installed. Python
stores no compiled code for such a file, which costs memory and a second at each start, so `run` unpacks it once beside the key
and continues from there.

The service: the text of its systemd unit (also in config/systemd), and its installation.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath

from costguard_agent import state_dir
from costguard_agent.diagnostics import AgentError

PACKAGE, BINDING = "costguard_agent", "pynvml"
FIRST_LINE = b"#!/usr/bin/env python3\n"
DATE = (2020, 1, 1, 0, 0, 0)
MAIN = """\
import sys

if sys.version_info < (3, 9):
    sys.exit("costguard-agent needs Python 3.9 or newer, this is " + sys.version.split()[0])

from costguard_agent.cli import main

sys.exit(main(sys.argv[1:]))
"""
COMPILE_S = 60
PROGRAM_FOLDER = "program"


def build_archive() -> bytes:
    """Return the bytes of the one-file agent; when running from such a file, that file.

    Raises OSError.
    """
    packed = find_own_archive()
    if packed is not None:
        return packed.read_bytes()
    files = {"__main__.py": MAIN.encode(), **_read_package(), **_read_binding()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, DATE)
            info.external_attr = 0o644 << 16
            info.create_system = 3
            archive.writestr(info, files[name])
    return FIRST_LINE + buffer.getvalue()


def find_own_archive() -> Path | None:
    """Return the file that this process runs from; None if it runs from a folder."""
    path = Path(__file__).resolve().parent.parent
    return path if path.is_file() else None


def unpack_archive(data: bytes, folder: Path, python: str, *, mode: int = 0o700) -> None:
    """Unpack such a file to a folder that `python` can run, compiled by a separate process; raises OSError."""
    folder.mkdir(parents=True)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in archive.namelist():
            parts = PurePosixPath(name).parts
            if not parts or ".." in parts or name.startswith("/") or not name.endswith(".py"):
                raise OSError(f"{name!r} must not be part of the agent")
            path = folder.joinpath(*parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(name))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    words = [python, "-I", "-m", "compileall", "-q", str(folder)]
    try:
        subprocess.run(words, check=False, env=environment, timeout=COMPILE_S, stdout=subprocess.DEVNULL)  # noqa: S603
    except subprocess.SubprocessError as error:
        raise OSError(f"cannot compile: {error}") from error
    for path in (folder, *folder.rglob("*")):
        path.chmod(mode if path.is_dir() else mode & 0o666)


def run_unpacked(state: Path) -> None:
    """When running from such a file, unpack it below `state` and replace this process by the unpacked one.

    Otherwise, or if that fails, do nothing.
    """
    packed = find_own_archive()
    if packed is None:
        return
    try:
        data = packed.read_bytes()
        folder = state / PROGRAM_FOLDER / hashlib.sha256(data).hexdigest()[:16]
        if not (folder / "__main__.py").exists():
            shutil.rmtree(state / PROGRAM_FOLDER, ignore_errors=True)
            new_folder = folder.with_name(".new")
            unpack_archive(data, new_folder, sys.executable)
            new_folder.rename(folder)
        os.execv(sys.executable, [sys.executable, str(folder), *sys.argv[1:]])  # noqa: S606 - the same program, unpacked
    except OSError:
        return


def _read_package() -> dict[str, bytes]:
    folder = Path(__file__).resolve().parent
    return {f"{PACKAGE}/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in folder.rglob("*.py")}


def _read_binding() -> dict[str, bytes]:
    import importlib.util

    spec = importlib.util.find_spec(BINDING)
    if spec is None or spec.origin is None or not spec.origin.endswith(f"{BINDING}.py"):
        return {}
    return {f"{BINDING}.py": Path(spec.origin).read_bytes()}


PROGRAM, UNIT = Path("/usr/local/lib/costguard-agent"), Path("/etc/systemd/system/costguard-agent.service")
SERVICE = UNIT.name
PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3")
OLDEST = (3, 9)
WITHIN_S = 60

UNIT_TEMPLATE = """\
# The agent of costguard as a service: costguard-agent install  puts this file to /etc/systemd/system and starts it.
#   journalctl -u costguard-agent -f      a line for each change
#   costguard-agent status                what it measures, and when the watchdog answered last

[Unit]
Description=costguard-agent: tells the watchdog what this machine does
After=network-online.target
Wants=network-online.target

[Service]
ExecStart={python} {program} run
Restart=always
RestartSec=10s
# It has not joined, or its key may be known to others: trying again changes nothing until somebody does something.
RestartPreventExitStatus=2

# A user of its own that exists while it runs. Key and records: /var/lib/costguard-agent (0700). Socket of hints and status:
# /run/costguard-agent, where every job of this machine may speak to it.
DynamicUser=yes
StateDirectory=costguard-agent
StateDirectoryMode=0700
RuntimeDirectory=costguard-agent
RuntimeDirectoryMode=0755
UMask=0077

# The devices of NVIDIA's driver are made when root first asks for them, on a machine where nothing else did.
ExecStartPre=-+/usr/bin/nvidia-smi -L

# What it must see, and therefore is not hidden from it:
#   /dev          NVML reads GPUs through /dev/nvidia*; terminals in /dev/pts say when somebody typed. So no PrivateDevices, and
#                 neither DevicePolicy nor ProtectClock, which closes devices too: the modes of devices bound an own user enough
#   /proc         processor time of all processes, who is logged in (no ProtectProc, no ProcSubset)
#   /tmp          schedulers leave there where they listen (no PrivateTmp)
#   /home, /root  files of running notebook servers, to ask them; read only. The folders of most people are closed to others:
#                 with  AmbientCapabilities=CAP_DAC_READ_SEARCH  in an override it sees them all the same, and could read all
#                 files of this machine; without it those notebooks are not seen, and it cannot tell what it does not see.
# What it may do: speak to the watchdog, and nothing to this machine.
NoNewPrivileges=yes
CapabilityBoundingSet=CAP_DAC_READ_SEARCH
ProtectSystem=strict
ProtectHome=read-only
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
ProtectHostname=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
# It uses next to nothing, but commands of schedulers (squeue, ray, sky), asked once a minute, run within these bounds too.
MemoryMax=1G
TasksMax=256
Environment=MALLOC_ARENA_MAX=2 PYTHONDONTWRITEBYTECODE=1

# A dead-man switch that ends the machine by its own shutdown needs the rights for it, in an override (docs/DEADMAN.md):
#DynamicUser=no
#User=root
#CapabilityBoundingSet=~

[Install]
WantedBy=multi-user.target
"""


def format_unit(python: str = PYTHONS[0], program: Path = PROGRAM) -> str:
    """Return the text of the unit for this interpreter and program."""
    return UNIT_TEMPLATE.replace("{python}", python).replace("{program}", str(program))


def install_service(*, systemd: Path = Path("/run/systemd/system")) -> str:
    """Install program and unit, start the service, and return what was done; raises AgentError with an alternative."""
    if os.geteuid() != 0:
        raise AgentError("installing needs root: sudo costguard-agent install")
    if not systemd.is_dir() or not shutil.which("systemctl"):
        raise AgentError(
            f"there is no systemd here. Start the agent from the container's entry point: {_explain_manual_install()}"
        )
    python = _find_python()
    _put_program(python)
    try:
        UNIT.write_text(format_unit(python), encoding="utf-8")
        UNIT.chmod(0o644)
    except OSError as error:
        raise AgentError(f"cannot write {UNIT}: {error.strerror}") from error
    for words in (["daemon-reload"], ["enable", SERVICE], ["restart", SERVICE]):
        _run_systemctl(words)
    return f"{SERVICE} runs; costguard-agent status says what it sees"


def _put_program(python: str) -> None:
    """Install the program as a folder with compiled modules, for a fast start; an older one is replaced."""
    new = PROGRAM.with_name(f".{PROGRAM.name}.new")
    try:
        shutil.rmtree(new, ignore_errors=True)
        unpack_archive(build_archive(), new, python, mode=0o755)
        old = PROGRAM.with_name(f".{PROGRAM.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        if PROGRAM.exists():
            PROGRAM.rename(old)
        new.rename(PROGRAM)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise AgentError(f"cannot copy the program to {PROGRAM}: {error.strerror}") from error


def _find_python() -> str:
    """Return an interpreter that a user without a home folder may run."""
    for path in (*PYTHONS, os.path.realpath(sys.executable)):
        if not path.startswith(("/root", "/home")) and _is_new_enough(path):
            return path
    raise AgentError(
        f"the service needs a Python of {OLDEST[0]}.{OLDEST[1]} or newer outside of /root and /home: apt install python3"
    )


def _is_new_enough(path: str) -> bool:
    code = f"import sys; sys.exit(sys.version_info < {OLDEST})"
    try:
        return subprocess.run([path, "-I", "-c", code], check=False, timeout=WITHIN_S).returncode == 0  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return False


def _run_systemctl(words: list[str]) -> None:
    try:
        process = subprocess.run(["systemctl", *words], check=False, capture_output=True, timeout=WITHIN_S)  # noqa: S603, S607
    except (OSError, subprocess.SubprocessError) as error:
        raise AgentError(f"systemctl {' '.join(words)}: {error}") from error
    if process.returncode != 0:
        message = process.stderr.decode("utf-8", "replace").strip()[:300]
        raise AgentError(f"systemctl {' '.join(words)} ended with {process.returncode}: {message}")


def _explain_manual_install() -> str:
    """Return the command that starts the agent; a file that runs from a passing folder is kept beside the key."""
    program, packed = os.path.realpath(sys.argv[0]), find_own_archive()
    if packed is not None:
        path = state_dir.make_dir(state_dir.find_state_dir()) / f"{PROGRAM.name}.pyz"
        try:
            state_dir.write_file(path, packed.read_bytes(), sure=True)
        except OSError as error:
            raise AgentError(f"cannot store the program in {path}: {error.strerror}") from error
        program = str(path)
    return f"nohup {sys.executable} {program} run >>/var/log/costguard-agent.log 2>&1 &"
