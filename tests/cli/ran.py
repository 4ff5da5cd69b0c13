"""`costguard run` as a process: with a job file, a small training script, and a folder of its own."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import warm

ROOT = Path(__file__).parents[2]
COSTGUARD = [sys.executable, "-m", "costguard"]
JOB = """
model = "gpt2"
method = "full"
precision = "fp16"
seq_len = 128
micro_batch = 1
global_batch_tokens = 1024
checkpointing = "none"
optimizer = "adamw"
tokens = 40_960
"""
"""Forty steps of 1,024 tokens, which take half as fast here as the shipped model has it of a T4, or less."""
TRAIN = """
import json, os, random, socket, sys, time

def told(step):
    hints.sendto(json.dumps({"hint": "progress", "step": step}).encode(), os.environ["COSTGUARD_HINTS"])

hints = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
first, last, ends = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
weight, points = 0.0, [(x / 100, 3 * x / 100) for x in range(100)]
for step in range(first, last + 1):
    for x, y in points:
        weight -= 0.01 * 2 * x * (weight * x - y)
    time.sleep(0.16)
    told(step)
print(f"loss {sum((weight * x - y) ** 2 for x, y in points):.3f}, job {os.environ['COSTGUARD_JOB_ID']}", flush=True)
time.sleep(0.6)
sys.exit(ends)
"""
"""Fits a line by gradient descent, tells its steps, and ends with the status it is told."""


@dataclass(frozen=True, slots=True)
class Bench:
    """A folder to run in."""

    folder: Path

    def __post_init__(self) -> None:
        (self.folder / "job.toml").write_text(JOB)
        (self.folder / "train.py").write_text(TRAIN)

    @property
    def env(self) -> dict[str, str]:
        """Nothing of the tests' own settings; the ledger in this folder."""
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{ROOT}:{ROOT / 'agent'}:{ROOT / 'providers'}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": str(self.folder),
            "TERM": "xterm",
            "XDG_DATA_HOME": str(self.folder / "data"),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "COSTGUARD_LEDGER__URL": self.url,
        }

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder / 'ledger.db'}"

    @staticmethod
    def command(*arguments: str) -> list[str]:
        return [*COSTGUARD, "run", *arguments]

    def training(self, *arguments: str, first: int = 0, last: int = 40, ends: int = 0) -> list[str]:
        """A quoted run of the script on a stated GPU, at a dollar a second."""
        stated = ("--job", "job.toml", "--on", "T4:1", "--rate", "3600", "--yes")
        return self.command(*stated, *arguments, "--", sys.executable, "train.py", str(first), str(last), str(ends))

    def run(self, command: list[str], env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run it to its end, with nothing to type into; `costguard` in a process that has imported it already."""
        environ, limit_s = env or self.env, 60
        if command[:3] == COSTGUARD:
            (ended,) = warm.run(command[3:], cwd=self.folder, environs=[environ], limit_s=limit_s)
            return subprocess.CompletedProcess(command, ended.returncode, ended.stdout.decode(), ended.stderr.decode())
        return subprocess.run(
            command, env=environ, cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit_s,
            check=False, start_new_session=True,
        )  # fmt: skip

    def start(self, command: list[str], env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """Begin it."""
        return subprocess.Popen(
            command,
            env={**self.env, **(env or {})},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def record(self, job: str) -> list[dict[str, Any]]:
        """The attempts of a job, as its record has them."""
        found = json.loads((self.folder / "data" / "costguard" / "runs" / f"{job}.json").read_text())
        attempts = found["attempts"]
        assert isinstance(attempts, list)
        return attempts

    def holds(self) -> list[tuple[str, int, str | None, int | None]]:
        """(id, money, how it ended, what was spent) of every hold of the ledger."""
        with sqlite3.connect(self.folder / "ledger.db") as ledger:
            return ledger.execute("SELECT id, nano, ended_by, spent_nano FROM hold ORDER BY taken_us").fetchall()
