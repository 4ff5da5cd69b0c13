"""Folders for the agent's persistent state (key, address, records) and for what other local processes read.

    state     key, address, records not yet sent     $COSTGUARD_AGENT_DIR, else /var/lib/costguard-agent for root, else
                                                     $XDG_STATE_HOME/costguard-agent (~/.local/state/costguard-agent)
    runtime   socket of hints, status                $COSTGUARD_AGENT_DIR, else /run/costguard-agent for root, else
                                                     $XDG_RUNTIME_DIR/costguard-agent, else as the state

Under systemd both are set by the unit (StateDirectory=, RuntimeDirectory=).
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from costguard_agent.diagnostics import AgentError

DIR, NAME = "COSTGUARD_AGENT_DIR", "costguard-agent"
KEY, CONFIG, SOCKET, STATUS, LOCK, SEQ, SPOOL, ASKS = (
    "key",
    "config.json",
    "hints.sock",
    "status.json",
    "lock",
    "seq",
    "records.jsonl",
    "asks.json",
)
PRIVATE_FILE, PRIVATE_FOLDER, OPEN_FOLDER, OPEN_FILE = 0o600, 0o700, 0o755, 0o644


def find_state_dir() -> Path:
    """Return the folder of the persistent state."""
    env_dir = _read_env_dir("STATE_DIRECTORY")
    if env_dir is not None:
        return env_dir
    if _is_root():
        return Path("/var/lib", NAME)
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state", NAME)


def find_runtime_dir() -> Path:
    """Return the runtime folder of an agent that runs as this user."""
    env_dir = _read_env_dir("RUNTIME_DIRECTORY")
    if env_dir is not None:
        return env_dir
    if _is_root():
        return Path("/run", NAME)
    base = os.environ.get("XDG_RUNTIME_DIR")
    return Path(base, NAME) if base else Path.home() / ".local" / "state" / NAME


def list_runtime_dirs() -> list[Path]:
    """Return the possible runtime folders of an agent on this machine, most specific first."""
    own = os.environ.get(DIR)
    folders = [Path(own)] if own else []
    folders.append(Path("/run", NAME))
    base = os.environ.get("XDG_RUNTIME_DIR")
    if base:
        folders.append(Path(base, NAME))
    return [*folders, Path(os.path.expanduser("~"), ".local", "state", NAME)]  # noqa: PTH111 - never raises, Path.home does


def make_dir(folder: Path, mode: int = PRIVATE_FOLDER) -> Path:
    """Return `folder`, created if missing; raises AgentError if others may write to it or it cannot be created."""
    try:
        if not folder.is_dir():
            folder.mkdir(mode=mode, parents=True, exist_ok=True)
            folder.chmod(mode)  # whatever this process's umask is
        status = folder.stat()
    except OSError as error:
        raise AgentError(f"cannot make {folder}: {error.strerror}; set {DIR} to a folder that can be written") from error
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise AgentError(f"other users can write to {folder}: chmod 700 {folder}, and check which users had access")
    return folder


def write_file(path: Path, data: bytes, mode: int = PRIVATE_FILE, *, sure: bool = False) -> None:
    """Replace `path` atomically by `data`; raises OSError.

    `sure`: flush it to disk, so that it survives a power cut.
    """
    new_path = path.with_name(f".{path.name}.new")
    handle = os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    try:
        os.fchmod(handle, mode)
        if _is_root():  # who joins as root writes for the service's own user
            owner = path.parent.stat()
            os.fchown(handle, owner.st_uid, owner.st_gid)
        left = memoryview(data)
        while left:
            left = left[os.write(handle, left) :]
        if sure:
            os.fsync(handle)
    finally:
        os.close(handle)
    new_path.replace(path)
    if sure:
        _sync_dir(path.parent)


def read_private_file(path: Path) -> bytes:
    """Return a file that only its owner may read; raises AgentError if others may, or if it is missing."""
    try:
        status = path.stat()
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise AgentError(
            f"this machine has not joined a watchdog ({path} is missing): costguard-agent join URL CODE"
        ) from error
    except OSError as error:
        raise AgentError(f"cannot read {path}: {error.strerror}; run as root or as the user who installed the agent") from error
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise AgentError(f"others can read {path}, so the key may be known. Join again: costguard-agent join URL CODE --again")
    if os.geteuid() not in {0, status.st_uid}:
        raise AgentError(f"{path} belongs to another user (uid {status.st_uid}): run the agent as that user")
    return data


def parse_object(data: bytes) -> dict[str, Any]:
    """Parse a JSON object; empty if `data` is malformed or no object."""
    import json

    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _read_env_dir(by_systemd: str) -> Path | None:
    own = os.environ.get(DIR)
    if own:
        return Path(own)
    service = os.environ.get(by_systemd, "")
    return Path(service) if Path(service).name == NAME else None


def _is_root() -> bool:
    return os.geteuid() == 0


def _sync_dir(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
